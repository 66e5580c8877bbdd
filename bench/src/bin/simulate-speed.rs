//! Speed of a simulation: requests per second of one core through the whole engine, and the cost of each
//! part.
//!
//! `cargo run --release -p braid-bench --bin simulate-speed -- [REQUESTS [PART]]`; PART is a word of a part's
//! name.
//!
//! One X25-M of 80 GiB and four MBA3073 of 73 GB under `wardrop`; 4 KiB at random places in 8 GiB, 70 %
//! reads, 8,000 requests per second as a Poisson process (open loop). The SSD is busy four fifths of the
//! time, and the disks answer probes. Each figure is the least of `ROUNDS` rounds: other work of the machine
//! only adds to a figure.

use anyhow::Result;
use braid_base::{Arrival, Bytes, DeviceClass, DeviceId, GIB, KIB, MIB, Nanos, Op, SECTOR};
use braid_bench::{machine, thread_cpu_time};
use braid_emulated::Emulated;
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_lab::{DeviceSetup, Load, Setup, simulate, sweep};
use braid_model::{DeviceModel, Model, by_name};
use braid_runtime::{Arena, Device, Geometry, Runtime};
use braid_sim::{Hollow, Payload, World};
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

const ROUNDS: usize = 5;
const WORKLOAD: &str = "random,span=8GiB,rate=8000";
const SEED: u64 = 1;

/// A measured part: its name, and a function from a number of requests to their seconds.
type Part<'a> = (&'a str, &'a dyn Fn(u64) -> Result<f64>);

fn main() -> Result<()> {
    let requests = std::env::args().nth(1).map_or(Ok(2_000_000), |text| text.parse())?;
    println!(
        "simulate-speed: {WORKLOAD}, {requests} requests, seed {SEED}, least of {ROUNDS}; {}",
        machine()
    );
    let parts: [Part; 8] = [
        ("the workload alone", &workload),
        ("the model of the SSD alone", &model),
        ("tasks that sleep until each request's time", &sleepers),
        ("a device in virtual time: model, timers, tasks", &device),
        ("the volume alone, on devices that take no time", &volume),
        ("the whole under ssd-only", &|n| whole("ssd-only", n, false)),
        ("the whole under wardrop", &|n| whole("wardrop", n, false)),
        ("the whole with every read verified, under wardrop", &|n| whole("wardrop", n, true)),
    ];
    let only = std::env::args().nth(2);
    for (name, part) in
        parts.into_iter().filter(|(name, _)| only.as_ref().is_none_or(|word| name.contains(word)))
    {
        let seconds = part(requests)?;
        let nanos = seconds * 1e9 / requests as f64;
        println!("{nanos:8.1} ns per request  {:6.2} M/s  {name}", 1e3 / nanos);
    }
    if only.is_some() {
        return Ok(());
    }
    let (one, two) = (side_by_side(1, requests)?, side_by_side(2, requests)?);
    println!(
        "{:8.1} %               two simulations on two cores, against one after the other",
        50.0 * one / two
    );
    Ok(())
}

/// The least processor time of a few rounds, in seconds.
fn least(mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = thread_cpu_time();
        round()?;
        least = least.min((thread_cpu_time() - start).as_secs_f64());
    }
    Ok(least)
}

fn arrivals(requests: u64) -> Result<Box<dyn Iterator<Item = Arrival>>> {
    match braid_workload::parse(&format!("{WORKLOAD},requests={requests}"), SEED)?.start() {
        braid_workload::Load::Open(arrivals) => Ok(arrivals),
        braid_workload::Load::Closed(_) => unreachable!("a workload with a rate is an open loop"),
    }
}

fn workload(requests: u64) -> Result<f64> {
    least(|| {
        arrivals(requests)?.for_each(|arrival| {
            black_box(arrival);
        });
        Ok(())
    })
}

/// Built once: building takes as long as some hundred thousand requests.
fn drive() -> DeviceModel {
    by_name("x25-m").expect("a model of the library").build(GIB * 80, SEED)
}

fn model(requests: u64) -> Result<f64> {
    let drive = drive();
    let all: Vec<Arrival> = arrivals(requests)?.collect();
    least(|| {
        let (mut model, mut completed) = (drive.clone(), Vec::new());
        for arrival in &all {
            while let Some(at) = model.next_event().filter(|at| *at <= arrival.at) {
                model.advance(at, &mut completed);
                completed.clear();
            }
            model.submit(1, arrival.request, arrival.at);
        }
        Ok(())
    })
}

fn hollow(size: Bytes, class: DeviceClass) -> Rc<Hollow> {
    let device = Hollow::new(
        Geometry { size, class, alignment: SECTOR, memory_alignment: Bytes(1) },
        Payload::Nothing,
    );
    device.set_data(Bytes::ZERO..size, []);
    Rc::new(device)
}

/// Eight tasks take the requests in turn and wait for their times.
fn sleepers(requests: u64) -> Result<f64> {
    let all: Rc<Vec<Arrival>> = Rc::new(arrivals(requests)?.collect());
    least(|| {
        let world = World::in_order(SEED);
        for first in 0..8 {
            let (world, all) = (world.clone(), all.clone());
            world.clone().spawn(async move {
                for arrival in all[first..].iter().step_by(8) {
                    world.sleep_until(arrival.at).await;
                }
            });
        }
        world.run_for(Nanos::from_secs(requests / 8_000 * 2));
        world.halt();
        Ok(())
    })
}

/// Eight tasks take the requests in turn and issue each request at its time.
fn device(requests: u64) -> Result<f64> {
    let all: Rc<Vec<Arrival>> = Rc::new(arrivals(requests)?.collect());
    let drive = drive();
    least(|| {
        let (world, hollow) = (World::in_order(SEED), hollow(GIB * 80, DeviceClass::Ssd));
        let device = Rc::new(Emulated::new(world.clone(), hollow, drive.clone()));
        let buf = Arena::new(MIB).try_alloc(KIB * 4).expect("a new arena has room");
        for first in 0..8 {
            let (world, device, buf, all) = (world.clone(), device.clone(), buf.clone(), all.clone());
            world.clone().spawn(async move {
                for arrival in all[first..].iter().step_by(8) {
                    world.sleep_until(arrival.at).await;
                    let offset = arrival.request.offset;
                    let done = match arrival.request.op {
                        Op::Read => device.read(offset, &buf).await,
                        _ => device.write(offset, &buf).await,
                    };
                    done.expect("a device without bytes does not fail");
                }
            });
        }
        world.run_for(Nanos::from_secs(requests / 8_000 * 2));
        world.halt();
        Ok(())
    })
}

fn volume(requests: u64) -> Result<f64> {
    let all: Rc<Vec<Arrival>> = Rc::new(arrivals(requests)?.collect());
    let world = World::in_order(SEED);
    let rt = world.clone();
    let seconds = world.block_on(async move {
        let devices = || -> Vec<Rc<Hollow>> {
            let disks = (0..4).map(|_| unfilled(Bytes(73_000_000_000), DeviceClass::Hdd));
            std::iter::once(unfilled(GIB * 80, DeviceClass::Ssd)).chain(disks).collect()
        };
        let devices = devices();
        let mut options = CreateOptions::new("bench", Uuid([1; 16]));
        options.size = Some(GIB * 8);
        let superblock = create(&devices, &options).await?;
        for (place, (device, entry)) in devices.iter().zip(&superblock.devices).enumerate() {
            let slots = entry.slots_area(superblock.extent_size).expect("what was created is verified");
            device.set_data(slots, superblock.regions_on(DeviceId(place as u16)));
        }
        let names = (0..5).map(|place| format!("d{place}")).collect();
        let open = OpenOptions { cache_extents: 100, ..OpenOptions::new(names) };
        let (volume, _) = Volume::open(rt, devices, open).await?;
        let arena = Arena::new(MIB);
        let large = arena.alloc(MIB).await;
        for place in 0..8 * 1024 {
            volume.write(MIB * place, &large, Durability::Volatile).await?;
        }
        let buf = large.slice(Bytes::ZERO..KIB * 4);
        let mut least = f64::INFINITY;
        for _ in 0..ROUNDS {
            let start = thread_cpu_time();
            for arrival in all.iter() {
                match arrival.request.op {
                    Op::Read => volume.read(arrival.request.offset, &buf).await?,
                    _ => volume.write(arrival.request.offset, &buf, Durability::Volatile).await?,
                }
            }
            least = least.min((thread_cpu_time() - start).as_secs_f64());
        }
        Ok::<_, anyhow::Error>(least)
    });
    world.halt();
    seconds
}

/// A device that keeps all bytes until told the location of data.
fn unfilled(size: Bytes, class: DeviceClass) -> Rc<Hollow> {
    Rc::new(Hollow::new(
        Geometry { size, class, alignment: SECTOR, memory_alignment: Bytes(1) },
        Payload::Nothing,
    ))
}

fn setup(policy: &str, requests: u64, verify: bool) -> Result<Setup> {
    let devices = vec![
        DeviceSetup::parse(DeviceClass::Ssd, "80GiB,model=x25-m")?,
        DeviceSetup::parse(DeviceClass::Hdd, "73GB,model=mba3073,count=4")?,
    ];
    let load = Load::Workload(format!("{WORKLOAD},requests={requests}"));
    Ok(Setup { verify, seed: SEED, ..Setup::new(devices, policy, load) })
}

/// Excludes the filling of the volume, which happens once for any number of requests.
fn whole(policy: &str, requests: u64, verify: bool) -> Result<f64> {
    let setup = setup(policy, requests, verify)?;
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let run = simulate(&setup)?;
        least = least.min(requests as f64 / run.requests_per_wall_second);
    }
    Ok(least)
}

/// Time of two simulations on `threads` threads, in seconds: the least of a few rounds.
fn side_by_side(threads: usize, requests: u64) -> Result<f64> {
    let setups = vec![setup("wardrop", requests, false)?; 2];
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for run in sweep(&setups, Some(threads), |_| {}) {
            run?;
        }
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok(least)
}
