//! One required copy on two devices. One device loses unflushed writes, and reports the loss at the next
//! flush. From then on no flush of the volume succeeds. Possibly lost data is an error, and never reads as
//! the earlier content.

use crate::rig::cached::{HDD, SSD, bench, caching};
use crate::rig::{Bench, Rig, filled, holds, make};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{Durability, Export};
use braid_policy::{ByteRange, DeviceView, Move, Occasion, Placement, Plan, Policy, View};
use braid_runtime::Runtime;
use braid_sim::{FaultPlan, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const EXTENT: Bytes = Bytes(128 << 10);
const EXTENTS: u64 = 8;
const LEN: Bytes = Bytes(EXTENT.0 * EXTENTS);
const BLOCK: Bytes = Bytes(4 << 10);
const BLOCKS: usize = (LEN.0 / BLOCK.0) as usize;

/// A policy with homes on the disk. On request the SSD holds dirty extra copies; the test names the moves.
#[derive(Clone, Default)]
struct Told {
    writes_back: Rc<Cell<bool>>,
    moves: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::Write(_) if self.writes_back.get() => Placement::write_back(SSD),
            Occasion::New { .. } => Placement::on(HDD),
            _ => Placement::KEEP,
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(10)
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots / 2 } else { 0 }
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

struct Two {
    bench: Bench,
    volume: Rig,
    told: Told,
}

/// Runs a test on a volume with all extents filled with 1 and flushed.
fn on_two_devices(test: impl AsyncFn(&Two) + Copy + 'static) {
    for seed in 0..8 {
        let bench = bench(seed, MIB * 12, MIB * 12);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let volume = make(world, bench.devices(), &caching(seed as u8, MIB * 4)).await;
            let told = Told::default();
            volume.replace_policy(Box::new(told.clone()));
            let two = Two { bench, volume, told };
            two.write(1).await;
            two.volume.flush().await.expect("both devices are sound");
            test(&two).await;
        });
    }
}

impl Two {
    fn world(&self) -> &World {
        &self.bench.world
    }

    async fn write(&self, value: u8) {
        let bytes = filled(&self.bench.arena, LEN, value);
        self.volume.write(Bytes::ZERO, &bytes, Durability::Volatile).await.expect("there is room");
    }

    async fn plan(&self, moves: impl IntoIterator<Item = Move>) {
        *self.told.moves.borrow_mut() = moves.into_iter().collect();
        self.world().sleep(Nanos::from_millis(500)).await;
    }

    fn lose_writes(&self, device: DeviceId) {
        self.bench.disks[device.index()].lose_cache();
        self.bench.disks[device.index()].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
    }

    async fn fail_to_flush(&self, device: DeviceId) {
        self.lose_writes(device);
        self.volume.flush().await.expect_err("what was acknowledged is gone");
    }

    /// Checks that each block reads as this value, or not at all. Returns the number of unreadable blocks.
    async fn unreadable(&self, value: u8) -> u64 {
        let mut refused = 0;
        for at in (0..LEN / BLOCK).map(|block| BLOCK * block) {
            match holds(&self.volume, &self.bench.arena, at, BLOCK, value).await {
                Ok(is_this) => assert!(is_this, "{at:?} does not read as {value}"),
                Err(_) => refused += 1,
            }
        }
        refused
    }
}

fn all() -> ByteRange {
    ByteRange::new(Bytes::ZERO, LEN)
}

fn migrations(target: DeviceId) -> impl Iterator<Item = Move> {
    (0..EXTENTS).map(move |extent| Move::Migrate { extent: ExtentId(extent as u32), target })
}

/// The journal named the extra copy, which had the newest bytes durably. The home was read after the
/// write-back, and held older bytes.
#[test]
fn home_with_lost_write_back_is_not_read() {
    for drops in [false, true] {
        on_two_devices(async move |two| {
            two.told.writes_back.set(true);
            two.write(2).await;
            two.volume.flush().await.unwrap();
            assert_eq!(two.volume.status().extra_blocks, (BLOCKS, BLOCKS));
            two.plan([if drops { Move::Demote { range: all() } } else { Move::WriteBack { range: all() } }])
                .await;
            while two.volume.status().extra_blocks.1 > 0 {
                two.world().sleep(Nanos::from_millis(10)).await;
            }
            two.fail_to_flush(HDD).await;
            assert!(two.unreadable(2).await > 0);
        });
    }
}

/// A moved extent without a record in the journal may be lost.
#[test]
fn moved_home_with_lost_writes_is_not_read() {
    on_two_devices(async |two| {
        two.plan(migrations(SSD)).await;
        assert_eq!(two.volume.status().background.migrations, EXTENTS);
        two.fail_to_flush(SSD).await;
        assert!(two.unreadable(1).await > 0);
    });
}

/// A move was reading the place when the flush failed: its bytes went to the other, sound device, and were
/// read from that device.
#[test]
fn lost_writes_of_new_home_are_not_migrated() {
    on_two_devices(async |two| {
        let commits = two.volume.status().background.commits;
        two.plan(migrations(SSD)).await;
        assert_eq!(two.volume.status().background.migrations, EXTENTS);
        two.lose_writes(SSD);
        let stall = Nanos::from_secs(2)..Nanos::from_secs(3);
        two.bench.disks[SSD.index()].faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        *two.told.moves.borrow_mut() = migrations(HDD).collect();
        two.world().sleep(Nanos::from_millis(50)).await;
        assert_eq!(two.volume.status().background.commits, commits, "nobody knows of the new homes");
        two.fail_to_flush(SSD).await;
        two.world().sleep(Nanos::from_secs(30)).await;
        assert!(two.unreadable(1).await > 0);
    });
}

/// A guest's read was in flight when the flush failed.
#[test]
fn read_in_flight_at_failed_flush_returns_error() {
    on_two_devices(async |two| {
        two.plan(migrations(SSD)).await;
        two.lose_writes(SSD);
        let stall = Nanos::from_secs(2)..Nanos::from_secs(3);
        two.bench.disks[SSD.index()].faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        let (volume, into) = (two.volume.clone(), filled(&two.bench.arena, BLOCK, 0));
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        two.world().spawn(async move { *slot.borrow_mut() = Some(volume.read(Bytes::ZERO, &into).await) });
        two.world().sleep(Nanos::from_millis(50)).await;
        two.fail_to_flush(SSD).await;
        assert!(result.borrow().is_none());
        two.world().sleep(Nanos::from_secs(10)).await;
        result.take().unwrap().unwrap_err();
    });
}

/// A write of less than a block meets a possibly lost extra copy: the write goes to the home, and the
/// surrounding bytes are not taken from the extra copy.
#[test]
fn possibly_lost_cached_copy_does_not_become_dirty() {
    on_two_devices(async |two| {
        two.plan([Move::Promote { range: all(), target: SSD }]).await;
        assert_eq!(two.volume.status().extra_blocks, (BLOCKS, 0));
        // All spans are dirty: later writes need no record. No record could be written.
        two.write(1).await;
        two.fail_to_flush(SSD).await;
        two.told.writes_back.set(true);
        let half = KIB * 2;
        for at in (0..LEN / BLOCK).map(|block| BLOCK * block) {
            let bytes = filled(&two.bench.arena, half, 2);
            two.volume.write(at, &bytes, Durability::Volatile).await.unwrap();
            assert!(holds(&two.volume, &two.bench.arena, at, half, 2).await.unwrap());
            assert!(holds(&two.volume, &two.bench.arena, at + half, half, 1).await.unwrap());
        }
        assert_eq!(two.volume.status().extra_blocks.1, 0);
    });
}
