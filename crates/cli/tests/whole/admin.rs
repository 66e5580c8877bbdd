//! The admin socket, as used by other programs: the daemon answers every input with a line, and continues.

use crate::machine::{Machine, have, have_block_devices, number, qemu_io_ok};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

struct Connection(BufReader<UnixStream>);

impl Connection {
    fn open(machine: &Machine) -> Connection {
        let stream = UnixStream::connect(machine.state().join("vault/admin.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        Connection(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        // The daemon may have closed the connection already; its last reply is read nevertheless.
        let _ = self.0.get_mut().write_all(text.as_bytes());
    }

    /// Returns the next reply; `None` if the daemon closed the connection.
    fn reply(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).ok().filter(|&count| count > 0);
        read.map(|_| serde_json::from_str(&line).unwrap())
    }

    fn kind(&mut self) -> String {
        self.reply().unwrap()["error"]["kind"].as_str().unwrap().to_owned()
    }
}

#[test]
fn requests_are_answered_in_order_and_nonsense_with_an_error() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let _daemon = machine.serve(&["vault"]);
    let mut connection = Connection::open(&machine);
    // Two requests in one piece, and one request in two pieces.
    connection.send(
        "{\"version\":1,\"request\":\"policy\"}\n{\"version\":1,\"request\":\"flush\"}\n{\"version\":1,",
    );
    assert_eq!(connection.reply().unwrap()["ok"]["name"], "vault");
    assert_eq!(connection.reply().unwrap()["ok"], serde_json::json!({}));
    connection.send("\"request\":\"checkpoint\"}\n");
    assert_eq!(connection.reply().unwrap()["ok"], serde_json::json!({}));
    for nonsense in
        ["", "{}", "[1,2", "{\"version\":1,\"request\":\"dance\"}", "{\"version\":1,\"request\":\"explain\"}"]
    {
        connection.send(&format!("{nonsense}\n"));
        assert_eq!(connection.kind(), "usage", "{nonsense}");
    }
    connection.send("{\"version\":2,\"request\":\"status\"}\n");
    assert_eq!(connection.kind(), "unsupported");
    connection.send(&"x".repeat(20 << 10));
    assert_eq!(connection.kind(), "usage");
    assert_eq!(connection.reply(), None, "a line without an end did not end the connection");
    assert_eq!(machine.json(&["status", "vault"])["served"], true);
}

#[test]
fn connection_beyond_the_limit_is_refused_as_busy() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let _daemon = machine.serve(&["vault"]);
    let mut all: Vec<Connection> = (0..16).map(|_| Connection::open(&machine)).collect();
    assert_eq!(Connection::open(&machine).kind(), "busy");
    all.pop();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(machine.json(&["status", "vault"])["served"], true);
}

/// One client keeps its connection open, and another client requests the stop.
#[test]
fn stop_waits_for_a_limited_time_and_reports_the_outcome() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let mut daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 1M"]);
    let path = daemon.uri.split("socket=").nth(1).unwrap().to_owned();
    let _idle = UnixStream::connect(path).unwrap();
    assert_eq!(machine.json(&["stop", "vault", "--force"])["stopped"], true);
    assert_eq!(daemon.wait().status, 0);
    machine.refused(&["stop", "vault"], "not_served", &["vault"]);
    // Written data is present, although no client flushed.
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["read -P 1 0 1M"]);
}

/// A program has the block device open, so the daemon cannot remove the file beneath. The daemon waits for a
/// limited time, and then ends with a failure status.
#[test]
fn daemon_with_open_block_device_ends_without_loss() {
    if !have_block_devices() {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    let open = std::fs::OpenOptions::new().write(true).open(&device).unwrap();
    open.write_all_at(&[5; 1 << 20], 0).unwrap();
    open.sync_all().unwrap();
    let ended = daemon.terminate();
    assert_eq!(ended.status, 3, "{ended:?}");
    assert!(ended.stderr.contains("braid detach vault"), "{}", ended.stderr);
    assert_eq!(machine.json(&["check", "vault"])["clean"], true);
    drop(open);
    let daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    let mut bytes = vec![0; 1 << 20];
    std::fs::File::open(&device).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 5));
    assert!(number(&machine.json(&["status", "vault"]), "mapped_bytes") > 0.0);
    // No process has the device open now: the daemon detaches the device.
    assert_eq!(daemon.terminate().status, 0);
    machine.refused(&["detach", "vault"], "invalid", &["vault"]);
}
