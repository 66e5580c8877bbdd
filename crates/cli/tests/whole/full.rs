//! A full volume, and a machine with full file systems.

use crate::machine::{Ended, Machine, have, number, qemu_io, qemu_io_ok, run, skip};
use std::process::Command;

#[test]
fn full_volume_is_overwritten_and_discard_frees_space() {
    if !have(&["qemu-io"]) {
        return;
    }
    for copies in ["1", "2"] {
        let machine = Machine::new();
        // The first extents lie on the SSD, and no move fills the room that their discard frees.
        let devices = ["--ssd", "a,size=16MiB", "--hdd", "b,size=48MiB"];
        machine.ok(&[&["create", "v", "--copies", copies, "--policy", "ssd-first"], &devices[..]].concat());
        let daemon = machine.serve(&["v"]);
        let size = number(&machine.json(&["status", "v"]), "size_bytes") as u64;
        // Twice, with different bytes: overwriting a full volume needs no room.
        for pattern in [1, 2] {
            let write = |at: u64| format!("write -P {pattern} {at} {}", (1 << 20).min(size - at));
            let commands: Vec<String> = (0..size).step_by(1 << 20).map(write).collect();
            let mut commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            commands.push("flush");
            qemu_io_ok(&daemon.uri, &commands);
        }
        let full = machine.json(&["status", "v"]);
        assert_eq!(number(&full, "mapped_bytes") as u64, size.next_multiple_of(128 << 10), "copies {copies}");
        qemu_io_ok(&daemon.uri, &["discard 0 4M", "flush", "read -P 0 0 4M", "read -P 2 4M 1M"]);
        let used = |report| number(report, "devices.0.used_bytes") + number(report, "devices.1.used_bytes");
        let after = machine.json(&["status", "v"]);
        assert!(used(&full) - used(&after) >= f64::from(3 << 20), "copies {copies}: {after}");
        assert_eq!(daemon.terminate().status, 0);
        let daemon = machine.serve(&["v"]);
        let last = format!("read -P 2 {} 4096", size - 4096);
        qemu_io_ok(&daemon.uri, &["read -P 0 0 4M", "read -P 2 4M 1M", &last]);
    }
}

/// Sparse files are larger than the room in their file system.
#[test]
fn full_file_system_returns_no_space_and_loses_nothing() {
    if !have(&["qemu-io", "mount", "umount"]) {
        return;
    }
    let machine = Machine::new();
    let Some(small) = SmallFileSystem::mount(&machine) else { return };
    machine.ok(&["create", "v", "--ssd", "small/a,size=64MiB", "--hdd", "small/b,size=64MiB"]);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush"]);
    let (well, said) = qemu_io(&daemon.uri, &["write -P 2 8M 32M"]);
    assert!(!well && said.contains("No space left on device"), "{said}");
    qemu_io_ok(&daemon.uri, &["read -P 1 0 8M", "flush"]);
    let status = machine.json(&["status", "v"]);
    assert!(status["failure"].is_null(), "{status}");
    // A discard or the administrator makes room.
    qemu_io_ok(&daemon.uri, &["discard 8M 32M", "flush"]);
    small.grow();
    qemu_io_ok(&daemon.uri, &["write -P 3 8M 32M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["read -P 1 0 8M", "read -P 3 8M 32M"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// Only the SSD's file system was full, but new extents were still placed there: the client got "no space"
/// after a tenth of the volume, with an empty disk.
#[test]
fn new_extents_use_hdd_if_ssd_filesystem_is_full() {
    if !have(&["qemu-io", "mount", "umount"]) {
        return;
    }
    let machine = Machine::new();
    let Some(_small) = SmallFileSystem::mount(&machine) else { return };
    machine.ok(&[
        "create",
        "v",
        "--ssd",
        "small/a,size=64MiB",
        "--hdd",
        "b,size=256MiB",
        "--policy",
        "ssd-first",
    ]);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 32M", "write -P 2 32M 32M", "write -P 3 64M 32M", "flush"]);
    let all = ["read -P 1 0 32M", "read -P 2 32M 32M", "read -P 3 64M 32M"];
    qemu_io_ok(&daemon.uri, &all);
    assert_eq!(daemon.terminate().status, 0);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &all);
    assert_eq!(daemon.terminate().status, 0);
}

/// A file system of 24 MiB in memory.
struct SmallFileSystem(std::path::PathBuf);

impl SmallFileSystem {
    fn mount(machine: &Machine) -> Option<SmallFileSystem> {
        let path = machine.path("small");
        std::fs::create_dir(&path).unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", "size=24m", "braid-test"], &path);
        if mounted.status != 0 {
            skip(&format!("a small file system needs root: {}", mounted.stderr.trim()));
            return None;
        }
        Some(SmallFileSystem(path))
    }

    fn grow(&self) {
        assert_eq!(mount(&["-o", "remount,size=96m"], &self.0).status, 0);
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        command.arg("--lazy").arg(&self.0);
        run(command);
    }
}

fn mount(words: &[&str], path: &std::path::Path) -> Ended {
    let mut command = Command::new("mount");
    command.args(words).arg(path);
    run(command)
}
