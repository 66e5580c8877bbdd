//! `braid web` beside real daemons: the browser's end of a connection is a plain socket.

use crate::json::assert_documented;
use crate::machine::{Daemon, Machine, have, number, qemu_io_ok};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Status and body of an answer.
fn get(url: &str, path: &str) -> (u16, String) {
    request(url, "GET", path, "")
}

fn request(url: &str, verb: &str, path: &str, body: &str) -> (u16, String) {
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    let (kind, length) = ("application/json", body.len());
    let head =
        format!("Host: {address}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close");
    write!(stream, "{verb} {path} HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn dashboard_says_what_status_says_and_outlives_the_daemon() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    let web = Daemon::start(machine.command(&["web", "--listen", "127.0.0.1:0", "--json"]));
    let ready: Value = serde_json::from_str(&web.uri).unwrap();
    let url = ready["url"].as_str().unwrap();
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let json = |path: &str| serde_json::from_str::<Value>(&get(url, path).1).unwrap();
    // A device has figures once the dashboard has asked twice, after ten seconds.
    let history = loop {
        let history = json("/api/volumes/vault/history?range=day");
        if history["devices"][0]["utilisation"][0].is_number() {
            break history;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    let (map, on_device) = (json("/api/volumes/vault/map"), json("/api/volumes/vault/map?device=1"));
    let (alerts, advice) = (json("/api/volumes/vault/alerts"), json("/api/volumes/vault/advice"));
    assert_documented(&machine, "web", &[&ready, &history, &map, &on_device, &alerts, &advice]);
    assert!(history["since_unix_seconds"].as_u64().is_some());
    let cells = map["map_cells"]["mapped_share"].as_array().unwrap().len() as u64;
    assert_eq!(number(&map, "size_bytes"), number(&machine.json(&["status", "vault"]), "size_bytes"));
    assert!(
        cells <= 4096 && cells * map["cell_bytes"].as_u64().unwrap() >= map["size_bytes"].as_u64().unwrap()
    );
    assert_eq!((&on_device["on_device"], &map["on_device"]), (&"d1".into(), &Value::Null));
    assert_eq!(get(url, "/api/volumes/vault/map?device=9").0, 404);
    assert_eq!(get(url, "/api/volumes/vault/map?device=x").0, 400);
    assert_eq!(get(url, "/api/volumes/nosuch/map").0, 404);
    assert_eq!(get(url, "/api/volumes/vault/history?range=week").0, 400);
    let explained = json("/api/volumes/vault/explain?offset_bytes=4096");
    assert_eq!(fields(&explained), fields(&machine.json(&["explain", "vault", "4096"])));
    assert_eq!(get(url, "/api/volumes/vault/explain?offset_bytes=99999999999999").0, 404);

    let (status, body) = get(url, "/api/volumes/vault");
    let (told, same): (Value, Value) =
        (serde_json::from_str(&body).unwrap(), machine.json(&["status", "vault"]));
    assert_eq!((status, fields(&told)), (200, fields(&same)));
    assert_eq!((&told["uuid"], &told["process_id"]), (&same["uuid"], &same["process_id"]));
    assert_eq!(fields(&told["devices"][0]), fields(&same["devices"][0]));
    assert_eq!(number(&told, "size_bytes"), number(&same, "size_bytes"));
    assert_eq!(get(url, "/healthz").0, 200);
    assert!(get(url, "/metrics").1.contains("braid_volume_up{volume=\"vault\"} 1"));

    daemon.kill();
    // A report serves all readers for nearly a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let resting: Value = serde_json::from_str(&get(url, "/api/volumes/vault").1).unwrap();
    assert_eq!((&resting["served"], &resting["ended_unclean"]), (&false.into(), &true.into()));
    let daemon = machine.serve(&["vault"]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let again: Value = serde_json::from_str(&get(url, "/api/volumes/vault").1).unwrap();
    assert_eq!(again["process_id"], daemon.process());
    assert_eq!(web.terminate().status, 0);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn dashboard_asks_for_advice_and_ends_it_with_itself() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "memory,size=64MiB,model=x25-m", "--hdd", "memory,size=128MiB,model=mba3073"];
    let options = ["--temporary", "--policy", "hdd-only", "--size", "64MiB"];
    let daemon = machine.serve(&[&options[..], &devices].concat());
    let words = ["web", "--listen", "127.0.0.1:0", "--json", "--allow-changes"];
    std::fs::create_dir(machine.path("temporary-files")).unwrap();
    let mut command = machine.command(&words);
    command.env("TMPDIR", machine.path("temporary-files"));
    let web = Daemon::start(command);
    let ready: Value = serde_json::from_str(&web.uri).unwrap();
    let url = ready["url"].as_str().unwrap();
    let path = "/api/volumes/temporary/advice";
    let json = |path: &str| serde_json::from_str::<Value>(&get(url, path).1).unwrap();
    let reads: Vec<String> = (0..60).map(|n| format!("read {}k 4k", n * 260 % 16_000)).collect();
    let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
    qemu_io_ok(&daemon.uri, &["write 0 16M"]);
    let ended = loop {
        let begun = request(url, "POST", path, r#"{"action":"begin","seconds":600}"#);
        assert_eq!(begun.0, 200, "{}", begun.1);
        (0..10).for_each(|_| qemu_io_ok(&daemon.uri, &reads));
        assert_eq!(json(path)["is_running"], true);
        assert_eq!(request(url, "POST", path, r#"{"action":"simulate"}"#).0, 200);
        let ended = loop {
            let report = json(path);
            if report["is_running"] == false {
                break report;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        // The recording begins when the program has started: on a busy machine, after these requests.
        if ended["error"]["kind"] != "usage" {
            break ended;
        }
    };
    let advice = &ended["advice"];
    assert_eq!(
        (&advice["name"], &advice["present_policy"]),
        (&"temporary".into(), &"hdd-only".into()),
        "{ended}"
    );
    assert!(advice["rows"].as_array().unwrap().len() > 3 && advice["sentences"][1].is_string(), "{advice}");
    // The end of the dashboard ends an advice, which leaves nothing behind.
    let scratch = || {
        let entries = std::fs::read_dir(machine.path("temporary-files")).unwrap();
        entries.count()
    };
    assert_eq!(scratch(), 0, "the recording is removed");
    assert_eq!(request(url, "POST", path, r#"{"action":"begin","seconds":600}"#).0, 200);
    while scratch() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(web.terminate().status, 0);
    while scratch() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn dashboard_for_other_machines_needs_a_token() {
    let machine = Machine::new();
    machine.refused(&["web", "--listen", "0.0.0.0:0"], "usage", &["--token"]);
    std::fs::write(machine.path("token"), "short\n").unwrap();
    machine.refused(&["web", "--token", "token"], "usage", &["16"]);
    machine.refused(&["web", "--token", "nosuch"], "io", &["nosuch"]);
    machine.refused(&["web", "--host", "a/b"], "usage", &["a/b"]);
}
