//! Dirty blocks are written back by range: neighbours as one request, and with guests at work.

use crate::rig::cached::{HDD, SSD, all_hold, bench, caching, make_dirty};
use crate::rig::{Bench, Rig, filled, holds, make};
use braid_base::{Bytes, ExtentId, KIB, MIB, Nanos};
use braid_engine::{Durability, Export};
use braid_policy::{
    ByteRange, Completion, DeviceView, Direction, Move, Occasion, Origin, Placement, Plan, Policy, View,
};
use braid_runtime::Runtime;
use braid_sim::FaultPlan;
use std::cell::RefCell;
use std::rc::Rc;

const SIZE: Bytes = Bytes(2 << 20);
const BLOCK: Bytes = Bytes(4 << 10);
const BLOCKS: usize = (SIZE.0 / BLOCK.0) as usize;

/// A policy with all writes to extra copies. Makes the moves of the test, and records their writes to the
/// disk.
#[derive(Clone, Default)]
struct Told {
    moves: Rc<RefCell<Vec<Move>>>,
    written: Rc<RefCell<Vec<Bytes>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::Write(_) => Placement::write_back(SSD),
            _ => Placement::KEEP,
        }
    }

    fn completed(&mut self, io: &Completion) {
        let is_move = io.device == HDD && io.direction == Direction::Write && io.origin == Origin::Background;
        self.written.borrow_mut().extend(is_move.then_some(io.len));
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(1)
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots } else { 0 }
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

/// Runs a test on a volume with all blocks dirty and filled with 2.
fn on_dirty(test: impl AsyncFn(&Case) + Copy + 'static) {
    for seed in 0..8 {
        let bench = bench(seed, MIB * 8, MIB * 8);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let volume = make(world, bench.devices(), &caching(seed as u8, SIZE)).await;
            make_dirty(&volume, &bench.arena, SIZE).await;
            assert_eq!(volume.status().extra_blocks, (BLOCKS, BLOCKS));
            let told = Told::default();
            volume.replace_policy(Box::new(told.clone()));
            test(&Case { bench, volume, told }).await;
        });
    }
}

impl Case {
    fn begin(&self, job: Move) {
        self.told.moves.borrow_mut().push(job);
    }

    async fn sleep(&self, millis: u64) {
        self.bench.world.sleep(Nanos::from_millis(millis)).await;
    }

    async fn write(&self, at: Bytes, value: u8) {
        let bytes = filled(&self.bench.arena, BLOCK, value);
        self.volume.write(at, &bytes, Durability::Volatile).await.expect("there is room");
    }
}

fn all() -> ByteRange {
    ByteRange::new(Bytes::ZERO, SIZE)
}

#[test]
fn dirty_blocks_of_extent_are_written_back_together() {
    on_dirty(async |case| {
        case.begin(Move::WriteBack { range: all() });
        case.sleep(1_000).await;
        assert_eq!(case.volume.status().extra_blocks, (BLOCKS, 0), "clean, and cached still");
        assert_eq!(*case.told.written.borrow(), vec![KIB * 128; (SIZE / (KIB * 128)) as usize]);
        assert!(all_hold(&case.volume, &case.bench.arena, SIZE, 2).await);
    });
}

#[test]
fn scattered_dirty_blocks_are_written_back_without_gaps() {
    on_dirty(async |case| {
        case.begin(Move::WriteBack { range: all() });
        case.sleep(1_000).await;
        case.told.written.take();
        for block in [1, 2, 5, 40] {
            case.write(BLOCK * block, 3).await;
        }
        case.begin(Move::WriteBack { range: all() });
        case.sleep(500).await;
        case.told.written.borrow_mut().sort_unstable();
        assert_eq!(*case.told.written.borrow(), [BLOCK, BLOCK, BLOCK * 2]);
        for block in 0..48 {
            let value = if [1, 2, 5, 40].contains(&block) { 3 } else { 2 };
            assert!(holds(&case.volume, &case.bench.arena, BLOCK * block, BLOCK, value).await.unwrap());
        }
    });
}

/// A disk reads and writes an extent in less time than it takes to position for each of its blocks.
#[test]
fn gaps_between_several_dirty_blocks_are_written_if_readable() {
    for readable in [true, false] {
        on_dirty(async move |case| {
            case.begin(Move::WriteBack { range: all() });
            case.sleep(1_000).await;
            case.told.written.take();
            for block in [1, 4, 9, 100] {
                case.write(BLOCK * block, 3).await;
            }
            let reads = if readable { 0.0 } else { 1.0 };
            let faults = &case.bench.faults[HDD.index()];
            faults.set(FaultPlan { reads, ..FaultPlan::default() });
            case.begin(Move::WriteBack { range: all() });
            case.sleep(500).await;
            faults.set(FaultPlan::default());
            case.told.written.borrow_mut().sort_unstable();
            let expected = if readable { vec![BLOCK, BLOCK * 9] } else { vec![BLOCK; 4] };
            assert_eq!(*case.told.written.borrow(), expected);
            case.begin(Move::Demote { range: all() });
            case.sleep(1_000).await;
            for block in 0..128 {
                let value = if [1, 4, 9, 100].contains(&block) { 3 } else { 2 };
                assert!(holds(&case.volume, &case.bench.arena, BLOCK * block, BLOCK, value).await.unwrap());
            }
        });
    }
}

/// A guest writes to blocks in flight to the disk: the home then has older bytes, so the extra copies must
/// stay dirty.
#[test]
fn block_written_during_write_back_stays_dirty() {
    on_dirty(async |case| {
        case.begin(Move::WriteBack { range: all() });
        let (mut pass, mut overtaken) = (0, 0);
        while case.volume.status().extra_blocks.1 > 0 && pass < 40 {
            for block in 0..4 {
                case.write(BLOCK * (block * 128), 10 + pass).await;
            }
            overtaken = case.volume.status().extra_blocks.1;
            pass += 1;
        }
        case.sleep(500).await;
        assert!(overtaken > 0);
        // After the copies are dropped, reads return the content of the home.
        case.begin(Move::Demote { range: all() });
        case.sleep(1_000).await;
        assert_eq!(case.volume.status().extra_blocks, (0, 0));
        for block in 0..4 {
            let (at, value) = (BLOCK * (block * 128), 9 + pass);
            assert!(holds(&case.volume, &case.bench.arena, at, BLOCK, value).await.unwrap());
        }
    });
}
