//! Two required copies on three devices, one of which loses writes that it has not flushed. What was copied from it since is no better.

mod rig;

use braid_base::{Bytes, DeviceId, ExtentId, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_format::superblock::DeviceState;
use braid_policy::{ByteRange, DeviceView, Move, Occasion, Placement, Plan, Policy, Second, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use rig::{Rig, filled, holds, make, options};
use std::cell::RefCell;
use std::rc::Rc;

/// No journal lies on it, so nothing flushes it but a commit.
const LOSES: DeviceId = DeviceId(2);
const OTHER: DeviceId = DeviceId(1);
const TARGET: DeviceId = DeviceId(0);
const EXTENT: Bytes = Bytes(128 << 10);
const EXTENTS: u64 = 8;

/// Homes lie on the device that loses writes, second copies on another one; it plans what a test asks for.
struct Told(Rc<RefCell<Vec<Move>>>);

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement { second: Second::Sync(OTHER), ..Placement::on(LOSES) }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.0.take();
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
    moves: Rc<RefCell<Vec<Move>>>,
}

/// A device whose faults are its disk's own.
fn sound(disk: Disk, world: &World) -> Faulty<Disk> {
    Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()))
}

/// Runs a test on a volume whose extents were written and flushed as 1, and then written as 2.
fn on_three_devices(test: impl AsyncFn(&Three) + Copy + 'static) {
    for seed in 0..8 {
        let world = World::new(seed);
        let disks = [DiskOptions::ssd(MIB * 12), DiskOptions::hdd(MIB * 12), DiskOptions::hdd(MIB * 12)];
        let disks: Vec<Disk> = disks.into_iter().map(|options| Disk::new(&world, options)).collect();
        let devices = disks.iter().map(|disk| sound(disk.clone(), &world)).collect();
        let rt = world.clone();
        world.clone().block_on(async move {
            let options = CreateOptions { copies: 2, ..options(seed as u8) };
            let volume = make(rt.clone(), devices, &options).await;
            let three = Three { world: rt, arena: Arena::new(MIB * 4), disks, volume, moves: Rc::default() };
            three.volume.replace_policy(Box::new(Told(three.moves.clone())));
            three.write(1).await;
            three.volume.flush().await.unwrap();
            three.write(2).await;
            test(&three).await;
        });
        world.halt();
    }
}

impl Three {
    async fn write(&self, value: u8) {
        let bytes = filled(&self.arena, EXTENT * EXTENTS, value);
        self.volume.write(Bytes::ZERO, &bytes, Durability::Volatile).await.unwrap();
    }

    async fn plan(&self, moves: impl Iterator<Item = Move>) {
        *self.moves.borrow_mut() = moves.collect();
        self.world.sleep(Nanos::from_secs(2)).await;
    }

    /// Has a flush of the guest fail on the device, which the volume survives.
    async fn flush_without_it(&self) {
        self.disks[LOSES.index()].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        self.volume.flush().await.unwrap();
        assert_eq!(self.volume.status().devices[LOSES.index()].state, DeviceState::Failed);
    }

    /// What was flushed is read, now, after the two copies that are left were made alike, and after a power cut.
    async fn nothing_is_lost(&self) {
        let len = EXTENT * EXTENTS;
        assert!(holds(&self.volume, &self.arena, Bytes::ZERO, len, 2).await.unwrap());
        let left =
            [TARGET, OTHER].map(|device| sound(self.disks[device.index()].fork(&self.world), &self.world));
        let after = rig::open(self.world.clone(), left.to_vec()).await.unwrap();
        assert!(holds(&after, &self.arena, Bytes::ZERO, len, 2).await.unwrap());
        self.world.sleep(Nanos::from_secs(60)).await;
        for volume in [&self.volume, &after] {
            assert!(holds(volume, &self.arena, Bytes::ZERO, len, 2).await.unwrap());
            volume.audit().await.unwrap();
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

/// The new homes held what the device had after it lost writes, and counted as current: the second copies were made like them.
#[test]
fn what_moved_off_a_device_since_it_lost_writes_is_copied_again() {
    on_three_devices(async |three| {
        three.disks[LOSES.index()].lose_cache();
        three.plan(migrations()).await;
        assert_eq!(three.volume.status().background.migrations, EXTENTS);
        three.flush_without_it().await;
        three.nothing_is_lost().await;
    });
}

/// Likewise extra copies.
#[test]
fn what_was_promoted_from_a_device_since_it_lost_writes_is_not_read() {
    on_three_devices(async |three| {
        three.disks[LOSES.index()].lose_cache();
        three.plan(promotions()).await;
        assert!(three.volume.status().background.promotions > 0);
        three.flush_without_it().await;
        three.nothing_is_lost().await;
    });
}

/// A device was given up only when the flushes of all others had ended: until then it was read.
#[test]
fn a_device_whose_flush_failed_is_read_no_more_while_others_still_flush() {
    on_three_devices(async |three| {
        let slow = FaultPlan {
            stalls: 1.0,
            stall: Nanos::from_secs(3)..Nanos::from_secs(4),
            ..FaultPlan::default()
        };
        three.disks[OTHER.index()].faults().set(slow);
        let fails = FaultPlan { flushes: 1.0, flushes_lose: true, ..FaultPlan::default() };
        three.disks[LOSES.index()].faults().set(fails);
        let (flushed, volume) = (Rc::new(RefCell::new(None)), three.volume.clone());
        let result = flushed.clone();
        three.world.spawn(async move { *result.borrow_mut() = Some(volume.flush().await) });
        three.world.sleep(Nanos::from_secs(1)).await;
        three.plan(migrations().chain(promotions())).await;
        while flushed.borrow().is_none() {
            three.world.sleep(Nanos::from_secs(1)).await;
        }
        flushed.take().unwrap().unwrap();
        three.disks[OTHER.index()].faults().set(FaultPlan::default());
        three.nothing_is_lost().await;
    });
}

/// One copy missed a write, the other lost it, and was copied over the first: a flush that succeeded then promised what nobody had.
#[test]
fn a_flush_fails_if_the_only_copy_of_a_write_lost_it_before_it_was_copied() {
    on_three_devices(async |three| {
        three.volume.flush().await.unwrap();
        let (_, at, _) = three.volume.explain(Bytes::ZERO).unwrap().second.unwrap();
        let missed = FaultPlan { bad_writes: Some(at..at + EXTENT), ..FaultPlan::default() };
        three.disks[OTHER.index()].faults().set(missed);
        three.write(3).await;
        assert_eq!(three.volume.status().spans.1, 1, "a copy is behind");
        three.disks[LOSES.index()].lose_cache();
        three.disks[LOSES.index()].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        three.disks[OTHER.index()].faults().set(FaultPlan::default());
        while three.volume.status().spans.1 > 0 {
            three.world.sleep(Nanos::from_millis(20)).await;
        }
        let flushed = three.volume.flush().await;
        let kept = holds(&three.volume, &three.arena, Bytes::ZERO, EXTENT, 3).await;
        assert!(flushed.is_err() || kept.is_ok_and(|kept| kept), "a flush promised what no device has");
    });
}
