//! A closed-loop workload on one SSD and one disk in virtual time: one client for 30 s, then ten for 60 s.
//!
//! Each client reads and writes 4 to 64 KiB in an area of its own, half of the requests in sequence, with a
//! flush now and then. The same seed gives the same figures on any machine.

use anyhow::{Context, Result};
use braid_base::{Bytes, DeviceClass, GIB, KIB, MIB, Nanos, Rng};
use braid_emulated::Emulated;
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Status, Volume, create};
use braid_format::Uuid;
use braid_runtime::{Arena, Runtime};
use braid_sim::World;
use braid_uring::MemoryDevice;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

const DEVICE: Bytes = Bytes(2 << 30);
/// Phases: number of clients, and length in seconds. The last `MEASURED` seconds of a phase count.
const PHASES: [(u64, u64); 2] = [(1, 30), (10, 60)];
const MEASURED: u64 = 20;

/// Figures of a phase. Arrays are by device: SSD, disk.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Clients at the same time.
    pub clients: u64,
    /// Bytes per second, in millions.
    pub megabytes_per_second: f64,
    /// Mean response time seen by clients, in milliseconds.
    pub latency_ms: f64,
    /// Share of mapped extents.
    pub data: [f64; 2],
    /// Share of requests.
    pub requests: [f64; 2],
    /// Mean response time, in milliseconds; not a number without requests.
    pub response_ms: [f64; 2],
    /// Migrations since the start.
    pub migrations: u64,
    /// Probes since the start.
    pub probes: u64,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:2} client(s) {:7.2} MB/s, mean {:6.2} ms; on the SSD {:5.1} % of data, {:5.1} % of requests; response times \
             {:.2} and {:.2} ms; {} migrations, {} probes",
            self.clients,
            self.megabytes_per_second,
            self.latency_ms,
            self.data[0] * 100.0,
            self.requests[0] * 100.0,
            self.response_ms[0],
            self.response_ms[1],
            self.migrations,
            self.probes,
        )
    }
}

/// Runs both phases under a policy, on an SSD of the named model and a `mba3073`, from a seed for workload,
/// devices and schedule.
pub fn run(ssd: &str, policy: &str, seed: u64) -> Result<Vec<Phase>> {
    let world = World::new(seed);
    let guests = Guests {
        rt: world.clone(),
        arena: Arena::new(MIB * 4),
        done: Rc::default(),
        time: Rc::default(),
        count: Rc::default(),
    };
    let (ssd, policy) = (ssd.to_owned(), policy.to_owned());
    let phases = world.block_on(async move {
        let volume = volume(&guests.rt, &ssd, &policy, seed).await?;
        let (mut rng, mut clients, mut phases) = (Rng::new(seed), 0, Vec::new());
        for (wanted, seconds) in PHASES {
            while clients < wanted {
                guests.clone().start(volume.clone(), MIB * 64 * clients, rng.fork());
                clients += 1;
            }
            guests.rt.sleep(Nanos::from_secs(seconds - MEASURED)).await;
            let before = volume.status();
            guests.forget();
            guests.rt.sleep(Nanos::from_secs(MEASURED)).await;
            phases.push(guests.phase(wanted, &before, &volume.status()));
        }
        Ok(phases)
    });
    world.halt();
    phases
}

type Device = Rc<Emulated<World, MemoryDevice>>;

async fn volume(rt: &World, ssd: &str, policy: &str, seed: u64) -> Result<Volume<World, Device>> {
    let device = |name: &str, class| -> Result<Device> {
        let spec = braid_model::by_name(name).with_context(|| format!("a model '{name}'"))?;
        let memory = MemoryDevice::new(DEVICE, class)?;
        Ok(Rc::new(Emulated::new(rt.clone(), memory, spec.build(DEVICE, seed))))
    };
    let devices = vec![device(ssd, DeviceClass::Ssd)?, device("mba3073", DeviceClass::Hdd)?];
    let mut options = CreateOptions::new("balance", Uuid([1; 16]));
    (options.policy, options.size) = (policy.to_owned(), Some(GIB));
    create(&devices, &options).await?;
    let names = vec!["ssd".to_owned(), "hdd".to_owned()];
    let open = OpenOptions { cache_extents: 100, ..OpenOptions::new(names) };
    Ok(Volume::open(rt.clone(), devices, open).await?.0)
}

#[derive(Clone)]
struct Guests {
    rt: World,
    arena: Arena,
    /// Bytes, nanoseconds and requests since the last [`Guests::forget`].
    done: Rc<Cell<u64>>,
    time: Rc<Cell<u64>>,
    count: Rc<Cell<u64>>,
}

impl Guests {
    /// Starts one more client, until the world ends.
    fn start(self, volume: Volume<World, Device>, base: Bytes, mut rng: Rng) {
        self.rt.clone().spawn(async move {
            let buf = self.arena.alloc(KIB * 64).await;
            let mut sequence = Bytes::ZERO;
            loop {
                let start = self.rt.now();
                let len = KIB * 4 * (1 << rng.below(5));
                let offset = if rng.chance(0.5) { sequence } else { KIB * 4 * rng.below(8192) };
                sequence = (offset + len) % (MIB * 32);
                let part = buf.slice(Bytes::ZERO..len);
                let result = match rng.below(100) {
                    0..60 => volume.write(base + offset, &part, Durability::Volatile).await,
                    60..99 => volume.read(base + offset, &part).await,
                    _ => volume.flush().await,
                };
                if result.is_err() {
                    return;
                }
                self.done.set(self.done.get() + len.0);
                self.time.set(self.time.get() + (self.rt.now() - start).0);
                self.count.set(self.count.get() + 1);
            }
        });
    }

    fn forget(&self) {
        [&self.done, &self.time, &self.count].into_iter().for_each(|cell| cell.set(0));
    }

    fn phase(&self, clients: u64, before: &Status, after: &Status) -> Phase {
        let count = |s: &Status, i: usize| s.devices[i].stats.guest_reads + s.devices[i].stats.guest_writes;
        let sum_ms = |s: &Status, i: usize| s.devices[i].stats.latency.sum().as_millis_f64();
        let requests = [0, 1].map(|i| (count(after, i) - count(before, i)) as f64);
        let used = [0, 1].map(|i| f64::from(after.devices[i].slots - after.devices[i].free));
        let share = |of: [f64; 2]| of.map(|part| part / (of[0] + of[1]).max(1.0));
        Phase {
            clients,
            megabytes_per_second: self.done.get() as f64 / 1e6 / MEASURED as f64,
            latency_ms: self.time.get() as f64 / 1e6 / self.count.get().max(1) as f64,
            data: share(used),
            requests: share(requests),
            response_ms: [0, 1].map(|i| (sum_ms(after, i) - sum_ms(before, i)) / requests[i]),
            migrations: after.background.migrations,
            probes: after.background.probes,
        }
    }
}
