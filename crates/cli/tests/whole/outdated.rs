//! A failed device returns without the devices that continued: the host knows that the failed device is
//! stale.

use crate::machine::{Daemon, Machine, have, number, qemu_io_ok};
use crate::replace::wait_until;
use serde_json::Value;

/// Makes a mirror with sevens on both devices, and one MiB of newer nines on the second device only.
fn gone_on(machine: &Machine) -> Daemon {
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB"];
    machine.ok(&[&["create", "vault", "--copies", "2", "--policy", "raid1"], &devices[..]].concat());
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 7 0 8M", "flush"]);
    machine.ok(&["device", "fail", "vault", "d0"]);
    qemu_io_ok(&vault.uri, &["write -P 9 1M 1M", "flush"]);
    vault
}

/// Flags of the record by device: true if the device is outdated.
pub fn noted(machine: &Machine) -> Vec<bool> {
    let record = std::fs::read_to_string(machine.state().join("vault/volume.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let devices = record["devices"].as_array().unwrap();
    devices.iter().map(|device| device["outdated"].as_bool().unwrap()).collect()
}

/// After a reboot the second device appeared late: the first device served data of days ago, and the only
/// message was that the volume was degraded.
#[test]
fn stale_mirror_half_is_not_served_without_newer_half() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let (there, away) = (machine.path("slow.img"), machine.far_away("device.img"));
    assert_eq!(gone_on(&machine).terminate().status, 0);
    assert_eq!(noted(&machine), [true, false]);
    std::fs::rename(&there, &away).unwrap();
    machine.refused(&["serve", "vault"], "degraded", &["d1", "slow.img", "--distrust d1"]);
    machine.refused(&["policy", "vault", "stripe"], "degraded", &["--distrust d1"]);
    machine.refused(&["check", "vault", "--repair"], "degraded", &["--distrust d1"]);
    machine.refused(&["device", "replace", "vault", "d1", "new.img,size=64MiB"], "degraded", &["d1"]);
    let check = machine.braid(&["check", "vault", "--json"]);
    let report: Value = serde_json::from_str(&check.stdout).unwrap();
    let only = &report["only_on_missing"][0];
    assert!(check.status == 1 && only["device"] == "d1", "{check:?}");
    assert!(number(only, "length_bytes") > f64::from(8 << 20), "{check:?}");

    std::fs::rename(&away, &there).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 7 0 1M", "read -P 9 1M 1M", "read -P 7 2M 6M"]);
    wait_until("both are in step", || noted(&machine) == [false, false]);
    assert_eq!(vault.terminate().status, 0);
    // After the resync, the volume is served without either device.
    std::fs::rename(&there, &away).unwrap();
    let vault = machine.serve(&["vault"]);
    assert_eq!(noted(&machine), [false, true]);
    qemu_io_ok(&vault.uri, &["read -P 9 1M 1M"]);
    assert_eq!(vault.terminate().status, 0);

    // Another host, or the same host after `forget`, learns the state from both devices together.
    machine.ok(&["forget", "vault"]);
    std::fs::rename(&away, &there).unwrap();
    assert_eq!(
        machine.braid(&["import", "fast.img", "slow.img"]).status,
        1,
        "one is to be brought up to date"
    );
    assert_eq!(noted(&machine), [false, true]);
    std::fs::rename(machine.path("fast.img"), &away).unwrap();
    machine.refused(&["serve", "vault"], "degraded", &["--distrust d0"]);
}

/// The state directory came from an older backup, and the newer half appeared late: the record did not name
/// the stale half. Metadata on the stale half tells.
#[test]
fn an_older_half_is_not_served_by_a_state_directory_from_a_backup() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB"];
    machine.ok(&[&["create", "vault", "--copies", "2", "--policy", "raid1"], &devices[..]].concat());
    let record = machine.state().join("vault/volume.json");
    let backup = std::fs::read(&record).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 7 0 8M", "flush"]);
    machine.ok(&["device", "fail", "vault", "d0"]);
    qemu_io_ok(&vault.uri, &["write -P 9 1M 1M", "flush"]);
    assert_eq!(vault.terminate().status, 0);
    std::fs::write(&record, backup).unwrap();
    std::fs::remove_file(machine.state().join("vault/noted.json")).unwrap();
    assert_eq!(noted(&machine), [false, false]);
    std::fs::rename(machine.path("slow.img"), machine.far_away("device.img")).unwrap();
    machine.refused(&["serve", "vault"], "degraded", &["d1", "--distrust d1"]);
}

/// Also after a power cut. `--distrust` may discard the data of the newer half; then the newer half is stale.
#[test]
fn newer_mirror_half_is_discarded_only_with_distrust() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let vault = gone_on(&machine);
    wait_until("it is noted", || noted(&machine) == [true, false]);
    vault.kill();
    let (there, away) = (machine.path("slow.img"), machine.far_away("device.img"));
    std::fs::rename(&there, &away).unwrap();
    machine.refused(&["serve", "vault"], "degraded", &["--distrust d1"]);
    let vault = machine.serve(&["vault", "--distrust", "d1"]);
    assert_eq!(noted(&machine), [false, true]);
    qemu_io_ok(&vault.uri, &["read -P 7 0 8M", "write -P 8 1M 1M", "flush"]);
    vault.kill();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 8 1M 1M"]);
    assert_eq!(vault.terminate().status, 0);
}

/// With one copy, a failed disk returned, and stayed excluded. Then the SSD with all data was away: the disk
/// was served as the newest device, because its superblock described the SSD as a clean cache.
#[test]
fn returned_failed_disk_is_not_served_without_newer_ssd() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=64MiB"];
    machine.ok(&[&["create", "vault", "--policy", "cache", "--size", "32MiB"], &devices[..]].concat());
    assert_eq!(machine.serve(&["vault"]).terminate().status, 0);
    let (there, away) = (machine.path("slow.img"), machine.far_away("slow.img"));
    std::fs::rename(&there, &away).unwrap();
    let vault = machine.serve(&["vault", "--distrust", "d1"]);
    qemu_io_ok(&vault.uri, &["write -P 4 0 4M", "flush"]);
    vault.kill();
    std::fs::rename(&away, &there).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 4 0 4M"]);
    assert_eq!(noted(&machine), [false, true]);
    assert_eq!(vault.terminate().status, 0);
    let (there, away) = (machine.path("fast.img"), machine.far_away("fast.img"));
    std::fs::rename(&there, &away).unwrap();
    machine.refused(&["serve", "vault"], "degraded", &["d0", "--distrust d0"]);
    std::fs::rename(&away, &there).unwrap();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 4 0 4M"]);
    assert_eq!(vault.terminate().status, 0);
}
