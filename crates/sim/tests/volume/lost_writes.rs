//! Two required copies on three devices. One device loses unflushed writes; data copied from the device
//! since then is lost as well.

use crate::rig::life::wait_until_removed;
use crate::rig::{Rig, filled, holds, make, options};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, Result};
use braid_format::superblock::DeviceState;
use braid_policy::{
    ByteRange, CurrentCopy, DeviceView, Move, Occasion, Placement, Plan, Policy, Second, View,
};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A device without a journal, so only a commit flushes the device.
const LOSES: DeviceId = DeviceId(2);
const OTHER: DeviceId = DeviceId(1);
const TARGET: DeviceId = DeviceId(0);
const EXTENT: Bytes = Bytes(128 << 10);
const EXTENTS: u64 = 8;

/// A policy with homes on one device, by default the device that loses writes, and second copies on another;
/// makes the moves of the test.
#[derive(Clone)]
struct Told {
    home: Rc<Cell<DeviceId>>,
    second: Rc<Cell<Second>>,
    /// True if guests read the second copies.
    reads_second: Rc<Cell<bool>>,
    moves: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement { second: self.second.get(), ..Placement::on(self.home.get()) }
    }

    fn rank_reads(&self, copies: &mut [CurrentCopy], _: &View) {
        if self.reads_second.get() {
            copies.reverse();
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(10)
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == TARGET { EXTENTS as u32 } else { 0 }
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

struct Three {
    world: World,
    arena: Arena,
    disks: Vec<Disk>,
    volume: Rig,
    told: Told,
}

/// A device with the faults of its disk only.
fn sound(disk: Disk, world: &World) -> Faulty<Disk> {
    Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()))
}

/// Runs a test on a volume with all extents written and flushed as 1, and then written as 2.
fn on_three_devices(test: impl AsyncFn(&Three) + Copy + 'static) {
    on_three_devices_with(LOSES, OTHER, test);
}

fn on_three_devices_with(home: DeviceId, second: DeviceId, test: impl AsyncFn(&Three) + Copy + 'static) {
    for seed in 0..8 {
        let world = World::new(seed);
        let disks = [DiskOptions::ssd(MIB * 12), DiskOptions::hdd(MIB * 12), DiskOptions::hdd(MIB * 12)];
        let disks: Vec<Disk> = disks.into_iter().map(|options| Disk::new(&world, options)).collect();
        let devices = disks.iter().map(|disk| sound(disk.clone(), &world)).collect();
        let rt = world.clone();
        world.clone().block_on(async move {
            let options = CreateOptions { copies: 2, ..options(seed as u8) };
            let volume = make(rt.clone(), devices, &options).await;
            let told = Told {
                home: Rc::new(Cell::new(home)),
                second: Rc::new(Cell::new(Second::Sync(second))),
                reads_second: Rc::default(),
                moves: Rc::default(),
            };
            volume.replace_policy(Box::new(told.clone()));
            let three = Three { world: rt, arena: Arena::new(MIB * 4), disks, volume, told };
            three.write(1).await;
            three.volume.flush().await.expect("two devices are sound");
            three.write(2).await;
            test(&three).await;
        });
        world.halt();
    }
}

impl Three {
    async fn write(&self, value: u8) {
        let bytes = filled(&self.arena, EXTENT * EXTENTS, value);
        self.volume.write(Bytes::ZERO, &bytes, Durability::Volatile).await.expect("two devices are sound");
    }

    fn faults(&self, device: DeviceId) -> Faults {
        self.disks[device.index()].faults()
    }

    /// Loses the unflushed writes of the device; the next flush reports the loss.
    fn lose_writes(&self) {
        self.disks[LOSES.index()].lose_cache();
        self.faults(LOSES).set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
    }

    /// The second copy of the first extent has a bad sector. A guest's read of a part of the extent finds
    /// the sector, and the sector is rewritten.
    async fn repair_second(&self) -> FaultPlan {
        let (_, at, _) = self
            .volume
            .explain(Bytes::ZERO)
            .expect("it is in the volume")
            .second
            .expect("there are two copies");
        let bad = FaultPlan { bad_reads: Some(at + KIB * 32..at + KIB * 36), ..FaultPlan::default() };
        let bad = FaultPlan { bad_until_written: true, ..bad };
        self.faults(OTHER).set(bad.clone());
        self.told.reads_second.set(true);
        let _what_the_home_has = self.holds(Bytes::ZERO, KIB * 64, 2).await;
        bad
    }

    async fn holds(&self, at: Bytes, len: Bytes, value: u8) -> bool {
        holds(&self.volume, &self.arena, at, len, value).await.is_ok_and(|holds| holds)
    }

    /// A volume on the remaining devices after a power cut.
    async fn after_a_power_cut(&self) -> Rig {
        let left =
            [TARGET, OTHER].map(|device| sound(self.disks[device.index()].fork(&self.world), &self.world));
        crate::rig::open(self.world.clone(), left.to_vec()).await.expect("two devices are sound")
    }

    /// A guest's flush that has begun.
    fn begin_flush(&self) -> Rc<RefCell<Option<Result<()>>>> {
        let (result, volume) = (Rc::default(), self.volume.clone());
        let flushed: Rc<RefCell<Option<Result<()>>>> = result;
        let result = flushed.clone();
        self.world.spawn(async move { *result.borrow_mut() = Some(volume.flush().await) });
        flushed
    }

    async fn plan(&self, moves: impl Iterator<Item = Move>) {
        *self.told.moves.borrow_mut() = moves.collect();
        self.world.sleep(Nanos::from_secs(2)).await;
    }

    /// Makes a flush of the guest fail on the device, without harm to the volume.
    async fn flush_without_it(&self) {
        self.faults(LOSES).set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        self.volume.flush().await.expect("two devices are sound");
        assert_eq!(self.volume.status().devices[LOSES.index()].state, DeviceState::Failed);
    }

    /// Checks that flushed data is read: now, after the resync of the two remaining copies, and after a
    /// power cut.
    async fn nothing_is_lost(&self) {
        let len = EXTENT * EXTENTS;
        assert!(holds(&self.volume, &self.arena, Bytes::ZERO, len, 2).await.expect("two devices are sound"));
        let after = self.after_a_power_cut().await;
        assert!(holds(&after, &self.arena, Bytes::ZERO, len, 2).await.expect("two devices are sound"));
        self.world.sleep(Nanos::from_secs(60)).await;
        for volume in [&self.volume, &after] {
            assert!(holds(volume, &self.arena, Bytes::ZERO, len, 2).await.expect("two devices are sound"));
            volume.audit().await.expect("two devices are sound");
        }
    }
}

fn migrations() -> impl Iterator<Item = Move> {
    (0..EXTENTS).map(|extent| Move::Migrate { extent: ExtentId(extent as u32), target: TARGET })
}

fn promotions() -> impl Iterator<Item = Move> {
    let range = ByteRange::new(Bytes::ZERO, EXTENT * EXTENTS);
    std::iter::once(Move::Promote { range, target: TARGET })
}

/// The new homes held the device's content after its loss of writes, and counted as current: the second
/// copies were overwritten with this content.
#[test]
fn migration_from_device_with_lost_writes_loses_nothing() {
    on_three_devices(async |three| {
        three.lose_writes();
        three.plan(migrations()).await;
        assert_eq!(three.volume.status().background.migrations, EXTENTS);
        three.flush_without_it().await;
        three.nothing_is_lost().await;
    });
}

/// The same with extra copies.
#[test]
fn promotion_from_device_with_lost_writes_loses_nothing() {
    on_three_devices(async |three| {
        three.lose_writes();
        three.plan(promotions()).await;
        assert!(three.volume.status().background.promotions > 0);
        three.flush_without_it().await;
        three.nothing_is_lost().await;
    });
}

/// The device was removed at once. The drain copied the extents from the other device, and their spans became
/// clean. The extra copies stayed, and were read after a crash.
#[test]
fn removal_of_device_with_lost_writes_leaves_no_older_cached_bytes() {
    on_three_devices(async |three| {
        three.lose_writes();
        three.plan(promotions()).await;
        three.flush_without_it().await;
        three.volume.set_policy("ssd-first,cache=20%").await.unwrap();
        assert!(three.volume.status().extra_blocks.0 > 0, "the policy keeps them");
        three.volume.remove_device(LOSES).await.unwrap();
        wait_until_removed(&three.world, &three.volume).await;
        three.world.sleep(Nanos::from_secs(60)).await;
        let status = three.volume.status();
        assert_eq!((status.spans, status.background.resynced_bytes), ((0, 0), 0), "no resync drops them");
        three.nothing_is_lost().await;
    });
}

/// A device had lost its extra copies, but in clean spans the copies were still read: the latest promotions
/// had never reached the device.
#[test]
fn cached_copies_are_not_read_after_lost_writes() {
    on_three_devices_with(OTHER, LOSES, async |three| {
        three.volume.flush().await.expect("all devices are sound");
        three.world.sleep(Nanos::from_secs(60)).await;
        assert_eq!(three.volume.status().spans, (0, 0));
        three.plan(promotions()).await;
        assert!(three.volume.status().extra_blocks.0 > 0);
        three.disks[TARGET.index()].lose_cache();
        three.faults(TARGET).set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        three.volume.flush().await.expect("two devices are sound");
        assert_eq!(three.volume.status().devices[TARGET.index()].state, DeviceState::Failed);
        assert!(three.holds(Bytes::ZERO, EXTENT * EXTENTS, 2).await);
        three.world.sleep(Nanos::from_secs(1)).await;
        assert_eq!(three.volume.status().extra_blocks, (0, 0), "no request reads them");
        three.plan(promotions()).await;
        assert_eq!(three.volume.status().extra_blocks, (0, 0), "the device has failed");
        three.volume.audit().await.expect("two devices are sound");
    });
}

/// A device was failed only after the flushes of all others had ended: until then the device was read.
#[test]
fn failed_device_is_not_read_during_slow_flush() {
    on_three_devices(async |three| {
        let slow = FaultPlan {
            stalls: 1.0,
            stall: Nanos::from_secs(3)..Nanos::from_secs(4),
            ..FaultPlan::default()
        };
        three.faults(OTHER).set(slow);
        three.faults(LOSES).set(FaultPlan { flushes: 1.0, flushes_lose: true, ..FaultPlan::default() });
        let flushed = three.begin_flush();
        three.world.sleep(Nanos::from_secs(1)).await;
        three.plan(migrations().chain(promotions())).await;
        while flushed.borrow().is_none() {
            three.world.sleep(Nanos::from_secs(1)).await;
        }
        flushed.take().unwrap().unwrap();
        three.faults(OTHER).set(FaultPlan::default());
        three.nothing_is_lost().await;
    });
}

/// One copy missed a write, the other lost the write, and was copied over the first: a flush that succeeded
/// then promised data without any copy.
#[test]
fn flush_fails_or_keeps_write_lost_before_resync() {
    on_three_devices(async |three| {
        three.volume.flush().await.unwrap();
        let (_, at, _) = three.volume.explain(Bytes::ZERO).unwrap().second.unwrap();
        let missed = FaultPlan { bad_writes: Some(at..at + EXTENT), ..FaultPlan::default() };
        three.faults(OTHER).set(missed);
        three.write(3).await;
        assert_eq!(three.volume.status().spans.1, 1, "a copy is behind");
        three.lose_writes();
        three.faults(OTHER).set(FaultPlan::default());
        while three.volume.status().spans.1 > 0 {
            three.world.sleep(Nanos::from_millis(20)).await;
        }
        let flushed = three.volume.flush().await;
        let kept = three.holds(Bytes::ZERO, EXTENT, 3).await;
        assert!(flushed.is_err() || kept, "a flush promised what no device has");
    });
}

/// A resync made the unmoved copy like the moved copy: the unmoved copy was no better, and became the home.
#[test]
fn flush_fails_or_keeps_data_resynced_to_unmoved_copy() {
    on_three_devices(async |three| {
        three.volume.flush().await.unwrap();
        three.told.second.set(Second::Behind { device: OTHER, most: Bytes(u64::MAX) });
        three.write(3).await;
        three.lose_writes();
        three.plan(migrations()).await;
        three
            .plan(
                [Move::Resync { range: ByteRange::new(Bytes::ZERO, EXTENT * EXTENTS), gap: Move::GAP }]
                    .into_iter(),
            )
            .await;
        let flushed = three.volume.flush().await;
        assert!(flushed.is_err() || three.holds(Bytes::ZERO, EXTENT * EXTENTS, 3).await);
    });
}

/// The policy deferred a write to an extent whose home had just moved. When the old device of the home
/// failed, the unmoved copy became the home, without the write: older bytes were read, and flushed.
#[test]
fn deferrable_write_after_migration_survives_device_failure() {
    on_three_devices(async |three| {
        three.plan(migrations()).await;
        three.told.second.set(Second::Behind { device: OTHER, most: Bytes(u64::MAX) });
        three.write(3).await;
        three.flush_without_it().await;
        assert!(three.holds(Bytes::ZERO, EXTENT * EXTENTS, 3).await);
        let after = three.after_a_power_cut().await;
        assert!(holds(&after, &three.arena, Bytes::ZERO, EXTENT * EXTENTS, 3).await.unwrap());
    });
}

/// The unmoved copy missed a write after the move, and became the home all the same.
#[test]
fn flush_fails_or_keeps_write_missed_by_unmoved_copy() {
    on_three_devices(async |three| {
        three.plan(migrations()).await;
        let (_, at, _) = three.volume.explain(Bytes::ZERO).unwrap().second.unwrap();
        let missed = FaultPlan { bad_writes: Some(at..at + EXTENT), ..FaultPlan::default() };
        three.faults(OTHER).set(missed);
        three.write(3).await;
        three.faults(OTHER).set(FaultPlan::default());
        three.faults(LOSES).set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        let flushed = three.volume.flush().await;
        assert!(flushed.is_err() || three.holds(Bytes::ZERO, EXTENT, 3).await);
    });
}

/// The same with the repair of a bad sector, which rewrites the whole range of the read.
#[test]
fn flush_fails_or_keeps_data_repaired_on_unmoved_copy() {
    on_three_devices(async |three| {
        three.lose_writes();
        three.plan(migrations()).await;
        three.repair_second().await;
        three.world.sleep(Nanos::from_millis(300)).await;
        let flushed = three.volume.flush().await;
        assert!(flushed.is_err() || three.holds(Bytes::ZERO, EXTENT * EXTENTS, 2).await);
    });
}

/// A repair in flight at the success of a flush overwrote promised data with old bytes.
#[test]
fn flush_fails_or_keeps_data_beside_repair_in_flight() {
    on_three_devices(async |three| {
        three.lose_writes();
        let bad = three.repair_second().await;
        // The repair has begun, and its write is slow.
        let stall = Nanos::from_secs(2)..Nanos::from_secs(3);
        three.faults(OTHER).set(FaultPlan { stalls: 1.0, stall, ..bad.clone() });
        three.world.sleep(Nanos::from_millis(300)).await;
        three.faults(OTHER).set(bad);
        let flushed = three.volume.flush().await;
        three.world.sleep(Nanos::from_secs(5)).await;
        let kept = three.holds(Bytes::ZERO, KIB * 32, 2).await && three.holds(KIB * 36, KIB * 28, 2).await;
        assert!(flushed.is_err() || kept, "a flush promised what no device has");
    });
}

/// The records of the flush named the unmoved copies; a later checkpoint named the moved copies.
#[test]
fn checkpoint_names_homes_recorded_by_flush() {
    on_three_devices(async |three| {
        three.lose_writes();
        three.plan(migrations()).await;
        three.flush_without_it().await;
        three.volume.checkpoint().await.unwrap();
        three.nothing_is_lost().await;
    });
}

/// A guest discards an extent while the device fails, but the record names the unmoved copy: a crash takes
/// the discard back.
#[test]
fn discard_during_failing_flush_revives_no_lost_bytes() {
    on_three_devices(async |three| {
        three.lose_writes();
        three.plan(migrations()).await;
        let stall = Nanos::from_millis(500)..Nanos::from_millis(600);
        three.faults(LOSES).set(FaultPlan { flushes: 1.0, stalls: 1.0, stall, ..FaultPlan::default() });
        let flushed = three.begin_flush();
        three.world.sleep(Nanos::from_millis(100)).await;
        three.volume.discard(Bytes::ZERO, EXTENT).await.unwrap();
        while flushed.borrow().is_none() {
            three.world.sleep(Nanos::from_millis(1)).await;
        }
        flushed.take().unwrap().unwrap();
        let after = three.after_a_power_cut().await;
        let is_discarded = holds(&after, &three.arena, Bytes::ZERO, EXTENT, 0).await.unwrap();
        assert!(is_discarded || holds(&after, &three.arena, Bytes::ZERO, EXTENT, 2).await.unwrap());
    });
}

/// A failed flush of one device's journal waited for the flush of the other journal, and meanwhile the
/// device was read.
#[test]
fn device_with_failed_journal_flush_is_not_read() {
    on_three_devices_with(OTHER, LOSES, async |three| {
        // Spans are clean then, and a write elsewhere needs a batch.
        three.volume.flush().await.unwrap();
        three.world.sleep(Nanos::from_secs(20)).await;
        three.write(3).await;
        let stall = Nanos::from_secs(3)..Nanos::from_secs(4);
        three.faults(TARGET).set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        three.faults(OTHER).set(FaultPlan { flushes: 1.0, flushes_lose: true, ..FaultPlan::default() });
        let (volume, bytes) = (three.volume.clone(), filled(&three.arena, KIB * 4, 9));
        three.world.spawn(async move {
            volume.write(EXTENT * 20, &bytes, Durability::Volatile).await.unwrap();
        });
        for _ in 0..60 {
            three.world.sleep(Nanos::from_millis(100)).await;
            assert!(three.holds(Bytes::ZERO, EXTENT * EXTENTS, 3).await);
        }
        assert_eq!(three.volume.status().devices[OTHER.index()].state, DeviceState::Failed);
    });
}

/// The device has the only copy of another extent, so the device is not failed. But a resync to the device
/// may be among the lost writes, and the other copy is sound.
#[test]
fn copy_with_lost_resync_is_not_read() {
    on_three_devices_with(OTHER, LOSES, async |three| {
        three.volume.flush().await.unwrap();
        three.told.second.set(Second::Behind { device: LOSES, most: Bytes(u64::MAX) });
        three.write(3).await;
        three.told.home.set(LOSES);
        three.told.second.set(Second::Behind { device: OTHER, most: Bytes(u64::MAX) });
        let only = filled(&three.arena, EXTENT, 9);
        three.volume.write(EXTENT * 20, &only, Durability::Fua).await.unwrap();
        *three.told.moves.borrow_mut() =
            vec![Move::Resync { range: ByteRange::new(Bytes::ZERO, EXTENT * EXTENTS), gap: Move::GAP }];
        while three.volume.status().background.resynced_bytes < EXTENT.0 * EXTENTS {
            three.world.sleep(Nanos::from_millis(1)).await;
        }
        three.lose_writes();
        three.volume.flush().await.expect_err("what was written to the only copy may be lost");
        three.told.reads_second.set(true);
        assert!(three.holds(Bytes::ZERO, EXTENT * EXTENTS, 3).await);
    });
}
