//! Requests that bypass a cache. Writes reach the home, and no extra copy of a block that a write covers is
//! left, clean or dirty. Reads come from the home as far as the home is current.

use crate::rig::cached::{HDD, SSD, bench, caching, make_dirty};
use crate::rig::{Bench, Rig, filled, holds, make, open};
use braid_base::{Bytes, ExtentId, KIB, MIB, Nanos};
use braid_engine::{Durability, Export};
use braid_policy::{
    ByteRange, Completion, DeviceView, Direction, Move, Occasion, Origin, Placement, Plan, Policy, View,
};
use braid_runtime::Runtime;
use braid_sim::{FaultPlan, Faulty};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SIZE: Bytes = Bytes(2 << 20);
const BLOCK: Bytes = Bytes(4 << 10);
const BLOCKS: usize = (SIZE.0 / BLOCK.0) as usize;

/// A policy with all requests past the cache. Makes the moves of the test, and counts guests' writes to the
/// SSD, and guests' reads by device.
#[derive(Clone, Default)]
struct Past {
    moves: Rc<RefCell<Vec<Move>>>,
    to_ssd: Rc<Cell<u32>>,
    reads: Rc<[Cell<u32>; 2]>,
}

impl Policy for Past {
    fn name(&self) -> &'static str {
        "past"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::Write(_) | Occasion::ReadMiss(_) => Placement::ALONE,
            _ => Placement::KEEP,
        }
    }

    fn completed(&mut self, io: &Completion) {
        let counts = io.device == SSD && io.direction == Direction::Write && io.origin == Origin::Guest;
        self.to_ssd.set(self.to_ssd.get() + u32::from(counts));
        let is_read = io.direction == Direction::Read && io.origin == Origin::Guest;
        let reads = &self.reads[io.device.index()];
        reads.set(reads.get() + u32::from(is_read));
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(1)
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots } else { 0 }
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "a test".to_owned()
    }
}

struct Case {
    bench: Bench,
    volume: Rig,
    past: Past,
}

/// Runs a test on a volume with all blocks cached and filled with 2, dirty or clean.
fn on_cached(is_dirty: bool, test: impl AsyncFn(&Case) + Copy + 'static) {
    for seed in 0..8 {
        let bench = bench(seed, MIB * 8, MIB * 8);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let volume = make(world, bench.devices(), &caching(seed as u8, SIZE)).await;
            make_dirty(&volume, &bench.arena, SIZE).await;
            let past = Past::default();
            volume.replace_policy(Box::new(past.clone()));
            let case = Case { bench, volume, past };
            if !is_dirty {
                case.write_back();
                case.sleep(1_000).await;
                case.volume.flush().await.expect("both devices are sound");
            }
            let dirty = if is_dirty { BLOCKS } else { 0 };
            assert_eq!(case.volume.status().extra_blocks, (BLOCKS, dirty));
            test(&case).await;
        });
    }
}

impl Case {
    fn write_back(&self) {
        self.past.moves.borrow_mut().push(Move::WriteBack { range: ByteRange::new(Bytes::ZERO, SIZE) });
    }

    async fn sleep(&self, millis: u64) {
        self.bench.world.sleep(Nanos::from_millis(millis)).await;
    }

    async fn write(&self, at: Bytes, len: Bytes, value: u8) {
        let bytes = filled(&self.bench.arena, len, value);
        self.volume.write(at, &bytes, Durability::Volatile).await.expect("there is room");
    }

    async fn holds(&self, volume: &Rig, at: Bytes, len: Bytes, value: u8) {
        let mut at = at..at + len;
        while at.start < at.end {
            let part = (at.end - at.start).min(MIB);
            assert!(
                holds(volume, &self.bench.arena, at.start, part, value).await.expect("the devices are sound"),
                "{value} at {}",
                at.start
            );
            at.start += part;
        }
    }

    /// Checks that each byte of a range has either value: a disk that loses power may have written a part of
    /// a request.
    async fn each_is_one_of(&self, volume: &Rig, at: Bytes, len: Bytes, values: [u8; 2]) {
        for at in (0..len / BLOCK).map(|block| at + BLOCK * block) {
            let into = filled(&self.bench.arena, BLOCK, 0);
            volume.read(at, &into).await.expect("the devices are sound");
            let other = into.with_bytes(|bytes| bytes.iter().copied().find(|byte| !values.contains(byte)));
            assert_eq!(other, None, "at {at}");
        }
    }

    /// The volume after a kill, or after a power cut if the disk has lost its cache before.
    async fn after_power_cut(&self) -> Rig {
        let (disks, faults, world) = (&self.bench.disks, &self.bench.faults, &self.bench.world);
        let killed = disks.iter().zip(faults).map(|(disk, f)| Faulty::new(disk.fork(world), f)).collect();
        open(world.clone(), killed).await.expect("it can be opened")
    }
}

#[test]
fn bypassing_write_drops_whole_and_updates_partial_copies() {
    for is_dirty in [true, false] {
        on_cached(is_dirty, async move |case| {
            // Two partial blocks at the edges, and 40 whole blocks between, in two extents.
            let (start, len) = (KIB * 62, KIB * 164);
            case.write(start, len, 3).await;
            let dirty = if is_dirty { BLOCKS - 40 } else { 0 };
            assert_eq!(case.volume.status().extra_blocks, (BLOCKS - 40, dirty));
            assert_eq!(case.past.to_ssd.get(), 2, "the edges");
            case.volume.flush().await.unwrap();
            let again = case.after_power_cut().await;
            for volume in [&case.volume, &again] {
                case.holds(volume, Bytes::ZERO, start, 2).await;
                case.holds(volume, start, len, 3).await;
                case.holds(volume, start + len, SIZE - start - len, 2).await;
                volume.audit().await.expect("extra copies are like their homes");
            }
        });
    }
}

/// An extra copy counts, or equals the valid content, until the home has the write. Without a flush the old
/// and the new value are right, and never an earlier value.
#[test]
fn power_cut_leaves_flushed_or_written_value() {
    for (is_dirty, loses) in [(true, false), (true, true), (false, false), (false, true)] {
        on_cached(is_dirty, async move |case| {
            case.write(Bytes::ZERO, MIB, 3).await;
            if loses {
                case.bench.disks[HDD.index()].lose_cache();
            }
            let again = case.after_power_cut().await;
            case.each_is_one_of(&again, Bytes::ZERO, MIB, [2, 3]).await;
            case.holds(&again, MIB, SIZE - MIB, 2).await;
            again.audit().await.expect("extra copies are like their homes");
        });
    }
}

/// If the home of a dirty block loses the write, the home is older than the last good flush. The home is
/// then never read, and the extra copy counts again at the next opening. If the block was clean, the home
/// holds the flushed value.
#[test]
fn failed_flush_of_bypassing_write_returns_no_stale_bytes() {
    for is_dirty in [true, false] {
        on_cached(is_dirty, async move |case| {
            // 40 whole blocks, in two extents, and a half at each end.
            let (start, len) = (KIB * 62, KIB * 164);
            case.write(start, len, 3).await;
            let disk = &case.bench.disks[HDD.index()];
            disk.lose_cache();
            disk.faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
            case.volume.flush().await.expect_err("what was acknowledged is gone");
            let (first, last) = (start + KIB * 2, start + len - KIB * 2);
            for at in (0..(last - first) / BLOCK).map(|block| first + BLOCK * block) {
                // The home of a clean block holds the flushed value, or the written value.
                match is_dirty {
                    true => {
                        let read = holds(&case.volume, &case.bench.arena, at, BLOCK, 2).await;
                        read.expect_err("the home may hold what is older");
                    }
                    false => case.each_is_one_of(&case.volume, at, BLOCK, [2, 3]).await,
                }
            }
            case.holds(&case.volume, Bytes::ZERO, start, 2).await;
            case.holds(&case.volume, start + len, SIZE - start - len, 2).await;
            disk.faults().set(FaultPlan::default());
            let again = case.after_power_cut().await;
            match is_dirty {
                true => case.holds(&again, first, last - first, 2).await,
                false => case.each_is_one_of(&again, first, last - first, [2, 3]).await,
            }
            again.audit().await.expect("extra copies are like their homes");
        });
    }
}

/// A guest reads a clean extra copy, and its block slot may soon hold another block: during the read the
/// copy stays, and receives the written bytes.
#[test]
fn cached_copy_survives_bypassing_write_during_read() {
    on_cached(false, async |case| {
        let mut kept = 0;
        for pass in 0..40 {
            let (volume, into) = (case.volume.clone(), filled(&case.bench.arena, KIB * 128, 0));
            case.bench.world.spawn(async move { volume.read(Bytes::ZERO, &into).await.unwrap() });
            case.sleep(0).await;
            case.write(Bytes::ZERO, KIB * 128, 10 + pass).await;
            kept += usize::from(case.volume.status().extra_blocks.0 == BLOCKS);
            case.holds(&case.volume, Bytes::ZERO, KIB * 128, 10 + pass).await;
        }
        assert!(kept > 0, "the copies are kept beside a read");
        case.holds(&case.volume, KIB * 128, SIZE - KIB * 128, 2).await;
        case.volume.audit().await.expect("extra copies are like their homes");
    });
}

/// Bytes in flight from a dirty copy to the home may arrive after the guest's bytes: then the copy must
/// stay.
#[test]
fn cached_copy_survives_bypassing_write_during_write_back() {
    on_cached(true, async |case| {
        case.write_back();
        let (mut pass, mut overtaken) = (0, 0);
        while case.volume.status().extra_blocks.1 > 0 && pass < 40 {
            for extent in 0..4 {
                case.write(KIB * (512 * extent), KIB * 128, 10 + pass).await;
            }
            overtaken = overtaken.max(case.volume.status().extra_blocks.0);
            pass += 1;
        }
        assert!(overtaken > BLOCKS - 4 * 32, "some are kept");
        case.sleep(500).await;
        // After the copies are dropped, reads return the content of the home.
        case.past.moves.borrow_mut().push(Move::Demote { range: ByteRange::new(Bytes::ZERO, SIZE) });
        case.sleep(1_000).await;
        assert_eq!(case.volume.status().extra_blocks, (0, 0));
        for extent in 0..4 {
            case.holds(&case.volume, KIB * (512 * extent), KIB * 128, 9 + pass).await;
        }
        assert_eq!(case.volume.status().devices[HDD.index()].stats.errors, 0);
    });
}

#[test]
fn a_read_comes_from_the_home_if_the_extra_copies_are_clean() {
    on_cached(false, async |case| {
        case.holds(&case.volume, Bytes::ZERO, SIZE, 2).await;
        let [ssd, hdd] = [SSD, HDD].map(|device| case.past.reads[device.index()].get());
        assert!(ssd == 0 && hdd > 0, "{ssd} reads of the SSD, {hdd} of the disk");
    });
}

#[test]
fn a_read_comes_from_dirty_extra_copies_whatever_the_policy_says() {
    on_cached(true, async |case| {
        // Every other block becomes clean.
        let blocks = (0..SIZE / BLOCK).step_by(2).map(|block| ByteRange::new(BLOCK * block, BLOCK));
        case.past.moves.borrow_mut().extend(blocks.map(|range| Move::WriteBack { range }));
        case.sleep(2_000).await;
        assert_eq!(case.volume.status().extra_blocks, (BLOCKS, BLOCKS / 2));
        case.holds(&case.volume, Bytes::ZERO, SIZE, 2).await;
        let [ssd, hdd] = [SSD, HDD].map(|device| case.past.reads[device.index()].get());
        assert!(ssd > 0 && hdd > 0, "{ssd} reads of the SSD, {hdd} of the disk");
    });
}

#[test]
fn a_read_past_the_cache_comes_from_clean_extra_copies_if_the_home_cannot_be_read() {
    on_cached(false, async |case| {
        let disk = &case.bench.disks[HDD.index()];
        disk.faults().set(FaultPlan { reads: 1.0, ..FaultPlan::default() });
        case.holds(&case.volume, Bytes::ZERO, SIZE, 2).await;
        assert!(case.past.reads[SSD.index()].get() > 0);
    });
}
