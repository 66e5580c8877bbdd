//! Braid's NBD client against libnbd's in fio, with nbdkit as the server, on this machine, over a Unix
//! socket: requests per second, and the client's processor time per request. The two take turns, so that a
//! busy neighbour hits both.
//!
//! `cargo bench -p braid-nbd --bench client [-- ROUNDS [PART-OF-A-LOAD'S-NAME]]`; needs nbdkit and fio.
//! `CONNECTIONS=n` limits the connections of Braid's client; fio has one.

#[path = "../tests/support/mod.rs"]
mod support;
mod turns;

use braid_base::{Bytes, DeviceClass, GIB, KIB, MIB, Nanos, Rng};
use braid_nbd::client::{Access, Address, Limits, RemoteDevice};
use braid_runtime::{Arena, Device, Event, Runtime};
use braid_uring::Ring;
use serde_json::Value;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use support::{installed, run_client};
use turns::{Daemon, Sample, report, thread_seconds};

const SECONDS: u64 = 2;
const BLOCK: Bytes = Bytes(4 * KIB.0);
/// Part of the export in use.
const SPAN: Bytes = Bytes(256 * MIB.0);

struct Load {
    name: &'static str,
    write: bool,
    depth: u64,
}

const LOADS: &[Load] = &[
    Load { name: "read, depth 1", write: false, depth: 1 },
    Load { name: "read, depth 64", write: false, depth: 64 },
    Load { name: "write, depth 1", write: true, depth: 1 },
    Load { name: "write, depth 64", write: true, depth: 64 },
];

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
    let file = directory.path().join("disk");
    std::fs::File::create(&file).and_then(|disk| disk.set_len(GIB.0)).expect("room");
    for plugin in [vec!["memory", "1G"], vec!["file", file.to_str().expect("a path in UTF-8")]] {
        let socket = directory.path().join(format!("{}.sock", plugin[0]));
        let nbdkit = Daemon::start("nbdkit", socket, |socket| {
            [&["-f", "-U", socket], &plugin[..]].concat().into_iter().map(str::to_owned).collect()
        });
        let ours = Ours::new(&nbdkit.socket);
        fio(&nbdkit.socket, &["--rw=write", "--bs=1M", "--iodepth=4"]);
        println!(
            "nbdkit {}: {rounds} rounds of {SECONDS} s each, 4 KiB at random over {SPAN}; Braid / libnbd in fio",
            plugin[0]
        );
        for load in LOADS.iter().filter(|load| load.name.contains(wanted)) {
            let turn = |_| (ours.measure(load), measure_fio(load, &nbdkit.socket));
            report(load.name, &(0..rounds).map(turn).collect::<Vec<_>>());
        }
    }
}

/// Braid's client, in this thread.
struct Ours {
    ring: Ring,
    arena: Arena,
    device: Rc<RemoteDevice>,
}

impl Ours {
    fn new(socket: &Path) -> Ours {
        let arena = Arena::new(MIB * 16);
        let ring = Ring::new(64, &arena).expect("a ring");
        let address: Address =
            format!("nbd+unix:///?socket={}", socket.display()).parse().expect("an address");
        let usual = Limits::default();
        let connections =
            std::env::var("CONNECTIONS").map_or(usual.connections, |n| n.parse().expect("a number"));
        let limits = Limits { connections, ..usual };
        let opened =
            RemoteDevice::connect_within(&ring, &address, DeviceClass::Ssd, Access::ReadWrite, limits);
        let device = Rc::new(ring.block_on(opened).expect("a device"));
        Ours { ring, arena, device }
    }

    /// Runs as many tasks as the load is deep: each waits for its request, then sends the next.
    fn measure(&self, load: &Load) -> Sample {
        let (before, start) = (thread_seconds(std::process::id()), self.ring.now());
        let end = start + Nanos::from_secs(SECONDS);
        let (requests, left, ended) =
            (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(load.depth)), Event::default());
        for number in 0..load.depth {
            let (ring, arena, device) = (self.ring.clone(), self.arena.clone(), self.device.clone());
            let (requests, left, ended) = (requests.clone(), left.clone(), ended.clone());
            let write = load.write;
            self.ring.spawn(async move {
                let (buf, mut rng) = (arena.alloc(BLOCK).await, Rng::new(number));
                while ring.now() < end {
                    let offset = BLOCK * rng.below(SPAN / BLOCK);
                    let done = if write {
                        device.write(offset, &buf).await
                    } else {
                        device.read(offset, &buf).await
                    };
                    done.expect("a request");
                    requests.set(requests.get() + 1);
                }
                left.set(left.get() - 1);
                ended.notify();
            });
        }
        self.ring.block_on(ended.wait_for(|| (left.get() == 0).then_some(())));
        let seconds = self.ring.now().saturating_sub(start).0 as f64 / 1e9;
        let (requests, cpu) = (requests.get() as f64, thread_seconds(std::process::id()) - before);
        Sample { per_second: requests / seconds, cpu_micros: cpu * 1e6 / requests }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.ring.clear();
    }
}

fn measure_fio(load: &Load, socket: &Path) -> Sample {
    let kind = if load.write { "write" } else { "read" };
    let (pattern, depth) = (format!("--rw=rand{kind}"), format!("--iodepth={}", load.depth));
    let runtime = format!("--runtime={SECONDS}");
    let shown = fio(socket, &[&pattern, &depth, "--bs=4k", "--norandommap=1", "--time_based", &runtime]);
    let job = &shown["jobs"][0];
    let number = |value: &Value| value.as_f64().expect("fio counts");
    let (requests, seconds) = (number(&job[kind]["total_ios"]), number(&job[kind]["runtime"]) / 1e3);
    let cpu = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0 * seconds;
    Sample { per_second: requests / seconds, cpu_micros: cpu * 1e6 / requests }
}

fn fio(socket: &Path, load: &[&str]) -> Value {
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    let fixed = ["--name=load", "--ioengine=nbd", "--size=256M", "--output-format=json", &uri];
    let output = run_client("fio", &[&fixed, load].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |start| &text[start..]);
    serde_json::from_str(json).expect("fio writes JSON")
}
