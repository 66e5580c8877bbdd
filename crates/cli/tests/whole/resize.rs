//! `braid resize`: a volume grows and shrinks, served and at rest.

use crate::machine::{Machine, client, have, have_block_devices, number, qemu_io_ok};
use crate::replace::wait_until;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;

fn machine() -> Machine {
    let machine = Machine::new();
    let devices = ["--ssd", "fast.img,size=64MiB", "--hdd", "slow.img,size=128MiB"];
    machine.ok(&[&["create", "vault", "--size", "48MiB", "--policy", "stripe"], &devices[..]].concat());
    machine
}

/// A virtual machine keeps the size that it was told: its writes beyond a smaller end would fail.
#[test]
fn volume_does_not_shrink_under_a_virtual_machine() {
    let machine = machine();
    let vault = machine.serve(&["vault", "--vhost-user", "vm.sock"]);
    let connected = UnixStream::connect(machine.path("vm.sock")).unwrap();
    let guest = || machine.json(&["status", "vault"])["vhost_user_guest"].clone();
    wait_until("the daemon knows the machine", || guest().is_string());
    machine.refused(&["resize", "vault", "40MiB"], "busy", &["virtual machine"]);
    assert_eq!(machine.json(&["resize", "vault", "64MiB"])["size_bytes"], 64 * MIB);
    drop(connected);
    wait_until("the machine is gone", || guest().is_null());
    assert_eq!(machine.json(&["resize", "vault", "40MiB"])["size_bytes"], 40 * MIB);
    assert_eq!(vault.terminate().status, 0);
}

#[test]
fn served_volume_grows_under_nbd_clients() {
    if !have(&["qemu-io", "qemu-img"]) {
        return;
    }
    let machine = machine();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 48M", "flush"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guest = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                qemu_io_ok(&vault.uri, &["write -P 7 8M 8M", "flush", "read -P 7 8M 8M", "read -P 6 16M 4M"]);
            }
        });
        let mut sizes = vec![48 * MIB];
        for wanted in [64, 100, 120] {
            let report = machine.json(&["resize", "vault", &format!("{wanted}MiB")]);
            assert_eq!(report["former_bytes"].as_u64(), sizes.last().copied(), "{report}");
            assert_eq!(report["size_bytes"], wanted * MIB);
            sizes.push(wanted * MIB);
        }
        is_over.store(true, Ordering::Relaxed);
        guest.join().expect("no request fails");
    });
    assert_eq!(machine.json(&["resize", "vault", "120MiB"])["former_bytes"], 120 * MIB);
    let info = Command::new("qemu-img").args(["info", "--output=json", &vault.uri]).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["virtual-size"], 120 * MIB);
    qemu_io_ok(&vault.uri, &["read -P 0 48M 72M", "write -P 9 119M 1M", "flush", "read -P 6 16M 32M"]);
    // The daemon is killed: the next daemon finds the new size.
    vault.kill();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(
        &vault.uri,
        &["read -P 9 119M 1M", "read -P 7 8M 8M", "read -P 6 16M 32M", "read -P 0 48M 71M"],
    );
    assert_eq!(vault.terminate().status, 0);
    assert_eq!(machine.json(&["resize", "vault", "120MiB"])["former_bytes"], 120 * MIB);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

#[test]
fn mounted_file_system_grows() {
    if !have_block_devices() || !have(&["mkfs.ext4", "resize2fs", "e2fsck", "blockdev"]) {
        return;
    }
    let machine = machine();
    let vault = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    client("mkfs.ext4", &["-q", &device]);
    std::fs::create_dir(machine.path("mnt")).unwrap();
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    machine.refused(&["resize", "vault", "32MiB"], "busy", &["detach"]);
    let report = machine.json(&["resize", "vault", "96MiB"]);
    assert_eq!(report["block_device"].as_str(), Some(&*device), "{report}");
    assert_eq!(client("blockdev", &["--getsize64", &device]).trim(), (96 * MIB).to_string());
    grow_file_system(&machine, &device);
    // More than the volume held before.
    let large = vec![5; 64 << 20];
    std::fs::write(machine.path("mnt/large"), &large).unwrap();
    machine.ok(&["detach", "vault"]);
    assert_eq!(vault.terminate().status, 0);
    let vault = machine.serve(&["vault"]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    assert!(std::fs::read(machine.path("mnt/large")).unwrap() == large);
    machine.ok(&["detach", "vault"]);
    assert_eq!(vault.terminate().status, 0);
}

/// Grows the mounted file system. Without the kernel's permission, grows the file system while unmounted.
fn grow_file_system(machine: &Machine, device: &str) {
    /// The number of the capability.
    const SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    if u64::from_str_radix(effective.trim(), 16).unwrap() >> SYS_RESOURCE & 1 == 1 {
        client("resize2fs", &[device]);
        return;
    }
    machine.ok(&["detach", "vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    client("e2fsck", &["-fy", &device]);
    client("resize2fs", &[&device]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
}

#[test]
fn volume_at_rest_grows_after_a_device_was_added() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = machine();
    machine.refused(&["resize", "vault", "1GiB"], "no_space", &["braid device add vault"]);
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 48M", "flush"]);
    let added = machine.json(&["device", "add", "vault", "--hdd", "new.img,size=1GiB"]);
    let left = number(&added, "left_bytes") as u64;
    assert!(left > 900 * MIB, "{added}");
    assert_eq!(vault.terminate().status, 0);
    // All of it, and not a byte more than fits.
    let most = (48 * MIB + left).to_string();
    machine.refused(&["resize", "vault", &format!("{}B", 48 * MIB + left + MIB)], "no_space", &["at most"]);
    let report = machine.json(&["resize", "vault", &format!("{most}B")]);
    assert_eq!(number(&report, "size_bytes") as u64, 48 * MIB + left);
    assert_eq!(machine.json(&["resize", "vault", &format!("{most}B")])["former_bytes"], 48 * MIB + left);
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 48M", "read -P 0 48M 64M", "write -P 8 900M 8M", "flush"]);
    assert_eq!(vault.terminate().status, 0);
}

#[test]
fn volume_shrinks_to_its_data_and_not_further() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = machine();
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 4M", "write -P 7 32M 1M", "flush"]);
    machine.refused(&["resize", "vault", "16MiB"], "invalid", &["33MiB", "blkdiscard"]);
    assert_eq!(vault.terminate().status, 0);
    machine.refused(&["resize", "vault", "16MiB"], "invalid", &["33MiB", "blkdiscard"]);
    machine.refused(&["resize", "vault", "0"], "invalid", &["size"]);
    machine.ok(&["resize", "vault", "33MiB"]);
    let vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["read -P 7 32M 1M", "discard 16M 17M", "flush"]);
    machine.ok(&["resize", "vault", "16MiB"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 4M", "read -P 0 4M 12M"]);
    // What was cut off does not come back.
    machine.ok(&["resize", "vault", "48MiB"]);
    qemu_io_ok(&vault.uri, &["read -P 6 0 4M", "read -P 0 4M 44M"]);
    assert_eq!(vault.terminate().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

/// The daemon is killed at many instants of a resize. The volume has the old or the new size, and the command
/// can be repeated.
#[test]
fn resize_survives_the_death_of_the_daemon() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = machine();
    let mut vault = machine.serve(&["vault"]);
    qemu_io_ok(&vault.uri, &["write -P 6 0 32M", "flush"]);
    for round in 0..8u64 {
        let wanted = if round % 2 == 0 { "120MiB" } else { "48MiB" };
        std::thread::scope(|scope| {
            let resize = scope.spawn(|| machine.braid(&["resize", "vault", wanted]));
            std::thread::sleep(std::time::Duration::from_millis(5 * round));
            vault.kill();
            resize.join().expect("the command ends");
        });
        vault = machine.serve(&["vault"]);
        qemu_io_ok(&vault.uri, &["read -P 6 0 32M", "read -P 0 32M 16M"]);
        let report = machine.json(&["resize", "vault", wanted]);
        let former = report["former_bytes"].as_u64().expect("a number of bytes");
        assert!([48 * MIB, 120 * MIB].contains(&former), "{report}");
        qemu_io_ok(&vault.uri, &["read -P 6 0 32M", "read -P 0 32M 16M"]);
    }
    assert_eq!(vault.terminate().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}
