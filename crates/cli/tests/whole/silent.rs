//! A daemon does not answer: commands report the daemon's process and a remedy within seconds, and report
//! other volumes as usual.

use crate::machine::{Daemon, Machine, client, have, have_block_devices, number, qemu_io_ok};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::Signal;
use serde_json::Value;

/// A daemon stopped by SIGSTOP, until the value is dropped.
struct Stopped<'a>(&'a Daemon);

impl Stopped<'_> {
    fn stop(daemon: &Daemon) -> Stopped<'_> {
        daemon.signal(Signal::STOP);
        Stopped(daemon)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

/// `braid status` of all volumes; one daemon does not answer.
fn status_of_all(machine: &Machine) -> Value {
    let ended = machine.braid(&["status", "--json"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// A silent daemon delayed the status of all volumes by two minutes, and then was missing from the report.
#[test]
fn stopped_daemon_does_not_hide_further_volumes_in_status() {
    let machine = Machine::new();
    for name in ["first", "second", "third"] {
        machine.create(name, &[]);
    }
    let (daemon, other) = (machine.serve(&["first"]), machine.serve(&["second"]));
    let stopped = Stopped::stop(&daemon);
    let all = status_of_all(&machine);
    let volumes = all["volumes"].as_array().unwrap();
    let served: Vec<_> = volumes.iter().map(|volume| (&volume["name"], &volume["served"])).collect();
    let expected = [("first", true), ("second", true), ("third", false)];
    assert_eq!(served.len(), expected.len(), "{all}");
    for (found, expected) in served.into_iter().zip(expected) {
        assert_eq!((found.0.as_str(), found.1.as_bool()), (Some(expected.0), Some(expected.1)), "{all}");
    }
    assert_eq!(number(&volumes[0], "process_id") as u32, daemon.process());
    assert_eq!(volumes[0]["process_state"], "stopped");
    assert_eq!(volumes[0]["error"]["kind"], "io");
    assert_eq!(number(&volumes[1], "process_id") as u32, other.process());
    let text = machine.braid(&["status"]);
    let resume = format!("kill -CONT {}", daemon.process());
    assert!(text.status == 1 && text.stdout.contains(&resume), "{text:?}");
    drop(stopped);
    machine.ok(&["status"]);
    machine.ok(&["status", "first"]);
    for daemon in [daemon, other] {
        assert_eq!(daemon.terminate().status, 0);
    }
}

/// Each of these commands waited for two minutes, and named no process.
#[test]
fn commands_name_the_process_of_a_stopped_daemon() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let stopped = Stopped::stop(&daemon);
    let (process, resume) = (daemon.process().to_string(), format!("kill -CONT {}", daemon.process()));
    let commands: [&[&str]; 14] = [
        &["status", "vault"],
        &["explain", "vault", "0"],
        &["policy", "vault"],
        &["policy", "vault", "stripe"],
        &["stop", "vault"],
        &["stop", "vault", "--force"],
        &["attach", "vault"],
        &["detach", "vault"],
        &["device", "add", "vault", "--ssd", "new,size=64MiB"],
        &["device", "remove", "vault", "d0"],
        &["device", "fail", "vault", "d0"],
        &["device", "return", "vault", "d0"],
        &["device", "replace", "vault", "d0", "new,size=64MiB"],
        &["trace", "record", "vault", "--output", "trace"],
    ];
    std::thread::scope(|scope| {
        for words in commands {
            let named = ["vault", &process, &resume];
            let machine = &machine;
            scope.spawn(move || machine.refused(words, "io", &named));
        }
    });
    for verb in ["serve", "check", "forget"] {
        machine.refused(&[verb, "vault"], "busy", &[&process, "braid stop vault"]);
    }
    assert!(!machine.path("new").exists(), "a device was made");
    drop(stopped);
    machine.ok(&["explain", "vault", "0"]);
    machine.ok(&["stop", "vault"]);
}

/// `stop --force` did not name the only command that ends a silent daemon.
#[test]
fn printed_kill_of_stopped_daemon_loses_no_acknowledged_write() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 7 0 1M"]);
    let stopped = Stopped::stop(&daemon);
    let kill = format!("kill -9 {}", daemon.process());
    let log = machine.runtime().to_str().unwrap();
    for words in [&["stop", "vault"][..], &["stop", "vault", "--force"]] {
        machine.refused(words, "io", &[&kill, log, "braid serve vault"]);
    }
    client("kill", &["-9", &daemon.process().to_string()]);
    drop(stopped);
    let mut daemon = daemon;
    daemon.wait();
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["read -P 7 0 1M"]);
    assert_eq!(daemon.terminate().status, 0);
}

/// After 129 interrupted commands, the next command waited without a limit.
#[test]
fn a_full_queue_of_connections_is_an_error_too() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let stopped = Stopped::stop(&daemon);
    let address = SocketAddrUnix::new(machine.state().join("vault/admin.sock")).unwrap();
    let mut waiting = Vec::new();
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        match connect(&socket, &address) {
            Ok(()) => waiting.push(socket),
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                break;
            }
        }
    }
    machine.refused(&["stop", "vault"], "io", &[&format!("kill -CONT {}", daemon.process())]);
    status_of_all(&machine);
    drop((waiting, stopped));
    assert_eq!(daemon.terminate().status, 0);
}

/// `detach` accessed the daemon's file before asking the daemon, and never returned.
#[test]
fn detach_of_a_mounted_volume_does_not_wait_for_a_silent_daemon() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve_mounted("vault");
    let stopped = Stopped::stop(&daemon);
    let resume = format!("kill -CONT {}", daemon.process());
    for words in [&["detach", "vault"][..], &["stop", "vault", "--force"], &["attach", "vault"]] {
        machine.refused(words, "io", &[&resume]);
    }
    drop(stopped);
    machine.ok(&["detach", "vault"]);
    assert_eq!(daemon.terminate().status, 0);
}
