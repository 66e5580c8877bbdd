//! Lives of volumes with two copies. A device goes bad between two openings, or is good again.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::epochs::epochs;
use crate::openings::mirror;
use crate::rig::{Rig, cached, filled, holds, make, open};
use crate::unwritable::{EACH, EXTENT, EXTENTS, forks, plan, states, with};
use braid_base::{Bytes, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, World};
use std::cell::RefCell;
use std::rc::Rc;

/// Contents of each extent: the flushed value, and the value in flight.
type Known = Rc<RefCell<Vec<(u8, u8)>>>;

async fn guest(world: World, volume: Rig, arena: Arena, known: Known, ends: Nanos) {
    let mut rng = world.fork_rng();
    while world.now() < ends {
        let extent = rng.below(EXTENTS);
        let value = 1 + rng.below(250) as u8;
        known.borrow_mut()[extent as usize].1 = value;
        let written = volume.write(EXTENT * extent, &filled(&arena, EXTENT, value), Durability::Fua).await;
        if written.is_err() {
            // After a failed flush nothing is promised any more.
            return;
        }
        known.borrow_mut()[extent as usize].0 = value;
        world.sleep(Nanos(rng.below(2_000_000_000))).await;
    }
}

/// A device goes bad between two openings, or is good again. Lives end in a power cut, a death of the
/// daemon, or a clean stop, also during an opening. An opening may be refused if the other device lacked
/// data. Once the device is good again an opening must succeed, and no flushed data may be lost.
#[test]
fn devices_failing_between_openings_lose_no_flushed_data() {
    for seed in 0..60 {
        campaign(seed);
    }
}

const LIVES: u64 = 8;

fn campaign(seed: u64) {
    let bench = cached::bench(2000 + seed, MIB * 16, MIB * 40);
    let (world, arena, first, all) =
        (bench.world.clone(), bench.arena.clone(), bench.disks.clone(), bench.devices());
    bench.run(async move {
        let mut rng = world.fork_rng();
        let policy = ["ssd-first", "pass,idle=5s", "pass,order=epoch,window=256KiB,max-lag=512KiB,idle=1s"];
        let how = match policy[seed as usize % 3] {
            epoch if epoch.contains("epoch") => CreateOptions { policy: epoch.to_owned(), ..epochs(1) },
            policy => CreateOptions { policy: policy.to_owned(), ..mirror(1) },
        };
        let volume = make(world.clone(), all, &how).await;
        let superblock = volume.superblock();
        volume.close().await.unwrap();
        let mut disks = first;
        let mut known: Known = Rc::new(RefCell::new(vec![(0, 0); EXTENTS as usize]));
        let mut is_in_step = true;
        for life in 0..LIVES {
            let (device, bad) = (rng.below(2) as usize, EACH[rng.below(5) as usize]);
            let is_bad = rng.chance(0.6);
            let fault = if is_bad { plan(bad, &superblock, device) } else { FaultPlan::default() };
            let what = format!("seed {seed}, life {life}, d{device} {bad:?} {is_bad}");
            if rng.chance(0.3) {
                // This opening dies.
                let opening = open(world.clone(), with(&world, &disks, device, &fault));
                world.spawn(async move { drop(opening.await) });
                world.sleep(Nanos(rng.below(30_000_000))).await;
                disks = end(&world, &disks, &mut rng);
            }
            let opened = open(world.clone(), with(&world, &disks, device, &fault)).await;
            let volume = match opened {
                Ok(volume) => volume,
                Err(error) => {
                    assert!(is_bad && !is_in_step, "{what}: {error}");
                    let sound =
                        open(world.clone(), with(&world, &disks, device, &FaultPlan::default())).await;
                    sound.unwrap_or_else(|e| panic!("{what}: {error}; sound: {e}"))
                }
            };
            for extent in 0..EXTENTS {
                let (flushed, under_way) = known.borrow()[extent as usize];
                let at = EXTENT * extent;
                if flushed == under_way {
                    let is_there = holds(&volume, &arena, at, EXTENT, flushed).await;
                    assert!(is_there.unwrap_or_else(|e| panic!("{what}: {e}")), "{what}: extent {extent}");
                }
            }
            let ends = world.now() + Nanos(rng.below(40_000_000_000));
            world.spawn(guest(world.clone(), volume.clone(), arena.clone(), known.clone(), ends));
            world.sleep(ends.saturating_sub(world.now()) + Nanos(rng.below(40_000_000))).await;
            if rng.chance(0.4) {
                world.sleep(Nanos::from_secs(60)).await;
                is_in_step = volume.status().behind == Bytes::ZERO
                    && states(&volume).iter().all(|state| *state == DeviceState::Active);
                if rng.chance(0.6) {
                    volume.close().await.unwrap_or_else(|e| panic!("{what}: {e}"));
                }
            } else {
                is_in_step = false;
            }
            disks = end(&world, &disks, &mut rng);
            // Later work of the dead volume does not count.
            let now = known.borrow().clone();
            known = Rc::new(RefCell::new(now));
        }
    });
}

/// The software dies, or the machine loses power.
fn end(world: &World, disks: &[Disk], rng: &mut Rng) -> Vec<Disk> {
    let forks = forks(world, disks);
    if rng.chance(0.5) {
        forks.iter().for_each(Disk::lose_cache);
    }
    forks
}
