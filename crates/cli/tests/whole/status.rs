//! Output of `braid status`: for people, for scripts, and with `--watch`.

use crate::machine::{Machine, have, number, qemu_io_ok};
use crate::replace::wait_until;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn status_counts_guest_requests() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let (ssd, hdd) = ("a.img,size=64MiB,model=x25-m", "b.img,size=64MiB,model=mba3073");
    machine.ok(&["create", "vault", "--ssd", ssd, "--hdd", hdd]);
    let resting = machine.json(&["status", "vault"]);
    let told = [
        "cannot_end",
        "dead_block_devices",
        "dead_mounts",
        "devices",
        "ended_unclean",
        "name",
        "pending_log",
        "served",
        "temporary",
        "uuid",
        "waiting_block_devices",
    ];
    assert_eq!(keys(&resting), told);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 1M", "read -P 1 0 1M", "flush"]);
    let status = machine.json(&["status", "vault"]);
    assert_eq!(
        (status["served"].as_bool(), status["durability"].as_str()),
        (Some(true), Some("daemon_crash"))
    );
    assert_eq!(number(&status, "process_id") as u32, daemon.process());
    assert_eq!(status["nbd_uris"][0].as_str(), Some(daemon.uri.as_str()));
    assert_eq!(number(&status, "guests.write.bytes"), f64::from(1 << 20));
    assert!(number(&status, "guests.flush.requests") >= 1.0);
    assert!(number(&status, "guests.write.latency_ns_p99") > 0.0);
    assert_eq!(
        (&status["devices"][0]["class"], &status["devices"][0]["model"]),
        (&"ssd".into(), &"x25-m".into())
    );
    let written =
        number(&status, "devices.0.guest_written_bytes") + number(&status, "devices.1.guest_written_bytes");
    assert!(written >= f64::from(1 << 20), "{status}");
    for (place, device) in status["devices"].as_array().unwrap().iter().enumerate() {
        let all = number(device, "device_written_bytes");
        // At least the first batch of the journal and the guests' writes.
        assert!(all > number(device, "guest_written_bytes"), "d{place}: {status}");
        assert!(device["drive_writes_per_day"].is_null(), "a minute says nothing of a day: {status}");
    }
    let shares = number(&status, "devices.0.data_share") + number(&status, "devices.1.data_share");
    assert!((shares - 1.0).abs() < 1e-9, "{status}");
}

#[test]
fn people_see_every_device_and_every_volume() {
    let machine = Machine::new();
    assert!(machine.ok(&["status"]).contains("braid create"));
    machine.create("vault", &[]);
    machine.create("other", &[]);
    let _daemon = machine.serve(&["vault"]);
    let all = machine.ok(&["status"]);
    let line =
        |name: &str| all.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{all}"));
    assert!(line("vault").contains("equi") && !line("other").contains("equi"), "{all}");
    let one = machine.ok(&["status", "vault"]);
    for part in ["vault.ssd", "vault.hdd", "in flight", "guests", "background", "policy  equi"] {
        assert!(one.contains(part), "{part}: {one}");
    }
    assert!(machine.ok(&["status", "other"]).contains("braid serve other"));
    assert_eq!(machine.json(&["status"])["volumes"].as_array().unwrap().len(), 2);
}

/// The bound was shown only in the policy's settings, and the highest lag only in JSON.
#[test]
fn status_shows_the_bound_of_pass_deferral() {
    let machine = Machine::new();
    let devices = ["--ssd", "a.img,size=64MiB", "--hdd", "b.img,size=64MiB", "--copies", "2"];
    machine.ok(&[&["create", "vault"], &devices[..], &["--policy", "pass,window=1MiB,max-lag-time=2s"]].concat());
    let daemon = machine.serve(&["vault"]);
    let figures = || machine.json(&["status", "vault"])["devices"][1]["policy_figures"].clone();
    wait_until("the bound is known", || figures()["behind_bound_bytes"] == f64::from(2 << 20));
    assert_eq!(figures()["behind_bound_seconds"], 2.0);
    let text = machine.ok(&["status", "vault"]);
    // Without `layout=tail`, only Braid can read the disk.
    for part in ["behind  0 B", "2 MiB", "layout=tail"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn watch_prints_a_report_every_second() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let _daemon = machine.serve(&["vault"]);
    let mut watch = machine.command(&["status", "vault", "--watch", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let uptimes: Vec<f64> = lines
        .take(3)
        .map(|line| number(&serde_json::from_str(&line.unwrap()).unwrap(), "uptime_seconds"))
        .collect();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(uptimes.windows(2).all(|pair| pair[1] - pair[0] > 0.5), "{uptimes:?}");
}

/// A terminal, which `script` pretends to be, gets a page that a key ends.
#[test]
fn watch_shows_a_page_on_a_terminal_until_a_key_ends_it() {
    if !have(&["script"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let _daemon = machine.serve(&["vault"]);
    let watch = format!("stty rows 40 cols 120; {} status vault --watch", env!("CARGO_BIN_EXE_braid"));
    let mut command = machine.program("script");
    command.args(["--quiet", "--return", "--command", &watch, "/dev/null"]);
    let mut page = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut output, mut shown) =
        (page.stdin.take().unwrap(), page.stdout.take().unwrap(), Vec::new());
    let mut part = [0; 4096];
    let has = |shown: &[u8], word: &str| String::from_utf8_lossy(shown).contains(word);
    // Blanks between words are not written.
    while !(has(&shown, "vault") && has(&shown, "latency")) {
        let read = output.read(&mut part).unwrap();
        assert!(read > 0, "the page ended early: {}", String::from_utf8_lossy(&shown));
        shown.extend(&part[..read]);
    }
    keys.write_all(b"q").unwrap();
    output.read_to_end(&mut shown).unwrap();
    assert!(page.wait().unwrap().success());
    // The screen of before is back.
    assert!(has(&shown, "\x1b[?1049l"), "{}", String::from_utf8_lossy(&shown));
}

/// With one copy, no output told the cost of losing an SSD: homes on the SSD are exposed like dirty blocks.
#[test]
fn status_says_how_many_bytes_the_loss_of_each_device_would_cost() {
    if !have(&["qemu-io"]) {
        return;
    }
    let losses = |status: &Value| {
        let devices = status["devices"].as_array().unwrap().iter();
        devices.map(|device| device["loss_bytes"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let machine = Machine::new();
    machine.create("one", &["--policy", "ssd-only", "--size", "64MiB"]);
    let daemon = machine.serve(&["one"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 3M", "flush"]);
    machine.ok(&["policy", "one", "hdd-only"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 8M 2M", "write -P 1 3M 12k", "flush"]);
    // An extent of 128 KiB has parts of 8 KiB.
    assert_eq!(losses(&machine.json(&["status", "one"])), [3 << 20, (2 << 20) + (16 << 10)]);
    let text = machine.ok(&["status", "one"]);
    assert!(text.contains("3 MiB"), "{text}");
    assert_eq!(daemon.terminate().status, 0);

    machine.create("cached", &["--policy", "cache,cache=50%,mode=write-back", "--size", "64MiB"]);
    let daemon = machine.serve(&["cached"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 4M", "write -P 2 0 4M"]);
    for _ in 0..3 {
        let status = machine.json(&["status", "cached"]);
        let [ssd, hdd] = losses(&status)[..] else { panic!("{status}") };
        assert_eq!((Some(ssd), hdd), (status["dirty_bytes"].as_u64(), 4 << 20));
    }
    assert_eq!(daemon.terminate().status, 0);

    machine.create("two", &["--copies", "2", "--policy", "cache,cache=20%,mode=write-back"]);
    let daemon = machine.serve(&["two"]);
    qemu_io_ok(&daemon.uri, &["write -P 1 0 4M", "read -P 1 0 4M", "write -P 2 1M 64k"]);
    assert_eq!(losses(&machine.json(&["status", "two"])), [0, 0]);
    assert_eq!(daemon.terminate().status, 0);

    std::fs::File::create(machine.path("disk.img")).unwrap().set_len(32 << 20).unwrap();
    machine.ok(&["create", "adopted", "--adopt", "disk.img", "--ssd", "fast.img,size=64MiB"]);
    let daemon = machine.serve(&["adopted"]);
    qemu_io_ok(&daemon.uri, &["read 0 4M", "read 0 4M", "write -P 2 0 4M", "write -P 3 1M 4M"]);
    let status = machine.json(&["status", "adopted"]);
    assert_eq!(losses(&status)[..2], [0, 32 << 20], "nothing is dirty on the SSD alone");
    assert_eq!(daemon.terminate().status, 0);
}
