//! A device file lies on a file system with a hanging server: data on the other device is served, and the
//! daemon answers.

use crate::machine::{Machine, have, have_block_devices, qemu_io, qemu_io_ok, run, skip};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A file of 64 MiB on FUSE, with its bytes on a server.
struct Remote {
    server: Child,
    mounted: Child,
    file: PathBuf,
}

impl Remote {
    fn mount(machine: &Machine) -> Option<Remote> {
        let (directory, socket) = (machine.path("remote"), machine.path("remote.sock"));
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("file");
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.arg("-f").arg("-U").arg(&socket).args(["memory", "64M"]);
        let mut nbdfuse = Command::new("nbdfuse");
        nbdfuse.arg(&file).arg("--unix").arg(&socket);
        let server = start(&mut nbdkit);
        let is_up = wait_for(|| socket.exists());
        let mounted = start(&mut nbdfuse);
        let remote = Remote { server, mounted, file };
        let is_there = is_up && wait_for(|| remote.file.exists());
        (is_there || skip("nbdfuse mounts nothing here")).then_some(remote)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(self.file.parent().unwrap());
        run(unmount);
        for process in [&mut self.mounted, &mut self.server] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits up to twenty seconds for `holds`; true if the condition was met.
fn wait_for(holds: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(300) {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Reads forty extents of the same device at the same time.
fn read_many(uri: &str, first: u64) -> Child {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", uri]);
    for extent in 0..40 {
        command.arg("-c").arg(format!("aio_read {} 64k", first + extent * (256 << 10)));
    }
    start(command.args(["-c", "aio_flush"]))
}

/// With a dozen requests in flight, the daemon's thread slept in the kernel: `status` and `stop` timed out,
/// all guests of all devices waited, and no deadline took effect.
#[test]
fn hanging_device_does_not_block_daemon_or_healthy_devices() {
    if !have_block_devices() || !have(&["qemu-io", "nbdkit", "nbdfuse"]) {
        return;
    }
    let machine = Machine::new();
    let Some(remote) = Remote::mount(&machine) else { return };
    let ssd = remote.file.to_str().unwrap();
    machine.ok(&["create", "v", "--ssd", ssd, "--hdd", "disk,size=96MiB", "--policy", "stripe"]);
    let daemon = machine.serve(&["v", "--cache", "0"]);
    qemu_io_ok(&daemon.uri, &["write -P 6 0 24M", "flush"]);
    let on_ssd = machine.json(&["explain", "v", "0"])["home"]["class"] == "ssd";
    let (ssd_at, disk_at) = if on_ssd { (0, "128k") } else { (128 << 10, "0") };

    remote.signal(Signal::STOP);
    let mut readers = [read_many(&daemon.uri, ssd_at), read_many(&daemon.uri, ssd_at + (12 << 20))];
    let is_slow = || {
        let status = machine.braid(&["status", "v", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap_or_default();
        status["devices"][0]["state"] == "slow"
    };
    assert!(wait_for(is_slow), "the daemon does not say that the device does not answer");
    // The device stays stopped: requests end because no other guest waits for the device, and because of the
    // deadlines. The test's own limit of a program's time kills a request that waits.
    qemu_io_ok(&daemon.uri, &[&format!("read -P 6 {disk_at} 4k")]);
    // The write ends, too. It fails if a commit to the stopped device has failed meanwhile.
    let (_, said) = qemu_io(&daemon.uri, &[&format!("write -P 6 {disk_at} 4k")]);
    assert!(said.contains("wrote") || said.contains("write failed"), "the write does not end: {said}");
    for reader in &mut readers {
        reader.wait().unwrap();
    }

    remote.signal(Signal::CONT);
    assert!(wait_for(|| !is_slow()), "the device answers again");
    qemu_io_ok(&daemon.uri, &["read -P 6 0 24M"]);
    // If a flush reached the hanging device, the flush has failed for good, and the daemon ends with 3.
    let ended = daemon.terminate();
    assert!(matches!(ended.status, 0 | 3), "{ended:?}");
    assert!(Path::new(ssd).exists());
}

/// One half of a mirror hung. `stop` failed and left the process running. Then `serve` said "is served
/// already: braid stop", and `stop` said "is not served: braid serve".
#[test]
fn hanging_device_is_named_with_kill_command() {
    if !have_block_devices() || !have(&["qemu-io", "nbdkit", "nbdfuse"]) {
        return;
    }
    let machine = Machine::new();
    let Some(remote) = Remote::mount(&machine) else { return };
    let ssd = remote.file.to_str().unwrap();
    let shape = ["--policy", "raid1", "--copies", "2", "--size", "32MiB"];
    machine.ok(&[&["create", "v", "--ssd", ssd, "--hdd", "disk,size=96MiB"], &shape[..]].concat());
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["write -P 6 0 4M", "flush"]);
    remote.signal(Signal::STOP);
    qemu_io_ok(&daemon.uri, &["write -P 7 0 1M"]);
    let kill = format!("kill -9 {}", daemon.process());
    machine.refused(&["stop", "v"], "unsafe", &[ssd, &kill]);
    for (verb, kind) in [("serve", "busy"), ("stop", "not_served"), ("check", "busy")] {
        let said = machine.refused(&[verb, "v"], kind, &[ssd, &kill, "umount -f", "last successful flush"]);
        assert!(
            !said.contains("braid serve") && !said.contains("braid stop"),
            "no such command helps: {said}"
        );
    }
    let status = machine.braid(&["status", "v"]).stdout;
    assert!(status.contains(&kill) && !status.contains("braid serve"), "{status}");
    // The remedy in the message works: the device answers again.
    remote.signal(Signal::CONT);
    daemon.kill();
    let daemon = machine.serve(&["v"]);
    qemu_io_ok(&daemon.uri, &["read -P 7 0 1M", "read -P 6 1M 3M"]);
    assert_eq!(daemon.terminate().status, 0);
}
