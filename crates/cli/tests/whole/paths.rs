//! Unusual paths: with commas, not in UTF-8, longer than the path of a socket may be.

use crate::machine::{Daemon, Machine, have, qemu_io_ok, run};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// A path with a comma was impossible, and the message was half a sentence.
#[test]
fn device_path_with_a_doubled_comma_works() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.refused(&["create", "vault", "--ssd", "a,b.img"], "usage", &["a,b.img", "written twice"]);
    machine.ok(&["create", "vault", "--ssd", "a,,b.img,size=64MiB", "--hdd", "c,,.img,size=64MiB"]);
    assert!(machine.path("a,b.img").exists() && machine.path("c,.img").exists());
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 3 0 1M", "flush", "read -P 3 0 1M"]);
    machine.ok(&["device", "add", "vault", "--hdd", "d,,d.img,size=64MiB"]);
    assert!(machine.path("d,d.img").exists());
    assert_eq!(daemon.terminate().status, 0);
    assert_eq!(machine.serve(&["vault"]).terminate().status, 0);
}

/// Names outside UTF-8 were refused in a message without the name, or failed only at the reply.
#[test]
fn non_utf8_path_is_refused_before_any_change() {
    let machine = Machine::new();
    let braid = |words: &[&OsStr], state: &[u8]| {
        let mut command: Command = machine.command(&[]);
        command.args(words).env("BRAID_STATE_DIR", machine.path("").join(OsStr::from_bytes(state)));
        run(command)
    };
    let words = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    let ended =
        braid(&[words(b"create"), words(b"v"), words(b"--ssd"), words(b"x\xff.img,size=64MiB")], b"state");
    assert!(ended.status == 2 && ended.stderr.contains(r"x\xFF.img"), "{ended:?}");
    std::fs::write(machine.path("").join(words(b"y\xff.img")), "").unwrap();
    let ended = braid(&[words(b"import"), words(b"y\xff.img")], b"state");
    assert!(ended.status == 2 && ended.stderr.contains(r"y\xFF.img"), "{ended:?}");
    let ended =
        braid(&[words(b"create"), words(b"v"), words(b"--ssd"), words(b"x.img,size=64MiB")], b"st\xff");
    assert!(ended.status == 2 && ended.stderr.contains(r"st\xFF"), "{ended:?}");
    assert!(!machine.path("x.img").exists());
}

/// `create` worked, but `serve` failed with the kernel's message: the path of a socket has at most 107 bytes.
#[test]
fn state_directory_with_a_long_path_works() {
    let machine = Machine::new();
    let state = machine.path(&"deep".repeat(30)).join("state");
    let braid = |words: &[&str]| {
        let mut command = machine.command(words);
        command.env("BRAID_STATE_DIR", &state);
        command
    };
    let ok = |words: &[&str]| {
        let ended = run(braid(words));
        assert_eq!(ended.status, 0, "{words:?}: {ended:?}");
        ended.stdout
    };
    ok(&["create", "vault", "--ssd", "a.img,size=64MiB", "--hdd", "b.img,size=64MiB"]);
    let mut daemon = Daemon::start(braid(&["serve", "vault"]));
    assert!(ok(&["status", "vault"]).contains("served for"));
    let ended = run(braid(&["serve", "vault"]));
    assert!(ended.status == 1 && ended.stderr.contains("braid stop vault"), "{ended:?}");
    ok(&["stop", "vault"]);
    let ended = daemon.wait();
    assert!(ended.status == 0 && ended.stderr.contains("--nbd unix:"), "{ended:?}");
    // With an explicit NBD socket, the daemon does not warn.
    let mut daemon = Daemon::start(braid(&["serve", "vault", "--nbd", "unix:nbd.sock"]));
    ok(&["stop", "vault"]);
    let ended = daemon.wait();
    assert!(ended.status == 0 && !ended.stderr.contains("--nbd unix:"), "{ended:?}");
}

/// The message was "invalid digit found in string".
#[test]
fn invalid_option_values_are_refused_with_the_reason() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    machine.refused(
        &["serve", "vault", "--cache", "lots"],
        "usage",
        &["lots", "--cache", "not a whole number"],
    );
    machine.refused(&["serve", "vault", "--distrust", "d7"], "usage", &["d7", "d0, d1"]);
    machine.refused(
        &["policy", "vault", "cache,dirty-high=20%"],
        "usage",
        &["dirty-high", "only with mode=write-back"],
    );
}
