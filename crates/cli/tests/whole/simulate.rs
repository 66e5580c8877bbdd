//! `braid simulate`: a table for people, JSON for programs, and errors with a remedy.

use crate::machine::Machine;
use serde_json::Value;

const DEVICES: &[&str] = &["--ssd", "1GiB,model=x25-m", "--hdd", "4GB,model=mba3073,count=2"];
const LOAD: &[&str] = &["--workload", "random,span=128MiB,requests=3000"];

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["simulate"], DEVICES, LOAD, more].concat()
}

fn runs(machine: &Machine, more: &[&str]) -> Vec<Value> {
    machine.json(&words(more))["runs"].as_array().unwrap().clone()
}

#[test]
fn policies_and_numbers_of_clients_come_out_side_by_side() {
    let machine = Machine::new();
    let compared = ["--policy", "wardrop", "--policy", "stripe", "--clients", "1,4", "--verify"];
    let runs = runs(&machine, &compared);
    let given: Vec<(&str, u64)> = runs
        .iter()
        .map(|run| (run["given"]["policy"].as_str().unwrap(), run["given"]["clients"].as_u64().unwrap()))
        .collect();
    assert_eq!(given, [("wardrop", 1), ("stripe", 1), ("wardrop", 4), ("stripe", 4)]);
    for run in &runs {
        assert_eq!(run["all"]["requests"], 3000);
        assert_eq!(run["devices"].as_array().unwrap().len(), 3);
        assert!(run["verified_bytes"].as_u64().unwrap() > 0);
        assert!(run["read"]["latency_ns_p99"].as_u64() > run["read"]["latency_ns_p50"].as_u64());
    }
    assert!(
        runs[3]["throughput_bytes_per_second"].as_f64() > runs[1]["throughput_bytes_per_second"].as_f64()
    );
    let text = machine.ok(&words(&compared));
    for expected in ["policy", "clients", "MB/s", "p99.9", "stripe", "2 × hdd mba3073", "x25-m"] {
        assert!(text.contains(expected), "'{expected}' is not in {text}");
    }
}

#[test]
fn request_log_contains_every_simulated_request() {
    let machine = Machine::new();
    let log = machine.path("requests.csv").display().to_string();
    let run = &runs(&machine, &["--policy", "stripe", "--request-log", &log])[0];
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "arrival_ns,operation,offset_bytes,length_bytes,queue_ns,service_ns");
    assert_eq!(lines.len() as u64 - 1, run["all"]["requests"].as_u64().unwrap());
    let longest = lines[1..].iter().map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        fields[4].parse::<u64>().unwrap() + fields[5].parse::<u64>().unwrap()
    });
    let (longest, told) = (longest.max().unwrap() as f64, run["all"]["latency_ns_max"].as_f64().unwrap());
    assert!((longest / told - 1.0).abs() < 0.01, "{longest}, {told}");
    let two = words(&["--policy", "stripe", "--policy", "wardrop", "--request-log", &log]);
    machine.refused(&two, "usage", &["--request-log"]);
}

#[test]
fn simulation_is_deterministic_on_any_thread_count() {
    let machine = Machine::new();
    let figures = |threads: &str| -> Vec<Value> {
        let runs = runs(&machine, &["--policy", "wardrop", "--policy", "ssd-first", "--threads", threads]);
        let without_wall_time = |mut run: Value| {
            let fields = run.as_object_mut().unwrap();
            fields.remove("wall_seconds").unwrap();
            fields.remove("requests_per_wall_second").unwrap();
            run
        };
        runs.into_iter().map(without_wall_time).collect()
    };
    assert_eq!(figures("1"), figures("2"));
}

#[test]
fn single_simulation_prints_the_full_report() {
    let machine = Machine::new();
    let text = machine.ok(&words(&["--verify"]));
    for expected in ["queue mean", "service p99", "background", "memory", "verified", "writes/day"] {
        assert!(text.contains(expected), "'{expected}' is not in {text}");
    }
}

/// `simulate` refused a user-defined model, although `create` accepted the same model.
#[test]
fn own_models_and_raid_groups_keep_the_model_name() {
    let machine = Machine::new();
    let disk = machine.ok(&["device", "show", "mba3073"]).replace("\"mba3073\"", "\"mine\"");
    std::fs::write(machine.path("disk.toml"), disk).unwrap();
    let load = ["--workload", "sequential,span=512MiB,size=4MiB,read=100%,requests=300", "--cache", "0"];
    let words =
        |device: &'static str| [&["simulate", "--hdd", device, "--policy", "stripe"], &load[..]].concat();
    let stream = |device: &'static str| {
        let run = machine.json(&words(device))["runs"][0].clone();
        let name = run["devices"][0]["model"].as_str().unwrap().to_owned();
        (run["throughput_bytes_per_second"].as_f64().unwrap(), name)
    };
    let (named, _) = stream("4GiB,model=mba3073");
    let (one, name) = stream("4GiB,model=disk.toml");
    assert_eq!((one, name.as_str()), (named, "mine"));
    let (striped, name) = stream("16GiB,model=disk.toml,raid0=4,unit=64KiB");
    assert_eq!(name, "raid0 of 4 mine");
    assert!((3.4..4.3).contains(&(striped / one)), "{one} B/s alone, {striped} B/s striped");
    assert_eq!(stream("4GiB,model=disk.toml,raid1=2").1, "raid1 of 2 mine");

    let text = machine.ok(&words("16GiB,model=disk.toml,raid0=4,count=2"));
    assert!(text.contains("2 × hdd raid0 of 4 mine") && text.contains("16 GiB"), "{text}");
    machine.refused(&words("4GiB,model=none.toml"), "usage", &["none.toml", "braid device show"]);
    machine.refused(&words("4GiB,model=disk.toml,raid0=99"), "usage", &["raid0=99", "64"]);
    machine.refused(&["create", "x", "--hdd", "a.img,raid0=4"], "usage", &["raid0"]);
}

#[test]
fn simulate_errors_name_the_valid_choice() {
    let machine = Machine::new();
    let refused = |words: &[&str], expected: &[&str]| {
        machine.refused(words, "usage", expected);
    };
    refused(&["simulate"], &["--ssd"]);
    refused(&["simulate", "--ssd", "1GiB,model=x25-m"], &["--workload", "--trace"]);
    refused(&[&["simulate", "--ssd", "1GiB,model=x99"], LOAD].concat(), &["'x99'", "x25-m", "mba3073"]);
    refused(&[&["simulate", "--hdd", "1GiB,model=x25-m"], LOAD].concat(), &["--ssd"]);
    refused(&[&["simulate"], DEVICES, &["--workload", "randam"]].concat(), &["'randam'", "zipf"]);
    refused(&words(&["--policy", "balance"]), &["'balance'", "wardrop"]);
    refused(&words(&["--size", "1TiB"]), &["1 TiB"]);
    refused(&words(&["--warm-up", "10h"]), &["--warm-up"]);
}

#[test]
fn failed_simulation_run_does_not_hide_successful_runs() {
    let machine = Machine::new();
    let more = ["--policy", "stripe", "--policy", "stripe,wrong=1", "--json"];
    let ended = machine.braid(&words(&more));
    assert_eq!(ended.status, 2, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["runs"][0]["all"]["requests"], 3000);
    assert!(report["runs"][1]["error"]["message"].as_str().unwrap().contains("wrong"));
}

/// Makes a trace of 30 extents, 4 TB apart on a disk, with alternating reads and writes.
fn scattered(machine: &Machine) {
    let line = |number: u64| {
        let op = if number.is_multiple_of(2) { 'r' } else { 'w' };
        format!("0,{},4096,{op},{}\n", number % 30 * 8_000_000_000, number as f64 / 100.0)
    };
    std::fs::write(machine.path("scattered.spc"), (0..90).map(line).collect::<String>()).unwrap();
}

#[test]
fn trace_is_compacted_unless_switched_off() {
    let machine = Machine::new();
    scattered(&machine);
    let words = [&["simulate"], DEVICES, &["--trace", "scattered.spc"]].concat();
    let run = &machine.json(&words)["runs"][0];
    assert_eq!(run["trace"]["compacted_bytes"], 30 * (128 << 10));
    assert_eq!(run["volume_bytes"], run["trace"]["compacted_bytes"]);
    assert!(run["trace"]["span_bytes"].as_u64().unwrap() > 100_000_000_000_000);
    let off = [&words[..], &["--compact", "off", "--beyond", "wrap"]].concat();
    let run = &machine.json(&off)["runs"][0];
    assert_eq!(run["trace"]["compacted_bytes"], Value::Null);
    assert!(run["volume_bytes"].as_u64().unwrap() > 1_000_000_000);
    machine.refused(&[&words[..], &["--compact", "off"]].concat(), "usage", &["--beyond"]);
}

#[test]
fn a_device_may_have_a_share_of_the_data() {
    let machine = Machine::new();
    scattered(&machine);
    let words = |ssd: &'static str, load: &[&'static str]| {
        [&["simulate", "--ssd", ssd, "--hdd", "4GB,model=mba3073", "--policy", "static,ssd=100%"], load]
            .concat()
    };
    let data_share =
        |words: &[&str]| machine.json(words)["runs"][0]["devices"][0]["data_share"].as_f64().unwrap();
    let trace = ["--trace", "scattered.spc", "--extent", "512KiB"];
    assert_eq!(data_share(&words("50%,model=x25-m", &trace)), 0.5);
    assert_eq!(data_share(&words("25%,model=x25-m", LOAD)), 0.25);
    assert!(machine.ok(&words("50%,model=x25-m", &trace)).contains("50%"));
    machine.refused(&words("1%,model=x25-m", &trace), "usage", &["1%"]);
    machine.refused(&words("50%,model=x25-m", &["--trace", "scattered.spc"]), "usage", &["50%", "4 MiB"]);
    machine.refused(&words("0%,model=x25-m", &trace), "usage", &["'0%'"]);
}

#[test]
fn a_trace_is_read_and_played_as_the_options_say() {
    let machine = Machine::new();
    scattered(&machine);
    let words =
        |more: &[&'static str]| [&["simulate"], DEVICES, &["--trace", "scattered.spc"], more].concat();
    let run = |more: &[&'static str]| machine.json(&words(more))["runs"][0].clone();
    let twice = run(&["--repeat", "2"]);
    assert_eq!((&twice["all"]["requests"], &twice["warm_up_requests"]), (&90.into(), &90.into()));
    assert_eq!(run(&["--warm-up", "50%"])["all"]["requests"], 45);
    assert_eq!(run(&["--warm-up", "80req"])["all"]["requests"], 10);
    let seconds = run(&["--max-gap", "5ms"])["measured_seconds"].as_f64().unwrap();
    assert!((0.44..0.5).contains(&seconds), "{seconds} s");
    assert_eq!(run(&["--trace-block", "4KiB"])["trace"]["compacted_bytes"], 30 * (128 << 10));
    machine.refused(&words(&["--repeat", "2", "--warm-up", "1s"]), "usage", &["--repeat", "--warm-up"]);
    machine.refused(&words(&["--format", "blktrace"]), "io", &["blktrace"]);
    machine.refused(&words(&["--warm-up", "soon"]), "usage", &["10000req"]);
}

#[test]
fn best_static_split_has_the_lowest_mean_latency() {
    let machine = Machine::new();
    let splits: Vec<String> = (1..=9).map(|tenths| format!("static,ssd={tenths}0%")).collect();
    let each = splits.iter().flat_map(|split| ["--policy", split]);
    let compared: Vec<&str> = ["--policy", "best-static", "--verify"].into_iter().chain(each).collect();
    let runs = runs(&machine, &compared);
    let latency = |run: &Value| run["all"]["latency_ns_mean"].as_f64().unwrap();
    let (best, splits) = runs.split_first().unwrap();
    let lowest = splits.iter().min_by(|a, b| latency(a).total_cmp(&latency(b))).unwrap();
    assert_eq!((&best["policy"], latency(best)), (&lowest["policy"], latency(lowest)));
    assert_eq!(
        (&best["given"]["policy"], &best["best"]["policy"]),
        (&"best-static".into(), &lowest["given"]["policy"])
    );
    let tried = best["best"]["tried"].as_array().unwrap();
    assert_eq!(tried.len(), 9);
    assert!(
        tried
            .iter()
            .zip(splits)
            .all(|(tried, split)| tried["latency_ns_mean"] == split["all"]["latency_ns_mean"])
    );
    let text = machine.ok(&words(&["--policy", "best-static"]));
    assert!(text.contains("best-static: static,ssd="), "{text}");
    let one = ["simulate", "--ssd", "1GiB,model=x25-m", "--policy", "best-static"];
    machine.refused(&[&one, LOAD].concat(), "usage", &["static"]);
}

#[test]
fn simulation_notes_warn_of_misleading_figures() {
    let machine = Machine::new();
    std::fs::write(machine.path("empty.spc"), "8,0 0 1 0.0 1 D R 8 + 8 [x]\n").unwrap();
    let trace = [&["simulate"], DEVICES, &["--trace", "empty.spc"]].concat();
    let notes = machine.json(&trace)["runs"][0]["notes"].clone();
    let note = notes[0].as_str().unwrap();
    assert!(note.contains("--event issue") && machine.ok(&trace).contains(note), "{notes}");
    assert_eq!(machine.json(&words(&[]))["runs"][0]["notes"], Value::Array(vec![]));
    let notes = machine.json(&words(&["--prefill", "none"]))["runs"][0]["notes"].clone();
    assert!(notes[0].as_str().unwrap().contains("--prefill"), "{notes}");
}
