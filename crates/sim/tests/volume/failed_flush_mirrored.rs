//! Two required copies. A device loses unflushed writes while a copy is made from the device: bytes read
//! from this device must not overwrite the other copy.

use crate::rig::cached::{HDD, SSD, bench};
use crate::rig::{Bench, Rig, filled, holds, make, options};
use braid_base::{Bytes, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_policy::{ByteRange, CurrentCopy, Home, Move, Occasion, Placement, Plan, Policy, Second, View};
use braid_runtime::Runtime;
use braid_sim::FaultPlan;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const EXTENT: Bytes = Bytes(128 << 10);
const BLOCK: Bytes = Bytes(4 << 10);

/// A policy with homes on the SSD, and reads from the disk. On request new second copies are deferred; the
/// test decides when to resynchronise the copies.
#[derive(Clone, Default)]
struct Told {
    defers: Rc<Cell<bool>>,
    moves: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        let second = match self.defers.get() {
            true => Second::Behind { device: HDD, most: MIB * 1024 },
            false => Second::Sync(HDD),
        };
        match occasion {
            Occasion::New { .. } => Placement { home: Home::On(SSD), second, extra: None },
            Occasion::Write(_) => Placement { second, ..Placement::KEEP },
            _ => Placement::KEEP,
        }
    }

    fn rank_reads(&self, copies: &mut [CurrentCopy], _: &View) {
        copies.sort_by_key(|copy| copy.device != HDD);
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(10)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

struct Mirror {
    bench: Bench,
    volume: Rig,
    told: Told,
}

/// Runs a test on an empty mirror.
fn on_mirror(test: impl AsyncFn(&Mirror) + Copy + 'static) {
    on_mirror_of(1, test);
}

/// The same with spans of `span_extents` extents.
fn on_mirror_of(span_extents: u64, test: impl AsyncFn(&Mirror) + Copy + 'static) {
    for seed in 0..8 {
        let bench = bench(seed, MIB * 8, MIB * 8);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let made = CreateOptions {
                copies: 2,
                policy: "raid1".to_owned(),
                span_size: EXTENT * span_extents,
                ..options(seed as u8)
            };
            let volume = make(world.clone(), bench.devices(), &made).await;
            let told = Told::default();
            volume.replace_policy(Box::new(told.clone()));
            test(&Mirror { bench, volume, told }).await;
            world.halt();
        });
    }
}

impl Mirror {
    async fn sleep(&self, millis: u64) {
        self.bench.world.sleep(Nanos::from_millis(millis)).await;
    }

    async fn write_new(&self, extent: u64, value: u8, defers: bool) {
        self.told.defers.set(defers);
        let bytes = filled(&self.bench.arena, EXTENT, value);
        self.volume.write(EXTENT * extent, &bytes, Durability::Volatile).await.expect("there is room");
    }

    /// The SSD silently loses its unflushed writes. Later requests to the SSD take a while.
    fn lose_writes_and_stall(&self) {
        let disk = &self.bench.disks[SSD.index()];
        disk.lose_cache();
        let stall = Nanos::from_millis(300)..Nanos::from_millis(400);
        disk.faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
    }

    /// Makes the loss known; requests in flight return afterwards.
    async fn fail_to_flush(&self) {
        let plan = FaultPlan { flushes: 1.0, ..FaultPlan::default() };
        self.bench.disks[SSD.index()].faults().set(plan);
        self.volume.flush().await.expect_err("what was acknowledged is gone");
        self.sleep(10_000).await;
    }

    /// Checks that each block of an extent reads as this value, or not at all. Returns the number of
    /// unreadable blocks.
    async fn unreadable(&self, extent: u64, value: u8) -> u64 {
        let mut refused = 0;
        for at in (0..EXTENT / BLOCK).map(|block| EXTENT * extent + BLOCK * block) {
            match holds(&self.volume, &self.bench.arena, at, BLOCK, value).await {
                Ok(is_this) => assert!(is_this, "{at:?} does not read as {value}"),
                Err(_) => refused += 1,
            }
        }
        refused
    }
}

/// A resync was reading the home when the flush failed: the home's older bytes were written to the other
/// copy, which then counted as equal and was read.
#[test]
fn resync_does_not_copy_from_home_with_lost_writes() {
    on_mirror(async |mirror| {
        mirror.write_new(0, 7, true).await;
        mirror.lose_writes_and_stall();
        mirror
            .told
            .moves
            .borrow_mut()
            .push(Move::Resync { range: ByteRange::new(Bytes::ZERO, EXTENT), gap: Move::GAP });
        mirror.sleep(50).await;
        mirror.fail_to_flush().await;
        assert_eq!(mirror.unreadable(0, 7).await, EXTENT / BLOCK);
    });
}

/// The same with an unreadable place of the other copy that was to be rewritten.
#[test]
fn repair_does_not_copy_from_home_with_lost_writes() {
    on_mirror(async |mirror| {
        // The SSD alone has this data, so that the SSD is not failed.
        mirror.write_new(1, 8, true).await;
        mirror.write_new(0, 7, false).await;
        let (_, start, _) = mirror.volume.explain(Bytes::ZERO).unwrap().second.unwrap();
        let bad_reads = Some(start..start + KIB * 64);
        let plan = FaultPlan { bad_reads, bad_until_written: true, ..FaultPlan::default() };
        mirror.bench.faults[HDD.index()].set(plan);
        mirror.lose_writes_and_stall();
        // The SSD answers, and the place is read from the SSD once more, to be written to the disk.
        let _lost = holds(&mirror.volume, &mirror.bench.arena, Bytes::ZERO, KIB * 64, 7).await;
        mirror.sleep(50).await;
        mirror.fail_to_flush().await;
        assert_eq!(mirror.unreadable(0, 7).await, KIB * 64 / BLOCK);
    });
}

/// The SSD has the home of extents 0 and 1, and loses the newest bytes of extent 0. The disk has these bytes.
async fn lose_newest_at_home(mirror: &Mirror) {
    mirror.write_new(0, 6, false).await;
    mirror.volume.flush().await.expect("the devices are sound");
    // The SSD alone has extent 1, so that the SSD is not failed.
    mirror.write_new(1, 8, true).await;
    mirror.write_new(0, 7, false).await;
    let plan = FaultPlan { flushes: 1.0, flushes_lose: true, ..FaultPlan::default() };
    mirror.bench.disks[SSD.index()].faults().set(plan);
    mirror.volume.flush().await.expect_err("what was acknowledged is gone");
    assert_eq!(mirror.unreadable(0, 7).await, 0, "the disk has it");
    mirror.told.defers.set(true);
}

async fn check_blocks(mirror: &Mirror, but: u64) {
    for block in (0..EXTENT / BLOCK).filter(|&block| block != but) {
        let is_newest = holds(&mirror.volume, &mirror.bench.arena, BLOCK * block, BLOCK, 7).await;
        assert!(is_newest.expect("the disk has it"), "block {block} is as it was before");
    }
}

/// A deferred write that the journal refused left its range marked as behind, so the home alone counted as
/// current. The home had lost writes, so acknowledged bytes that had been read became older again.
#[test]
fn write_refused_by_journal_changes_no_bytes() {
    on_mirror(async |mirror| {
        lose_newest_at_home(mirror).await;
        let bytes = filled(&mirror.bench.arena, BLOCK, 9);
        let refused = mirror.volume.write(BLOCK * 3, &bytes, Durability::Volatile).await;
        refused.expect_err("the journal takes nothing more");
        check_blocks(mirror, EXTENT / BLOCK).await;
        assert_eq!(mirror.volume.status().behind, EXTENT, "extent 1, as before");
    });
}

/// The same if the journal had already marked the span as behind, for a neighbouring extent. The write
/// reached the home, and then the whole extent was read from the home.
#[test]
fn deferred_write_keeps_bytes_around_lost_writes() {
    on_mirror_of(2, async |mirror| {
        lose_newest_at_home(mirror).await;
        let bytes = filled(&mirror.bench.arena, BLOCK, 9);
        mirror.volume.write(BLOCK * 3, &bytes, Durability::Volatile).await.expect("the home takes it");
        check_blocks(mirror, 3).await;
        let written = holds(&mirror.volume, &mirror.bench.arena, BLOCK * 3, BLOCK, 9).await;
        assert!(written.expect("the home has it"));
        // A request for the whole extent meets both devices.
        let all = filled(&mirror.bench.arena, EXTENT, 0);
        mirror.volume.read(Bytes::ZERO, &all).await.expect("both devices answer");
        let expected = |at: usize| if at / BLOCK.as_usize() == 3 { 9 } else { 7 };
        all.with_bytes(|bytes| assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == expected(at))));
    });
}
