//! An SSD that stops answering before a sound disk: data on the disk is read all the same, though the SSD
//! has dirty blocks, and so cannot be failed.

use crate::deadlines::{hang, recover, timed};
use crate::rig::cached::{HDD, SSD, bench, caching};
use crate::rig::{Bench, Rig, filled, holds, is_all, open_with};
use braid_base::{Bytes, ExtentId, KIB, MIB, Nanos, Rng};
use braid_engine::{Durability, Export};
use braid_policy::{ByteRange, DeviceView, Move, Occasion, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::World;
use std::cell::Cell;
use std::rc::Rc;

const SIZE: Bytes = Bytes(4 << 20);
const EXTENT: Bytes = Bytes(128 << 10);
const BLOCK: Bytes = Bytes(4 << 10);
/// A deadline, and a tick of the watchdog before and after.
const LONGEST: Nanos = Nanos::from_secs(8);

/// A policy with an extra copy for every read. Writes to the first eighth of each extent are dirty, others
/// go to the disk. Plans promote and write back.
struct Warm {
    rng: Rng,
    plans: bool,
}

impl Policy for Warm {
    fn name(&self) -> &'static str {
        "warm"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(HDD),
            Occasion::Write(write) if is_dirtied(write.range.start) => Placement::write_back(SSD),
            Occasion::ReadMiss(_) => Placement::cached(Some(SSD)),
            _ => Placement::KEEP,
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots } else { 0 }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        if self.plans {
            let start = EXTENT * self.rng.below(SIZE / EXTENT);
            let range = ByteRange::new(start, EXTENT * 2);
            plan.moves.push(Move::WriteBack { range });
            let start = EXTENT * self.rng.below(SIZE / EXTENT);
            plan.moves.push(Move::Promote { range: ByteRange::new(start, EXTENT), target: SSD });
        }
        view.now + Nanos::from_millis(700)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "a test".to_owned()
    }
}

fn is_dirtied(at: Bytes) -> bool {
    at % EXTENT < EXTENT / 8
}

/// A volume on the disk, with the first eighth of each extent dirty on the SSD.
async fn half_dirty(bench: &Bench, plans: bool, cache_extents: usize) -> Rig {
    let made = caching(1, SIZE);
    braid_engine::create(&bench.devices(), &made).await.expect("the devices are fit");
    let opened = open_with(bench.world.clone(), bench.devices(), |options| {
        options.cache_extents = cache_extents;
    });
    let volume = opened.await.expect("what was just made can be opened").0;
    volume.replace_policy(Box::new(Warm { rng: bench.world.fork_rng(), plans: false }));
    for extent in 0..SIZE / EXTENT {
        let at = EXTENT * extent;
        volume
            .write(at, &filled(&bench.arena, EXTENT, 1), Durability::Volatile)
            .await
            .expect("there is room");
        volume
            .write(at, &filled(&bench.arena, EXTENT / 8, 1), Durability::Volatile)
            .await
            .expect("there is room");
    }
    volume.flush().await.expect("the devices are sound");
    volume.replace_policy(Box::new(Warm { rng: bench.world.fork_rng(), plans }));
    volume
}

/// A read of an untouched block began to make an extra copy on an SSD that had stopped answering, under the
/// lock of the block's extent. Other reads of the extent, on a sound disk, waited for a minute. As the next
/// copy began, the reads waited for another minute.
#[test]
fn an_extra_copy_on_a_stalled_ssd_keeps_no_guest_from_the_disk() {
    let bench = bench(1, MIB * 16, MIB * 16);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let volume = half_dirty(&bench, false, 0).await;
        hang(&bench.disks[SSD.index()]);
        // An untouched block, the same block again, the next block of its extent, and others.
        for at in [MIB, MIB, MIB + BLOCK, MIB * 2, MIB * 2, MIB + BLOCK * 2, MIB * 3].map(|at| at + KIB * 64)
        {
            let into = filled(&bench.arena, BLOCK, 0);
            let (took, read) = timed(&world, volume.read(at, &into)).await;
            assert!(read.is_ok() && took < LONGEST, "{took} at {at}: {read:?}");
            assert!(is_all(&into, 1));
        }
        // Data on the SSD alone is an error, in time.
        let into = filled(&bench.arena, BLOCK, 0);
        let (took, read) = timed(&world, volume.read(MIB, &into)).await;
        assert!(read.is_err() && took < Nanos::from_secs(62), "{took}: {read:?}");
        recover(&bench.disks[SSD.index()]);
        world.sleep(Nanos::from_secs(5)).await;
        assert!(holds(&volume, &bench.arena, Bytes::ZERO, MIB, 1).await.unwrap());
        volume.audit().await.expect("all copies are alike");
        world.halt();
    });
}

/// Guests that read data on the disk, in many places, while the SSD stalls for some seconds now and then.
async fn read_on(world: World, volume: Rig, seed: u64, longest: Rc<Cell<Nanos>>, ended: Rc<Cell<u32>>) {
    let (mut rng, arena) = (Rng::new(seed), Arena::new(MIB));
    for _ in 0..400 {
        // A write may wait for the journal on the SSD, and its extent waits, too: written extents are not
        // read.
        let write = rng.chance(0.1);
        let extents = if write { 24..SIZE / EXTENT } else { 0..24 };
        let at = EXTENT * rng.between(extents.start, extents.end) + BLOCK * rng.between(8, EXTENT / BLOCK);
        // A late device may fill the buffer later: the buffer is never used again.
        let into = Arena::new(BLOCK).alloc(BLOCK).await;
        let (took, done) = timed(&world, async {
            match write {
                true => volume.write(at, &filled(&arena, BLOCK, 1), Durability::Volatile).await,
                false => volume.read(at, &into).await,
            }
        })
        .await;
        if !write {
            assert!(done.is_ok(), "seed {seed}, at {at}: {done:?}");
            assert!(is_all(&into, 1), "seed {seed}, at {at}");
            longest.set(longest.get().max(took));
        }
        world.sleep(Nanos::from_millis(rng.below(400))).await;
    }
    ended.set(ended.get() + 1);
}

/// Stalls of up to a minute, with a cache, plans that make it warmer and write back, and the memory cache,
/// which reads whole extents.
#[test]
fn reads_of_a_healthy_disk_wait_no_longer_than_deadlines_though_the_ssd_stalls() {
    for seed in 0..24 {
        let bench = bench(seed, MIB * 16, MIB * 16);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let cache_extents = [0, 8][seed as usize % 2];
            let volume = half_dirty(&bench, seed % 4 < 2, cache_extents).await;
            let (longest, ended) = (Rc::new(Cell::new(Nanos::ZERO)), Rc::new(Cell::new(0)));
            for guest in 0..3 {
                let seed = seed * 8 + guest;
                world.spawn(read_on(world.clone(), volume.clone(), seed, longest.clone(), ended.clone()));
            }
            let (mut rng, ssd) = (Rng::new(seed), bench.disks[SSD.index()].clone());
            while ended.get() < 3 {
                world.sleep(Nanos::from_millis(rng.between(8_000, 20_000))).await;
                hang(&ssd);
                let stall = [2_000, 8_000, 30_000, 50_000][rng.below(4) as usize];
                world.sleep(Nanos::from_millis(rng.below(stall))).await;
                recover(&ssd);
            }
            // At most behind a task with the extent's lock and a task waiting for the lock, each with a
            // deadline.
            assert!(longest.get() < LONGEST * 2, "seed {seed}: {}", longest.get());
            world.sleep(Nanos::from_secs(10)).await;
            for at in 0..4 {
                assert!(holds(&volume, &bench.arena, MIB * at, MIB, 1).await.unwrap(), "seed {seed}");
            }
            volume.audit().await.expect("all copies are alike");
            world.halt();
        });
    }
}
