//! `braid advise`: from a recording to a command, and errors with a remedy.

use crate::machine::{Machine, have, qemu_io_ok};
use serde_json::Value;
use std::fmt::Write;

pub const DEVICES: &[&str] = &["--ssd", "96MiB,model=x25-m", "--hdd", "1GiB,model=mba3073"];

/// Makes a recording of `count` reads: nine of ten from 4 MiB of 100 MiB, a good load for a cache.
pub fn record_reads(machine: &Machine, count: u32) {
    let mut text = String::new();
    for number in 0..count {
        // A permutation of the places, so the disk must seek.
        let place = number.wrapping_mul(2_654_435_761) >> 12;
        let block = if number % 10 == 9 { place % 25_600 } else { place % 1024 };
        writeln!(text, "0,{},4096,r,{}.{:02}", block * 8, number / 50, number % 50 * 2).unwrap();
    }
    std::fs::write(machine.path("t.spc"), text).unwrap();
}

#[test]
fn a_recording_becomes_a_command_and_a_page() {
    let machine = Machine::new();
    record_reads(&machine, 3000);
    let words = ["--present", "hdd-only", "--policy", "ssd-first", "--html", "advice.html", "--tbw", "1TB"];
    let words = [&["advise", "--trace", "t.spc"], DEVICES, &words].concat();
    let advice = machine.json(&words);
    assert_eq!(advice["choice"]["ruling"], "change", "{advice}");
    assert_eq!(advice["command"], "braid policy NAME ssd-first");
    let policies: Vec<&str> =
        advice["rows"].as_array().unwrap().iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["ssd-first", "hdd-only"]);
    let row = &advice["rows"][0];
    assert!(row["latency_ns_low"].as_f64() < row["latency_ns_mean"].as_f64(), "{row}");
    let points = advice["curves"][0]["points"].as_array().unwrap();
    assert!(points.len() > 2 && advice["curves"][0]["policy"] == "ssd-first", "{}", advice["curves"]);
    let page = std::fs::read_to_string(machine.path("advice.html")).unwrap();
    assert!(page.matches("<svg").count() == 2 && page.contains("braid policy NAME ssd-first"));
    assert!(!page.contains("<script") && !page.contains("src="));
    let text = machine.ok(&words);
    assert!(text.contains("braid policy NAME ssd-first") && text.contains("knee"), "{text}");
}

#[test]
fn advise_simulates_only_the_last_requests_if_asked() {
    let machine = Machine::new();
    record_reads(&machine, 1000);
    let words = ["--policy", "hdd-only", "--requests", "200", "--policies-only"];
    let advice = machine.json(&[&["advise", "--trace", "t.spc"], DEVICES, &words].concat());
    assert_eq!((&advice["recorded_requests"], &advice["simulated_requests"]), (&1000.into(), &200.into()));
    assert_eq!((&advice["measured_requests"], &advice["curves"]), (&100.into(), &Value::Array(vec![])));
}

#[test]
fn advise_errors_name_the_cause_and_the_remedy() {
    let machine = Machine::new();
    record_reads(&machine, 10);
    let of_trace = [&["advise", "--trace", "t.spc"], DEVICES].concat();
    machine.refused(&of_trace, "usage", &["t.spc", "64"]);
    machine.refused(&["advise"], "usage", &["--trace"]);
    machine.refused(&["advise", "--trace", "t.spc"], "usage", &["--ssd", "--hdd"]);
    machine.create("vault", &[]);
    machine.refused(&["advise", "vault"], "not_served", &["braid serve vault"]);
    machine.refused(&[&["advise", "--trace", "none.spc"], DEVICES].concat(), "io", &["none.spc"]);
    let nowhere = [&of_trace[..], &["--html", "no/where.html"]].concat();
    machine.refused(&nowhere, "io", &["no/where.html"]);
    record_reads(&machine, 200);
    machine.refused(&[&of_trace[..], &["--present", "balance"]].concat(), "usage", &["wardrop"]);
}

/// Devices without a model cannot be simulated; with models, the simulation starts from the volume's layout.
#[test]
fn advise_records_a_served_volume_and_compares_policies() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "memory,size=64MiB,model=x25-m", "--hdd", "memory,size=128MiB"];
    let options = ["--temporary", "--policy", "hdd-only", "--size", "64MiB"];
    let daemon = machine.serve(&[&options[..], &devices].concat());
    qemu_io_ok(&daemon.uri, &["write 0 16M"]);
    let ask = ["advise", "temporary", "--for", "3s", "--keep", "kept.trace"];
    machine.refused(&ask, "usage", &["d1", "--hdd-model", "braid device calibrate"]);
    let words = [&ask[..], &["--hdd-model", "mba3073", "--policies-only", "--policy", "ssd-first", "--json"]]
        .concat();
    let asked = machine.command(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let reads: Vec<String> = (0..60).map(|n| format!("read {}k 4k", n * 260 % 16_000)).collect();
    while !machine.path("kept.trace").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for _ in 0..3 {
        qemu_io_ok(&daemon.uri, &reads.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let ended = asked.wait_with_output().unwrap();
    let advice: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(
        (&advice["name"], &advice["present_policy"]),
        (&"temporary".into(), &"hdd-only".into()),
        "{advice}"
    );
    assert!(advice["recorded_requests"].as_u64() >= Some(180), "{advice}");
    let policies =
        advice["rows"].as_array().unwrap().len() + advice["unfit_policies"].as_array().unwrap().len();
    assert_eq!(policies, 2, "{advice}");
    // The printed command works.
    if let Some(command) = advice["command"].as_str() {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        assert_eq!(words[..2], ["policy", "temporary"]);
        machine.ok(&words);
    }
}
