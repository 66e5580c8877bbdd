//! Speed of `pass` in duplicating a scattered window, and the cost for guests: in virtual time, on modelled
//! devices.
//!
//! A volume of 8 GiB, all of it on both devices. Then 256 MiB are written as ranges of 4 KiB, scattered over
//! the first GiB, to the SSD alone. The policy is told to duplicate them: once without other requests, and
//! once beside eight clients with requests of 4 KiB at random places, in a closed loop. The clients read all
//! the rest, or make seven such reads in ten requests and write to 16 MiB otherwise. The time is compared
//! with the time of writing 1 GiB to the disk in order, and the clients' rate with their rate before.
//!
//! `cargo run --release -p braid-bench --bin duplicate`

use anyhow::{Context, Result};
use braid_base::{Bytes, DeviceClass, DeviceId, GIB, KIB, MIB, Nanos, Rng, SECTOR};
use braid_emulated::Emulated;
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_model::{DeviceModel, by_name};
use braid_runtime::{Arena, Buf, Device, Geometry, Runtime, join_all};
use braid_sim::{Hollow, Payload, World};
use std::cell::Cell;
use std::rc::Rc;

type Drive = Rc<Emulated<World, Rc<Hollow>, DeviceModel>>;

const SEED: u64 = 5;
const SIZE: Bytes = Bytes(8 << 30);
/// Span of the scattered window, and its bytes.
const SPAN: Bytes = Bytes(1 << 30);
const WINDOW: Bytes = Bytes(256 << 20);
const RANGE: Bytes = Bytes(4 << 10);
const CLIENTS: u64 = 8;
/// Time for clients alone, after a warm-up of the same length.
const ALONE: Nanos = Nanos::from_secs(10);
/// Longest time of a duplication.
const BESIDE: Nanos = Nanos::from_secs(600);
/// Bytes that clients write, which the disk receives together with the window.
const WRITTEN: Bytes = Bytes(16 << 20);
/// The disk waits: the window is larger than the scattered writes.
const WAITS: &str = "pass,idle=1h,window=1GiB,max-lag=2GiB,max-lag-time=1h";
/// The window is full: `pass` duplicates.
const DUPLICATES: &str = "pass,idle=1h,window=32MiB,max-lag=2GiB,max-lag-time=1h";

#[derive(Default)]
struct Clients {
    requests: Cell<u64>,
    stop: Cell<bool>,
}

fn main() -> Result<()> {
    println!(
        "{:<28} {:<14} {:>12} {:>16} {:>12} {:>13} {:>7}",
        "devices", "clients", "duplicated", "1 GiB in order", "requests/s", "beside it", "cost"
    );
    for (ssd, hdd) in [("nvme-ssd", "exos-x20"), ("sata-ssd", "barracuda-7200.12")] {
        for (name, reads) in [("none", None), ("reads", Some(1.0)), ("70 % reads", Some(0.7))] {
            let Measured { took, in_order, alone, beside } = measure(ssd, hdd, reads)?;
            let ratio = took / in_order;
            println!(
                "{:<28} {name:<14} {took:>10.2} s {in_order:>9.2} s {ratio:.2} {alone:>12.0} {beside:>13.0} {:>6.1}%",
                format!("{ssd} + {hdd}"),
                if reads.is_some() { 100.0 * (1.0 - beside / alone) } else { 0.0 }
            );
        }
    }
    Ok(())
}

struct Measured {
    /// Seconds of the duplication, and of writing as many bytes as the window's span in order.
    took: f64,
    in_order: f64,
    /// Requests of the clients per second, before the duplication and beside the duplication.
    alone: f64,
    beside: f64,
}

fn drive(world: &World, class: DeviceClass, model: &str, size: Bytes) -> Result<Drive> {
    let spec = by_name(model).with_context(|| format!("no model {model}"))?;
    let hollow = Rc::new(Hollow::new(
        Geometry { size, class, alignment: SECTOR, memory_alignment: Bytes(1) },
        Payload::Nothing,
    ));
    let drive = Emulated::new(world.clone(), hollow, spec.build(size, SEED));
    drive.set_timed(false);
    Ok(Rc::new(drive))
}

fn measure(ssd: &str, hdd: &str, reads: Option<f64>) -> Result<Measured> {
    let world = World::in_order(SEED);
    let drives = vec![
        drive(&world, DeviceClass::Ssd, ssd, GIB * 16)?,
        drive(&world, DeviceClass::Hdd, hdd, GIB * 16)?,
    ];
    let rt = world.clone();
    let measured = world.block_on(async move {
        let mut options = CreateOptions::new("duplicate", Uuid([1; 16]));
        (options.size, options.copies, options.policy) = (Some(SIZE), 2, WAITS.to_owned());
        let superblock = create(&drives, &options).await?;
        for (place, (drive, entry)) in drives.iter().zip(&superblock.devices).enumerate() {
            let slots = entry.slots_area(superblock.extent_size).expect("what was created is verified");
            drive.inner().set_data(slots, superblock.regions_on(DeviceId(place as u16)));
        }
        let names = (0..2).map(|place| format!("d{place}")).collect();
        let volume = Volume::open(rt.clone(), drives.clone(), OpenOptions::new(names)).await?.0;
        let arena = Arena::new(MIB * 8);
        let large = arena.alloc(MIB).await;
        for place in 0..SIZE / MIB {
            volume.write(MIB * place, &large, Durability::Volatile).await?;
        }
        volume.set_policy(DUPLICATES).await?;
        until_duplicated(&rt, &volume).await?;
        volume.set_policy(WAITS).await?;
        drives.iter().for_each(|drive| drive.set_timed(true));
        let in_order = in_order(&rt, &drives[1], &large).await?;
        scatter(&volume, &arena).await?;
        anyhow::ensure!(volume.status().behind == WINDOW, "the disk got some of it already");
        let clients = Rc::new(Clients::default());
        if let Some(reads) = reads {
            start(&rt, &volume, reads, &clients);
        }
        rt.sleep(ALONE).await;
        let before = clients.requests.get();
        rt.sleep(ALONE).await;
        let alone = per_second(clients.requests.get() - before, ALONE);
        let (begin, before) = (rt.now(), clients.requests.get());
        volume.set_policy(DUPLICATES).await?;
        until_duplicated(&rt, &volume).await?;
        let took = rt.now() - begin;
        let beside = per_second(clients.requests.get() - before, took);
        clients.stop.set(true);
        Ok::<_, anyhow::Error>(Measured { took: seconds(took), in_order, alone, beside })
    });
    world.halt();
    measured
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

fn per_second(requests: u64, took: Nanos) -> f64 {
    requests as f64 / seconds(took)
}

/// Writes as many bytes as the window's span to the disk, in order, to a place outside the volume.
async fn in_order(rt: &World, drive: &Drive, buf: &Buf) -> Result<f64> {
    let (begin, next) = (rt.now(), Cell::new(0));
    let writers = (0..4).map(async |_| {
        while next.get() < SPAN / MIB {
            let place = next.replace(next.get() + 1);
            drive.write(GIB * 14 + MIB * place, buf).await?;
        }
        Ok::<_, std::io::Error>(())
    });
    join_all(writers).await.into_iter().collect::<std::io::Result<()>>()?;
    drive.flush().await?;
    Ok(seconds(rt.now() - begin))
}

/// Writes each range of a random choice once.
async fn scatter(volume: &Volume<World, Drive>, arena: &Arena) -> Result<()> {
    let (mut rng, buf) = (Rng::new(SEED), arena.alloc(RANGE).await);
    let mut places: Vec<u64> = (0..SPAN / RANGE).collect();
    for chosen in 0..WINDOW / RANGE {
        let other = rng.between(chosen, places.len() as u64);
        places.swap(chosen as usize, other as usize);
        volume.write(RANGE * places[chosen as usize], &buf, Durability::Volatile).await?;
    }
    Ok(())
}

/// Waits until the disk lacks no more bytes than the clients' writes keep changing.
async fn until_duplicated(rt: &World, volume: &Volume<World, Drive>) -> Result<()> {
    let end = rt.now() + BESIDE;
    while volume.status().behind > WRITTEN {
        anyhow::ensure!(rt.now() < end, "it took longer than {BESIDE}");
        rt.sleep(Nanos::from_millis(10)).await;
    }
    Ok(())
}

fn start(rt: &World, volume: &Volume<World, Drive>, reads: f64, clients: &Rc<Clients>) {
    for client in 0..CLIENTS {
        let (volume, clients) = (volume.clone(), clients.clone());
        rt.spawn(async move {
            let (mut rng, arena) = (Rng::new(SEED + 1 + client), Arena::new(KIB * 64));
            let buf = arena.alloc(RANGE).await;
            while !clients.stop.get() {
                let within = |span: Bytes, rng: &mut Rng| SPAN + RANGE * rng.below(span / RANGE);
                let done = match rng.chance(reads) {
                    true => volume.read(within(SIZE - SPAN, &mut rng), &buf).await,
                    false => volume.write(within(WRITTEN, &mut rng), &buf, Durability::Volatile).await,
                };
                done.expect("a client meets no error");
                clients.requests.set(clients.requests.get() + 1);
            }
        });
    }
}
