//! Braid's own FUSE wire beside the library `fuser`, over the same memory, by turns: requests per second, and
//! processor time of the server's process per request. Each design serves in a process of its own; fio is the
//! load. *fuser* hands each request to the shard's thread, as an engine needs. *bound* answers on the
//! library's thread, as no engine can (`braid_bench::wire`).
//!
//! `cargo run --release -p braid-bench --bin fuse-wire -- [ROUNDS] [SECONDS] [THREADS]`
//! (5, 3, 1; threads that receive in the library's designs)
//!
//! Needs root, `/dev/fuse` and fio.

use anyhow::{Context, Result, ensure};
use braid_bench::wire::{Design, SIZE, file};
use braid_bench::{machine, median, process_cpu_time};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, design, directory, threads] = &arguments[..]
        && first == "serve"
    {
        let design = Design::named(design).context("the design of a server")?;
        let served = design.serve(Path::new(directory), threads.parse()?);
        let removed = fs::remove_dir(directory);
        return served.and(removed.map_err(Into::into));
    }
    if let Some(missing) = missing() {
        println!("SKIPPED: fuse-wire: {missing}");
        return Ok(());
    }
    let number = |at: usize, usual| arguments.get(at).map_or(Ok(usual), |given: &String| given.parse());
    let (rounds, seconds, threads) = (number(0, 5)?, number(1, 3)?, number(2, 1)?);
    ensure!(rounds > 0 && seconds > 0 && threads > 0, "rounds, seconds and threads begin at 1");
    println!("cargo run --release -p braid-bench --bin fuse-wire -- {rounds} {seconds} {threads}");
    println!("fuse-wire: {rounds} rounds of {seconds} s by turns, {SIZE} of memory; {}", machine());
    let mut servers = Vec::new();
    for design in Design::ALL {
        servers.push(Server::start(design, threads)?);
    }
    for load in LOADS {
        let mut samples = [const { Vec::new() }; 3];
        for round in 0..rounds {
            // Each server is the first in turn.
            for at in (0..servers.len()).map(|turn| (round + turn) % servers.len()) {
                samples[at].push(servers[at].measure(load, seconds)?);
            }
        }
        report(load, &samples);
    }
    servers.into_iter().try_for_each(Server::stop)
}

/// What the benchmark lacks.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root");
    }
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        return Some("/dev/fuse cannot be opened: try 'modprobe fuse'");
    }
    let fio = Command::new("fio").arg("--version").stdout(Stdio::null()).status();
    fio.is_err().then_some("fio is not installed (apt-get install fio)")
}

/// A load, in fio's words.
struct Load {
    name: &'static str,
    rw: &'static str,
    block: &'static str,
    depth: &'static str,
}

const LOADS: &[Load] = &[
    Load { name: "read 4 KiB, depth 1", rw: "randread", block: "4k", depth: "1" },
    Load { name: "read 4 KiB, depth 64", rw: "randread", block: "4k", depth: "64" },
    Load { name: "write 4 KiB, depth 1", rw: "randwrite", block: "4k", depth: "1" },
    Load { name: "write 4 KiB, depth 64", rw: "randwrite", block: "4k", depth: "64" },
    Load { name: "read 1 MiB, depth 4", rw: "read", block: "1m", depth: "4" },
    Load { name: "write 1 MiB, depth 4", rw: "write", block: "1m", depth: "4" },
];

struct Sample {
    per_second: f64,
    cpu_micros: f64,
}

/// A server in a process of its own. The process unmounts, removes its directory and ends once its standard
/// input ends: also if the benchmark is interrupted or killed.
struct Server {
    process: Child,
    directory: PathBuf,
}

impl Server {
    fn start(design: Design, threads: usize) -> Result<Server> {
        let directory = std::env::temp_dir().join(format!("braid-fuse-wire-{}-{design}", std::process::id()));
        fs::create_dir(&directory)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", &design.to_string()]).arg(&directory).arg(threads.to_string());
        // Not interrupted with this process.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Server { process: command.spawn()?, directory };
        let mut line = String::new();
        let output = server.process.stdout.take().context("a pipe")?;
        BufReader::new(output).read_line(&mut line)?;
        ensure!(!line.is_empty(), "the server '{design}' did not start");
        server.check().with_context(|| format!("the server '{design}'"))?;
        Ok(server)
    }

    /// Reads written bytes back.
    fn check(&self) -> Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(file(&self.directory))?;
        let (written, mut read) = (Vec::from_iter((0..1 << 20).map(|at| (at % 251) as u8)), vec![0; 1 << 20]);
        file.write_all_at(&written, 12_288)?;
        file.read_exact_at(&mut read, 12_288)?;
        ensure!(read == written, "other bytes came back");
        Ok(())
    }

    fn measure(&self, load: &Load, seconds: usize) -> Result<Sample> {
        let fixed = ["--name=load", "--ioengine=libaio", "--direct=1", "--norandommap", "--time_based"];
        let mut fio = Command::new("fio");
        fio.args(fixed).arg(format!("--filename={}", file(&self.directory).display()));
        fio.arg(format!("--size={}", SIZE.0)).arg(format!("--runtime={seconds}"));
        fio.arg(format!("--rw={}", load.rw)).arg(format!("--bs={}", load.block));
        fio.arg(format!("--iodepth={}", load.depth)).arg("--output-format=json");
        let before = process_cpu_time(self.process.id())?;
        let ended = fio.stderr(Stdio::inherit()).output()?;
        let cpu = process_cpu_time(self.process.id())? - before;
        ensure!(ended.status.success(), "fio: {}", ended.status);
        let results: Value = serde_json::from_slice(&ended.stdout).context("the results of fio")?;
        let side = if load.rw.ends_with("read") { "read" } else { "write" };
        let figure = |name: &str| results["jobs"][0][side][name].as_f64().context("a figure of fio");
        let (requests, per_second) = (figure("total_ios")?, figure("iops")?);
        Ok(Sample { per_second, cpu_micros: cpu.as_secs_f64() * 1e6 / requests })
    }

    fn stop(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        let ended = self.process.wait()?;
        ensure!(ended.success(), "a server ended with an error: {ended}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // A server that failed has said why.
        let _ = self.process.wait();
    }
}

/// Prints the medians of a load for each design, and Braid's ratios to the designs of the library, round by
/// round.
fn report(load: &Load, samples: &[Vec<Sample>; 3]) {
    let figures = |at: usize, figure: fn(&Sample) -> f64| Vec::from_iter(samples[at].iter().map(figure));
    let speed: fn(&Sample) -> f64 = |sample| sample.per_second;
    let cost: fn(&Sample) -> f64 = |sample| sample.cpu_micros;
    println!("{}", load.name);
    for (at, design) in Design::ALL.into_iter().enumerate() {
        let (speeds, costs) = (figures(at, speed), figures(at, cost));
        print!("  {design}  {:7.0}/s {:7.2} µs", median(&speeds).0, median(&costs).0);
        if design != Design::Braid {
            let ratio = |figure| {
                let ratios =
                    figures(0, figure).into_iter().zip(figures(at, figure)).map(|(one, two)| one / two);
                let (middle, least, most) = median(&Vec::from_iter(ratios));
                format!("{middle:.2} ({least:.2} to {most:.2})")
            };
            print!("   braid/{design}: requests {}, processor time {}", ratio(speed), ratio(cost));
        }
        println!();
    }
}
