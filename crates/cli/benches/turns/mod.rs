//! A daemon under fio, in turns with and without something beside it: requests per second and the daemon's
//! processor time per request.
//!
//! Each turn with it is compared with the mean of the two adjacent turns without: on a shared machine, speed
//! drifts by a third within seconds, and a cost is one hundredth. If the two adjacent turns differ by more
//! than a tenth, the machine has changed, and the turn counts only for the totals. At depth 1, for example,
//! both sides may begin or cease to sleep between requests, a factor of four. fio runs through all turns of
//! its depth.

use braid_control::{Client, StateDir};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Number and length of the turns, from the command line: `-- TURNS MILLISECONDS`. `None` if there is nothing
/// to measure with, or cargo's tests run the benchmark.
pub fn asked(usual_turns: u64, usual_millis: u64) -> Option<(u64, Duration)> {
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    // `cargo test --all-targets` runs benches too, but without the flag `--bench`.
    if !flags.iter().any(|flag| flag == "--bench") {
        return None;
    }
    if Command::new("fio").arg("--version").output().is_err() {
        eprintln!("SKIPPED: fio is not installed (apt-get install fio)");
        return None;
    }
    let number = |at: usize, usual| arguments.get(at).and_then(|given| given.parse().ok()).unwrap_or(usual);
    Some((number(0, usual_turns), Duration::from_millis(number(1, usual_millis))))
}

/// A daemon with a temporary volume on memory devices.
pub struct Bench {
    daemon: Child,
    uri: String,
    pub directory: PathBuf,
    length: Duration,
    client: Client,
}

/// Counters of a turn.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    pub requests: f64,
    seconds: f64,
    /// Processor time of the daemon's first thread, kernel included.
    daemon_ns: f64,
    /// Processor time of the other programme's first thread.
    beside_ns: f64,
}

impl Bench {
    /// Starts the daemon and writes what the turns read.
    pub fn start(directory: PathBuf, length: Duration) -> Bench {
        let memory = ["--ssd", "memory,size=256MiB", "--hdd", "memory,size=256MiB", "--size", "256MiB"];
        let mut command = braid(&directory, &["serve", "--temporary"]);
        let mut daemon = command.args(memory).stdout(Stdio::piped()).spawn().expect("the daemon starts");
        let mut uri = String::new();
        BufReader::new(daemon.stdout.take().expect("a pipe"))
            .read_line(&mut uri)
            .expect("the daemon says where");
        let state = StateDir::new(&directory.join("state")).expect("a state directory");
        let name = "temporary".parse().expect("a name");
        let client = Client::connect(&state, &name).expect("the daemon listens");
        let bench = Bench { daemon, uri: uri.trim().to_owned(), directory, length, client };
        let written = bench.fio(&["--rw=write", "--bs=1M", "--iodepth=4"]).wait().expect("fio runs");
        assert!(written.success(), "fio: {written}");
        bench
    }

    /// Runs `turns` turns `beside` the programme, each between two turns without, and prints the comparison.
    pub fn compare(&mut self, beside: fn(&mut Bench) -> Sample, what: &str, turns: u64) {
        for depth in ["1", "64"] {
            report(depth, what, &self.turns(depth, beside, turns));
        }
    }

    /// Returns triples: a turn beside the programme between two turns without. Adjacent triples share a turn.
    fn turns(&mut self, depth: &str, beside: fn(&mut Bench) -> Sample, turns: u64) -> Vec<[Sample; 3]> {
        let depth = format!("--iodepth={depth}");
        let mut fio = self.fio(&["--rw=randread", "--bs=4k", "--time_based", "--runtime=3600", &depth]);
        std::thread::sleep(Duration::from_secs(1));
        let mut before = self.turn(None);
        let mut triples = Vec::new();
        for _ in 0..turns {
            let disturbed = beside(self);
            let after = self.turn(None);
            triples.push([before, disturbed, after]);
            before = after;
        }
        assert!(fio.try_wait().expect("fio is ours").is_none(), "fio ended before its time");
        kill_process(Pid::from_child(&fio), Signal::TERM).expect("fio is told to end");
        fio.wait().expect("fio ends");
        triples
    }

    /// Runs one turn, beside a process.
    pub fn turn(&mut self, beside: Option<u32>) -> Sample {
        let (from, start) = (self.reading(beside), Instant::now());
        std::thread::sleep(self.length);
        let (to, seconds) = (self.reading(beside), start.elapsed().as_secs_f64());
        Sample {
            requests: to.requests - from.requests,
            seconds,
            daemon_ns: to.daemon_ns - from.daemon_ns,
            beside_ns: to.beside_ns - from.beside_ns,
        }
    }

    fn reading(&mut self, beside: Option<u32>) -> Sample {
        let requests = self.client.status().expect("the daemon answers").guests.read.requests as f64;
        let (daemon_ns, beside_ns) = (thread_ns(self.daemon.id()), beside.map_or(0.0, thread_ns));
        Sample { requests, seconds: 0.0, daemon_ns, beside_ns }
    }

    fn fio(&self, load: &[&str]) -> Child {
        let uri = format!("--uri={}", self.uri);
        let fixed = ["--name=load", "--ioengine=nbd", "--size=256M", "--randrepeat=1"];
        let mut command = Command::new("fio");
        command.args(fixed).arg(uri).args(load).stdout(Stdio::null()).spawn().expect("fio runs")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.daemon.kill().and_then(|()| self.daemon.wait()).expect("the daemon ends");
    }
}

pub fn braid(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(words).current_dir(directory).env("BRAID_STATE_DIR", directory.join("state"));
    command.env("BRAID_LOG", "warn").stdin(Stdio::null());
    command
}

/// Processor time of a process's first thread so far; a daemon's requests need no other.
fn thread_ns(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/schedstat")).expect("schedstat");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

fn mean(one: Sample, other: Sample) -> Sample {
    let half = |value: fn(&Sample) -> f64| (value(&one) + value(&other)) / 2.0;
    Sample {
        requests: half(|sample| sample.requests),
        seconds: half(|sample| sample.seconds),
        daemon_ns: half(|sample| sample.daemon_ns),
        beside_ns: 0.0,
    }
}

/// Prints the comparison. Each triple is a turn beside the programme between two turns without.
fn report(depth: &str, what: &str, triples: &[[Sample; 3]]) {
    let speed = |sample: &Sample| sample.requests / sample.seconds;
    let cost = |sample: &Sample| sample.daemon_ns / sample.requests;
    let is_steady = |[before, _, after]: &&[Sample; 3]| (speed(before) / speed(after) - 1.0).abs() < 0.1;
    let pair = |[before, on, after]: &[Sample; 3]| [mean(*before, *after), *on];
    let all: Vec<[Sample; 2]> = triples.iter().map(pair).collect();
    let steady: Vec<[Sample; 2]> = triples.iter().filter(is_steady).map(pair).collect();
    println!("depth {depth}, with {what} / without; {} of {} turns count", steady.len(), all.len());
    if steady.is_empty() {
        return println!("  the machine is too restless");
    }
    let ratio = |value: fn(&Sample) -> f64| Spread::of(steady.iter().map(|[off, on]| value(on) / value(off)));
    let median = |which: usize, value: fn(&Sample) -> f64| {
        Spread::of(steady.iter().map(|pair| value(&pair[which]))).median
    };
    let total =
        |which: usize, value: fn(&Sample) -> f64| all.iter().map(|pair| value(&pair[which])).sum::<f64>();
    let [off, on] =
        [0, 1].map(|which| total(which, |sample| sample.requests) / total(which, |sample| sample.seconds));
    println!("  requests per second  {}", ratio(speed));
    println!("  daemon's cpu         {}", ratio(cost));
    println!(
        "  {:.0}/s at {:.0} ns, against {:.0}/s at {:.0} ns; {what} takes {:.0} ns a request",
        median(1, speed),
        median(1, cost),
        median(0, speed),
        median(0, cost),
        median(1, |sample| sample.beside_ns / sample.requests),
    );
    println!("  over all turns {on:.0}/s against {off:.0}/s: {:.3}", on / off);
}

/// A median, its confidence interval, and the quartiles.
struct Spread {
    median: f64,
    /// 95 % confidence interval of the median for any distribution, by the binomial distribution of ranks.
    sure: [f64; 2],
    quartiles: [f64; 2],
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() as f64 - 1.0;
        let at = |place: f64| sorted[place.clamp(0.0, last).round() as usize];
        let ranks = 0.98 * (last + 1.0).sqrt();
        Spread {
            median: at(last / 2.0),
            sure: [at((last / 2.0 - ranks).floor()), at((last / 2.0 + ranks).ceil())],
            quartiles: [at(last / 4.0), at(last * 3.0 / 4.0)],
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Spread { median, sure: [low, high], quartiles: [lower, upper] } = self;
        write!(f, "{median:.3}, with 95 % {low:.3}..{high:.3} (quartiles {lower:.3}..{upper:.3})")
    }
}
