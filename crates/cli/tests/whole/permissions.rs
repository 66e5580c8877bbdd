//! Permissions: new files are private, and a check needs no write permission.

use crate::machine::{Machine, run, skip};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Images had mode 0644: every user of the machine could read the volume.
#[test]
fn images_sockets_and_state_are_private_under_any_umask() {
    let machine = Machine::new();
    let mut command = std::process::Command::new("sh");
    let script = "umask 000; exec \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_braid"), "create", "vault"]);
    command.args(["--ssd", "a.img,size=64MiB", "--hdd", "b.img,size=64MiB"]);
    command.current_dir(machine.path(".")).env("BRAID_STATE_DIR", machine.state());
    let ended = run(command);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!((mode(&machine.path("a.img")), mode(&machine.path("b.img"))), (0o600, 0o600));
    let daemon = machine.serve(&["vault", "--nbd", "unix:nbd.sock"]);
    let state = machine.state().join("vault");
    for path in
        [machine.path("nbd.sock"), state.join("admin.sock"), state.join("lock"), state.join("volume.json")]
    {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(&state), 0o700);
    assert_eq!(daemon.terminate().status, 0);
}

/// In a state directory with write permission for other users, a symbolic link in place of the lock file made
/// root overwrite any file.
#[test]
fn symbolic_link_as_lock_file_is_not_followed() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let lock = machine.state().join("vault/lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(machine.path("letter"), "dear reader").unwrap();
    symlink(machine.path("letter"), &lock).unwrap();
    machine.refused(&["serve", "vault"], "invalid", &["lock"]);
    machine.refused(&["check", "vault"], "invalid", &["lock"]);
    assert_eq!(std::fs::read_to_string(machine.path("letter")).unwrap(), "dear reader");
}

/// A check opened devices for writing, and therefore needed write permission although a check must not write.
#[test]
fn a_check_needs_no_right_to_write() {
    const OTHER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let state = machine.state();
    let readable = [(".", 0o755), ("vault.ssd", 0o444), ("vault.hdd", 0o444), ("state", 0o555)];
    let inner = [("vault", 0o555), ("vault/lock", 0o444), ("vault/volume.json", 0o444)];
    let paths = readable.map(|(name, mode)| (machine.path(name), mode));
    for (path, mode) in paths.into_iter().chain(inner.map(|(name, mode)| (state.join(name), mode))) {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let as_other = |words: &[&str]| {
        let mut command = machine.command(words);
        command.uid(OTHER).gid(OTHER);
        command
    };
    if as_other(&["--version"]).output().map_or(true, |output| !output.status.success()) {
        skip("another user cannot run the braid that was built");
        return;
    }
    let ended = run(as_other(&["check", "vault"]));
    assert_eq!(ended.status, 0, "{ended:?}");
    // A check while a daemon serves is still refused.
    chown(machine.path("."), Some(0), Some(0)).unwrap();
    let daemon = machine.serve(&["vault"]);
    let ended = run(as_other(&["check", "vault"]));
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(ended.stderr.contains(&daemon.process().to_string()), "{}", ended.stderr);
    assert_eq!(daemon.terminate().status, 0);
}

/// The daemon refuses other users at the admin socket, even if somebody has widened the socket's mode.
#[test]
fn admin_socket_refuses_other_users_whatever_its_mode() {
    const OTHER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return;
    }
    let machine = Machine::open_to_all();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let (state, socket) = (machine.state(), machine.state().join("vault/admin.sock"));
    for (path, mode) in [(&state, 0o755), (&state.join("vault"), 0o755), (&socket, 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    // Through a copy, because another user may not reach the braid that was built. Another process copies: a
    // child that another test starts meanwhile would keep a file open that this process writes.
    let braid = machine.path("braid");
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_braid")).arg(&braid);
    assert_eq!(run(copy).status, 0);
    let mut command = machine.program(braid.to_str().unwrap());
    command.args(["stop", "vault", "--force"]).uid(OTHER).gid(OTHER);
    let ended = run(command);
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(ended.stderr.contains("not user 65534"), "{ended:?}");
    machine.ok(&["stop", "vault", "--force"]);
    drop(daemon);
}
