//! How policies balance one SSD and one disk, in virtual time: shares, response times and throughput as the number of
//! clients changes.
//!
//! `cargo run --release -p braid-bench --bin balance -- [policy ...]`

use anyhow::{Context, Result};
use braid_base::{Bytes, DeviceClass, GIB, KIB, MIB, Nanos, Rng};
use braid_emulated::Emulated;
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Status, Volume, create};
use braid_format::Uuid;
use braid_runtime::{Arena, Runtime};
use braid_sim::World;
use braid_uring::MemoryDevice;
use std::cell::Cell;
use std::rc::Rc;

const SEED: u64 = 1;
const DEVICE: Bytes = Bytes(2 << 30);

fn main() -> Result<()> {
    let policies: Vec<String> = std::env::args().skip(1).collect();
    let default =
        ["ssd-only", "hdd-only", "stripe", "static,ssd=90%", "static,ssd=80%", "static,ssd=70%", "wardrop"];
    let policies = if policies.is_empty() { default.map(str::to_owned).to_vec() } else { policies };
    let ssds = std::env::var("SSD").unwrap_or_else(|_| "x25-m,transcend-16g".to_owned());
    for ssd in ssds.split(',') {
        println!(
            "# {ssd} and mba3073, seed {SEED}, virtual time: 1 client for 30 s, then 10 for 60 s; figures of the last 20 s"
        );
        for policy in &policies {
            run(ssd, policy)?;
        }
    }
    Ok(())
}

fn run(ssd: &str, policy: &str) -> Result<()> {
    let world = World::new(SEED);
    let (rt, name, ssd) = (world.clone(), policy.to_owned(), ssd.to_owned());
    let line = world.block_on(async move {
        let device = |name: &str, class| -> Result<_> {
            let spec = braid_model::by_name(name).context("a model of the library")?;
            Ok(Emulated::new(rt.clone(), MemoryDevice::new(DEVICE, class)?, spec.build(DEVICE, SEED)))
        };
        let devices = vec![device(&ssd, DeviceClass::Ssd)?, device("mba3073", DeviceClass::Hdd)?];
        let mut options = CreateOptions::new("balance", Uuid([1; 16]));
        (options.policy, options.size) = (name, Some(GIB));
        create(&devices, &options).await?;
        let open = OpenOptions { names: vec!["ssd".into(), "hdd".into()], cache_extents: 100, rewrite_map: false };
        let (volume, _) = Volume::open(rt.clone(), devices, open).await?;
        let arena = Arena::new(MIB * 4);
        let (stop, done) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0u64)));
        // Time that requests took, and how many there were.
        let latency = Rc::new(Cell::new((0u64, 0u64)));
        let mut rng = Rng::new(SEED);
        let mut lines = Vec::new();
        let mut clients = 0;
        for (wanted, seconds) in [(1, 30), (10, 60)] {
            while clients < wanted {
                let (rt, volume, arena, stop, done, latency, mut rng) =
                    (rt.clone(), volume.clone(), arena.clone(), stop.clone(), done.clone(), latency.clone(), rng.fork());
                let base = MIB * 64 * clients;
                clients += 1;
                rt.clone().spawn(async move {
                    let buf = arena.alloc(KIB * 64).await;
                    let mut sequence = Bytes::ZERO;
                    while !stop.get() {
                        let start = rt.now();
                        let len = KIB * 4 * (1 << rng.below(5));
                        // dbench: files written and read whole, here and there something at random; few flushes.
                        let offset = if rng.chance(0.5) { sequence } else { KIB * 4 * rng.below(8192) };
                        sequence = (offset + len) % (MIB * 32);
                        let part = buf.slice(Bytes::ZERO..len);
                        let result = match rng.below(100) {
                            0..60 => volume.write(base + offset, &part, Durability::Volatile).await,
                            60..99 => volume.read(base + offset, &part).await,
                            _ => volume.flush().await,
                        };
                        result.expect("nothing fails here");
                        done.set(done.get() + len.0);
                        let (time, count) = latency.get();
                        latency.set((time + (rt.now() - start).0, count + 1));
                    }
                });
            }
            rt.sleep(Nanos::from_secs(seconds - 20)).await;
            let before = volume.status();
            done.set(0);
            latency.set((0, 0));
            rt.sleep(Nanos::from_secs(20)).await;
            let after = volume.status();
            let count = |s: &Status, i: usize| s.devices[i].stats.guest_reads + s.devices[i].stats.guest_writes;
            let requests = [0, 1].map(|i| count(&after, i) - count(&before, i));
            let total = (requests[0] + requests[1]).max(1);
            let used = [0, 1].map(|i| f64::from(after.devices[i].slots - after.devices[i].free));
            let sum_ms = |s: &Status, i: usize| s.devices[i].stats.latency_ns.mean() * count(s, i) as f64 / 1e6;
            let response = [0, 1].map(|i| (sum_ms(&after, i) - sum_ms(&before, i)) / requests[i] as f64);
            lines.push(format!(
                "{wanted:2} clients {:7.2} MB/s mean {:6.2} ms, on ssd {:4.1} % of data {:4.1} % of requests, R {:.2} / {:.2} ms, {} migrations, {} probes",
                done.get() as f64 / 20e6,
                latency.get().0 as f64 / 1e6 / latency.get().1.max(1) as f64,
                100.0 * used[0] / (used[0] + used[1]),
                100.0 * requests[0] as f64 / total as f64,
                response[0],
                response[1],
                after.background.migrations,
                after.background.probes,
            ));
        }
        stop.set(true);
        Ok::<_, anyhow::Error>(lines)
    })?;
    world.halt();
    println!("{policy}");
    line.iter().for_each(|l| println!("    {l}"));
    Ok(())
}
