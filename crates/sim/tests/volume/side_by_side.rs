//! Concurrent writes to one block of a cache.

use crate::rig::cached::{HDD, SSD, bench, make_warm};
use crate::rig::{Bench, Rig, filled, holds};
use braid_base::{Bytes, ExtentId, KIB, MIB, Nanos};
use braid_engine::{Durability, Export};
use braid_policy::{DeviceView, Occasion, Placement, Plan, Policy, View};
use braid_runtime::Runtime;
use braid_sim::FaultPlan;
use std::cell::Cell;
use std::rc::Rc;

const BLOCK: Bytes = Bytes(4 << 10);
const BLOCKS: u64 = 512;

/// A policy: writes that begin with a block go to the extra copy, all others to the home.
struct ByPlace;

impl Policy for ByPlace {
    fn name(&self) -> &'static str {
        "by-place"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::Write(piece) if piece.range.start.is_aligned(BLOCK) => Placement::write_back(SSD),
            _ => Placement::KEEP,
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots } else { 0 }
    }

    fn plan(&mut self, view: &View, _: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(1)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "a test".to_owned()
    }
}

/// Runs a test on a volume filled with 1, with clean extra copies of all blocks.
fn on_warm(test: impl AsyncFn(&Bench, &Rig) + 'static) {
    let bench = bench(3, MIB * 8, MIB * 8);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let volume = make_warm(&world, &bench.devices(), &bench.arena, 1).await;
        volume.replace_policy(Box::new(ByPlace));
        test(&bench, &volume).await;
        volume.audit().await.expect("all copies are alike");
        world.halt();
    });
}

/// Begins a write; the cell holds the result once the write has ended.
fn write(bench: &Bench, volume: &Rig, at: Bytes, value: u8) -> Rc<Cell<Option<bool>>> {
    let (bytes, volume, done) = (filled(&bench.arena, KIB, value), volume.clone(), Rc::new(Cell::new(None)));
    let told = done.clone();
    bench.world.spawn(async move {
        told.set(Some(volume.write(at, &bytes, Durability::Volatile).await.is_ok()));
    });
    done
}

async fn ended(bench: &Bench, done: &Cell<Option<bool>>) -> bool {
    while done.get().is_none() {
        bench.world.sleep(Nanos::from_micros(100)).await;
    }
    done.get().expect("it has ended")
}

/// Requests that begin and end within blocks went to the disk one after the other.
#[test]
fn writes_to_disjoint_sectors_of_block_run_concurrently() {
    on_warm(async |bench, volume| {
        let both = [write(bench, volume, KIB, 5), write(bench, volume, KIB * 2, 6)];
        bench.world.sleep(Nanos::from_micros(1)).await;
        let overlapping = write(bench, volume, KIB * 2 + Bytes(512), 7);
        let most = Cell::new(0);
        while both.iter().chain([&overlapping]).any(|done| done.get().is_none()) {
            most.set(most.get().max(volume.status().devices[HDD.index()].in_flight));
            bench.world.sleep(Nanos::from_micros(10)).await;
        }
        assert_eq!(most.get(), 2);
        for (at, len, value) in
            [(0, 1024, 1), (1024, 1024, 5), (2048, 512, 6), (2560, 1024, 7), (3584, 512, 1)]
        {
            assert!(holds(volume, &bench.arena, Bytes(at), Bytes(len), value).await.unwrap(), "from {at} on");
        }
    });
}

/// The SSD rejects the update of an extra copy by a write to the home, and meanwhile another write makes the
/// copy dirty.
#[test]
fn concurrent_writes_survive_rejected_update_of_cached_copy() {
    on_warm(async |bench, volume| {
        let mut succeeded = 0;
        for block in 0..BLOCKS {
            let at = BLOCK * block;
            let to_home = write(bench, volume, at + KIB * 2, 5);
            bench.world.sleep(Nanos::from_micros(20 * block)).await;
            let to_extra = write(bench, volume, at, 6);
            bench.world.sleep(Nanos::from_micros(1)).await;
            bench.faults[SSD.index()].set(FaultPlan { writes: 1.0, ..FaultPlan::default() });
            bench.world.sleep(Nanos::from_micros(60)).await;
            bench.faults[SSD.index()].set(FaultPlan::default());
            let both = [ended(bench, &to_home).await, ended(bench, &to_extra).await];
            succeeded += u32::from(both == [true, true]);
            for (done, at, value) in [(both[0], at + KIB * 2, 5), (both[1], at, 6)] {
                let holds = holds(volume, &bench.arena, at, KIB, value).await.unwrap();
                assert!(holds || !done, "block {block}: {value} was acknowledged");
            }
        }
        assert!(succeeded > 0);
    });
}
