//! A mirrored volume loses a device: lost data, continued service, and a new device in the same place.

use crate::machine::{Machine, have, number, qemu_io_ok};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Waits until `holds` is true; panics after 300 s, far longer than any wait without a hang.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(300), "still not: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes a volume under `pass` without its SSD. The SSD alone held 1 MiB; 4 MiB more are on the disk.
pub fn without_its_ssd(machine: &Machine) {
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB,layout=tail"];
    let policy = ["--copies", "2", "--policy", "pass,idle=50ms"];
    machine.ok(&[&["create", "vault"], &devices[..], &policy[..]].concat());
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 4M", "flush"]);
    wait_until("the disk has a copy", || {
        number(&machine.json(&["status", "vault"]), "deferred_bytes") == 0.0
    });
    assert_eq!(machine.json(&["status", "vault"])["devices"][1]["keeps_addresses"], true);
    machine.ok(&["policy", "vault", "pass,idle=1h"]);
    qemu_io_ok(&vault.uri, &["write -P 7 20M 1M", "flush"]);
    vault.kill();
    std::fs::remove_file(machine.path("fast.img")).unwrap();
}

#[test]
fn volume_continues_from_hdd_after_ssd_loss_and_replacement() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    without_its_ssd(&machine);
    // Any program can read the disk: copied data lies at the volume's addresses.
    let raw = std::fs::read(machine.path("slow.img")).unwrap();
    assert!(raw[..4 << 20].iter().all(|&byte| byte == 6));
    let check = machine.braid(&["check", "vault", "--json"]);
    assert_eq!(check.status, 1, "{check:?}");
    let check: Value = serde_json::from_str(&check.stdout).unwrap();
    let only = check["only_on_missing"].as_array().unwrap();
    let covers = |range: &Value, at: f64| {
        let (start, len) = (number(range, "offset_bytes"), number(range, "length_bytes"));
        start <= at && at < start + len
    };
    assert!(only.iter().any(|range| covers(range, f64::from(20 << 20))), "{check}");
    assert!(only.iter().all(|range| range["device"] == "d0"), "{check}");
    // No data is discarded without `--distrust`.
    let new = "new.img,size=64MiB";
    machine.refused(&["device", "replace", "vault", "d0", new], "degraded", &["d0"]);
    assert!(!machine.path("new.img").exists());
    machine.refused(&["serve", "vault"], "degraded", &["d0"]);

    let vault = machine.serve(&["vault", "--distrust", "d0"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 4M", "write -P 8 1M 1M", "flush"]);
    assert_eq!(vault.terminate().status, 0);

    let report = machine.json(&["device", "replace", "vault", "d0", new]);
    assert_eq!((&report["device"], &report["devices"][0]["made"]), (&"d0".into(), &true.into()));
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 1M", "read -P 8 1M 1M"]);
    // Until the end of the rebuild, the exit status reports a degraded volume.
    wait_until("the new device is up to date", || machine.braid(&["status", "vault"]).status == 0);
    assert_eq!(vault.terminate().status, 0);
    // The new device serves alone if the disk is lost next.
    std::fs::remove_file(machine.path("slow.img")).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 1M", "read -P 8 1M 1M", "read -P 6 2M 2M"]);
    assert_eq!(vault.terminate().status, 0);
}

#[test]
fn failed_device_is_replaced_and_mirror_data_stays_readable() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB", "--copies", "2"];
    machine.ok(&[&["create", "vault"], &devices[..]].concat());
    machine.refused(&["device", "fail", "vault", "d1"], "not_served", &["vault"]);
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 4M", "flush"]);
    machine.refused(&["device", "fail", "vault", "d2"], "invalid", &["d2"]);
    machine.ok(&["device", "fail", "vault", "d1"]);
    machine.refused(&["device", "fail", "vault", "d1"], "invalid", &["d1"]);
    machine.refused(&["device", "fail", "vault", "d0"], "degraded", &["d0"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 4M", "write -P 7 1M 1M", "flush", "read -P 7 1M 1M"]);
    let status = machine.braid(&["status", "vault", "--json"]);
    assert_eq!(status.status, 3, "{status:?}");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["devices"][1]["state"], "failed");
    assert_eq!(vault.terminate().status, 0);
    machine.ok(&["device", "replace", "vault", "d1", "new.img,size=64MiB"]);
    let vault = machine.serve(&["vault"]);
    wait_until("the new device is up to date", || machine.braid(&["status", "vault"]).status == 0);
    assert_eq!(vault.terminate().status, 0);
    std::fs::remove_file(machine.path("fast.img")).unwrap();
    let reads = ["read -P 6 0 1M", "read -P 7 1M 1M", "read -P 6 2M 2M"];
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &reads);
    assert_eq!(vault.terminate().status, 0);
    // A present but blank device counts as missing.
    std::fs::File::create(machine.path("fast.img")).unwrap().set_len(64 << 20).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &reads);
    assert_eq!(vault.terminate().status, 0);
}

/// First the working SSD with the journal, then the lost disk: each is replaced while the volume is served.
#[test]
fn devices_are_replaced_while_the_volume_is_served() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB", "--copies", "2"];
    machine.ok(&[&["create", "vault", "--size", "32MiB"], &devices[..]].concat());
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 8M", "flush"]);
    let too_small = ["device", "replace", "vault", "d0", "small.img,size=16MiB"];
    machine.refused(&too_small, "no_space", &["d0"]);
    assert!(!machine.path("small.img").exists(), "a refused device leaves nothing behind");
    let places = || {
        let status: Value =
            serde_json::from_str(&machine.braid(&["status", "vault", "--json"]).stdout).unwrap();
        let place = |device: &Value| device["device"].as_str().unwrap().to_owned();
        status["devices"].as_array().unwrap().iter().map(place).collect::<Vec<_>>()
    };
    assert_eq!(places(), ["d0", "d1"]);
    let report = machine.json(&["device", "replace", "vault", "d0", "new.img,size=64MiB"]);
    assert_eq!((&report["device"], &report["new_device"]), (&"d0".into(), &"d2".into()));
    qemu_io_ok(&vault.uri, &["read -P 6 0 8M", "write -P 7 8M 8M", "flush"]);
    wait_until("the old SSD is removed", || places() == ["d1", "d2"]);
    machine.ok(&["device", "fail", "vault", "d1"]);
    qemu_io_ok(&vault.uri, &["write -P 8 1M 1M", "flush"]);
    machine.ok(&["device", "replace", "vault", "d1", "disk.img,size=64MiB"]);
    vault.kill();
    // The replacement continues after a crash.
    let vault = machine.serve(&["vault"]);
    wait_until("the old disk is removed", || places() == ["d2", "d3"]);
    wait_until("all has two copies", || machine.braid(&["status", "vault"]).status == 0);
    assert_eq!(vault.terminate().status, 0);
    for lost in ["fast.img", "slow.img", "new.img"] {
        std::fs::remove_file(machine.path(lost)).unwrap();
    }
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 1M", "read -P 8 1M 1M", "read -P 6 2M 6M", "read -P 7 8M 8M"]);
    assert_eq!(vault.terminate().status, 0);
}

#[test]
fn invalid_replacement_is_refused_without_change() {
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB", "--copies", "2"];
    machine.ok(&[&["create", "vault"], &devices[..]].concat());
    machine.create("single", &[]);
    let replace = |words: &[&str], kind: &str, named: &str| {
        machine.refused(&[&["device", "replace"], words].concat(), kind, &[named]);
    };
    replace(&["vault", "d2", "new.img,size=64MiB"], "usage", "d2");
    replace(&["vault", "d0", "memory,size=64MiB"], "usage", "PATH");
    replace(&["vault", "d0", "new.img,size=64MiB,layout=tail"], "usage", "PATH");
    replace(&["vault", "d0", "new.img,size=8MiB"], "invalid", "new.img");
    replace(&["vault", "d0", "slow.img"], "invalid", "slow.img");
    replace(&["single", "d0", "new.img,size=64MiB"], "unsupported", "d0");
    assert!(!machine.path("new.img").exists());
    assert_eq!(machine.braid(&["check", "vault"]).status, 0);
}
