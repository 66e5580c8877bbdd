//! New extents while a device of a mirror is missing: without room for a second copy an extent has one copy,
//! and receives the second later.

use crate::deadlines::{mirror, no_faults, parts};
use crate::device_returns::{plugged_in, state, wait_until_active};
use crate::rig::life::addition;
use crate::rig::{Rig, bench, filled, holds, make};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faulty, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

fn raid1(identity: u8, size: Bytes) -> CreateOptions {
    CreateOptions { size: Some(size), policy: "raid1".to_owned(), ..mirror(identity) }
}

/// From now on each operation of a disk takes this much longer, until the plan changes.
fn stall(disk: &Disk, time: Nanos) {
    let stall = time..time + Nanos(1);
    disk.faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
}

/// A volume on an SSD and two disks of these sizes.
async fn three(world: &World, sizes: [Bytes; 3], made: &CreateOptions) -> (Rig, Vec<Disk>) {
    let [ssd, first, last] = sizes;
    let kinds = [DiskOptions::ssd(ssd), DiskOptions::hdd(first), DiskOptions::hdd(last)];
    let disks: Vec<Disk> = kinds.into_iter().map(|options| Disk::new(world, options)).collect();
    let all = disks.iter().map(|disk| Faulty::new(disk.clone(), &no_faults(world))).collect();
    (make(world.clone(), all, made).await, disks)
}

/// A new device counted as a device with room before it had slots: guests of a mirror without one device
/// were told that the volume was full.
#[test]
fn a_first_write_succeeds_while_a_device_is_added_to_a_degraded_mirror() {
    let bench = bench(950);
    let (world, arena, all, disks) = parts(&bench);
    let new = Disk::new(&world, DiskOptions::hdd(MIB * 16));
    bench.run(async move {
        let volume = make(world.clone(), all, &raid1(95, MIB * 4)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.fail_device(DeviceId(1)).await.unwrap();
        stall(&disks[0], Nanos::from_millis(200));
        let (adding, new) = (volume.clone(), Faulty::new(new, &no_faults(&world)));
        world.spawn(async move {
            adding.add_device(new, &addition(Layout::Head), |_| Ok(())).await.expect("it is fit");
        });
        let is_active = || volume.status().devices.get(2).is_some_and(|d| d.state == DeviceState::Active);
        while !is_active() {
            world.sleep(Nanos::from_millis(1)).await;
        }
        volume.write(MIB * 2, &filled(&arena, MIB, 2), Durability::Volatile).await.unwrap();
        disks[0].faults().set(FaultPlan::default());
        assert!(holds(&volume, &arena, MIB * 2, MIB, 2).await.unwrap());
    });
}

/// The only other device had no room left, and guests were told that the volume was full.
#[test]
fn a_volume_can_be_filled_while_a_device_is_lacking() {
    let world = World::new(951);
    let rt = world.clone();
    world.block_on(async move {
        let size = MIB * 10;
        let (volume, disks) = three(&rt, [MIB * 8, MIB * 20, MIB * 8], &raid1(96, size)).await;
        let arena = Arena::new(MIB * 2);
        volume.fail_device(DeviceId(2)).await.unwrap();
        for at in (0..size / MIB).map(|at| MIB * at) {
            volume.write(at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        volume.fail_device(DeviceId(1)).await.expect_err("it alone has some extents");
        volume.return_device(plugged_in(&rt, &disks[2]), "it").await.unwrap();
        wait_until_active(&rt, &volume, 2).await;
        rt.sleep(Nanos::from_secs(60)).await;
        volume.flush().await.unwrap();
        volume.fail_device(DeviceId(1)).await.expect("all extents have two copies");
        for at in (0..size / MIB).map(|at| MIB * at) {
            assert!(holds(&volume, &arena, at, MIB, 1).await.unwrap());
        }
    });
    world.halt();
}

/// The other device returned while the first write to an extent was in flight. The search for extents with
/// one copy missed the extent, because no map had the extent yet, and there was no other search.
#[test]
fn extent_with_first_write_in_flight_gets_second_copy() {
    let met = Rc::new(Cell::new(0));
    // The search comes every few seconds.
    for seconds in 0..6 {
        let bench = bench(952 + seconds);
        let (world, arena, all, disks) = parts(&bench);
        let met = met.clone();
        bench.run(async move {
            let volume = make(world.clone(), all, &raid1(97, MIB * 4)).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.fail_device(DeviceId(1)).await.unwrap();
            world.sleep(Nanos::from_secs(seconds)).await;
            stall(&disks[0], Nanos::from_secs(4));
            let result = write_beside(&world, &volume, MIB * 2, filled(&arena, KIB * 64, 2));
            world.sleep(Nanos::from_millis(1)).await;
            disks[0].faults().set(FaultPlan::default());
            volume.return_device(plugged_in(&world, &disks[1]), "it").await.unwrap();
            wait_until_active(&world, &volume, 1).await;
            met.set(met.get() + u32::from(result.borrow().is_none()));
            world.sleep(Nanos::from_secs(60)).await;
            result.take().unwrap().unwrap();
            volume.flush().await.unwrap();
            volume.fail_device(DeviceId(0)).await.expect("all extents have two copies");
            assert!(holds(&volume, &arena, MIB * 2, KIB * 64, 2).await.unwrap());
        });
    }
    assert!(met.get() > 0, "a write was under way when the device counted again");
}

type Outcome = Rc<RefCell<Option<braid_engine::Result<()>>>>;

/// Begins a write beside the caller.
fn write_beside(world: &World, volume: &Rig, at: Bytes, bytes: braid_runtime::Buf) -> Outcome {
    let outcome = Outcome::default();
    let (volume, result) = (volume.clone(), outcome.clone());
    world.spawn(async move {
        let written = volume.write(at, &bytes, Durability::Volatile).await;
        *result.borrow_mut() = Some(written);
    });
    outcome
}

/// The only device of a new extent was failed during the extent's first write, as a device without an only
/// copy. The write was acknowledged, and the next flush too; then the extent was unreadable.
#[test]
fn first_write_or_flush_fails_if_only_device_failed() {
    let mut given_up = 0;
    for seed in 0..4 {
        let world = World::new(953 + seed);
        let rt = world.clone();
        given_up += world.block_on(async move {
            // The second copies lie on the roomiest disk.
            let (volume, disks) = three(&rt, [MIB * 10, MIB * 30, MIB * 10], &raid1(98, MIB * 4)).await;
            let arena = Arena::new(MIB * 2);
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.remove_device(DeviceId(1)).await.unwrap();
            volume.fail_device(DeviceId(2)).await.unwrap();
            rt.sleep(Nanos::from_secs(30)).await;
            assert_eq!((state(&volume, 1), volume.status().behind), (DeviceState::Draining, Bytes::ZERO));
            // A dirty write, so that the flush has work.
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 1), Durability::Volatile).await.unwrap();
            stall(&disks[0], Nanos::from_secs(3));
            let result = write_beside(&rt, &volume, MIB * 2, filled(&arena, KIB * 128, 2));
            rt.sleep(Nanos::from_millis(1)).await;
            disks[0].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
            volume.flush().await.expect("the device that drains has all that was acknowledged");
            if state(&volume, 0) != DeviceState::Failed {
                // A flush by the volume itself, a moment before, served this flush, too.
                return 0;
            }
            rt.sleep(Nanos::from_secs(10)).await;
            let written = result.take().unwrap();
            assert!(written.is_err() || volume.flush().await.is_err(), "no device has it that is in use");
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
            1
        });
        world.halt();
    }
    assert!(given_up > 1, "the device failed to flush in {given_up} of 4 worlds");
}
