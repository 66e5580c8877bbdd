//! The simulated world against the emulated one: the same load on the same models must take the same time,
//! within a tenth, in mean latency and in throughput.
//!
//! - A device alone, by the simulator's clock and by the machine's.
//! - A volume filled by `braid simulate`, in no time, and a volume created and filled by a client's writes,
//!   as over NBD. Twenty drawn configurations run by the simulator's clock, and two by the machine's.
//!
//! Former differences:
//! - The simulator's fill did not report its writes to the models, so its SSDs were fragmented all over,
//!   while the served SSDs had just been written in order. Random writes of 16 KiB to half of an X25-M copied
//!   6.2 bytes for each byte written, instead of 4.5.
//! - The simulator writes one extent after the other. If a client wrote several extents at once, the extents
//!   on a disk beside an SSD were spread over a larger part of the disk, and reads took up to half as long
//!   again.
//!
//! In real time a busy machine wakes requests late. The lateness is measured. A run that was too late says
//! nothing about the models: it is repeated, and in the end skipped with a message.
#![allow(clippy::unwrap_used, reason = "a test may")]

use braid_base::{Bytes, DeviceClass, GIB, KIB, MIB, Nanos, Rng};
use braid_emulated::{Emulated, Lateness};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_lab::{DeviceSetup, Load as LabLoad, Setup, WarmUp, simulate};
use braid_model::by_name;
use braid_runtime::{Arena, Device, Runtime, join_all};
use braid_sim::{Hollow, Payload, World};
use braid_uring::{MemoryDevice, Ring};
use std::cell::Cell;
use std::rc::Rc;

/// A load: a number of clients, each with requests of its own.
#[derive(Clone, Copy, Debug)]
struct Load {
    model: &'static str,
    clients: u64,
    /// Requests of each client.
    requests: u64,
    /// Of 4 KiB each, at least and at most.
    blocks: (u64, u64),
    /// The share of reads, in percent.
    reads: u64,
}

/// Result of a run.
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
        let geometry = braid_runtime::Geometry {
            size: SIZE,
            class: class(load),
            alignment: Bytes(512),
            memory_alignment: Bytes(1),
        };
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
        if late <= Lateness::BOUND {
            assert!((latency - 1.0).abs() <= 0.1, "{load:?}: latency {latency:.3} of the simulated one");
            assert!(
                (throughput - 1.0).abs() <= 0.1,
                "{load:?}: throughput {throughput:.3} of the simulated one"
            );
            return;
        }
    }
    println!("SKIPPED: {load:?}: this machine is too busy to keep a model's time within {}", Lateness::BOUND);
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
fn merging_ssd_has_equal_real_and_virtual_speed() {
    agree(Load { model: "transcend-16g", clients: 4, requests: 100, blocks: (1, 16), reads: 60 });
}

#[test]
fn garbage_collecting_ssd_has_equal_real_and_virtual_speed() {
    agree(Load { model: "x25-m", clients: 8, requests: 400, blocks: (4, 16), reads: 60 });
}

#[test]
fn a_queue_of_reads_is_as_fast_in_real_time_as_in_virtual_time() {
    agree(Load { model: "x25-m", clients: 16, requests: 400, blocks: (8, 16), reads: 100 });
}

/// A volume of one device or of an SSD and a disk, filled, under random requests.
#[derive(Clone, Debug)]
struct Config {
    /// Models of the library; the SSD first.
    models: Vec<&'static str>,
    policy: String,
    /// Size of each device.
    size: Bytes,
    /// Bytes written beforehand, and then requested: the whole volume.
    filled: Bytes,
    /// Writes in flight at a time and their length, if a client fills the volume.
    writes: (u64, Bytes),
    /// Length of each request.
    len: Bytes,
    reads: u64,
    clients: u64,
    /// Requests before the measurement, and during the measurement.
    warm_up: u64,
    requests: u64,
}

/// Measured speed of a load.
#[derive(Clone, Copy)]
struct Speed {
    /// Requests per second.
    rate: f64,
    /// Mean, in nanoseconds.
    latency: f64,
}

const SSDS: [&str; 6] = ["x25-m", "x25-e", "memoright-gt", "transcend-16g", "sata-ssd", "nvme-ssd"];
const DISKS: [&str; 4] = ["mba3073", "cheetah-15k5", "barracuda-7200.12", "exos-x20"];

impl Config {
    /// Draws a configuration from a seed.
    fn draw(seed: u64) -> Config {
        let mut rng = Rng::new(seed);
        let (ssd, disk) = (SSDS[rng.below(6) as usize], DISKS[rng.below(4) as usize]);
        let (models, policy) = match rng.below(4) {
            0 | 1 => (vec![ssd], "ssd-only".to_owned()),
            2 => (vec![disk], "hdd-only".to_owned()),
            _ => (vec![ssd, disk], format!("static,ssd={}%", 10 * rng.between(1, 10))),
        };
        let size = MIB * 128 * rng.between(2, 13);
        // A static split may put up to nine tenths on one of two devices.
        let filled = Bytes(size.0 / 100 * rng.between(10, 91)).align_down(MIB);
        let writes = ([1, 2, 8][rng.below(3) as usize], KIB * 128 * (1 << rng.below(4)));
        let (len, reads) = (KIB * 4 * (1 << rng.below(6)), 10 * rng.below(11));
        let clients = 1 << rng.below(6);
        Config { models, policy, size, filled, writes, len, reads, clients, warm_up: 5_000, requests: 40_000 }
    }

    fn class(&self, place: usize) -> DeviceClass {
        by_name(self.models[place]).unwrap().class
    }

    /// Runs as `braid simulate` does.
    fn simulated(&self) -> Speed {
        let Config { policy, size, filled, len, reads, clients, warm_up, requests, .. } = self;
        let device = |place: usize| {
            let text = format!("{},model={}", size.0, self.models[place]);
            DeviceSetup::parse(self.class(place), &text).unwrap()
        };
        let (span, len) = (filled.0, len.0);
        let load = format!("random,span={span},size={len},read={reads}%,clients={clients},requests=endless");
        let setup = Setup {
            warm_up: WarmUp::Requests(*warm_up),
            requests: Some(warm_up + requests),
            ..Setup::new((0..self.models.len()).map(device).collect(), policy, LabLoad::Workload(load))
        };
        let outcome = simulate(&setup).unwrap().outcome;
        Speed { rate: outcome.requests_per_second, latency: outcome.all.latency.mean }
    }

    /// Runs as `braid create`, `braid serve` and a client do: the client writes the volume in order and then
    /// runs the load.
    async fn served<R: Runtime>(&self, rt: &R) -> (Speed, Lateness) {
        let build = |place: usize| {
            let memory = MemoryDevice::new(self.size, self.class(place)).unwrap();
            let model = by_name(self.models[place]).unwrap().build(self.size, 7 + place as u64);
            Rc::new(Emulated::new(rt.clone(), memory, model))
        };
        let devices: Vec<_> = (0..self.models.len()).map(build).collect();
        let mut options = CreateOptions::new("served", Uuid([7; 16]));
        (options.policy, options.size) = (self.policy.clone(), Some(self.filled));
        create(&devices, &options).await.unwrap();
        let names = (0..devices.len()).map(|place| format!("d{place}")).collect();
        let open = OpenOptions { cache_extents: 100, ..OpenOptions::new(names) };
        let volume = Volume::open(rt.clone(), devices.clone(), open).await.unwrap().0;
        self.fill(&volume).await;
        devices.iter().for_each(|device| device.reset_lateness());
        let speed = self.load(rt, &volume).await;
        let lateness = devices.iter().map(|device| device.lateness()).max_by_key(Lateness::mean).unwrap();
        volume.close().await.unwrap();
        (speed, lateness)
    }

    async fn fill<R: Runtime, D: Device>(&self, volume: &Volume<R, D>) {
        let (arena, next) = (Arena::new(MIB * 16), Cell::new(Bytes::ZERO));
        let writer = async |_| {
            let buf = arena.alloc(self.writes.1).await;
            while next.get() < self.filled {
                let at = next.replace(next.get() + buf.len());
                let part = buf.slice(Bytes::ZERO..buf.len().min(self.filled - at));
                volume.write(at, &part, Durability::Volatile).await.unwrap();
            }
        };
        join_all((0..self.writes.0).map(writer)).await;
        volume.flush().await.unwrap();
    }

    async fn load<R: Runtime, D: Device>(&self, rt: &R, volume: &Volume<R, D>) -> Speed {
        let arena = Arena::new(MIB * 8);
        let (begun, time, start) = (Cell::new(0), Cell::new(Nanos::ZERO), Cell::new(rt.now()));
        let client = async |client: u64| {
            let mut rng = Rng::new(1_000 + client);
            let buf = arena.alloc(self.len).await;
            while begun.get() < self.warm_up + self.requests {
                begun.set(begun.get() + 1);
                let counts = begun.get() > self.warm_up;
                if begun.get() == self.warm_up + 1 {
                    start.set(rt.now());
                }
                let (offset, since) = (self.len * rng.below(self.filled / self.len), rt.now());
                match rng.below(100) < self.reads {
                    true => volume.read(offset, &buf).await.unwrap(),
                    false => volume.write(offset, &buf, Durability::Volatile).await.unwrap(),
                }
                if counts {
                    time.set(time.get() + (rt.now() - since));
                }
            }
        };
        join_all((0..self.clients).map(client)).await;
        let count = self.requests as f64;
        let rate = count / (rt.now() - start.get()).as_secs_f64();
        Speed { rate, latency: time.get().0 as f64 / count }
    }

    /// Describes throughput and latency of one run as shares of the other's, if either differs by more than a
    /// tenth.
    fn differ(&self, simulated: Speed, served: Speed) -> Option<String> {
        let Speed { rate, latency } = simulated;
        let (rates, latencies) = (served.rate / rate, served.latency / latency);
        let text = format!(
            "{self:?}: {rate:.0}/s and {:.3} ms simulated, served {rates:.3} and {latencies:.3} times that",
            latency / 1e6
        );
        println!("{text}");
        let is_off = |share: f64| (share - 1.0).abs() > 0.1;
        (is_off(rates) || is_off(latencies)).then_some(text)
    }

    /// Runs both by the simulator's clock.
    fn differ_in_virtual_time(&self) -> Option<String> {
        let simulated = self.simulated();
        let (world, config) = (World::new(5), self.clone());
        let rt = world.clone();
        let (served, _) = world.block_on(async move { config.served(&rt).await });
        world.halt();
        self.differ(simulated, served)
    }

    /// Runs the simulation by its own clock, and the served volume by the machine's clock.
    fn differ_in_real_time(&self) -> Option<String> {
        let simulated = self.simulated();
        for _ in 0..TRIES {
            let ring = Ring::new(64, &Arena::new(MIB)).unwrap();
            let (served, lateness) = ring.block_on(self.served(&ring));
            ring.clear();
            let late = lateness.mean().0 as f64 / served.latency;
            println!("{self:?}: {:.1} % of the latency is lateness", 100.0 * late);
            if late <= Lateness::BOUND {
                return self.differ(simulated, served);
            }
        }
        println!(
            "SKIPPED: {self:?}: this machine is too busy to keep a model's time within {}",
            Lateness::BOUND
        );
        None
    }
}

#[test]
fn twenty_drawn_volumes_are_as_fast_filled_by_writes_as_filled_by_the_simulator() {
    let off: Vec<String> = (1..=20).filter_map(|seed| Config::draw(seed).differ_in_virtual_time()).collect();
    assert!(off.is_empty(), "{off:#?}");
}

/// The case of issue 14: 3,000 requests/s simulated, 4,000 over NBD.
#[test]
fn half_an_x25_m_is_as_fast_filled_by_writes_as_filled_by_the_simulator() {
    let config = Config {
        models: vec!["x25-m"],
        policy: "ssd-only".to_owned(),
        size: GIB * 2,
        filled: GIB,
        writes: (4, KIB * 256),
        len: KIB * 16,
        reads: 50,
        clients: 32,
        warm_up: 10_000,
        requests: 50_000,
    };
    assert_eq!(config.differ_in_virtual_time(), None);
}

/// Large writes, several at once: the disk's tenth of the data was spread over more than half of the disk,
/// and the volume had 0.77 times the throughput of a volume filled extent by extent.
#[test]
fn a_disk_beside_an_ssd_is_as_fast_filled_by_writes_at_once_as_filled_by_the_simulator() {
    let config = Config {
        models: vec!["x25-m", "exos-x20"],
        policy: "static,ssd=90%".to_owned(),
        size: MIB * 1_408,
        filled: MIB * 675,
        writes: (8, KIB * 256),
        len: KIB * 4,
        reads: 40,
        clients: 1,
        warm_up: 5_000,
        requests: 40_000,
    };
    assert_eq!(config.differ_in_virtual_time(), None);
}

#[test]
fn volumes_filled_by_writes_in_real_time_are_as_fast_as_simulated() {
    let ssd = Config {
        models: vec!["x25-m"],
        policy: "ssd-only".to_owned(),
        size: MIB * 256,
        filled: MIB * 96,
        writes: (4, KIB * 256),
        len: KIB * 64,
        reads: 50,
        clients: 16,
        warm_up: 500,
        requests: 4_000,
    };
    let disk = Config {
        models: vec!["mba3073"],
        policy: "hdd-only".to_owned(),
        clients: 8,
        len: KIB * 16,
        requests: 1_500,
        ..ssd.clone()
    };
    assert_eq!([ssd.differ_in_real_time(), disk.differ_in_real_time()], [None, None]);
}
