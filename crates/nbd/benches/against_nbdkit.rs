//! Braid's NBD server against nbdkit's memory plugin, on this machine, over Unix sockets: requests per second
//! and the server's processor time per request. The two alternate, so that a busy neighbour hits both.
//!
//! `cargo bench -p braid-nbd [-- ROUNDS [PART-OF-A-LOAD'S-NAME]]`; needs nbdkit and fio. With `BRAID=PATH`
//! the daemon at that path serves a temporary volume on two memory devices; without, the server here serves
//! memory alone.

#[path = "../tests/support/mod.rs"]
mod support;
mod turns;

use braid_base::GIB;
use braid_nbd::wire::{NBD_CMD_READ, Request};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use support::raw::RawClient;
use support::{Running, Setup, installed, run_client};
use turns::{Daemon, Sample, process_seconds, report, thread_seconds};

const SECONDS: u64 = 2;

fn main() {
    if !installed("fio", "fio") || !installed("nbdkit", "nbdkit") {
        return;
    }
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    // `cargo test --all-targets` runs benches too, but without this flag.
    if !flags.iter().any(|flag| flag == "--bench") {
        return;
    }
    let rounds = arguments.first().and_then(|argument| argument.parse().ok()).unwrap_or(5);
    let wanted = arguments.get(1).map_or("", String::as_str);
    let directory = tempfile::tempdir().expect("a directory");
    let nbdkit = Daemon::start("nbdkit", directory.path().join("nbdkit.sock"), |socket| {
        ["-f", "-U", socket, "memory", "1G"].map(str::to_owned).to_vec()
    });
    let nbdkit_cpu = || process_seconds(nbdkit.child.id());
    let (daemon, server);
    let (braid_socket, braid_cpu): (&Path, Box<dyn Fn() -> f64>) = match std::env::var("BRAID") {
        Ok(program) => {
            daemon = Daemon::start(&program, directory.path().join("braid.sock"), |socket| {
                let memory = ["--ssd", "memory,size=1GiB", "--hdd", "memory,size=1GiB", "--size", "1GiB"];
                let fixed = ["serve", "--temporary", "--nbd"].map(str::to_owned);
                [&fixed[..], &[format!("unix:{socket}")], &memory.map(str::to_owned)].concat()
            });
            let process = daemon.child.id();
            (&daemon.socket, Box::new(move || process_seconds(process)))
        }
        Err(_) => {
            server = Running::start(Setup { size: GIB, arena: GIB / 8, ..Setup::default() });
            let thread = server.thread_id;
            (&server.socket, Box::new(move || thread_seconds(thread)))
        }
    };
    for socket in [braid_socket, &nbdkit.socket] {
        fio(socket, &["--rw=write", "--bs=1M", "--iodepth=4"]);
    }
    println!("{rounds} rounds of {SECONDS} s each, 4 KiB over 256 MiB; Braid / nbdkit");
    for load in LOADS.iter().filter(|load| load.name.contains(wanted)) {
        let mut results: Vec<(Sample, Sample)> = Vec::new();
        for _ in 0..rounds {
            results
                .push((measure(load, braid_socket, &*braid_cpu), measure(load, &nbdkit.socket, &nbdkit_cpu)));
        }
        report(load.name, &results);
    }
}

struct Load {
    name: &'static str,
    /// Gives requests done, and in how many seconds.
    run: fn(&Path) -> (f64, f64),
}

const LOADS: &[Load] = &[
    Load { name: "fio read, depth 1", run: |socket| fio_timed(socket, &["--rw=randread", "--iodepth=1"]) },
    Load { name: "fio read, depth 64", run: |socket| fio_timed(socket, &["--rw=randread", "--iodepth=64"]) },
    Load { name: "fio write, depth 1", run: |socket| fio_timed(socket, &["--rw=randwrite", "--iodepth=1"]) },
    Load {
        name: "fio write, depth 64",
        run: |socket| fio_timed(socket, &["--rw=randwrite", "--iodepth=64"]),
    },
    Load { name: "batches of 64 reads", run: batches },
    Load { name: "nbdcopy, by 256 KiB", run: nbdcopy },
];

fn measure(load: &Load, socket: &Path, cpu: &dyn Fn() -> f64) -> Sample {
    let before = cpu();
    let (requests, seconds) = (load.run)(socket);
    Sample { per_second: requests / seconds, cpu_micros: (cpu() - before) * 1e6 / requests }
}

fn fio_timed(socket: &Path, load: &[&str]) -> (f64, f64) {
    let timed = ["--bs=4k".to_owned(), "--time_based".to_owned(), format!("--runtime={SECONDS}")];
    let shown = fio(socket, &[load, &timed.each_ref().map(String::as_str)].concat());
    let job = &shown["jobs"][0];
    let done = |kind: &str| job[kind]["total_ios"].as_f64().unwrap_or(0.0);
    (done("read") + done("write"), SECONDS as f64)
}

fn fio(socket: &Path, load: &[&str]) -> Value {
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    let fixed =
        ["--name=load", "--ioengine=nbd", "--size=256M", "--randrepeat=1", "--output-format=json", &uri];
    let output = run_client("fio", &[&fixed, load].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |start| &text[start..]);
    serde_json::from_str(json).expect("fio writes JSON")
}

/// A client that sends 64 requests at a time, and then reads all replies.
fn batches(socket: &Path) -> (f64, f64) {
    let mut client = RawClient::simple(socket);
    let (start, mut requests, mut place) = (Instant::now(), 0u64, 1u64);
    while start.elapsed() < Duration::from_secs(SECONDS) {
        let mut batch = Vec::new();
        for cookie in 0..64 {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (place >> 33) % 65_536 * 4096;
            batch.extend(Request { flags: 0, command: NBD_CMD_READ, cookie, offset, len: 4096 }.encode());
        }
        client.stream.write_all(&batch).expect("the server receives");
        client.receive(64 * (16 + 4096));
        requests += 64;
    }
    (requests as f64, start.elapsed().as_secs_f64())
}

/// A copy of the data to nowhere: four connections, 64 requests of 256 KiB each. Holes are skipped.
fn nbdcopy(socket: &Path) -> (f64, f64) {
    let (start, mut copies) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(SECONDS) {
        run_client("nbdcopy", &[&format!("nbd+unix:///?socket={}", socket.display()), "null:"]);
        copies += 1;
    }
    (f64::from(copies) * 1024.0, start.elapsed().as_secs_f64())
}
