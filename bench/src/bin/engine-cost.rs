//! Cost of the engine: processor time of a 4 KiB read and write through a whole volume on memory devices. A
//! *first* write changes the map: the first write to an extent, after a discard of the extent. With and
//! without a pending log, by turns.
//!
//! `cargo run --release -p braid-bench --bin engine-cost [REQUESTS [ROUNDS]]`

use anyhow::Result;
use braid_base::{Bytes, DeviceClass, GIB, KIB, MIB, Rng};
use braid_bench::{machine, median, thread_cpu_time};
use braid_engine::{CreateOptions, Durability, Export, LARGEST_LOG, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_runtime::Arena;
use braid_runtime::LastingMemory;
use braid_uring::{LastingFile, MemoryDevice, Ring};
use std::path::Path;
use std::rc::Rc;

const REQUESTS: u64 = 500_000;
const ROUNDS: u64 = 7;
const SEED: u64 = 1;
/// Path of the pending log.
const LOG: &str = "/dev/shm/braid-engine-cost.pending";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let requests = arguments.next().map_or(Ok(REQUESTS), |argument| argument.parse())?;
    let rounds = arguments.next().map_or(Ok(ROUNDS), |argument| argument.parse())?;
    println!(
        "engine-cost: {requests} requests of 4 KiB at random, {rounds} rounds, seed {SEED}; {}",
        machine()
    );
    for (policy, cache) in
        [("wardrop", 100), ("wardrop", 0), ("ssd-only", 0), ("ssd-first", 0), ("working-set", 0)]
    {
        for log in [None, Some(LOG)] {
            let [read, write, first] = measure(policy, cache, log, requests, rounds)?;
            let with = if log.is_some() { "log" } else { "" };
            for (what, figures) in [("read", read), ("write", write), ("first", first)] {
                let (middle, low, high) = median(&figures);
                println!(
                    "{policy:11} cache {cache:3} {with:3} {what:5}: median {middle:.3} µs of processor time ({low:.3} to {high:.3})"
                );
            }
        }
    }
    Ok(())
}

fn measure(
    policy: &str,
    cache_extents: usize,
    log: Option<&str>,
    requests: u64,
    rounds: u64,
) -> Result<[Vec<f64>; 3]> {
    let arena = Arena::new(MIB * 4);
    let ring = Ring::new(64, &arena)?;
    let (rt, policy) = (ring.clone(), policy.to_owned());
    let figures = ring.block_on(async move {
        let devices = || -> Result<Vec<MemoryDevice>> {
            Ok(vec![MemoryDevice::new(GIB, DeviceClass::Ssd)?, MemoryDevice::new(GIB, DeviceClass::Hdd)?])
        };
        let devices = devices()?;
        let mut options = CreateOptions::new("bench", Uuid([1; 16]));
        options.policy = policy;
        options.size = Some(MIB * 512);
        create(&devices, &options).await?;
        let memory = match log {
            Some(path) => {
                let file = LastingFile::open(Path::new(path), LARGEST_LOG)?;
                Some(Rc::new(file) as Rc<dyn LastingMemory>)
            }
            None => None,
        };
        let names = vec!["a".into(), "b".into()];
        let open = OpenOptions { cache_extents, memory, ..OpenOptions::new(names) };
        let (volume, _) = Volume::open(rt, devices, open).await?;
        let large = arena.alloc(MIB).await;
        for offset in (0..512).map(|i| MIB * i) {
            volume.write(offset, &large, Durability::Volatile).await?;
        }
        volume.flush().await?;
        let buf = arena.alloc(KIB * 4).await;
        let mut rng = Rng::new(SEED);
        let (mut reads, mut writes, mut first) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = thread_cpu_time();
            for _ in 0..requests {
                volume.read(place(&mut rng), &buf).await?;
            }
            reads.push((thread_cpu_time() - start).as_secs_f64() * 1e6 / requests as f64);
            let start = thread_cpu_time();
            for _ in 0..requests {
                volume.write(place(&mut rng), &buf, Durability::Volatile).await?;
            }
            writes.push((thread_cpu_time() - start).as_secs_f64() * 1e6 / requests as f64);
            let start = thread_cpu_time();
            for i in 0..requests / 10 {
                let offset = KIB * 128 * (i % 4096);
                volume.discard(offset, KIB * 128).await?;
                volume.write(offset, &buf, Durability::Volatile).await?;
            }
            first.push((thread_cpu_time() - start).as_secs_f64() * 1e6 / (requests / 10) as f64);
            for offset in (0..512).map(|i| MIB * i) {
                volume.write(offset, &large, Durability::Volatile).await?;
            }
        }
        volume.close().await?;
        if let Some(path) = log {
            std::fs::remove_file(path)?;
        }
        Ok::<_, anyhow::Error>([reads, writes, first])
    });
    ring.clear();
    figures
}

fn place(rng: &mut Rng) -> Bytes {
    KIB * 4 * rng.below(MIB * 512 / (KIB * 4))
}
