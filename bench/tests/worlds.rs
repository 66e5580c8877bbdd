//! The virtual world against the real one: the same load on the same model, by the simulator's clock and by the machine's.
//!
//! Mean latency and throughput must agree within a tenth. In real time a busy machine wakes requests late; how late is
//! measured, and a run that was too late says nothing about the models: it is repeated, and in the end skipped, loudly.
#![allow(clippy::unwrap_used, reason = "a test may")]

use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos, Rng};
use braid_emulated::{Emulated, Lateness};
use braid_model::by_name;
use braid_runtime::{Arena, Device, Runtime, join_all};
use braid_sim::{Hollow, Payload, World};
use braid_uring::{MemoryDevice, Ring};
use std::cell::Cell;

/// A load: so many clients, each with requests of its own.
#[derive(Clone, Copy, Debug)]
struct Load {
    model: &'static str,
    clients: u64,
    /// Requests of each.
    requests: u64,
    /// Of 4 KiB each, at least and at most.
    blocks: (u64, u64),
    /// The share of reads, in percent.
    reads: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    latency: Nanos,
    per_second: f64,
    lateness: Lateness,
}

const SIZE: Bytes = Bytes(1 << 30);

/// The same body in both worlds.
async fn run<R: Runtime, D: Device>(rt: &R, device: &Emulated<R, D>, load: Load) -> Outcome {
    let arena = Arena::new(MIB * 8);
    let (time, start) = (Cell::new(Nanos::ZERO), rt.now());
    let client = async |client: u64| {
        let mut rng = Rng::new(client);
        let buf = arena.alloc(KIB * 4 * load.blocks.1).await;
        for _ in 0..load.requests {
            let len = KIB * 4 * rng.between(load.blocks.0, load.blocks.1 + 1);
            let offset = KIB * 4 * rng.below((SIZE - len) / (KIB * 4));
            let (part, begun) = (buf.slice(Bytes::ZERO..len), rt.now());
            match rng.below(100) < load.reads {
                true => device.read(offset, &part).await.unwrap(),
                false => device.write(offset, &part).await.unwrap(),
            }
            time.set(time.get() + (rt.now() - begun));
        }
    };
    join_all((0..load.clients).map(client)).await;
    let count = load.clients * load.requests;
    Outcome {
        latency: time.get() / count,
        per_second: count as f64 / (rt.now() - start).as_secs_f64(),
        lateness: device.lateness(),
    }
}

fn class(load: Load) -> DeviceClass {
    by_name(load.model).unwrap().class
}

fn simulated(load: Load) -> Outcome {
    let world = World::new(1);
    let rt = world.clone();
    let outcome = world.block_on(async move {
        let geometry = braid_runtime::Geometry { size: SIZE, class: class(load), alignment: Bytes(512) };
        let hollow = Hollow::new(geometry, Payload::Nothing);
        let device = Emulated::new(rt.clone(), hollow, by_name(load.model).unwrap().build(SIZE, 1));
        run(&rt, &device, load).await
    });
    world.halt();
    outcome
}

fn emulated(load: Load) -> Outcome {
    let ring = Ring::new(64, &Arena::new(MIB)).unwrap();
    let outcome = ring.block_on(async {
        let memory = MemoryDevice::new(SIZE, class(load)).unwrap();
        let device = Emulated::new(ring.clone(), memory, by_name(load.model).unwrap().build(SIZE, 2));
        run(&ring, &device, load).await
    });
    ring.clear();
    outcome
}

/// How late requests may be on average, as a share of their latency, for a run to say something.
const LATEST: f64 = 0.05;
const TRIES: u32 = 3;

fn agree(load: Load) {
    let virtually = simulated(load);
    for _ in 0..TRIES {
        let really = emulated(load);
        let late = really.lateness.mean().0 as f64 / really.latency.0 as f64;
        let latency = really.latency.0 as f64 / virtually.latency.0 as f64;
        let throughput = really.per_second / virtually.per_second;
        println!(
            "{load:?}: {} and {:.0}/s simulated, {} and {:.0}/s in real time; {:.1} % of the latency is lateness",
            virtually.latency,
            virtually.per_second,
            really.latency,
            really.per_second,
            100.0 * late
        );
        if late <= LATEST {
            assert!((latency - 1.0).abs() <= 0.1, "{load:?}: latency {latency:.3} of the simulated one");
            assert!(
                (throughput - 1.0).abs() <= 0.1,
                "{load:?}: throughput {throughput:.3} of the simulated one"
            );
            return;
        }
    }
    println!("SKIPPED: {load:?}: this machine is too busy to keep a model's time within {LATEST}");
}

#[test]
fn a_disk_alone_is_as_fast_in_real_time_as_in_virtual_time() {
    agree(Load { model: "mba3073", clients: 1, requests: 600, blocks: (1, 1), reads: 100 });
}

#[test]
fn a_disk_under_a_mixed_load_is_as_fast_in_real_time_as_in_virtual_time() {
    agree(Load { model: "mba3073", clients: 8, requests: 150, blocks: (1, 16), reads: 70 });
}

#[test]
fn a_drive_that_merges_is_as_fast_in_real_time_as_in_virtual_time() {
    agree(Load { model: "transcend-16g", clients: 4, requests: 100, blocks: (1, 16), reads: 60 });
}

#[test]
fn a_drive_that_collects_garbage_is_as_fast_in_real_time_as_in_virtual_time() {
    agree(Load { model: "x25-m", clients: 8, requests: 400, blocks: (4, 16), reads: 60 });
}

#[test]
fn a_queue_of_reads_is_as_fast_in_real_time_as_in_virtual_time() {
    agree(Load { model: "x25-m", clients: 16, requests: 400, blocks: (8, 16), reads: 100 });
}
