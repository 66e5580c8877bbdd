//! The glossary `docs/json.md` matches the output of commands: every printed field is documented, and every
//! documented field is printed.

use crate::help::VERBS;
use crate::machine::{Daemon, Machine, have, have_block_devices, number, qemu_io_ok};
use crate::recover::behind_its_ssd;
use crate::repair::lose_map;
use crate::replace::without_its_ssd;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

type Fields = BTreeSet<String>;

/// Word of the glossary for the fields of a failure, common to all commands.
const ANY: &str = "any";

/// Reads the glossary: fields by command. Each field has one row, so one meaning.
fn glossary() -> BTreeMap<String, Fields> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut by_command, mut known) = (BTreeMap::<String, Fields>::new(), Fields::new());
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let fields: Vec<&str> = cells[0].split(", ").map(|field| field.trim_matches('`')).collect();
        for field in &fields {
            assert!(known.insert((*field).to_owned()), "'{field}' has two rows in docs/json.md");
        }
        // Rows of Python columns have no command.
        let commands = cells.get(3).into_iter().flat_map(|commands| commands.split(", "));
        for command in commands {
            by_command.entry(command.to_owned()).or_default().extend(fields.iter().map(|f| (*f).to_owned()));
        }
    }
    by_command
}

/// Collects the names of all fields of a report. Fields below `policy_figures` belong to the policy, and
/// fields below `measured_models_off` are names of devices: neither is collected.
fn collect(value: &Value, found: &mut Fields) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.insert(name.clone());
                if name != "policy_figures" && name != "measured_models_off" {
                    collect(value, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// Checks that the glossary and the command's help name all fields of `reports`, and the glossary no others.
pub fn assert_documented(machine: &Machine, command: &str, reports: &[&Value]) {
    let mut printed = Fields::new();
    reports.iter().for_each(|report| collect(report, &mut printed));
    let documented = glossary().remove(command).unwrap_or_default();
    let unknown: Vec<&String> = printed.difference(&documented).collect();
    assert!(unknown.is_empty(), "docs/json.md does not have these fields of '{command}': {unknown:?}");
    let silent: Vec<&String> = documented.difference(&printed).collect();
    assert!(silent.is_empty(), "docs/json.md has fields of '{command}' that it does not print: {silent:?}");
    let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
    let mut help = machine.ok(&words);
    if command == "import" {
        help += &machine.ok(&["check", "--help"]);
    }
    let named: BTreeSet<&str> = help.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    for field in printed {
        // The help may abbreviate a further statistic of a field to its suffix, such as `_p90`.
        let (stem, statistic) = field.split_at(field.rfind('_').unwrap_or(0));
        let as_statistic = named.contains(statistic) && named.iter().any(|word| word.starts_with(stem));
        assert!(named.contains(&*field) || as_statistic, "braid {command} --help does not name '{field}'");
    }
}

#[test]
fn json_glossary_lists_every_command_with_json() {
    let parents = ["device", "lab", "tls", "trace", "completions"];
    let commands = VERBS.iter().filter(|verb| !parents.contains(verb)).chain(&[ANY]);
    let commands: Fields = commands.map(|&command| command.to_owned()).collect();
    assert_eq!(glossary().into_keys().collect::<Fields>(), commands);
}

#[test]
fn json_failure_report_has_the_documented_fields() {
    let machine = Machine::new();
    let ended = machine.braid(&["status", "nosuch", "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut printed = Fields::new();
    collect(&report, &mut printed);
    assert_eq!(printed, glossary()[ANY]);
}

#[test]
fn fields_of_a_volume_are_in_the_glossary() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let devices = ["--ssd", "a.img,size=64MiB,model=x25-m", "--hdd", "b.img,size=64MiB"];
    let created = machine.json(&[&["create", "vault", "--policy", "equi,mode=auto"], &devices[..]].concat());
    assert_documented(&machine, "create", &[&created]);
    let resting = machine.json(&["status", "vault"]);
    let daemon = machine.serve(&["vault", "--json"]);
    let ready: Value = serde_json::from_str(&daemon.uri).unwrap();
    assert_documented(&machine, "serve", &[&ready]);
    let uri = ready["nbd_uris"][0].as_str().unwrap();
    qemu_io_ok(uri, &["write -P 1 0 1M", "read -P 1 0 1M", "flush"]);
    let (status, all) = (machine.json(&["status", "vault"]), machine.json(&["status"]));
    daemon.signal(Signal::STOP);
    let silent = machine.braid(&["status", "--json"]).stdout;
    daemon.signal(Signal::CONT);
    let silent = serde_json::from_str(&silent).unwrap();
    assert_documented(&machine, "status", &[&resting, &status, &all, &silent]);
    assert_documented(&machine, "explain", &[&machine.json(&["explain", "vault", "0"])]);
    assert_documented(&machine, "policy", &[&machine.json(&["policy", "vault", "stripe"])]);
    assert_documented(&machine, "resize", &[&machine.json(&["resize", "vault", "80MiB"])]);
    let mut daemon: Daemon = daemon;
    assert_documented(&machine, "stop", &[&machine.json(&["stop", "vault"])]);
    assert_eq!(daemon.wait().status, 0);
    assert_documented(&machine, "forget", &[&machine.json(&["forget", "vault"])]);
    assert_documented(&machine, "import", &[&machine.json(&["import", "a.img", "b.img"])]);
}

#[test]
fn fields_of_a_check_are_in_the_glossary() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    machine.create("vault", &[]);
    let daemon = machine.serve(&["vault"]);
    qemu_io_ok(&daemon.uri, &["write 0 1M", "flush"]);
    assert_eq!(daemon.terminate().status, 0);
    lose_map(&machine);
    let repaired = machine.braid(&["check", "vault", "--repair", "--json"]);
    let repaired: Value = serde_json::from_str(&repaired.stdout).unwrap();
    let mirror = Machine::new();
    without_its_ssd(&mirror);
    let lacking = mirror.braid(&["check", "vault", "--json"]);
    assert_documented(&machine, "check", &[&repaired, &serde_json::from_str(&lacking.stdout).unwrap()]);
    mirror.ok(&[
        "create",
        "other",
        "--ssd",
        "a.img,size=64MiB",
        "--hdd",
        "b.img,size=64MiB",
        "--copies",
        "2",
    ]);
    let other = mirror.serve(&["other"]);
    assert_documented(&machine, "device fail", &[&mirror.json(&["device", "fail", "other", "d0"])]);
    assert_eq!(other.terminate().status, 0);
    let replaced = mirror.json(&["device", "replace", "other", "d0", "c.img,size=64MiB"]);
    assert_documented(&machine, "device replace", &[&replaced]);
    let image = Machine::new();
    behind_its_ssd(&image);
    let look = Daemon::start(image.command(&["recover", "vault", "--read-only", "--json"]));
    let ready: Value = serde_json::from_str(&look.uri).unwrap();
    assert_eq!(look.terminate().status, 0);
    assert_documented(&machine, "recover", &[&ready, &image.json(&["recover", "vault"])]);
    let other = mirror.serve(&["other"]);
    let added = mirror.json(&["device", "add", "other", "--hdd", "d.img,size=64MiB"]);
    assert_documented(&machine, "device add", &[&added]);
    let removed = mirror.json(&["device", "remove", "other", "d2"]);
    assert_documented(&machine, "device remove", &[&removed]);
    mirror.ok(&["device", "fail", "other", "d0"]);
    assert_documented(&machine, "device return", &[&mirror.json(&["device", "return", "other", "d0"])]);
    assert_eq!(other.terminate().status, 0);
}

#[test]
fn fields_of_an_attached_volume_are_in_the_glossary() {
    if !have_block_devices() || !have(&["mkfs.ext4"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve_mounted("vault");
    assert_documented(&machine, "attach", &[&machine.json(&["attach", "vault"])]);
    assert_documented(&machine, "detach", &[&machine.json(&["detach", "vault"])]);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn fields_of_device_models_are_in_the_glossary() {
    let machine = Machine::new();
    let (list, one) = (machine.json(&["device", "show"]), machine.json(&["device", "show", "x25-m"]));
    assert_documented(&machine, "device show", &[&list, &one]);
    let file = "slow.img,size=1GiB,model=mba3073";
    let words = ["device", "calibrate", file, "--seconds", "5", "--output", "mine.toml"];
    assert_documented(&machine, "device calibrate", &[&machine.json(&words)]);
}

#[test]
fn fields_of_simulations_are_in_the_glossary() {
    let machine = Machine::new();
    std::fs::write(machine.path("t.spc"), "0,8,4096,w,0.0\n3,0,8192,r,0.25\n0,16,512,R,0.5\n").unwrap();
    let simulated = |load: &[&str]| {
        let devices = ["simulate", "--ssd", "1GiB,model=x25-m,node=0", "--hdd", "4GB,model=mba3073"];
        machine.json(&[&devices[..], &["--network", "1Gbit"], load].concat())
    };
    let workload = "random,span=64MiB,requests=1000";
    let (generated, counted, traced) = (
        simulated(&["--workload", workload, "--policy", "best-static"]),
        simulated(&["--workload", "dbench-like,requests=1000", "--policy", "equi"]),
        simulated(&["--trace", "t.spc", "--policy", "equi"]),
    );
    assert_documented(&machine, "simulate", &[&generated, &counted, &traced]);
}

#[test]
fn fields_of_advice_are_in_the_glossary() {
    let machine = Machine::new();
    crate::advise::record_reads(&machine, 400);
    let words = ["--policy", "ssd-first", "--policy", "raid1", "--present", "hdd-only"];
    let all = [&["advise", "--trace", "t.spc"], crate::advise::DEVICES, &words].concat();
    assert_documented(&machine, "advise", &[&machine.json(&all)]);
}

#[test]
fn fields_of_a_plan_are_in_the_glossary() {
    let machine = crate::plan::with_prices();
    let plan = machine.json(&["plan", "--trace", "t.spc", "--prices", "prices.toml", "--slo", "p99<1ms"]);
    assert_documented(&machine, "plan", &[&plan]);
}

#[test]
fn fields_of_the_lab_are_in_the_glossary() {
    let machine = Machine::new();
    assert_documented(&machine, "lab list", &[&machine.json(&["lab", "list"])]);
    let declared = machine.json(&["lab", "show", "wardrop/table3", "--toml"]);
    assert_documented(&machine, "lab show", &[&machine.json(&["lab", "show", "wardrop/table3"]), &declared]);
    let ran = machine.json(&["lab", "run", "wardrop/table3", "--quick"]);
    let cell = ["corpus", "--quick", "--half", "published", "--seed", "9", "--cells", "1", "--results", "r"];
    let judged = machine.json(&[&["lab", "run"], &cell[..]].concat());
    assert_documented(&machine, "lab run", &[&ran, &judged]);
    let words = ["lab", "report", "wardrop/fig9", "--quick", "--output", "lab.html", "--svg", "plots"];
    let corpus = [&["lab", "report", "--output", "corpus.html"], &cell[..]].concat();
    assert_documented(&machine, "lab report", &[&machine.json(&words), &machine.json(&corpus)]);
}

#[test]
fn fields_of_traces_are_in_the_glossary() {
    let machine = Machine::new();
    std::fs::write(machine.path("t.spc"), "0,8,4096,w,0.0\n3,0,8192,r,0.25\nrubbish\n0,8,512,R,0.5\n")
        .unwrap();
    assert_documented(&machine, "trace info", &[&machine.json(&["trace", "info", "t.spc"])]);
    assert_documented(&machine, "trace mrc", &[&machine.json(&["trace", "mrc", "t.spc"])]);
    let converted = machine.json(&["trace", "convert", "t.spc", "t.trace"]);
    assert_documented(&machine, "trace convert", &[&converted]);
    let _daemon = machine.serve(&["--temporary", "--ssd", "memory,size=96MiB"]);
    let recorded = machine.json(&["trace", "record", "temporary", "--output", "r.trace", "--seconds", "1"]);
    assert_documented(&machine, "trace record", &[&recorded]);
}

#[test]
fn json_glossary_covers_policies_and_dbench_fields() {
    if !have(&["fio"]) {
        return;
    }
    let machine = Machine::new();
    std::fs::create_dir(machine.path("files")).unwrap();
    let words = ["--quick", "--policies", "stripe", "--dir", "files"];
    assert_documented(
        &machine,
        "demo policies",
        &[&machine.json(&[&["demo", "policies", "--size", "64MiB"], &words[..]].concat())],
    );
    let dbench = ["demo", "dbench", "--over", "nbd", "--clients", "1"];
    assert_documented(&machine, "demo dbench", &[&machine.json(&[&dbench, &words[..]].concat())]);
}

#[test]
fn demo_shows_both_claims_and_its_fields_are_in_the_glossary() {
    if !have_block_devices() || !have(&["mkfs.ext4", "e2fsck"]) {
        return;
    }
    let machine = Machine::new();
    std::fs::create_dir(machine.path("files")).unwrap();
    let report = machine.json(&["demo", "--quick", "--dir", "files"]);
    assert_documented(&machine, "demo", &[&report]);
    for part in ["pass", "cache"] {
        assert_documented(&machine, &format!("demo {part}"), &[&report[part]]);
        let commits = |policy: usize| number(&report, &format!("{part}.runs.{policy}.commits_per_second"));
        assert!(commits(0) > 0.0 && commits(1) > 0.0, "{report}");
        assert!(number(&report, &format!("{part}.kept_commits")) > 0.0, "{report}");
    }
    assert_eq!(report["cache"]["lost_commits"], 0, "{report}");
    let files = std::fs::read_dir(machine.path("files")).unwrap();
    assert_eq!(files.count(), 0, "it leaves nothing");
}
