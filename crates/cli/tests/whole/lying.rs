//! Truncated devices, and devices that lost acknowledged flushes.

use crate::machine::{Machine, have, qemu_io, qemu_io_ok};
use serde_json::Value;
use std::fs::OpenOptions;

const MIB: u64 = 1 << 20;

/// Sets the size of a file: bytes beyond are lost, new bytes are zeros.
fn truncate(machine: &Machine, name: &str, size: u64) {
    OpenOptions::new().write(true).open(machine.path(name)).unwrap().set_len(size).unwrap();
}

/// A disk of a mirror was truncated, and got its size back, as the message advised. The disk was read as
/// current, and `check` reported no loss.
#[test]
fn truncated_mirror_disk_is_reported_and_not_read() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "a.img,size=128MiB", "--ssd", "b.img,size=128MiB"];
    machine.ok(&[&["create", "m"], &devices[..], &["--copies", "2", "--policy", "ssd-only"]].concat());
    let daemon = machine.serve(&["m"]);
    qemu_io_ok(&daemon.uri, &["write -P 0x11 0 64M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    truncate(&machine, "b.img", 40 * MIB);
    machine.refused(&["serve", "m"], "invalid", &["b.img", "--distrust d1", "braid device replace m d1"]);
    let found = machine.braid(&["check", "m"]);
    assert!(found.status == 1 && found.stdout.contains("d1 was cut"), "{found:?}");
    let daemon = machine.serve(&["m", "--distrust", "d1"]);
    qemu_io_ok(&daemon.uri, &["read -P 0x11 0 64M"]);
    assert_eq!(daemon.terminate().status, 0);
    truncate(&machine, "b.img", 128 * MIB);
    let found = machine.braid(&["check", "m"]);
    assert!(found.status == 1 && !found.stdout.contains("nothing is lost"), "{found:?}");
    let daemon = machine.serve(&["m"]);
    qemu_io_ok(&daemon.uri, &["read -P 0x11 0 64M"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// The SSD returned to an earlier state, like an SSD with false flush acknowledgements after a power cut. The
/// volume was served without a warning, and later flushed data was lost.
#[test]
fn ssd_with_missing_promised_batches_is_refused_until_repair() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--policy", "ssd-first"]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 1M", "flush"]);
    std::fs::copy(machine.path("vault.ssd"), machine.path("old")).unwrap();
    qemu_io_ok(&daemon.uri, &["write -P 2 4M 1M", "flush"]);
    // The daemon notes its newest batch at least every five seconds.
    std::thread::sleep(std::time::Duration::from_secs(7));
    daemon.kill();
    std::fs::copy(machine.path("old"), machine.path("vault.ssd")).unwrap();
    machine.refused(&["serve", "vault"], "corrupt", &["d0", "promised", "braid check vault --repair"]);
    let found = machine.braid(&["check", "vault", "--json"]);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert!(!found["fatal"].as_array().unwrap().is_empty(), "{found}");
    let repaired = machine.braid(&["check", "vault", "--repair"]);
    assert!(repaired.status == 3 && repaired.stdout.contains("promised"), "{repaired:?}");
    let daemon = machine.serve(&["vault"]);
    let (well, said) = qemu_io(&daemon.uri, &["read -P 1 0 1M"]);
    assert!(well, "{said}");
    assert_eq!(daemon.terminate().status, 0);
}

/// One half of a mirror returned to a state of some seconds before, like a drive with false flush
/// acknowledgements after a power cut. `check` said "clean", and half of the later flushed data read as older
/// bytes.
#[test]
fn mirror_half_with_lost_flushes_is_not_read() {
    if !have(&["qemu-io"]) {
        return;
    }
    let devices = ["--ssd", "a.img,size=128MiB", "--hdd", "b.img,size=128MiB"];
    for half in ["a.img", "b.img"] {
        let machine = Machine::new();
        machine.ok(&[&["create", "m"], &devices[..], &["--copies", "2", "--policy", "raid1"]].concat());
        let daemon = machine.serve(&["m"]);
        qemu_io_ok(&daemon.uri, &["write -P 0x11 0 12M", "flush"]);
        std::fs::copy(machine.path(half), machine.path("old")).unwrap();
        qemu_io_ok(&daemon.uri, &["write -P 0x22 8M 8M", "flush"]);
        std::thread::sleep(std::time::Duration::from_secs(3));
        daemon.kill();
        std::fs::copy(machine.path("old"), machine.path(half)).unwrap();
        let found = machine.braid(&["check", "m"]);
        let named = format!("{half} (device ");
        assert!(found.status == 1 && found.stdout.contains(&named), "{found:?}");
        assert!(found.stdout.contains("lost writes that it had flushed"), "{found:?}");
        let daemon = machine.serve(&["m"]);
        qemu_io_ok(&daemon.uri, &["read -P 0x11 0 8M", "read -P 0x22 8M 8M"]);
        let ended = daemon.terminate();
        assert!(ended.status == 0 && ended.stderr.contains(&named), "{ended:?}");
    }
}
