//! The first write to an extent may go to an extra copy alone: its home then has a place without content.

use crate::rig::cached::{HDD, SSD, bench, caching};
use crate::rig::{Bench, Rig, filled, holds, make, open};
use braid_base::{Bytes, ExtentId, KIB, MIB, Nanos};
use braid_engine::{Durability, Export};
use braid_policy::{
    ByteRange, Completion, DeviceView, Direction, Move, Occasion, Placement, Plan, Policy, View,
};
use braid_runtime::Runtime;
use braid_sim::FaultPlan;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SIZE: Bytes = Bytes(2 << 20);
const BLOCK: Bytes = Bytes(4 << 10);
const EXTENT: Bytes = Bytes(128 << 10);

/// A policy with first writes to extra copies. Counts writes to the disk's slots, and makes the moves of the
/// test.
#[derive(Clone, Default)]
struct Told {
    moves: Rc<RefCell<Vec<Move>>>,
    written: Rc<Cell<Bytes>>,
    slots: Rc<Cell<u32>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(HDD).with_extra(Some(SSD)),
            _ => Placement::KEEP,
        }
    }

    fn completed(&mut self, io: &Completion) {
        if io.device == HDD && io.direction == Direction::Write {
            self.written.set(self.written.get() + io.len);
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(1)
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { self.slots.get() } else { 0 }
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

struct Case {
    bench: Bench,
    volume: Rig,
    told: Told,
}

impl Case {
    async fn write(&self, at: Bytes, len: Bytes, value: u8) {
        let bytes = filled(&self.bench.arena, len, value);
        self.volume.write(at, &bytes, Durability::Volatile).await.expect("there is room");
    }

    async fn holds(&self, at: Bytes, len: Bytes, value: u8) -> bool {
        holds(&self.volume, &self.bench.arena, at, len, value).await.expect("the devices are sound")
    }

    async fn write_back(&self) {
        let range = ByteRange::new(Bytes::ZERO, SIZE);
        self.told.moves.borrow_mut().push(Move::WriteBack { range });
        self.bench.world.sleep(Nanos::from_secs(1)).await;
    }
}

/// Runs a test on an empty volume with garbage on its disks, and with this number of extent slots in the
/// cache.
fn on_empty(slots: u32, test: impl AsyncFn(&Case) + Copy + 'static) {
    for seed in 0..8 {
        let bench = bench(seed, MIB * 8, MIB * 8);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let volume = make(world.clone(), bench.devices(), &caching(seed as u8, SIZE)).await;
            // The witness of the journal is written beside the first guests.
            world.sleep(Nanos::from_millis(100)).await;
            let told = Told::default();
            told.slots.set(slots);
            volume.replace_policy(Box::new(told.clone()));
            test(&Case { bench, volume, told }).await;
            world.halt();
        });
    }
}

#[test]
fn first_write_reaches_disk_on_write_back() {
    on_empty(8, async |case| {
        // A piece of a block in the middle of a part.
        case.write(BLOCK + KIB, KIB, 7).await;
        case.write(EXTENT * 3, EXTENT, 8).await;
        assert_eq!((case.told.written.get(), case.volume.status().extra_blocks), (Bytes::ZERO, (33, 33)));
        for written_back in [false, true] {
            assert!(case.holds(Bytes::ZERO, BLOCK + KIB, 0).await);
            assert!(case.holds(BLOCK + KIB, KIB, 7).await);
            assert!(case.holds(BLOCK + KIB * 2, EXTENT - BLOCK - KIB * 2, 0).await);
            assert!(case.holds(EXTENT * 3, EXTENT, 8).await);
            if !written_back {
                case.write_back().await;
            }
        }
        assert_eq!(case.volume.status().extra_blocks, (33, 0));
        assert!(case.told.written.get() >= BLOCK + EXTENT);
    });
}

#[test]
fn flushed_first_write_survives_crash() {
    on_empty(8, async |case| {
        case.write(BLOCK * 5, BLOCK, 7).await;
        case.volume.flush().await.expect("the devices are sound");
        case.write(EXTENT * 2, BLOCK, 9).await;
        let again = open(case.bench.world.clone(), case.bench.killed()).await.expect("nothing is damaged");
        let arena = &case.bench.arena;
        assert!(holds(&again, arena, BLOCK * 5, BLOCK, 7).await.unwrap());
        assert!(holds(&again, arena, Bytes::ZERO, BLOCK * 5, 0).await.unwrap());
        let unflushed =
            [9, 0].map(async |value| holds(&again, arena, EXTENT * 2, BLOCK, value).await.unwrap());
        let [written, zero] = unflushed;
        assert!(written.await || zero.await);
        again.audit().await.expect("nothing is used twice");
    });
}

#[test]
fn first_write_bypasses_full_or_failing_cache() {
    for fails in [false, true] {
        on_empty(if fails { 8 } else { 1 }, async move |case| {
            let writes = if fails { 1.0 } else { 0.0 };
            case.bench.faults[SSD.index()].set(FaultPlan { writes, ..FaultPlan::default() });
            case.write(EXTENT, EXTENT, 5).await;
            case.write(EXTENT * 2, EXTENT, 6).await;
            assert!(case.told.written.get() >= EXTENT);
            assert!(case.holds(EXTENT, EXTENT, 5).await && case.holds(EXTENT * 2, EXTENT, 6).await);
            assert!(case.holds(EXTENT * 3, EXTENT, 0).await && case.holds(Bytes::ZERO, EXTENT, 0).await);
        });
    }
}

#[test]
fn discard_of_cache_only_extent_frees_home() {
    on_empty(8, async |case| {
        case.write(EXTENT * 2, BLOCK * 2, 5).await;
        case.volume.discard(EXTENT * 2, BLOCK * 2).await.expect("the devices are sound");
        case.volume.flush().await.expect("the devices are sound");
        assert!(case.holds(EXTENT * 2, EXTENT, 0).await);
        let status = case.volume.status();
        assert_eq!((status.mapped_extents, status.extra_blocks), (0, (0, 0)));
    });
}
