//! Traces on the command line: measured, converted, refused; and replayed by fio.

use crate::machine::{Machine, client, have, number, run};
use serde_json::Value;
use std::process::Stdio;

const SPC: &str = "0,8,4096,w,0.0\n3,0,8192,r,0.25\n0,16,512,R,0.5\n0,16,512,r,0.75\n";

fn machine(text: &str) -> Machine {
    let machine = Machine::new();
    std::fs::write(machine.path("t.spc"), text).unwrap();
    machine
}

#[test]
fn info_measures_a_trace() {
    let machine = machine(SPC);
    let found = machine.json(&["trace", "info", "t.spc"]);
    assert_eq!((&found["format"], &found["compression"]), (&"spc".into(), &"plain".into()));
    assert_eq!((number(&found, "records"), number(&found, "counts.read_share")), (4.0, 0.75));
    assert_eq!(number(&found, "rate.duration_seconds"), 0.75);
    assert_eq!(number(&found, "footprint.footprint_blocks"), 4.0);
    assert_eq!(number(&found, "sizes.read.request_bytes_max"), 8192.0);
    assert_eq!(found["miss_ratios"]["method"], "exact");
    assert_eq!(
        (&found["trace_devices"][1]["trace_device"], number(&found, "trace_devices.1.end_bytes")),
        (&"3".into(), 8192.0)
    );
    let said = machine.ok(&["trace", "info", "t.spc"]);
    for part in ["4 requests", "750 ms", "75.0 %", "8 KiB", "3"] {
        assert!(said.contains(part), "'{part}' is not in {said}");
    }
}

#[test]
fn mrc_draws_miss_ratios_by_eviction_and_size() {
    // A loop over five blocks, in turn with requests for one hot block.
    let line = |block: u64| format!("0,{},4096,r,0.0\n", block * 8);
    let text: String = (0..500).map(|turn| line(turn % 5) + &line(100)).collect();
    let machine = machine(&text);
    let words = ["trace", "mrc", "t.spc", "--evict", "lru,sieve,belady", "--size", "8KiB", "--size", "100%"];
    let found = machine.json(&words);
    assert_eq!((number(&found, "block_references"), number(&found, "sampled_share")), (1000.0, 1.0));
    assert_eq!(number(&found, "footprint_bytes"), 6.0 * 4096.0);
    let curves = found["miss_ratio_curves"].as_array().unwrap();
    let names: Vec<&str> = curves.iter().map(|curve| curve["eviction"].as_str().unwrap()).collect();
    assert_eq!(names, ["lru", "sieve", "belady"]);
    for curve in curves {
        let points = curve["points"].as_array().unwrap();
        assert_eq!(points[0]["cache_size_bytes"], 8192);
        // Cache of two blocks, LRU: all requests of the loop miss, half of the total. Cache of six blocks:
        // six misses in all.
        assert_eq!(points[1]["miss_ratio"], 0.006);
        assert!((0.3..0.51).contains(&points[0]["miss_ratio"].as_f64().unwrap()), "{curve}");
    }
    assert_eq!(curves[0]["points"][0]["miss_ratio"], 0.501);
    let said = machine.ok(&words);
    assert!(said.contains("belady") && said.contains("0.501") && said.contains("8 KiB"), "{said}");
    let sampled = machine.json(&["trace", "mrc", "t.spc", "--sample", "50%"]);
    assert_eq!((number(&sampled, "sampled_share"), number(&sampled, "block_references")), (0.5, 1000.0));
    machine.refused(&["trace", "mrc", "t.spc", "--sample", "0%"], "usage", &["0%"]);
    machine.refused(&["trace", "mrc", "t.spc", "--evict", "lfu"], "usage", &["lfu", "w-tiny-lfu"]);
    machine.refused(&["trace", "mrc", "t.spc", "--size", "1KiB"], "usage", &["1KiB", "4KiB"]);
    std::fs::write(machine.path("empty.spc"), "").unwrap();
    machine.refused(&["trace", "mrc", "empty.spc", "--format", "spc"], "invalid", &["empty.spc"]);
}

/// Records of later devices were dropped, and the exit status was 0.
#[test]
fn a_trace_of_thousands_of_devices_is_read_whole() {
    let text: String = (0..3000).map(|asu| format!("{asu},0,512,r,0.0\n")).collect();
    let machine = machine(&text);
    let found = machine.json(&["trace", "info", "t.spc"]);
    assert_eq!((number(&found, "records"), number(&found, "bad_records")), (3000.0, 0.0));
    assert_eq!(found["trace_devices"].as_array().unwrap().len(), 3000);
}

/// `simulate` accepted a directory and `A+B`; `info` and `convert` said "Is a directory".
#[test]
fn folder_of_trace_parts_equals_the_whole_trace() {
    let machine = machine(SPC);
    let lines: Vec<String> = SPC.lines().map(|line| format!("{line}\n")).collect();
    std::fs::create_dir(machine.path("parts")).unwrap();
    std::fs::write(machine.path("parts/a"), lines[..2].concat()).unwrap();
    std::fs::write(machine.path("parts/b"), lines[2..].concat()).unwrap();
    let measured = |trace: &str| machine.json(&["trace", "info", trace]);
    let (whole, parts) = (measured("t.spc"), measured("parts"));
    for key in ["records", "counts", "footprint", "trace_devices", "burstiness"] {
        assert_eq!(whole[key], parts[key], "{key}");
    }
    assert_eq!(measured("parts/a+parts/b")["counts"], whole["counts"]);
    machine.ok(&["trace", "convert", "t.spc", "whole.spc", "--to", "spc"]);
    machine.ok(&["trace", "convert", "parts", "parts.spc", "--to", "spc"]);
    let read = |name: &str| std::fs::read(machine.path(name)).unwrap();
    assert_eq!(read("whole.spc"), read("parts.spc"));
}

/// A trace without a good line was an empty load, with exit status 0.
#[test]
fn trace_without_valid_line_is_refused_by_every_command() {
    let machine = machine(&"0,x,512,r,0.5\n".repeat(3));
    let words = ["t.spc", "line 1", "--format"];
    machine.refused(&["trace", "info", "t.spc", "--format", "spc"], "invalid", &words);
    machine.refused(&["trace", "convert", "t.spc", "x", "--format", "spc"], "invalid", &words);
    let devices = ["--ssd", "1GiB,model=x25-m", "--hdd", "4GiB,model=mba3073"];
    let simulate = [&["simulate", "--trace", "t.spc", "--format", "spc"][..], &devices].concat();
    machine.refused(&simulate, "io", &words);
}

#[test]
fn bad_lines_are_named_and_strict_ends_with_the_remedy() {
    let machine = machine(&(SPC.to_owned() + "0,16,512,q,0.75\n" + SPC));
    let found = machine.json(&["trace", "info", "t.spc"]);
    assert_eq!((number(&found, "bad_records"), number(&found, "problems.0.record_number")), (1.0, 5.0));
    let problem = found["problems"][0]["problem"].as_str().unwrap();
    assert!(machine.ok(&["trace", "info", "t.spc"]).contains(&format!("line 5: {problem}")));
    let words = ["t.spc", "line 5", "'0,16,512,q,0.75'", "--strict"];
    machine.refused(&["trace", "info", "t.spc", "--strict"], "invalid", &words);
}

#[test]
fn unreadable_trace_is_refused_with_the_remedy() {
    let machine = machine("Dear reader,\n");
    machine.refused(&["trace", "info", "t.spc"], "invalid", &["t.spc", "'Dear reader,'", "blkparse"]);
    machine.refused(&["trace", "info", "missing"], "io", &["missing", "os error 2"]);
    machine.refused(&["trace", "info", "t.spc", "--format", "nosuch"], "usage", &["nosuch", "spc"]);
    machine.refused(&["trace", "info", "t.spc", "--format", "msr", "--block", "4KiB"], "usage", &["msr"]);
    machine.refused(
        &["trace", "convert", "t.spc", "x", "--to", "pdf"],
        "usage",
        &["pdf", "compact, spc, fio2"],
    );
    machine.refused(&["trace", "convert", "t.spc", "x", "--to", "spc", "--zstd", "3"], "usage", &["--zstd"]);
    machine.refused(&["trace", "convert", "t.spc", "x"], "invalid", &["'Dear reader,'"]);
    assert!(!machine.path("x").exists() && !machine.path("x.partial").exists());
}

#[test]
fn trace_survives_conversion_through_all_formats() {
    let machine = machine(SPC);
    let found = machine.json(&["trace", "convert", "t.spc", "t.trace", "--zstd", "3"]);
    assert_eq!((number(&found, "records"), number(&found, "layout.1.base_bytes")), (4.0, f64::from(1 << 20)));
    machine.refused(&["trace", "convert", "t.spc", "t.trace"], "usage", &["t.trace", "--force"]);
    machine.ok(&["trace", "convert", "t.trace", "t.trace", "--force"]);
    machine.ok(&["trace", "convert", "t.trace", "t.iolog", "--to", "fio3"]);
    machine.ok(&["trace", "convert", "t.iolog", "back.spc", "--to", "spc"]);
    // fio names devices, and SPC numbers devices; all other content survives the conversion.
    let info = |file| machine.json(&["trace", "info", file]);
    for part in ["counts", "rate", "sizes", "footprint", "locality", "burstiness", "reuse"] {
        assert_eq!(info("back.spc")[part], info("t.spc")[part], "{part}");
    }
    let only = machine.json(&["trace", "info", "t.trace", "--device", "3"]);
    assert_eq!((number(&only, "records"), number(&only, "other_devices_records")), (1.0, 3.0));
}

#[test]
fn trace_is_converted_and_read_through_pipes() {
    let machine = machine(SPC);
    let text = std::fs::File::open(machine.path("t.spc")).unwrap();
    let mut convert = machine.command(&["trace", "convert", "-", "-", "--span", "1GiB"]);
    let converted = convert.stdin(Stdio::from(text)).stderr(Stdio::null()).output().unwrap().stdout;
    std::fs::write(machine.path("t.trace"), &converted).unwrap();
    let mut info = machine.command(&["trace", "info", "-", "--json"]);
    let info = info.stdin(std::fs::File::open(machine.path("t.trace")).unwrap()).output().unwrap();
    let found: Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!((number(&found, "records"), &found["format"]), (4.0, &"compact".into()));
    assert_eq!(number(&found, "trace_devices.0.end_bytes"), f64::from((1 << 30) + 8192));
}

#[test]
fn fio_replays_a_converted_trace_within_the_recorded_time() {
    if !have(&["fio"]) {
        return;
    }
    let machine = machine(SPC);
    std::fs::File::create(machine.path("disk")).unwrap().set_len(1 << 20).unwrap();
    for target in ["fio2", "fio3"] {
        machine.ok(&["trace", "convert", "t.spc", target, "--to", target]);
        let path = |name| machine.path(name).display().to_string();
        let said = client(
            "fio",
            &[
                "--name=replay",
                "--ioengine=psync",
                "--output-format=json",
                &format!("--read_iolog={}", path(target)),
                &format!("--replay_redirect={}", path("disk")),
            ],
        );
        let said: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
        let figure = |path: &str| number(&said["jobs"][0], path);
        assert_eq!((figure("read.total_ios"), figure("write.total_ios")), (3.0, 1.0), "{target}");
        // Waits of version 2 count from the start of fio.
        assert!((500.0..5_000.0).contains(&figure("job_runtime")), "{target}: {}", figure("job_runtime"));
    }
}

#[test]
fn closing_the_pipe_early_is_not_an_error() {
    let machine = machine(&SPC.repeat(20_000));
    let mut shell = std::process::Command::new("sh");
    let programme = env!("CARGO_BIN_EXE_braid");
    let line = format!("{programme} trace convert t.spc - --to spc | head -n 1; exit ${{PIPESTATUS:-0}}");
    shell.args(["-c", &line]).current_dir(machine.path(""));
    let ended = run(shell);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
    assert_eq!(ended.stdout, "0,8,4096,w,0.000000000\n");
}
