//! The volume as a block device, and without the right to one.

use crate::machine::{Daemon, Machine, client, have, have_block_devices, run, skip};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

#[test]
fn a_file_system_on_an_attached_volume_is_there_again_the_next_time() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    machine.refused(&["attach", "vault"], 1, &["is not served", "braid serve vault"]);
    let daemon = machine.serve(&["vault"]);
    let attached = machine.json(&["attach", "vault"]);
    let device = attached["device"].as_str().unwrap().to_owned();
    let _cleanup = Detach(&machine);
    assert!(device.starts_with("/dev/loop"), "{device}");
    assert_eq!(machine.ok(&["attach", "vault"]).trim(), device, "attached twice");
    client("mkfs.ext4", &["-q", &device]);
    std::fs::create_dir(machine.path("mnt")).unwrap();
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    assert!(machine.ok(&["status", "vault"]).contains(&format!("attached as {device}")));

    let open = std::fs::File::open(machine.path("mnt/letter")).unwrap();
    machine.refused(&["detach", "vault"], 1, &["is mounted on", "fuser"]);
    drop(open);
    let said = machine.ok(&["detach", "vault"]);
    assert!(said.contains("unmounted") && said.contains("still served"), "{said}");
    machine.refused(&["detach", "vault"], 1, &["not attached"]);
    assert_eq!(daemon.terminate().status, 0);

    let daemon = machine.serve(&["vault"]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    machine.ok(&["detach", "vault"]);
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
}

/// The daemon dies under a mounted file system: that one fails, and all is well after detach, serve and attach.
#[test]
fn after_the_daemon_died_detach_clears_what_it_left_and_attach_works_again() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    let _cleanup = Detach(&machine);
    client("mkfs.ext4", &["-q", &device]);
    std::fs::create_dir(machine.path("mnt")).unwrap();
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    client("sync", &["-f", machine.path("mnt/letter").to_str().unwrap()]);
    daemon.kill();
    machine.ok(&["detach", "vault"]);
    let daemon = machine.serve(&["vault"]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    machine.ok(&["detach", "vault"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// Takes a block device away even where the test failed.
struct Detach<'a>(&'a Machine);

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        self.0.braid(&["detach", "vault"]);
    }
}

/// Everything but a block device works for any user.
#[test]
fn without_root_attach_says_what_to_do_instead() {
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
    // Where the programme was built for root alone, nobody else can run it.
    if as_nobody(&["--version"]).output().map_or(true, |output| !output.status.success()) {
        skip("another user cannot run the braid that was built");
        return;
    }
    let ended = run(as_nobody(&["create", "vault", "--ssd", "a,size=64MiB", "--hdd", "b,size=64MiB"]));
    assert_eq!(ended.status, 0, "{ended:?}");
    let daemon = Daemon::start(as_nobody(&["serve", "vault"]));
    let ended = run(as_nobody(&["attach", "vault"]));
    assert_eq!(ended.status, 1, "{ended:?}");
    for part in ["needs root", "by NBD", "nbd+unix:///vault"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert_eq!(daemon.terminate().status, 0);
}
