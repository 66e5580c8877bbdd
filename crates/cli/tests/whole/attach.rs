//! The volume as a block device, and `attach` without permission.

use crate::machine::{Daemon, Machine, client, have, have_block_devices, run, skip};
use crate::namespace::without_copies;
use rustix::process::Signal;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

#[test]
fn file_system_persists_across_detach_and_attach() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    machine.refused(&["attach", "vault"], "not_served", &["braid serve vault"]);
    let daemon = machine.serve(&["vault"]);
    let attached = machine.json(&["attach", "vault"]);
    let device = attached["block_device"].as_str().unwrap().to_owned();
    assert!(device.starts_with("/dev/loop"), "{device}");
    assert_eq!(machine.ok(&["attach", "vault"]).trim(), device, "attached twice");
    client("mkfs.ext4", &["-q", &device]);
    std::fs::create_dir(machine.path("mnt")).unwrap();
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    assert!(machine.ok(&["status", "vault"]).contains(&device));

    let open = std::fs::File::open(machine.path("mnt/letter")).unwrap();
    machine.refused(&["detach", "vault"], "busy", &["mnt", "fuser"]);
    drop(open);
    assert_detached(&machine, true);
    machine.refused(&["detach", "vault"], "invalid", &["vault"]);
    assert_eq!(daemon.terminate().status, 0);

    let daemon = machine.serve(&["vault"]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    machine.ok(&["detach", "vault"]);
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

/// Detaches a volume mounted on `mnt`; `served` is true if the daemon still serves afterwards.
fn assert_detached(machine: &Machine, served: bool) {
    let detached = machine.json(&["detach", "vault"]);
    let unmounted = detached["unmounted"][0].as_str().unwrap();
    assert!(unmounted.ends_with("/mnt") && detached["served"] == served, "{detached}");
}

/// The daemon dies under a mounted file system. The file system fails, and works again after detach, serve
/// and attach. After the kernel had noticed the death, `detach` refused with "mounted on", or reported the
/// volume as still served.
#[test]
fn detach_and_attach_work_after_daemon_death() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve_mounted("vault");
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    client("sync", &["-f", machine.path("mnt/letter").to_str().unwrap()]);
    daemon.kill();
    // The kernel has noticed the death when the file under the block device is unreachable.
    while std::fs::metadata(machine.state().join("vault/mount/volume")).is_ok() {
        std::thread::yield_now();
    }
    assert_detached(&machine, false);
    machine.refused(&["detach", "vault"], "invalid", &["vault"]);
    let daemon = machine.serve(&["vault"]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    machine.ok(&["detach", "vault"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// After SIGTERM, a daemon waited ten seconds and ended with success, but the dirty pages of the file system
/// on its volume were lost. SIGHUP killed the daemon.
#[test]
fn stopping_daemon_unmounts_file_systems_of_the_volume() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    let mut daemon = machine.serve_mounted("vault");
    // A daemon started with SIGHUP ignored continues after its terminal closes.
    let mut signals = vec![Signal::TERM];
    match ignores_hangups() {
        false => signals.push(Signal::HUP),
        true => _ = skip("the tests were started with SIGHUP ignored (nohup), which the daemon inherits"),
    }
    for signal in signals {
        let letter = format!("dear reader of {signal:?}");
        std::fs::write(machine.path("mnt/letter"), &letter).unwrap();
        let ended = daemon.end_by(signal);
        assert_eq!(ended.status, 0, "{ended:?}");
        assert_eq!(machine.json(&["check", "vault"])["clean"], true);
        daemon = machine.serve(&["vault"]);
        machine.ok(&["attach", "vault", "--mount", "mnt"]);
        assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), letter);
    }
    machine.ok(&["stop", "vault", "--force"]);
    assert_eq!(daemon.wait().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

/// True if this process ignores SIGHUP; child processes inherit the setting.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1
}

/// A program keeps the file system busy. The file system cannot be unmounted but is synced, and the daemon
/// ends with a failure.
#[test]
fn stopping_daemon_syncs_a_busy_file_system_and_warns() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve_mounted("vault");
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    let open = std::fs::File::open(machine.path("mnt/letter")).unwrap();
    let ended = daemon.terminate();
    assert_eq!(ended.status, 3, "{ended:?}");
    for part in ["mnt", "fuser", "braid detach vault"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    drop(open);
    machine.ok(&["detach", "vault"]);
    let daemon = machine.serve(&["vault"]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    assert_eq!(daemon.terminate().status, 0);
}

/// A child process of another thread inherits open files of this test for a moment. On a busy machine,
/// `detach` sometimes failed for this reason.
#[test]
fn detach_retries_while_file_system_is_briefly_in_use() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    let _daemon = machine.serve_mounted("vault");
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    let open = std::fs::File::open(machine.path("mnt/letter")).unwrap();
    let _unused = without_copies();
    let mut detach = machine.command(&["detach", "vault"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(open);
    assert!(detach.wait().unwrap().success());
}

/// All functions except block devices work for any user.
#[test]
fn attach_without_root_suggests_the_nbd_uri() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        skip("only root can become somebody else");
        return;
    }
    let machine = Machine::new();
    let home = machine.path(".");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = machine.command(words);
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    // If only root may run the program, the test is skipped.
    if as_nobody(&["--version"]).output().map_or(true, |output| !output.status.success()) {
        skip("another user cannot run the braid that was built");
        return;
    }
    let ended = run(as_nobody(&["create", "vault", "--ssd", "a,size=64MiB", "--hdd", "b,size=64MiB"]));
    assert_eq!(ended.status, 0, "{ended:?}");
    let daemon = Daemon::start(as_nobody(&["serve", "vault"]));
    let ended = run(as_nobody(&["attach", "vault"]));
    assert_eq!(ended.status, 1, "{ended:?}");
    for part in ["root", "nbd+unix:///vault"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert_eq!(daemon.terminate().status, 0);
}
