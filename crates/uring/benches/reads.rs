//! What the software costs: processor time of this thread for each random 4 KiB read that needs no disk, and
//! how late sleeps end.
//!
//! `cargo bench -p braid-uring` prints the table; `-- FILE` reads FILE (at least 64 MiB, in the page cache)
//! instead of a temporary file in the target directory. Not for files in memory: the kernel hands those to a
//! thread of its own.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made has nobody to tell")]

use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos, Rng};
use braid_runtime::{Arena, Device, Event, Runtime};
use braid_uring::{Access, FileDevice, MemoryDevice, Ring};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;

const SIZE: Bytes = Bytes(64 << 20);
const READS: u64 = 400_000;

fn main() {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).map(PathBuf::from);
    let path = given.clone().unwrap_or_else(make_file);
    let arena = Arena::new(MIB * 32);
    let ring = Ring::new(256, &arena).unwrap();
    println!("registered: {:?}; fallbacks: {:?}", ring.registered(), ring.fallbacks());
    println!("{:40} {:>7} {:>10} {:>12}", "4 KiB reads", "depth", "cpu µs", "per second");
    for depth in [1, 8, 32] {
        let memory = Rc::new(MemoryDevice::new(SIZE, DeviceClass::Ssd).unwrap());
        measure(&ring, &arena, memory, depth, "memory");
        for (name, arena) in [("cached file", arena.clone()), ("cached file, other arena", Arena::new(MIB))] {
            let file = FileDevice::open(&ring, &path, DeviceClass::Ssd, Access::Cached).unwrap();
            measure(&ring, &arena, Rc::new(file), depth, name);
        }
    }
    sleeps(&ring);
    if given.is_none() {
        std::fs::remove_file(path).unwrap();
    }
}

/// A file of random bytes; writing it brings it into the page cache.
fn make_file() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("reads-{}", std::process::id()));
    let mut file = std::fs::File::create(&path).unwrap();
    let mut piece = vec![0; MIB.as_usize()];
    let mut rng = Rng::new(1);
    for _ in 0..SIZE / MIB {
        rng.fill(&mut piece);
        file.write_all(&piece).unwrap();
    }
    file.sync_all().unwrap();
    path
}

fn measure<D: Device>(ring: &Ring, arena: &Arena, device: Rc<D>, depth: u64, name: &str) {
    ring.block_on(read(ring, arena, &device, depth, READS / 10));
    let (cpu, wall) = (thread_time(), ring.now());
    ring.block_on(read(ring, arena, &device, depth, READS));
    let (cpu, wall) = (thread_time() - cpu, ring.now() - wall);
    let micros = cpu.as_secs_f64() * 1e6 / READS as f64;
    println!("{name:40} {depth:7} {micros:10.3} {:12.0}", READS as f64 / wall.as_secs_f64());
}

/// `depth` tasks share `count` reads at random places.
async fn read<D: Device>(ring: &Ring, arena: &Arena, device: &Rc<D>, depth: u64, count: u64) {
    let (left, ended) = (Rc::new(Cell::new(depth)), Event::default());
    for task in 0..depth {
        let (device, left, ended) = (device.clone(), left.clone(), ended.clone());
        let buf = arena.alloc(KIB * 4).await;
        ring.spawn(async move {
            let mut rng = Rng::new(task);
            for _ in 0..count / depth {
                device.read(KIB * 4 * rng.below(SIZE / (KIB * 4)), &buf).await.unwrap();
            }
            left.set(left.get() - 1);
            ended.notify();
        });
    }
    ended.wait_for(|| (left.get() == 0).then_some(())).await;
}

fn sleeps(ring: &Ring) {
    for sleep in [20, 100, 1_000] {
        let cpu = thread_time();
        let mut late: Vec<Nanos> =
            (0..2_000).map(|_| ring.block_on(lateness(ring, Nanos::from_micros(sleep)))).collect();
        let cpu = (thread_time() - cpu) / 2_000;
        late.sort();
        println!("sleep of {sleep} µs: late by {} (median), {} (p99); cpu {cpu}", late[1_000], late[1_980]);
    }
}

async fn lateness(ring: &Ring, sleep: Nanos) -> Nanos {
    let deadline = ring.now() + sleep;
    ring.sleep_until(deadline).await;
    ring.now() - deadline
}

fn thread_time() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
