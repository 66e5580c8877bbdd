//! Devices are added to a served volume and removed, unnoticed by guests.

use crate::machine::{Machine, have, number, qemu_io_ok};
use crate::outdated::noted;
use serde_json::Value;
use std::time::{Duration, Instant};

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(300), "still not: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn places(machine: &Machine) -> Vec<String> {
    let status = machine.json(&["status", "vault"]);
    let devices = status["devices"].as_array().expect("devices are a list");
    devices.iter().map(|device| device["device"].as_str().expect("a place").to_owned()).collect()
}

#[test]
fn device_is_added_and_drained_while_guests_continue() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB"];
    machine.ok(&[&["create", "vault", "--size", "48MiB", "--policy", "stripe"], &devices[..]].concat());
    let new = ["device", "add", "vault", "--hdd", "new.img,size=64MiB"];
    machine.refused(&new, "not_served", &["vault"]);
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 8M", "flush"]);
    let added = machine.json(&new);
    assert_eq!((&added["device"], &added["devices"][2]["made"]), (&"d2".into(), &true.into()));
    qemu_io_ok(&vault.uri, &["write -P 7 8M 8M", "flush", "read -P 6 0 8M", "read -P 7 8M 8M"]);
    let status = machine.json(&["status", "vault"]);
    assert_eq!(status["devices"][2]["state"], "active");
    assert!(number(&status["devices"][2], "used_bytes") > 0.0, "{status}");
    assert_eq!(status["devices"][2]["drain_left_bytes"], Value::Null);
    // After a kill, the volume is found with all three devices.
    vault.kill();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 8M", "read -P 7 8M 8M"]);
    machine.refused(&["device", "remove", "vault", "d2", "--cancel"], "invalid", &["d2"]);
    machine.ok(&["device", "remove", "vault", "d2"]);
    wait_until("the device is removed", || places(&machine) == ["d0", "d1"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 8M", "read -P 7 8M 8M", "write -P 8 16M 1M", "flush"]);
    let record = || machine.json(&["status", "vault"])["devices"][2]["removed"].clone();
    // The record is updated within a second.
    wait_until("its superblock is erased", || {
        let start = std::fs::read(machine.path("new.img")).expect("the file is there");
        start[..8192].iter().all(|&byte| byte == 0)
    });
    assert_eq!(vault.terminate().status, 0);
    assert_eq!(record(), true);
    std::fs::remove_file(machine.path("new.img")).unwrap();
    assert_eq!(machine.braid(&["check", "vault"]).status, 0);
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 8M", "read -P 7 8M 8M", "read -P 8 16M 1M"]);
    // The next device gets a new place, and the volume is found by its devices.
    assert_eq!(machine.json(&new)["device"], "d3");
    assert_eq!(vault.terminate().status, 0);
    machine.ok(&["forget", "vault"]);
    machine.refused(&["import", "fast.img", "slow.img"], "degraded", &["d3"]);
    machine.ok(&["import", "new.img", "slow.img", "fast.img"]);
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 8M", "read -P 7 8M 8M", "read -P 8 16M 1M"]);
    assert_eq!(places(&machine), ["d0", "d1", "d3"]);
    assert_eq!(vault.terminate().status, 0);
}

#[test]
fn invalid_device_add_or_remove_is_refused_without_change() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let vault = machine.serve(&["vault"]);
    let refused = |words: &[&str], kind: &str, named: &str| {
        machine.refused(&[&["device"], words].concat(), kind, &[named]);
    };
    refused(&["add", "vault", "--ssd", "memory,size=64MiB"], "usage", "memory");
    refused(&["add", "vault", "--hdd", "small.img,size=1MiB"], "invalid", "small.img");
    assert!(!machine.path("small.img").exists());
    std::fs::write(machine.path("full.img"), vec![7; 8 << 20]).unwrap();
    refused(&["add", "vault", "--hdd", "full.img"], "invalid", "full.img");
    refused(&["add", "vault", "--hdd", "vault.hdd"], "invalid", "vault.hdd");
    refused(&["remove", "vault", "d0"], "no_space", "d0");
    refused(&["remove", "vault", "d7"], "invalid", "d7");
    assert_eq!(places(&machine), ["d0", "d1"]);
    assert_eq!(vault.terminate().status, 0);
    assert_eq!(machine.braid(&["check", "vault"]).status, 0);
}

/// A cable was pulled, and the device returns at another path.
#[test]
fn failed_device_returns_and_is_resynced_while_guests_continue() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB"];
    machine.ok(&[&["create", "vault", "--copies", "2", "--policy", "raid1"], &devices[..]].concat());
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 8M", "flush"]);
    machine.refused(&["device", "return", "vault", "d1"], "invalid", &["d1"]);
    let is_active = || {
        let status: Value =
            serde_json::from_str(&machine.braid(&["status", "vault", "--json"]).stdout).unwrap();
        status["devices"][1]["state"] == "active"
    };
    machine.ok(&["device", "fail", "vault", "d1"]);
    qemu_io_ok(&vault.uri, &["write -P 7 1M 1M", "flush"]);
    machine.ok(&["device", "return", "vault", "d1"]);
    wait_until("it is up to date", is_active);
    machine.ok(&["device", "fail", "vault", "d1"]);
    qemu_io_ok(&vault.uri, &["write -P 8 2M 1M", "flush"]);
    std::fs::rename(machine.path("slow.img"), machine.path("elsewhere.img")).unwrap();
    machine.refused(&["device", "return", "vault", "d1", "slow.img"], "io", &["slow.img"]);
    machine.refused(&["device", "return", "vault", "d1", "fast.img"], "invalid", &["fast.img"]);
    machine.ok(&["device", "return", "vault", "d1", "elsewhere.img"]);
    wait_until("it is up to date", is_active);
    qemu_io_ok(&vault.uri, &["flush"]);
    wait_until("that is noted", || noted(&machine) == [false, false]);
    vault.kill();
    // The returned device alone holds all data.
    std::fs::remove_file(machine.path("fast.img")).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 1M", "read -P 7 1M 1M", "read -P 8 2M 1M", "read -P 6 3M 5M"]);
    assert_eq!(vault.terminate().status, 0);
}
