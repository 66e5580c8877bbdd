//! What a request costs a model: nanoseconds of processor time per request, in a closed loop in virtual time.
//!
//! `cargo bench -p braid-model [-- NAME…]` measures the named models, or all. Each line: the model, then for
//! each load the best and the median of seven runs. Devices are of 64 GiB, requests of 4 KiB; the seed is
//! fixed.
#![forbid(unsafe_code)]

use braid_base::{Bytes, GIB, KIB, Nanos, Rng};
use braid_model::{DeviceModel, Model, Op, Request, library};
use std::time::Instant;

const SIZE: Bytes = Bytes(64 * GIB.0);
const RUNS: usize = 7;

/// A name, how many requests are outstanding, the share of reads in percent, and whether places are random.
const LOADS: [(&str, u64, u64, bool); 6] = [
    ("random read, depth 1", 1, 100, true),
    ("random read, depth 8", 8, 100, true),
    ("random write, depth 1", 1, 0, true),
    ("random write, depth 8", 8, 0, true),
    ("70/30, depth 8", 8, 70, true),
    ("sequential write, depth 1", 1, 0, false),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("ns per request, best / median of {RUNS} runs; 64 GiB, 4 KiB");
    for spec in
        library().iter().filter(|spec| wanted.is_empty() || wanted.iter().any(|name| *name == *spec.name))
    {
        println!("{}", spec.name);
        for (name, depth, reads, random) in LOADS {
            let mut device = spec.build(SIZE, 1);
            let mut load = Load { rng: Rng::new(1), reads, random, next: 0, now: Nanos::ZERO, events: 0 };
            let count = load.warm_up(&mut device, depth);
            let mut costs: Vec<f64> = (0..RUNS).map(|_| load.cost(&mut device, depth, count)).collect();
            costs.sort_by(f64::total_cmp);
            let events = load.events as f64 / ((RUNS as u64 * count) as f64);
            println!("  {name:26} {:8.1} / {:8.1}   {events:.2} steps", costs[0], costs[RUNS / 2]);
        }
    }
}

struct Load {
    rng: Rng,
    reads: u64,
    random: bool,
    next: u64,
    now: Nanos,
    /// How often the device was advanced.
    events: u64,
}

impl Load {
    /// Runs for a tenth of a second; gives how many requests fit into one.
    fn warm_up(&mut self, device: &mut DeviceModel, depth: u64) -> u64 {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed().as_millis() < 100 {
            self.run(device, depth, 1_000);
            count += 1_000;
        }
        self.events = 0;
        count
    }

    fn cost(&mut self, device: &mut DeviceModel, depth: u64, count: u64) -> f64 {
        let start = Instant::now();
        self.run(device, depth, count);
        start.elapsed().as_nanos() as f64 / count as f64
    }

    fn run(&mut self, device: &mut DeviceModel, depth: u64, count: u64) {
        let mut completed = Vec::with_capacity(depth as usize);
        let (mut submitted, mut done) = (0, 0);
        while done < count {
            while submitted < count && submitted - done < depth {
                let request = self.request();
                device.submit(submitted, request, self.now);
                submitted += 1;
            }
            self.now = device.next_event().expect("requests are outstanding").max(self.now);
            device.advance(self.now, &mut completed);
            self.events += 1;
            done += completed.drain(..).count() as u64;
        }
    }

    fn request(&mut self) -> Request {
        let places = SIZE / (KIB * 4);
        self.next = if self.random { self.rng.below(places) } else { (self.next + 1) % places };
        let op = if self.reads > 0 && self.rng.below(100) < self.reads { Op::Read } else { Op::Write };
        Request { op, offset: KIB * 4 * self.next, len: KIB * 4 }
    }
}
