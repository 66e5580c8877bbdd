//! Cost of the removal of a disk for guests, and speed of the removal without guests: in virtual time, on
//! modelled devices.
//!
//! A volume of 4 GiB lies on an SSD and three disks. The last disk leaves in one of three ways. *Drain*: a
//! volume with one copy, striped over all, drains the disk. *Lost*: a striped volume with two copies
//! reproduces the disk's content on the other devices. *Return*: with two copies, the disk returns and is
//! rebuilt. Guests make as many requests as they can, in a closed loop, each by itself:
//!
//! - `oltp`: 8 clients, 8 KiB at uniformly random places, two thirds reads;
//! - `files`: 4 clients, runs of 1 to 16 requests of 64 KiB side by side at random places, half of the runs
//!   written.
//!
//! `cargo run --release -p braid-bench --bin drain [SEED [SSD HDD]]`: seed 11 and two pairs of models if
//! nothing is said.

use anyhow::Result;
use braid_base::{Bytes, DeviceClass, DeviceId, GIB, KIB, MIB, Nanos, Rng, SECTOR};
use braid_emulated::Emulated;
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_format::superblock::DeviceState;
use braid_model::{DeviceModel, by_name};
use braid_runtime::{Arena, Buf, Device, Geometry, Runtime};
use braid_sim::{Hollow, Payload, World};
use std::cell::Cell;
use std::rc::Rc;

type Drive = Rc<Emulated<World, Rc<Hollow>, DeviceModel>>;

const SIZE: Bytes = Bytes(4 << 30);
const LEAVES: DeviceId = DeviceId(3);
/// Time for guests alone, after a warm-up of the same length.
const ALONE: Nanos = Nanos::from_secs(20);
/// Longest time of the removal.
const BESIDE: Nanos = Nanos::from_secs(600);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Load {
    Idle,
    Oltp,
    Files,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Removal {
    Drain,
    Lost,
    Return,
}

#[derive(Default)]
struct Guests {
    bytes: Cell<u64>,
    stop: Cell<bool>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seed = arguments.first().map_or(Ok(11), |seed| seed.parse())?;
    let pairs = match &arguments[..] {
        [_, ssd, hdd] => vec![(ssd.as_str(), hdd.as_str())],
        _ => vec![("sata-ssd", "exos-x20"), ("x25-m", "mba3073")],
    };
    println!(
        "{:<22} {:<8} {:<6} {:>12} {:>12} {:>7} {:>14} {:>10}",
        "devices", "removal", "load", "alone MB/s", "beside MB/s", "cost", "removal MB/s", "of seq."
    );
    for (ssd, hdd) in pairs {
        for removal in [Removal::Drain, Removal::Lost, Removal::Return] {
            for load in [Load::Idle, Load::Oltp, Load::Files] {
                let [alone, beside, rate, sequential] = measure(seed, ssd, hdd, removal, load)?;
                let cost = if load == Load::Idle {
                    "-".to_owned()
                } else {
                    format!("{:.0} %", 100.0 * (1.0 - beside / alone))
                };
                println!(
                    "{:<22} {:<8} {:<6} {alone:>12.2} {beside:>12.2} {cost:>7} {rate:>14.2} {:>8.0} %",
                    format!("{ssd} + 3 {hdd}"),
                    format!("{removal:?}").to_lowercase(),
                    format!("{load:?}").to_lowercase(),
                    100.0 * rate / sequential
                );
            }
        }
    }
    Ok(())
}

fn drive(world: &World, class: DeviceClass, model: &str, size: Bytes, seed: u64) -> Result<Drive> {
    let spec = by_name(model).ok_or_else(|| anyhow::anyhow!("no model {model}"))?;
    let hollow = Rc::new(Hollow::new(
        Geometry { size, class, alignment: SECTOR, memory_alignment: Bytes(1) },
        Payload::Nothing,
    ));
    let drive = Emulated::new(world.clone(), hollow, spec.build(size, seed));
    drive.set_timed(false);
    Ok(Rc::new(drive))
}

/// In MB/s: guests alone, guests beside the removal, the removal, the disk's sequential reads.
fn measure(seed: u64, ssd: &str, hdd: &str, removal: Removal, load: Load) -> Result<[f64; 4]> {
    let world = World::in_order(seed);
    let mut drives = vec![drive(&world, DeviceClass::Ssd, ssd, GIB * 8, 0)?];
    for place in 1..4 {
        drives.push(drive(&world, DeviceClass::Hdd, hdd, GIB * 16, place)?);
    }
    let rt = world.clone();
    let measured = world.block_on(async move {
        let mut options = CreateOptions::new("drain", Uuid([1; 16]));
        let copies = if removal == Removal::Drain { 1 } else { 2 };
        (options.size, options.copies, options.policy) = (Some(SIZE), copies, "stripe".to_owned());
        let superblock = create(&drives, &options).await?;
        for (place, (drive, entry)) in drives.iter().zip(&superblock.devices).enumerate() {
            let slots = entry.slots_area(superblock.extent_size).expect("what was created is verified");
            drive.inner().set_data(slots, superblock.regions_on(DeviceId(place as u16)));
        }
        let names = (0..4).map(|place| format!("d{place}")).collect();
        let volume = Volume::open(rt.clone(), drives.clone(), OpenOptions::new(names)).await?.0;
        let arena = Arena::new(MIB * 8);
        let large = arena.alloc(MIB).await;
        fill(&volume, &large).await?;
        let held = volume.status().devices[3].slots - volume.status().devices[3].free;
        if removal == Removal::Return {
            volume.fail_device(LEAVES).await?;
            fill(&volume, &large).await?;
        }
        drives.iter().for_each(|drive| drive.set_timed(true));
        let sequential = sequential(&rt, &drives[3], &arena).await?;
        let guests = Rc::new(Guests::default());
        start(&rt, seed, &volume, load, &guests);
        rt.sleep(ALONE).await;
        let before = guests.bytes.get();
        rt.sleep(ALONE).await;
        let alone = per_second(guests.bytes.get() - before, ALONE);
        if removal == Removal::Lost {
            volume.fail_device(LEAVES).await?;
        }
        let (begin, before) = (rt.now(), guests.bytes.get());
        let over = match removal {
            Removal::Return => {
                volume.return_device(drives[LEAVES.index()].clone(), "d3").await?;
                DeviceState::Active
            }
            Removal::Drain | Removal::Lost => {
                volume.remove_device(LEAVES).await?;
                DeviceState::Removed
            }
        };
        let mut left = 0;
        while rt.now() < begin + BESIDE {
            rt.sleep(Nanos::from_millis(100)).await;
            let device = volume.status().devices[3].clone();
            left = match removal {
                Removal::Return => volume.status().behind.0,
                Removal::Drain | Removal::Lost => device.drain.map_or(0, |drain| drain.left_bytes.0),
            };
            if device.state == over {
                break;
            }
        }
        let took = rt.now() - begin;
        let beside = per_second(guests.bytes.get() - before, took);
        let moved = superblock.extent_size.0 * u64::from(held) - left;
        guests.stop.set(true);
        Ok::<_, anyhow::Error>([alone, beside, per_second(moved, took), sequential])
    });
    world.halt();
    measured
}

async fn fill(volume: &Volume<World, Drive>, bytes: &Buf) -> Result<()> {
    for place in 0..SIZE / MIB {
        volume.write(MIB * place, bytes, Durability::Volatile).await?;
    }
    Ok(volume.flush().await?)
}

fn per_second(bytes: u64, took: Nanos) -> f64 {
    bytes as f64 / 1e6 / (took.0 as f64 / 1e9)
}

async fn sequential(rt: &World, drive: &Drive, arena: &Arena) -> Result<f64> {
    let (begin, buf) = (rt.now(), arena.alloc(MIB).await);
    for place in 1..=512 {
        drive.read(MIB * place, &buf).await?;
    }
    Ok(per_second(512 << 20, rt.now() - begin))
}

fn start(rt: &World, seed: u64, volume: &Volume<World, Drive>, load: Load, guests: &Rc<Guests>) {
    let clients = match load {
        Load::Idle => 0,
        Load::Oltp => 8,
        Load::Files => 4,
    };
    for client in 0..clients {
        let (volume, guests) = (volume.clone(), guests.clone());
        rt.spawn(async move {
            let (mut rng, arena) = (Rng::new(seed + client), Arena::new(MIB));
            let request = if load == Load::Oltp { KIB * 8 } else { KIB * 64 };
            let buf = arena.alloc(request).await;
            while !guests.stop.get() {
                let (run, writes) = match load {
                    Load::Files => (rng.between(1, 17), rng.chance(0.5)),
                    _ => (1, rng.chance(1.0 / 3.0)),
                };
                let first = rng.below(SIZE / request - run);
                for place in first..first + run {
                    let done = match writes {
                        true => volume.write(request * place, &buf, Durability::Volatile).await,
                        false => volume.read(request * place, &buf).await,
                    };
                    done.expect("a guest meets no error");
                    guests.bytes.set(guests.bytes.get() + request.0);
                }
            }
        });
    }
}
