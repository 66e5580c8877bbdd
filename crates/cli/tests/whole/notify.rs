//! The daemon as a service: messages to the service manager, its sockets, and a mount namespace of the
//! daemon's own.

use crate::machine::{Daemon, Machine, client, have, have_block_devices, qemu_io, run, skip};
use crate::namespace::{REMOVE_COPIES, make_namespace, without_copies};
use rustix::process::Signal;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::Duration;

/// Far longer than a daemon needs for its next message.
const PATIENCE: Duration = Duration::from_secs(60);

fn next(socket: &UnixDatagram) -> String {
    let mut message = [0; 4096];
    let length = socket.recv(&mut message).expect("a message of the daemon");
    String::from_utf8(message[..length].to_vec()).unwrap()
}

/// Starts a daemon with these variables of a service manager.
fn serve(machine: &Machine, variables: &[(&str, &str)]) -> Daemon {
    let mut command = machine.command(&["serve", "vault"]);
    command.envs(variables.iter().copied());
    Daemon::start(command)
}

#[test]
fn service_manager_is_told_of_ready_beats_and_stop() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    // A short path: the machine's directory may be longer than the path of a socket.
    let path = machine.runtime().join("notify");
    let path = path.to_str().unwrap();
    let name = format!("braid-test-{}", std::process::id());
    let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
    for (socket, address) in [
        (UnixDatagram::bind(path).unwrap(), path.to_owned()),
        (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}")),
    ] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut daemon = serve(&machine, &[("NOTIFY_SOCKET", &address), ("WATCHDOG_USEC", "400000")]);
        let ready = next(&socket);
        let status = format!("STATUS=serves {}", daemon.uri);
        assert_eq!(ready.lines().collect::<Vec<_>>(), ["READY=1", &status], "{address}");
        for _ in 0..3 {
            assert_eq!(next(&socket), "WATCHDOG=1", "{address}");
        }
        daemon.signal(Signal::TERM);
        let mut messages = std::iter::from_fn(|| Some(next(&socket))).take_while(|m| m != "STOPPING=1");
        assert!(messages.all(|message| message == "WATCHDOG=1"), "{address}");
        assert_eq!(daemon.wait().status, 0, "{address}");
    }
}

/// Beats stop with the reactor: the thread of a stopped process does nothing.
#[test]
fn stopped_daemon_does_not_beat() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let path = machine.runtime().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "20000")];
    let daemon = serve(&machine, &variables);
    assert!(next(&socket).starts_with("READY=1\n"));
    daemon.signal(Signal::STOP);
    // Beats sent before the signal was handled.
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    while socket.recv(&mut [0; 64]).is_ok() {}
    assert!(socket.recv(&mut [0; 64]).is_err());
    daemon.signal(Signal::CONT);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(next(&socket), "WATCHDOG=1");
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn watchdog_of_another_process_gets_no_beats_and_a_dead_socket_only_a_warning() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let path = machine.runtime().join("notify");
    let address = path.to_str().unwrap();
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let variables = [("NOTIFY_SOCKET", address), ("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", "1")];
    let daemon = serve(&machine, &variables);
    assert!(next(&socket).starts_with("READY=1\n"));
    assert!(socket.recv(&mut [0; 64]).is_err(), "no beat");
    assert_eq!(daemon.terminate().status, 0);
    drop(socket);
    std::fs::remove_file(&path).unwrap();
    let daemon = serve(&machine, &[("NOTIFY_SOCKET", address)]);
    let ended = daemon.terminate();
    assert!(ended.status == 0 && ended.stderr.contains("NOTIFY_SOCKET"), "{ended:?}");
}

/// systemd starts the daemon at the first connection, which waits in the socket until the volume is open.
#[test]
fn nbd_is_served_by_a_socket_of_the_service_manager() {
    if !have(&["systemd-socket-activate", "qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let path = machine.runtime().join("nbd");
    let own = machine.command(&["serve", "vault"]);
    let mut command = Command::new("systemd-socket-activate");
    command.arg("-l").arg(&path).current_dir(machine.path(""));
    for (name, value) in own.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))) {
        command.args(["-E", &format!("{name}={value}")]);
    }
    command.arg(own.get_program()).args(own.get_args());
    let socket = path.clone();
    let guest = std::thread::spawn(move || {
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Between the birth of the file and `listen`.
        std::thread::sleep(Duration::from_millis(100));
        let uri = format!("nbd+unix:///vault?socket={}", socket.display());
        qemu_io(&uri, &["write -P 7 0 64k", "flush", "read -P 7 0 64k"])
    });
    let daemon = Daemon::start(command);
    assert_eq!(daemon.uri, format!("nbd+unix:///vault?socket={}", path.display()));
    let (well, said) = guest.join().unwrap();
    assert!(well, "{said}");
    assert_eq!(daemon.terminate().status, 0);
    assert!(path.exists(), "the socket belongs to the service manager");
}

/// A unit with a sandbox has a mount namespace of its own, and its mounts are not seen outside.
#[test]
fn daemon_in_a_mount_namespace_of_its_own_is_attached_and_detached() {
    if !have_block_devices() || !have(&["mkfs.ext4", "unshare"]) {
        return;
    }
    let apart = ["--mount", "--propagation", "slave"];
    let probe = || Command::new("unshare").args(apart).arg("true").status();
    if !make_namespace(probe).is_ok_and(|status| status.success()) {
        skip("this process may not make a mount namespace");
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let own = machine.command(&["serve", "vault"]);
    let mut command = Command::new("unshare");
    command.args(apart).args(["sh", "-c", &format!("{REMOVE_COPIES}exec \"$0\" \"$@\"")]);
    command.arg(own.get_program()).args(own.get_args()).current_dir(machine.path(""));
    command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let daemon = make_namespace(|| Daemon::start(command));
    let links = machine.path("links");
    let attach = |words: &[&str]| {
        let mut command = machine.command(&[&["attach", "vault", "--json"], words].concat());
        let ended = run({
            command.env("BRAID_DEVICE_DIR", &links);
            command
        });
        assert_eq!(ended.status, 0, "{words:?}: {ended:?}");
        serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap()
    };
    let attached = attach(&[]);
    let device = attached["block_device"].as_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    // Other tests have mounts of volumes of this name.
    let own = std::fs::canonicalize(machine.state()).unwrap().join("vault/mount");
    assert!(!mounts.contains(own.to_str().unwrap()), "the daemon's mount is its own");
    // The name that stays.
    let link = links.join("vault");
    assert_eq!(attached["block_device_link"].as_str(), link.to_str());
    assert_eq!(std::fs::canonicalize(&link).unwrap().to_str(), Some(device));

    client("mkfs.ext4", &["-q", link.to_str().unwrap()]);
    std::fs::create_dir(machine.path("mnt")).unwrap();
    let again = attach(&["--mount", "mnt"]);
    assert_eq!(again["block_device"].as_str(), Some(device), "attached twice");
    std::fs::write(machine.path("mnt/letter"), "dear reader").unwrap();
    assert!(machine.ok(&["status", "vault"]).contains(device));
    machine.refused(&["stop", "vault"], "busy", &["mnt"]);
    let mut detach = machine.command(&["detach", "vault"]);
    detach.env("BRAID_DEVICE_DIR", &links);
    let unused = without_copies();
    let ended = run(detach);
    drop(unused);
    assert!(ended.status == 0 && std::fs::read_link(&link).is_err(), "{ended:?}");

    // After a kill, nothing of the daemon is left but its block device.
    attach(&["--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    client("sync", &["-f", machine.path("mnt/letter").to_str().unwrap()]);
    daemon.kill();
    machine.ok(&["detach", "vault"]);
    let daemon = machine.serve(&["vault"]);
    attach(&["--mount", "mnt"]);
    assert_eq!(std::fs::read_to_string(machine.path("mnt/letter")).unwrap(), "dear reader");
    machine.ok(&["detach", "vault"]);
    assert_eq!(daemon.terminate().status, 0);
}
