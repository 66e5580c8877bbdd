//! Devices that became read-only: an SSD at the end of its life, a file system with an error.

use crate::claims::Loop;
use crate::machine::{Machine, client, have, have_block_devices, number, qemu_io_ok, run, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A directory with a read-only mount until the value is dropped.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn make(path: &Path) -> Option<ReadOnly> {
        let mount = |words: &[&Path]| {
            let mut command = Command::new("mount");
            command.args(words);
            run(command)
        };
        let mounted = mount(&[Path::new("--bind"), path, path]);
        if mounted.status != 0 {
            skip(&format!("a read-only directory needs root: {}", mounted.stderr.trim()));
            return None;
        }
        let made = ReadOnly(path.to_owned());
        assert_eq!(mount(&[Path::new("-o"), Path::new("remount,ro,bind"), path]).status, 0);
        Some(made)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        command.arg("--lazy").arg(&self.0);
        run(command);
    }
}

/// A block device that refuses writes until the value is dropped.
struct WornOut<'a>(&'a Loop);

impl WornOut<'_> {
    fn make(device: &Loop) -> WornOut<'_> {
        client("blockdev", &["--setro", &device.0]);
        WornOut(device)
    }
}

impl Drop for WornOut<'_> {
    fn drop(&mut self) {
        // The kernel would keep the flag for the next user of the device's name.
        client("blockdev", &["--setrw", &self.0.0]);
    }
}

/// The file system of one half of a mirror became read-only: `serve` and the repair were refused, with and
/// without `--distrust`, although the other half had all data.
#[test]
fn mirror_is_served_without_half_on_read_only_filesystem() {
    if !have(&["mount", "qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    std::fs::create_dir(machine.path("away")).unwrap();
    machine.ok(&["create", "v", "--ssd", "a,size=64MiB", "--hdd", "away/b,size=64MiB", "--copies", "2"]);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush", "write -P 2 8M 1M"]);
    daemon.kill();
    let Some(read_only) = ReadOnly::make(&machine.path("away")) else { return };
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["read -P 1 0 8M", "read -P 2 8M 1M", "write -P 3 0 4M", "flush"]);
    let status = status(&machine);
    assert_eq!(status["devices"][1]["state"], "missing", "{status}");
    let ended = daemon.terminate();
    assert!(ended.status == 0 && ended.stderr.contains("Read-only file system"), "{ended:?}");
    drop(read_only);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["read -P 3 0 4M", "read -P 1 4M 4M", "read -P 2 8M 1M"]);
    wait_until_active(&machine);
    assert_eq!(daemon.terminate().status, 0);
    std::fs::remove_file(machine.path("a")).unwrap();
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["read -P 3 0 4M", "read -P 1 4M 4M", "read -P 2 8M 1M"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// The kernel opens a read-only block device for writing, and then refuses each write.
#[test]
fn read_only_block_device_is_left_out_and_replaced() {
    if !have_block_devices() || !have(&["losetup", "blockdev", "qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    std::fs::File::create(machine.path("b.img")).unwrap().set_len(64 << 20).unwrap();
    let worn = Loop::over(&machine.path("b.img"));
    machine.ok(&["create", "v", "--ssd", &worn.0, "--hdd", "a,size=64MiB", "--copies", "2"]);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    let _worn_out = WornOut::make(&worn);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["read -P 1 0 8M", "write -P 2 0 1M", "flush"]);
    daemon.kill();
    machine.ok(&["device", "replace", "v", "d0", "c,size=64MiB"]);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["read -P 2 0 1M", "read -P 1 1M 7M"]);
    wait_until_active(&machine);
    assert_eq!(daemon.terminate().status, 0);
}

/// With one copy no device can be excluded: the refusal names remedies, and no device is changed.
#[test]
fn single_copy_volume_with_read_only_device_is_refused() {
    if !have(&["mount", "qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    std::fs::create_dir(machine.path("away")).unwrap();
    machine.ok(&["create", "v", "--ssd", "a,size=64MiB", "--hdd", "away/b,size=64MiB"]);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 8M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    let Some(read_only) = ReadOnly::make(&machine.path("away")) else { return };
    for _ in 0..2 {
        let refused =
            machine.refused(&["serve", "v"], "degraded", &["away/b", "remount,rw", "ddrescue", "--distrust"]);
        let place = |words| refused.find(words).unwrap();
        // The remedy without loss comes first.
        assert!(place("remount,rw") < place("--distrust"), "{refused}");
    }
    drop(read_only);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["read -P 1 0 8M"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// `device return` reported success, but the first write to the device failed.
#[test]
fn return_of_a_read_only_device_is_refused() {
    if !have_block_devices() || !have(&["losetup", "blockdev", "mount", "qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    std::fs::File::create(machine.path("b.img")).unwrap().set_len(64 << 20).unwrap();
    let worn = Loop::over(&machine.path("b.img"));
    machine.ok(&["create", "v", "--ssd", &worn.0, "--hdd", "a,size=64MiB", "--copies", "2"]);
    std::fs::create_dir(machine.path("away")).unwrap();
    machine.ok(&["create", "w", "--ssd", "c,size=64MiB", "--hdd", "away/d,size=64MiB", "--copies", "2"]);
    let worn_out = WornOut::make(&worn);
    let Some(read_only) = ReadOnly::make(&machine.path("away")) else { return };
    let (v, w) = (machine.serve(&["v"]), machine.serve(&["w"]));
    qemu_io_ok(&v.uri, &["write -P 2 0 1M", "flush"]);
    for _ in 0..2 {
        machine.refused(&["device", "return", "v", "d0"], "io", &[&format!("blockdev --setrw {}", worn.0)]);
        machine.refused(&["device", "return", "w", "d1"], "io", &["away/d", "remount,rw"]);
        assert_eq!(status(&machine)["devices"][0]["state"], "missing");
    }
    drop((worn_out, read_only));
    machine.ok(&["device", "return", "v", "d0"]);
    machine.ok(&["device", "return", "w", "d1"]);
    wait_until_active(&machine);
    for daemon in [v, w] {
        assert_eq!(daemon.terminate().status, 0);
    }
}

/// The volume was served without a warning, and each guest's write to the disk failed.
#[test]
fn read_only_adopted_disk_is_not_served() {
    if !have_block_devices() || !have(&["losetup", "blockdev", "mount", "qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    std::fs::File::create(machine.path("b.img")).unwrap().set_len(64 << 20).unwrap();
    let disk = Loop::over(&machine.path("b.img"));
    std::fs::create_dir(machine.path("away")).unwrap();
    std::fs::File::create(machine.path("away/d")).unwrap().set_len(64 << 20).unwrap();
    machine.ok(&["create", "v", "--adopt", &disk.0, "--ssd", "a,size=64MiB"]);
    machine.ok(&["create", "w", "--adopt", "away/d", "--ssd", "c,size=64MiB"]);
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["write -P 2 0 1M", "flush"]);
    daemon.kill();
    let protected = WornOut::make(&disk);
    let Some(read_only) = ReadOnly::make(&machine.path("away")) else { return };
    machine.refused(&["serve", "v"], "io", &[&format!("blockdev --setrw {}", disk.0)]);
    machine.refused(&["serve", "w"], "io", &["away/d", "remount"]);
    drop((protected, read_only));
    for name in ["v", "w"] {
        let daemon = machine.serve(&[name]);
        qemu_io_ok(&daemon.uri, &[if name == "v" { "read -P 2 0 1M" } else { "write -P 3 0 1M" }, "flush"]);
        assert_eq!(daemon.terminate().status, 0);
    }
}

/// Status of volume `v`; devices may be missing.
fn status(machine: &Machine) -> Value {
    serde_json::from_str(&machine.braid(&["status", "v", "--json"]).stdout).unwrap()
}

fn wait_until_active(machine: &Machine) {
    let began = Instant::now();
    loop {
        let status = status(machine);
        let devices = status["devices"].as_array().unwrap();
        if devices.iter().all(|device| device["state"] == "active") && number(&status, "behind_bytes") == 0.0
        {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(300), "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
