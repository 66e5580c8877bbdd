//! Writes that reach the disk later, while the SSD fails: until a deferred write is acknowledged, the disk
//! has all acknowledged data.

use crate::deadlines::{hang, parts, recover, state};
use crate::epochs::{BLOCK, epochs};
use crate::epochs_failing::{two, wait_until_applied};
use crate::rig::{Rig, bench, filled, holds, make, open, options};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_format::superblock::DeviceState;
use braid_policy::{Move, Occasion, Outcome, Placement, Plan, Policy, View};
use braid_runtime::{Runtime, join_all, yield_now};
use braid_sim::{Disk, FaultPlan, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

const SSD: DeviceId = DeviceId(0);

/// Kind of the SSD's failure.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Failure {
    /// All writes fail.
    AllWrites,
    /// No request is answered.
    Hangs,
    /// Writes to one sector fail.
    OneSector,
}

const FAILURES: [Failure; 3] = [Failure::AllWrites, Failure::Hangs, Failure::OneSector];

/// From now on an SSD fails; under `OneSector`, in the sector at this place.
fn fail(ssd: &Disk, failure: Failure, sector: Bytes) {
    let plan = match failure {
        Failure::AllWrites => FaultPlan { writes: 1.0, ..FaultPlan::default() },
        Failure::Hangs => return hang(ssd),
        Failure::OneSector => {
            FaultPlan { bad_writes: Some(sector..sector + Bytes(512)), ..FaultPlan::default() }
        }
    };
    ssd.faults().set(plan);
}

fn place_of(volume: &Rig, at: Bytes) -> Bytes {
    volume.explain(at).expect("it is within the volume").home.expect("it was written").1
}

async fn wait_until_nothing_is_behind(world: &World, volume: &Rig) {
    for _ in 0..100_000 {
        if volume.status().behind == Bytes::ZERO {
            return;
        }
        world.sleep(Nanos::from_millis(1)).await;
    }
    panic!("the disk never gets all of it");
}

/// A deferred write made the extent count as newer on the SSD before any byte was written. So an SSD that
/// failed in the first write after a pause could not be failed over. The guest met an error, no flush
/// succeeded any more, and the volume did not open without the SSD, though the disk had all acknowledged
/// data.
#[test]
fn a_deferred_write_goes_to_the_disk_if_the_ssd_takes_no_write() {
    check_deferred(Failure::AllWrites);
}

#[test]
fn a_deferred_write_goes_to_the_disk_if_the_ssd_hangs() {
    check_deferred(Failure::Hangs);
}

#[test]
fn deferred_write_reaches_disk_if_ssd_sector_is_bad() {
    check_deferred(Failure::OneSector);
}

fn check_deferred(failure: Failure) {
    // `rests`: true if the journal has called the span equal again since the last write.
    for (rests, policy) in
        [(true, "pass,idle=100ms"), (false, "pass,idle=100ms"), (true, "raid1,write-behind")]
    {
        let bench = bench(70);
        let (world, arena, all, disks) = parts(&bench);
        bench.run(async move {
            let what = format!("{policy}, {failure:?}, after a rest: {rests}");
            let made = CreateOptions { copies: 2, policy: policy.to_owned(), ..options(70) };
            let volume = make(world.clone(), all, &made).await;
            volume
                .write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua)
                .await
                .expect("the devices are sound");
            wait_until_nothing_is_behind(&world, &volume).await;
            // A commit proves that the SSD had the data copied from it.
            world.sleep(Nanos::from_secs(if rests { 60 } else { 2 })).await;
            volume.flush().await.expect("the devices are sound");
            fail(&disks[0], failure, place_of(&volume, BLOCK));
            let bytes = filled(&arena, BLOCK, 2);
            volume.write(BLOCK, &bytes, Durability::Volatile).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(holds(&volume, &arena, BLOCK, BLOCK, 2).await.expect("the devices are sound"), "{what}");
            volume.flush().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(holds(&volume, &arena, BLOCK, BLOCK, 2).await.expect("the devices are sound"), "{what}");
            if failure == Failure::OneSector {
                assert_eq!(state(&volume, 0), DeviceState::Active, "{what}");
                // The disk alone is no current copy of neighbouring extents before the journal calls these
                // extents equal.
                world.sleep(Nanos::from_secs(60)).await;
                volume.flush().await.expect("the devices are sound");
            }
            let alone = Faulty::new(disks[1].fork(&world), &crate::deadlines::no_faults(&world));
            let disk = open(world.clone(), vec![alone]).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(holds(&disk, &arena, BLOCK, BLOCK, 2).await.expect("the devices are sound"), "{what}");
            assert!(
                holds(&disk, &arena, Bytes::ZERO, BLOCK, 1).await.expect("the devices are sound"),
                "{what}"
            );
            assert!(
                holds(&disk, &arena, BLOCK * 2, MIB - BLOCK * 2, 1).await.expect("the devices are sound"),
                "{what}"
            );
            if failure == Failure::OneSector {
                recover(&disks[0]);
                wait_until_nothing_is_behind(&world, &volume).await;
                volume.audit().await.expect("both copies are alike");
            }
        });
    }
}

/// The same with a disk that keeps epochs.
#[test]
fn write_reaches_image_disk_if_ssd_rejects_writes() {
    check_by_epochs(Failure::AllWrites);
}

#[test]
fn write_reaches_image_disk_if_ssd_hangs() {
    check_by_epochs(Failure::Hangs);
}

#[test]
fn write_reaches_image_disk_if_ssd_sector_is_bad() {
    check_by_epochs(Failure::OneSector);
}

fn check_by_epochs(failure: Failure) {
    for rests in [true, false] {
        let world = World::new(71);
        let rigged = two(&world);
        let rt = world.clone();
        world.block_on(async move {
            let world = rt;
            let (arena, what) = (&rigged.arena, format!("{failure:?}, after a rest: {rests}"));
            let volume = make(world.clone(), rigged.devices(), &epochs(71)).await;
            volume
                .write(Bytes::ZERO, &filled(arena, MIB, 1), Durability::Fua)
                .await
                .expect("the devices are sound");
            wait_until_applied(&world, &volume).await;
            world.sleep(Nanos::from_secs(if rests { 60 } else { 2 })).await;
            volume.flush().await.expect("the devices are sound");
            fail(&rigged.disks[0], failure, place_of(&volume, BLOCK));
            let bytes = filled(arena, BLOCK, 2);
            volume.write(BLOCK, &bytes, Durability::Volatile).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(holds(&volume, arena, BLOCK, BLOCK, 2).await.expect("the devices are sound"), "{what}");
            volume.flush().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            volume.write(BLOCK * 3, &bytes, Durability::Fua).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(state(&volume, 0), DeviceState::Failed, "{what}");
            let disk = rigged.disks[1].fork(&world);
            let disk = open(world.clone(), vec![rigged.sound(&disk)]).await;
            let disk = disk.unwrap_or_else(|e| panic!("{what}: {e}"));
            for (block, value) in [(0, 1), (1, 2), (2, 1), (3, 2)] {
                assert!(
                    holds(&disk, arena, BLOCK * block, BLOCK, value).await.expect("the devices are sound"),
                    "{what}: {block}"
                );
            }
        });
        world.halt();
    }
}

/// Concurrent writes to one extent, and to one block. Some writes go to the SSD while another write
/// exchanges the copies. These writes must also be on the disk before their acknowledgement.
#[test]
fn concurrent_deferred_writes_reach_disk_after_ssd_failure() {
    const SECTOR: Bytes = Bytes(512);
    let failed = Rc::new(Cell::new(0));
    for seed in 0..60 {
        let failure = FAILURES[seed as usize % 3];
        let bench = bench(100 + seed);
        let (world, arena, all, disks) = parts(&bench);
        let count = failed.clone();
        bench.run(async move {
            let what = format!("seed {seed}, {failure:?}");
            let made = CreateOptions { copies: 2, policy: "pass,idle=100ms".to_owned(), ..options(70) };
            let volume = make(world.clone(), all, &made).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            wait_until_nothing_is_behind(&world, &volume).await;
            world.sleep(Nanos::from_secs(if seed % 2 == 0 { 60 } else { 2 })).await;
            volume.flush().await.unwrap();
            fail(&disks[0], failure, place_of(&volume, BLOCK));
            // Each write takes a different time on each device.
            if failure == Failure::OneSector {
                let stall = Nanos::from_micros(1)..Nanos::from_millis(5);
                let place = place_of(&volume, BLOCK);
                let bad_writes = Some(place..place + SECTOR);
                let plan = FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() };
                disks[0].faults().set(FaultPlan { bad_writes, ..plan.clone() });
                disks[1].faults().set(plan);
            }
            let acked: Vec<(Bytes, u8)> = join_all((0..24).map(async |i| {
                let (at, value) = (SECTOR * i, 10 + i as u8);
                let bytes = filled(&arena, SECTOR, value);
                world.sleep(Nanos::from_micros(200 * (i * 7 % 5))).await;
                let written = volume.write(at, &bytes, Durability::Volatile).await;
                let seen = written.is_ok() && holds(&volume, &arena, at, SECTOR, value).await.unwrap();
                assert_eq!(seen, written.is_ok(), "{what}");
                written.ok().map(|()| (at, value))
            }))
            .await
            .into_iter()
            .flatten()
            .collect();
            count.set(count.get() + 24 - acked.len());
            disks[1].faults().set(FaultPlan::default());
            volume.flush().await.unwrap_or_else(|e| panic!("{what}: {e}"));
            let are_there = async |volume: &Rig| {
                for &(at, value) in &acked {
                    assert!(holds(volume, &arena, at, SECTOR, value).await.unwrap(), "{what}: {at}");
                }
            };
            are_there(&volume).await;
            if failure == Failure::OneSector {
                recover(&disks[0]);
                wait_until_nothing_is_behind(&world, &volume).await;
                volume.audit().await.expect("both copies are alike");
                world.sleep(Nanos::from_secs(60)).await;
            }
            let alone = Faulty::new(disks[1].fork(&world), &crate::deadlines::no_faults(&world));
            are_there(&open(world.clone(), vec![alone]).await.unwrap_or_else(|e| panic!("{what}: {e}")))
                .await;
        });
    }
    assert!(failed.get() < 60, "{} of 1440 writes failed, though the disk was sound", failed.get());
}

/// A policy that resynchronises block after block, possible or not.
struct Restless {
    blocks: u64,
    ended: Rc<Cell<u64>>,
    /// The last `can_resync` shown to the policy.
    can_resync: Rc<Cell<Option<bool>>>,
}

impl Policy for Restless {
    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement::KEEP
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        self.can_resync.set(Some(view.homes.can_resync()));
        let ranges = (0..self.blocks).map(|i| braid_policy::ByteRange::new(BLOCK * i, BLOCK));
        plan.moves.extend(ranges.map(|range| Move::Resync { range, gap: Move::GAP }));
        view.now + Nanos::from_millis(10)
    }

    fn done(&mut self, _: &Move, _: Outcome) {
        self.ended.set(self.ended.get() + 1);
    }

    fn name(&self) -> &'static str {
        "toy-restless-resync"
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "all is resynchronised again and again".to_owned()
    }
}

/// Stale data of a lost disk cannot be copied. All moves that ask for a copy ended in one turn of the
/// executor, and guests waited.
#[test]
fn moves_without_readable_source_yield_to_tasks() {
    let bench = bench(72);
    let (world, arena, all, _) = parts(&bench);
    bench.run(async move {
        let made =
            CreateOptions { copies: 2, size: Some(MIB * 4), policy: "raid1".to_owned(), ..options(72) };
        let volume = make(world.clone(), all, &made).await;
        for at in 0..4 {
            volume.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        let (ended, can_resync) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
        let restless = |blocks| {
            let (ended, can_resync) = (ended.clone(), can_resync.clone());
            volume.replace_policy(Box::new(Restless { blocks, ended, can_resync }));
        };
        restless(0);
        world.sleep(Nanos::from_millis(50)).await;
        assert_eq!(can_resync.get(), Some(true));
        volume.fail_device(DeviceId(1)).await.unwrap();
        for at in 0..4 {
            volume.write(MIB * at, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        }
        assert_eq!(volume.status().behind, MIB * 4);
        let blocks = MIB * 4 / BLOCK;
        restless(blocks);
        let (mut before, mut most) = (0, 0);
        for _ in 0..1_000_000 {
            yield_now().await;
            most = most.max(ended.get() - before);
            before = ended.get();
            if before >= blocks {
                break;
            }
        }
        assert!(before >= blocks, "{before} of {blocks} moves ended");
        assert_eq!(can_resync.get(), Some(false));
        // Sixteen tasks run moves, each a few before the others have a turn.
        assert!(most <= blocks / 8, "{most} of {blocks} moves ended in one turn of the others");
    });
}

/// Without any lag a change of any length began, and all of the change was acknowledged while only the SSD
/// had the data.
#[test]
fn long_write_keeps_lag_within_epoch_bound() {
    let world = World::new(74);
    let rigged = two(&world);
    let rt = world.clone();
    world.block_on(async move {
        let world = rt;
        let bound = KIB * 256;
        let made = CreateOptions {
            policy: format!("pass,order=epoch,window={},max-lag={bound},idle=20ms", KIB * 128),
            ..epochs(74)
        };
        let volume = make(world.clone(), rigged.devices(), &made).await;
        wait_until_applied(&world, &volume).await;
        let stop = Rc::new(Cell::new(false));
        let (watched, clock, is_over, highest) =
            (volume.clone(), world.clone(), stop.clone(), Rc::new(Cell::new(Bytes::ZERO)));
        let seen = highest.clone();
        world.spawn(async move {
            while !is_over.get() {
                seen.set(seen.get().max(watched.glance().behind));
                clock.sleep(Nanos::from_micros(100)).await;
            }
        });
        for value in 1..4 {
            // Not at the beginning of an extent.
            volume
                .write(BLOCK, &filled(&rigged.arena, MIB - BLOCK, value), Durability::Volatile)
                .await
                .unwrap();
            let lag = volume.glance().behind;
            assert!(lag <= bound, "{lag} are on the SSD alone");
        }
        stop.set(true);
        assert!(highest.get() > Bytes::ZERO && highest.get() <= bound, "{} were", highest.get());
        assert_eq!(state(&volume, SSD.index()), DeviceState::Active);
    });
    world.halt();
}
