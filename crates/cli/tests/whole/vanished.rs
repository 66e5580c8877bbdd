//! A device dies under a served volume, and returns under another name.
//!
//! The device is a kernel block device of another Braid daemon. After a kill of the other daemon, every
//! request to the device fails, as for a disk that was pulled out.

use crate::machine::{Machine, have, have_block_devices, number, qemu_io, qemu_io_ok};
use serde_json::Value;

#[test]
fn vanished_device_is_reported_and_flushed_data_survives() {
    if !have_block_devices() || !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.ok(&["create", "disk", "--hdd", "disk.img,size=192MiB"]);
    let disk = machine.serve(&["disk"]);
    let device = machine.ok(&["attach", "disk"]).trim().to_owned();
    machine.ok(&["create", "vault", "--ssd", "fast.img,size=64MiB", "--hdd", &device, "--policy", "stripe"]);
    let vault = machine.serve(&["vault", "--cache", "0"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 16M", "flush"]);

    disk.kill();
    let (well, said) = qemu_io(&vault.uri, &["read -P 6 0 16M"]);
    assert!(!well && said.contains("Input/output error"), "{said}");
    // Data on the other device is still readable, and no flush falsely succeeds.
    let first = machine.json(&["explain", "vault", "0"]);
    let ssd = if first["home"]["class"] == "ssd" { "0" } else { "128k" };
    qemu_io_ok(&vault.uri, &[&format!("read -P 6 {ssd} 4k")]);
    let (well, _) = qemu_io(&vault.uri, &["write -P 7 0 1M", "flush"]);
    assert!(!well, "a flush to a device that is gone was answered with success");
    let status = machine.braid(&["status", "vault", "--json"]);
    assert_eq!(status.status, 3, "{status:?}");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert!(number(&status, "devices.1.errors") > 0.0, "{status}");
    assert!(status["devices"][1]["last_error"].as_str().unwrap().contains(&device), "{status}");
    let (text, last) = (machine.braid(&["status", "vault"]), status["devices"][1]["last_error"].as_str());
    assert!(text.status == 3 && text.stdout.contains(last.unwrap()), "{text:?}");
    let ended = vault.terminate();
    assert!(ended.status == 3 && ended.stderr.contains("'vault'"), "{ended:?}");

    machine.ok(&["detach", "disk"]);
    let disk = machine.serve(&["disk"]);
    let device = machine.ok(&["attach", "disk"]).trim().to_owned();
    machine.ok(&["import", &device, "fast.img"]);
    let vault = machine.serve(&["vault"]);
    // A write to 0 to 1 MiB was in flight: old and new data are both right there.
    qemu_io_ok(&vault.uri, &["read -P 6 1M 15M", "write -P 8 0 1M", "flush", "read -P 8 0 1M"]);
    assert_eq!(vault.terminate().status, 0);
    machine.ok(&["detach", "disk"]);
    assert_eq!(disk.terminate().status, 0);
}
