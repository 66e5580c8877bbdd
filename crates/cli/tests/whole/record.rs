//! Guests' requests are recorded completely, or missing records are counted. A failing recorder does not
//! disturb the volume.

use crate::machine::{Daemon, Machine, client, have, have_block_devices, number, qemu_io_ok, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MEMORY: &[&str] = &["--temporary", "--ssd", "memory,size=96MiB", "--hdd", "memory,size=96MiB"];

/// Starts a recording of the temporary volume into `trace`, and waits until the recording runs.
fn record(machine: &Machine, more: &[&str]) -> Child {
    let words = [&["trace", "record", "temporary", "--output", "trace", "--json"], more].concat();
    let mut command = machine.command(&words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the header is there", || std::fs::metadata(machine.path("trace")).is_ok_and(|f| f.len() > 0));
    child
}

fn wait_until(what: &str, mut test: impl FnMut() -> bool) {
    let start = Instant::now();
    while !test() {
        assert!(start.elapsed() < Duration::from_secs(300), "{what}: not within 300 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of an interrupted recording; returns its report.
fn report(child: Child) -> Value {
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_slice(&ended.stdout).unwrap()
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// Runs fio on the volume; returns the numbers of reads and writes.
fn fio(daemon: &Daemon, more: &[&str]) -> [f64; 2] {
    let uri = format!("--uri={}", daemon.uri);
    let common = ["--name=load", "--ioengine=nbd", &uri, "--size=64m", "--bs=4k", "--output-format=json"];
    let said = client("fio", &[&common, more].concat());
    let said: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    ["read", "write"].map(|op| number(&said["jobs"][0], &format!("{op}.total_ios")))
}

#[test]
fn trace_contains_every_guest_request_with_exact_range() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    qemu_io_ok(&daemon.uri, &["write 0 1M"]);
    let child = record(&machine, &[]);
    qemu_io_ok(&daemon.uri, &["write 64k 8k", "read 1M 4k", "discard 2M 1M", "flush"]);
    interrupt(&child);
    let told = report(child);
    let found = machine.json(&["trace", "info", "trace"]);
    assert_eq!(
        (number(&told, "unrecorded_requests"), number(&found, "bad_records")),
        (0.0, 0.0),
        "{told} {found}"
    );
    assert_eq!(number(&told, "records"), number(&found, "records"));
    assert_eq!(number(&found, "counts.written_bytes"), 8192.0);
    // qemu-io itself reads the start of every disk, to probe the content.
    assert!(number(&found, "counts.read_bytes") >= 4096.0, "{found}");
    assert_eq!(number(&found, "counts.discarded_bytes"), f64::from(1 << 20));
    assert!(number(&found, "counts.flush_requests") >= 1.0);
    let text = machine.ok(&["trace", "convert", "trace", "-", "--to", "fio3"]);
    for line in ["device0 write 65536 8192", "device0 read 1048576 4096", "device0 trim 2097152 1048576"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    machine.refused(&["trace", "record", "temporary", "--output", "trace"], "usage", &["trace", "--force"]);

    let devices = ["--ssd", "64MiB,model=x25-m", "--hdd", "192MiB,model=barracuda-7200.12"];
    let replay = ["simulate", "--trace", "trace", "--policy", "wardrop"];
    let simulated = machine.json(&[&replay[..], &devices].concat());
    for op in ["read", "write", "flush", "discard"] {
        let replayed = number(&simulated, &format!("runs.0.{op}.requests"));
        assert_eq!(replayed, number(&found, &format!("counts.{op}_requests")), "{op}: {simulated}");
    }
}

/// The kernel's requests to an attached volume use another frontend.
#[test]
fn an_attached_volume_is_recorded() {
    if !have_block_devices() || !have(&["dd", "blkdiscard"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    let device = machine.ok(&["attach", "temporary"]).trim().to_owned();
    let child = record(&machine, &[]);
    let to = format!("of={device}");
    client("dd", &["if=/dev/zero", &to, "bs=64k", "count=4", "seek=16", "oflag=direct", "conv=fsync"]);
    client("blkdiscard", &["--offset", "8MiB", "--length", "1MiB", &device]);
    interrupt(&child);
    report(child);
    machine.ok(&["detach", "temporary"]);
    let found = machine.json(&["trace", "info", "trace"]);
    assert_eq!(number(&found, "counts.written_bytes"), 262_144.0, "{found}");
    assert_eq!(number(&found, "counts.discarded_bytes"), 1_048_576.0, "{found}");
    assert!(number(&found, "counts.flush_requests") >= 1.0, "{found}");
    let text = machine.ok(&["trace", "convert", "trace", "-", "--to", "fio3"]);
    assert!(text.contains("device0 write 1048576 "), "{text}");
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn full_trace_output_ends_recording_but_not_volume() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    let full = ["trace", "record", "temporary", "--output", "/dev/full", "--force"];
    machine.refused(&full, "io", &["/dev/full", "os error 28"]);
    qemu_io_ok(&daemon.uri, &["write -P 7 0 64k", "read -P 7 0 64k"]);
    record_again(&machine);
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn every_request_under_load_is_recorded() {
    if !have(&["fio"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    let child = record(&machine, &[]);
    let load = ["--rw=randrw", "--iodepth=32", "--io_size=256m", "--randseed=7", "--bsrange=4k-1m"];
    let [reads, writes] = fio(&daemon, &load);
    interrupt(&child);
    let told = report(child);
    let found = machine.json(&["trace", "info", "trace"]);
    assert_eq!((number(&told, "unrecorded_requests"), number(&found, "bad_records")), (0.0, 0.0));
    let requests = ["read", "write"].map(|op| number(&found, &format!("counts.{op}_requests")));
    assert!(reads > 100.0 && writes > 100.0, "{reads} {writes}");
    // Requests to holes are included, and requests longer than one buffer.
    assert_eq!(requests, [reads, writes]);
}

#[test]
fn recording_ends_after_given_seconds_and_excludes_a_second() {
    let machine = Machine::new();
    let _daemon = machine.serve(MEMORY);
    let child = record(&machine, &["--seconds", "2"]);
    let words = ["trace", "record", "temporary", "--output", "other"];
    machine.refused(&words, "busy", &["temporary"]);
    let told = report(child);
    let seconds = number(&told, "recorded_seconds");
    assert!((1.9..5.0).contains(&seconds), "{seconds}");
    assert!(!machine.path("other").exists(), "a file of a recording that was refused");
    machine.ok(&["trace", "record", "temporary", "--output", "other", "--seconds", "1"]);
    machine.refused(&["trace", "record", "nosuch", "--output", "x"], "invalid", &["nosuch"]);
    assert!(!machine.path("x").exists());
}

#[test]
fn stopping_daemon_completes_a_recording() {
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    let child = record(&machine, &[]);
    assert_eq!(daemon.terminate().status, 0);
    report(child);
    assert_eq!(number(&machine.json(&["trace", "info", "trace"]), "bad_records"), 0.0);
}

#[test]
fn trace_of_a_killed_daemon_is_readable() {
    if !have(&["qemu-io"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    let child = record(&machine, &[]);
    let header = std::fs::metadata(machine.path("trace")).unwrap().len();
    qemu_io_ok(&daemon.uri, &["write 0 4k"]);
    wait_until("a block is written", || std::fs::metadata(machine.path("trace")).unwrap().len() > header);
    daemon.kill();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && said.contains("'temporary'"), "{said}");
    let found = machine.json(&["trace", "info", "trace"]);
    assert_eq!((number(&found, "counts.written_bytes"), number(&found, "bad_records")), (4096.0, 1.0));
}

/// A client requests a recording, and reads no record.
#[test]
fn stalled_recorder_loses_only_trace_records() {
    if !have(&["fio"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    let stream = record_by_hand(&machine);
    let [requests, _] = fio(&daemon, &["--rw=randread", "--iodepth=64", "--io_size=1g"]);
    assert_eq!(requests, 262_144.0);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let (mut reader, mut line, mut trace) = (BufReader::new(stream), String::new(), Vec::new());
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"ok\":{}}\n");
    reader.read_to_end(&mut trace).unwrap();
    std::fs::write(machine.path("trace"), &trace).unwrap();
    let eight = |at: usize| u64::from_le_bytes(trace[at..at + 8].try_into().unwrap());
    let end = trace.len() - 48;
    let (records, dropped) = (eight(end + 8), eight(end + 32));
    assert!(dropped > 0, "{records} records found room in sockets and notes");
    assert!((records + dropped) as f64 >= requests, "{records} + {dropped} of {requests}");
    let found = machine.json(&["trace", "info", "trace"]);
    assert_eq!(number(&found, "records"), records as f64);
    let problem = found["problems"][0]["problem"].as_str().unwrap();
    assert!(problem.starts_with(&format!("{dropped} ")), "{problem}");
}

/// At its stop, the daemon waits at most one second until a recorder has read the end. This recorder never
/// reads: without the limit the daemon would not end.
#[test]
fn stalled_recorder_does_not_delay_daemon_exit() {
    if !have(&["fio"]) {
        return;
    }
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    let _stream = record_by_hand(&machine);
    fio(&daemon, &["--rw=randread", "--iodepth=64", "--io_size=1g"]);
    let ended = daemon.terminate();
    assert_eq!(ended.status, 0, "{ended:?}");
}

/// Requests a recording, and reads no record.
fn record_by_hand(machine: &Machine) -> UnixStream {
    let socket = machine.state().join("temporary").join("admin.sock");
    let mut stream =
        UnixStream::connect(&socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
    stream.write_all(b"{\"version\":1,\"request\":\"record\"}\n").unwrap();
    stream
}

#[test]
fn killed_recorder_leaves_a_readable_trace_and_the_volume() {
    let machine = Machine::new();
    let daemon = machine.serve(MEMORY);
    let mut child = record(&machine, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(machine.json(&["trace", "info", "trace"])["format"], "compact");
    record_again(&machine);
    assert_eq!(daemon.terminate().status, 0);
}

/// Records once more, with retries: the daemon may notice late that the earlier recorder is gone.
fn record_again(machine: &Machine) {
    let again = ["trace", "record", "temporary", "--output", "again", "--seconds", "1"];
    wait_until("another may record", || {
        let mut command: Command = machine.command(&again);
        command.stderr(Stdio::null());
        run(command).status == 0
    });
}
