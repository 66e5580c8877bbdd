//! Refusals: a second daemon, and devices that do not belong to the volume. Each refusal prints a sentence,
//! and changes nothing.

use crate::machine::{Machine, have, number, qemu_io_ok};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

#[test]
fn a_second_daemon_is_refused_with_the_process_of_the_first() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let process = daemon.process().to_string();
    machine.refused(&["serve", "vault"], "busy", &[&process, "braid stop vault"]);
    machine.refused(&["check", "vault"], "busy", &[&process]);
    machine.refused(&["forget", "vault"], "busy", &[&process]);
    // With another state directory, only locks on the devices reveal the daemon.
    machine.refused(&["import", "vault.ssd", "vault.hdd"], "busy", &["vault.ssd"]);
    machine.refused(&["create", "other", "--ssd", "vault.ssd", "--force"], "busy", &["vault.ssd"]);
    qemu_io_ok(&daemon.uri, &["write -P 3 0 1M", "flush", "read -P 3 0 1M"]);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn missing_device_is_named_and_present_devices_stay_unchanged() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    std::fs::rename(machine.path("vault.hdd"), machine.far_away("away")).unwrap();
    unchanged(&machine, &["vault.ssd", "far/away"], || {
        machine.refused(&["serve", "vault"], "degraded", &["d1", "hdd", "vault.hdd"]);
        machine.refused(&["import", "vault.ssd"], "degraded", &["d1", "hdd"]);
    });
    std::fs::rename(machine.far_away("away"), machine.path("vault.hdd")).unwrap();
    assert_eq!(machine.serve(&["vault"]).terminate().status, 0);
}

#[test]
fn single_copy_volume_continues_without_a_distrusted_device() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &["--policy", "stripe"]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 3 0 8M", "flush", "read -P 3 0 8M"]);
    assert_eq!(daemon.terminate().status, 0);
    // The device with the journal.
    std::fs::rename(machine.path("vault.ssd"), machine.far_away("away")).unwrap();
    machine.refused(&["serve", "vault"], "degraded", &["d0", "vault.ssd", "--distrust"]);
    machine.refused(&["check", "vault", "--repair"], "degraded", &["d0"]);
    let check =
        || -> Value { serde_json::from_str(&machine.braid(&["check", "vault", "--json"]).stdout).unwrap() };
    let sum = |ranges: &Value| -> f64 {
        ranges.as_array().unwrap().iter().map(|range| number(range, "length_bytes")).sum()
    };
    let (told, lost) = (sum(&check()["only_on_missing"]), sum(&check()["lost"]));
    assert!(told > 0.0 && lost == 0.0, "{}", check());
    let daemon = machine.serve(&["vault", "--distrust", "d0"]);
    let status = machine.braid(&["status", "vault", "--json"]);
    let report: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!((status.status, number(&report, "lost_bytes"), sum(&report["lost"])), (3, told, told));
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!((sum(&check()["only_on_missing"]), sum(&check()["lost"])), (0.0, told));
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 4 0 8M", "flush", "read -P 4 0 8M"]);
    assert_eq!(daemon.terminate().status, 0);
    for _ in 0..2 {
        let daemon = machine.serve(&["vault"]);
        qemu_io_ok(&daemon.uri, &["read -P 4 0 8M"]);
        assert_eq!(machine.braid(&["status", "vault"]).status, 3);
        assert_eq!(daemon.terminate().status, 0);
        // The excluded device stays excluded after its return.
        std::fs::copy(machine.far_away("away"), machine.path("vault.ssd")).unwrap();
    }
    assert_eq!(
        machine.braid(&["check", "vault", "--repair", "--distrust", "d0"]).status,
        1,
        "a device is missing"
    );
}

#[test]
fn foreign_or_blank_device_is_refused() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    machine.create("other", &[]);
    std::fs::rename(machine.path("vault.hdd"), machine.far_away("away")).unwrap();
    std::fs::copy(machine.path("other.hdd"), machine.path("vault.hdd")).unwrap();
    unchanged(&machine, &["vault.ssd", "vault.hdd"], || {
        machine.refused(&["serve", "vault"], "degraded", &["'other'", "'vault'", "d1"]);
    });
    std::fs::write(machine.path("vault.hdd"), vec![7; 128 << 20]).unwrap();
    unchanged(&machine, &["vault.ssd", "vault.hdd"], || {
        machine.refused(&["serve", "vault"], "degraded", &["vault.hdd", "no valid superblock"]);
    });
    for class in ["ssd", "hdd"] {
        std::fs::copy(machine.path(&format!("other.{class}")), machine.path(&format!("vault.{class}")))
            .unwrap();
    }
    machine.refused(&["serve", "vault"], "degraded", &["'other'", "'vault'", "d0", "d1"]);
}

#[test]
fn copy_is_refused_beside_or_instead_of_the_device() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    std::fs::copy(machine.path("vault.hdd"), machine.path("copy")).unwrap();
    unchanged(&machine, &["vault.ssd", "vault.hdd", "copy"], || {
        machine.refused(&["import", "vault.ssd", "vault.hdd", "copy"], "invalid", &["vault.hdd", "copy"]);
        machine.refused(&["import", "vault.ssd", "vault.ssd"], "invalid", &["vault.ssd"]);
    });
    for _ in 0..3 {
        assert_eq!(machine.serve(&["vault"]).terminate().status, 0);
    }
    std::fs::rename(machine.path("copy"), machine.path("vault.hdd")).unwrap();
    unchanged(&machine, &["vault.ssd", "vault.hdd"], || {
        machine.refused(&["serve", "vault"], "invalid", &["d1", "vault.hdd"]);
    });
}

#[test]
fn a_volume_of_a_newer_version_is_refused_and_left_alone() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    for name in ["vault.ssd", "vault.hdd"] {
        let mut bytes = std::fs::read(machine.path(name)).unwrap();
        let last = (bytes.len() - (16 << 10)) / (16 << 10) * (16 << 10);
        for at in [0, 16 << 10, last] {
            set_feature(&mut bytes[at..at + (8 << 10)]);
        }
        std::fs::write(machine.path(name), bytes).unwrap();
    }
    unchanged(&machine, &["vault.ssd", "vault.hdd"], || {
        machine.refused(&["serve", "vault"], "unsupported", &["vault.ssd"]);
        machine.refused(&["check", "vault", "--repair"], "unsupported", &["vault.ssd"]);
        machine.refused(&["import", "vault.ssd", "vault.hdd"], "unsupported", &["vault.ssd"]);
    });
}

/// Sets an unknown bit in the superblock's field of features that an older version may read but not write,
/// and corrects the checksum, as a newer version would.
fn set_feature(superblock: &mut [u8]) {
    assert_eq!(&superblock[..8], b"BRAIDVOL");
    superblock[40] |= 4;
    let crc = crc32c::crc32c(&superblock[12..]);
    superblock[8..12].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn create_does_not_overwrite_used_devices_without_force() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    std::fs::write(machine.path("photos"), vec![1; 64 << 20]).unwrap();
    unchanged(&machine, &["vault.ssd", "photos"], || {
        let expected = ["'vault'", "--force", "d0", "vault.ssd"];
        machine.refused(&["create", "new", "--ssd", "vault.ssd"], "invalid", &expected);
        machine.refused(&["create", "new", "--hdd", "photos"], "invalid", &["photos", "--force"]);
        machine.refused(&["create", "vault", "--hdd", "photos"], "invalid", &["'vault'"]);
    });
    machine.ok(&["create", "new", "--hdd", "photos", "--force"]);
}

/// The superblock of an md RAID, the labels of a ZFS pool and the backup of a partition table lie at a
/// device's end, and were overwritten without a warning.
#[test]
fn content_at_the_end_of_a_device_is_not_overwritten_without_force() {
    let machine = Machine::new();
    let size = 64 << 20;
    for (from_end, bytes, expected) in [
        (128 << 10, &0xa92b_4efc_u32.to_le_bytes()[..], "md RAID"),
        (8 << 10, &0xa92b_4efc_u32.to_le_bytes(), "md RAID"),
        ((256 << 10) - (128 << 10), &0x00ba_b10c_u64.to_le_bytes(), "ZFS pool"),
        (512, b"EFI PART", "GPT"),
        (1, &[1], "disk"),
    ] {
        let file = std::fs::File::create(machine.path("disk")).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(bytes, size - from_end).unwrap();
        unchanged(&machine, &["disk"], || {
            machine.refused(&["create", "new", "--hdd", "disk"], "invalid", &["disk", expected, "--force"]);
        });
    }
    machine.ok(&["create", "new", "--hdd", "disk", "--force"]);
}

#[test]
fn wrong_usage_is_exit_status_two() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    for (words, expected) in [
        (&["create", "x"][..], "--ssd"),
        (&["create", "x", "--ssd", "a.img,model=nosuch"], "x25-m"),
        (&["create", "x", "--ssd", "a.img,model=mba3073"], "--hdd"),
        (&["create", "x", "--ssd", "memory,size=64MiB"], "--temporary"),
        (&["create", "x", "--ssd", "vault.ssd", "--policy", "nosuch"], "wardrop"),
        (&["create", "x", "--ssd", "vault.ssd", "--size", "huge"], "10GiB"),
        (&["create", "../x", "--ssd", "vault.ssd"], "../x"),
        (&["serve"], "NAME"),
        (&["serve", "vault", "--ssd", "vault.ssd"], "--temporary"),
        (&["serve", "vault", "--cache", "2000000"], "1000000"),
        (&["explain", "vault"], "OFFSET"),
        (&["policy", "vault", "wardrop,nosuch=1"], "nosuch"),
        (&["nosuch"], "nosuch"),
    ] {
        machine.refused(words, "usage", &[expected]);
    }
    machine.refused(&["policy", "vault", "nosuch"], "usage", &["nosuch"]);
}

/// Runs `attempt`, and checks that no byte of these files changes.
fn unchanged(machine: &Machine, files: &[&str], attempt: impl FnOnce()) {
    let paths: Vec<PathBuf> = files.iter().map(|name| machine.path(name)).collect();
    let sums = || paths.iter().map(|path| crc32c::crc32c(&std::fs::read(path).unwrap())).collect::<Vec<_>>();
    let before = sums();
    attempt();
    assert_eq!(before, sums(), "{files:?} have changed");
}
