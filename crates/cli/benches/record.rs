//! Cost of `braid trace record`: 4 KiB random reads by fio over NBD from a volume on memory devices, in turns
//! with and without a recording. Reports requests per second and the daemon's processor time per request.
//!
//! `cargo bench -p braid --bench record [-- TURNS [MILLISECONDS]]`; needs fio. A turn takes MILLISECONDS. The
//! start and end of a recording do not count.

mod turns;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};
use turns::{Bench, Sample, asked, braid};

fn main() {
    let Some((turns, length)) = asked(100, 250) else { return };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut bench = Bench::start(directory.path().to_owned(), length);
    println!("{turns} turns of {length:?} with and without a recording, 4 KiB random reads over 256 MiB");
    bench.compare(recorded, "a recording", turns);
}

/// Runs a turn with a recording. Panics if the trace lacks a request.
fn recorded(bench: &mut Bench) -> Sample {
    let trace = bench.directory.join("trace");
    let words = ["trace", "record", "temporary", "--output", "trace", "--json"];
    let recorder = braid(&bench.directory, &words).stdout(Stdio::piped()).spawn().expect("a recording");
    let start = Instant::now();
    while std::fs::metadata(&trace).map_or(0, |trace| trace.len()) == 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "the recording does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    let sample = bench.turn(Some(recorder.id()));
    kill_process(Pid::from_child(&recorder), Signal::INT).expect("the recording is told to end");
    let ended = recorder.wait_with_output().expect("the recording ends");
    let told: Value = serde_json::from_slice(&ended.stdout).expect("the recording reports");
    let (records, dropped) = (told["records"].as_f64(), told["dropped_requests"].as_f64());
    assert!(records >= Some(sample.requests) && dropped == Some(0.0), "{told} of {}", sample.requests);
    std::fs::remove_file(&trace).expect("the trace is there");
    sample
}
