//! Writes that must not reach the disk with epochs in place: failed repairs, jobs in flight at the beginning
//! of epochs, and more changes than an epoch can hold.

use crate::device_returns::{plugged_in, state, wait_until_active};
use crate::epochs::{BLOCK, EXTENT, SIZE, SSD, epochs, wait_for_image};
use crate::epochs_failing::{DISK, Rigged, content, two, wait_until_applied};
use crate::rig::{Rig, filled, holds, make, open, seeds};
use braid_base::{Bytes, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, Past};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, World};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// From here on a block of the SSD is neither readable nor writable.
fn spoil(volume: &Rig, faults: &braid_sim::Faults, at: Bytes) {
    let (_, place) = volume.explain(at).expect("it lies within").home.expect("it is written");
    let bad = Some(place..place + BLOCK);
    faults.set(FaultPlan { bad_reads: bad.clone(), bad_writes: bad, ..FaultPlan::default() });
}

/// A place of the SSD could be neither read nor repaired: the copy in the image became the home. Guests
/// wrote to the image in place, and after a power cut an epoch of the journal overwrote their flushed data.
#[test]
fn failed_repair_does_not_move_home_to_image() {
    let world = World::new(1);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs(1)).await;
        wait_for_image(&world, &volume).await;
        let write = async |at: Bytes, len, value| {
            volume.write(at, &filled(&rigged.arena, len, value), Durability::Fua).await
        };
        for at in [Bytes::ZERO, MIB] {
            write(at, MIB, 1).await.unwrap();
        }
        wait_until_applied(&world, &volume).await;
        spoil(&volume, &rigged.faults[0], Bytes::ZERO);
        for round in 0..20 {
            // The disk lacks this data, so the SSD cannot be failed.
            write(MIB, BLOCK, 10 + round).await.unwrap();
            assert!(holds(&volume, &rigged.arena, Bytes::ZERO, BLOCK, 1).await.unwrap(), "the image has it");
            let home = volume.explain(Bytes::ZERO).unwrap().home.map(|(device, _)| device);
            assert_eq!((home, state(&volume, 0)), (Some(SSD), DeviceState::Active));
            world.sleep(Nanos::from_millis(2)).await;
        }
        // Beside the bad place, so that the write goes to the home.
        write(BLOCK * 2, BLOCK, 2).await.unwrap();
        volume.flush().await.unwrap();
        let mut rng = world.fork_rng();
        let left = [SSD, DISK].map(|device| rigged.left_of(device, Some(&mut rng)));
        let volume = open(world.clone(), left.iter().map(|disk| rigged.sound(disk)).collect()).await.unwrap();
        wait_until_applied(&world, &volume).await;
        volume.audit().await.expect("both copies are alike");
        assert!(holds(&volume, &rigged.arena, BLOCK * 2, BLOCK, 2).await.unwrap());
        assert!(holds(&volume, &rigged.arena, MIB, BLOCK, 29).await.unwrap());
        volume.close().await.unwrap();
    });
}

/// The same while the image has all data of the SSD.
#[test]
fn unrepairable_ssd_is_failed_if_image_is_complete() {
    let world = World::new(2);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs(1)).await;
        wait_for_image(&world, &volume).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 1), Durability::Fua).await.unwrap();
        wait_until_applied(&world, &volume).await;
        world.sleep(Nanos::from_secs(20)).await;
        spoil(&volume, &rigged.faults[0], Bytes::ZERO);
        assert!(holds(&volume, &rigged.arena, Bytes::ZERO, BLOCK, 1).await.unwrap(), "the image has it");
        world.sleep(Nanos::from_secs(1)).await;
        assert_eq!(state(&volume, 0), DeviceState::Failed);
        for value in 2..6 {
            volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, value), Durability::Fua).await.unwrap();
        }
        let mut rng = world.fork_rng();
        let left = [SSD, DISK].map(|device| rigged.left_of(device, Some(&mut rng)));
        let volume = open(world.clone(), left.iter().map(|disk| rigged.sound(disk)).collect()).await.unwrap();
        assert!(holds(&volume, &rigged.arena, Bytes::ZERO, MIB, 5).await.unwrap());
        wait_until_active(&world, &volume, 0).await;
        wait_until_applied(&world, &volume).await;
        volume.audit().await.expect("both copies are alike");
        volume.close().await.unwrap();
    });
}

/// Epochs began while extents received their second copies on the disk. An extent whose place on the disk
/// was allocated at that moment had one copy from then on. Or the job's older bytes went to the image after
/// an epoch had counted.
#[test]
fn jobs_in_flight_when_epochs_begin_leave_image_correct() {
    for seed in 0..seeds("BRAID_CRASH_SEEDS", 16) {
        let world = World::new(seed);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let mut rng = world.fork_rng();
            let volume = make(world.clone(), rigged.devices(), &epochs(1)).await;
            let by_epochs = volume.policy();
            volume.set_policy("raid1").await.unwrap();
            world.sleep(Nanos::from_secs(1)).await;
            volume.fail_device(DISK).await.unwrap();
            // All extents have one copy.
            for at in [Bytes::ZERO, MIB] {
                volume.write(at, &filled(&rigged.arena, MIB, 1), Durability::Fua).await.unwrap();
            }
            volume.return_device(plugged_in(&world, &rigged.disks[1]), "it").await.unwrap();
            while volume.status().background.mirrors <= rng.below(8) {
                world.sleep(Nanos::from_micros(100)).await;
            }
            // Writes to the disk now take so long that all else could be over before.
            let stall = Nanos::from_secs(2)..Nanos::from_secs(4);
            rigged.disks[1].faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
            world.sleep(Nanos::from_micros(rng.below(20_000))).await;
            rigged.disks[1].faults().set(FaultPlan::default());
            volume.set_policy(&by_epochs).await.unwrap();
            for round in 0..100 {
                let at = EXTENT * rng.below(SIZE / EXTENT) + BLOCK * rng.below(8);
                let value = filled(&rigged.arena, BLOCK, 2 + round);
                volume.write(at, &value, Durability::Volatile).await.unwrap();
                world.sleep(Nanos::from_micros(rng.below(20_000))).await;
            }
            wait_for_image(&world, &volume).await;
            world.sleep(Nanos::from_secs(20)).await;
            wait_until_applied(&world, &volume).await;
            for at in (0..SIZE / EXTENT).map(|i| EXTENT * i) {
                let second = volume.explain(at).unwrap().second.map(|(device, ..)| device);
                assert_eq!(second, Some(DISK), "seed {seed}: the extent at {at}");
            }
            volume.audit().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let bytes = content(&volume).await.unwrap();
            let alone = rigged.recovered(&rigged.left_of(DISK, None)).await.expect("it is an image");
            assert!(bytes == alone, "seed {seed}: the disk alone is something else");
            volume.close().await.unwrap();
        });
    }
}

/// A guest that writes this block of each extent in a range, and reports its progress.
async fn scatter(volume: Rig, extents: Range<u64>, block: u64, written: Rc<Cell<u64>>) {
    let arena = Arena::new(MIB);
    let bytes = filled(&arena, BLOCK, 2);
    for extent in extents {
        volume
            .write(EXTENT * extent + BLOCK * block, &bytes, Durability::Volatile)
            .await
            .expect("the SSD is sound");
        written.set(written.get() + 1);
    }
}

/// The machine stops while the lag of the disk is near its bound, and guests continue at once. The old and
/// new lag together exceeded the size of one epoch, so the disk was overwritten in place. A loss of the SSD
/// meanwhile would have cost the volume.
#[test]
fn image_disk_stays_valid_while_guests_continue_after_crash() {
    let world = World::new(31);
    let sizes = [DiskOptions::ssd(MIB * 48), DiskOptions::hdd(MIB * 48)];
    let rigged = Rigged::of(&world, sizes.map(|options| Disk::new(&world, options)).to_vec());
    world.clone().block_on(async move {
        let most = MIB * 2;
        let policy = format!("pass,order=epoch,window={most},max-lag={most},max-lag-time=none,idle=1h");
        let soon = policy.replace("1h", "20ms");
        let how = CreateOptions { size: Some(MIB * 32), policy: soon.clone(), ..epochs(31) };
        let volume = make(world.clone(), rigged.devices(), &how).await;
        wait_for_image(&world, &volume).await;
        for at in (0..32).map(|i| MIB * i) {
            volume.write(at, &filled(&rigged.arena, MIB, 1), Durability::Volatile).await.unwrap();
        }
        volume.flush().await.unwrap();
        wait_until_applied(&world, &volume).await;
        volume.set_policy(&policy).await.unwrap();
        // The disk accepts nothing for a while, so guests write until the lag reaches its bound.
        let stall = Nanos::from_secs(3)..Nanos::from_secs(4);
        rigged.disks[1].faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        let written = Rc::new(Cell::new(0));
        world.spawn(scatter(volume.clone(), 0..600, 0, written.clone()));
        world.sleep(Nanos::from_secs(2)).await;
        assert!(
            (300..=512).contains(&written.get()),
            "{} blocks, of 512 that the disk may lack",
            written.get()
        );

        let left = [SSD, DISK].map(|device| rigged.left_of(device, None));
        let again = Rigged::of(&world, left.to_vec());
        let volume = open(world.clone(), again.devices()).await.unwrap();
        // The comparison takes long. The writes go to the same spans, so that no write waits until the
        // journal marks the spans as dirty.
        let stall = Nanos::from_millis(20)..Nanos::from_millis(40);
        again.disks[1].faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        let written = Rc::new(Cell::new(0));
        for block in 1..3 {
            world.spawn(scatter(volume.clone(), 0..300, block, written.clone()));
        }
        while written.get() < 600 {
            let alone = vec![again.sound(&again.left_of(DISK, None))];
            let past = Past::open(&world, alone, &["disk".to_owned()]).await;
            assert!(past.is_ok(), "after {} blocks: {:?}", written.get(), past.err());
            world.sleep(Nanos::from_millis(2)).await;
        }
        again.disks[1].faults().set(FaultPlan::default());
        volume.set_policy(&soon).await.unwrap();
        wait_until_applied(&world, &volume).await;
        volume.audit().await.expect("both copies are alike");
        volume.close().await.unwrap();
    });
}

/// Guests write to new places and never flush, and the disk receives the writes by epochs. If a power cut
/// took all of these writes from the SSD, the disk had to give up more than one epoch can hold.
#[test]
fn counted_epoch_is_durable_on_ssd() {
    let world = World::new(32);
    let sizes = [DiskOptions::ssd(MIB * 48), DiskOptions::hdd(MIB * 48)];
    let rigged = Rigged::of(&world, sizes.map(|options| Disk::new(&world, options)).to_vec());
    world.clone().block_on(async move {
        let how = CreateOptions { size: Some(MIB * 32), ..epochs(32) };
        let volume = make(world.clone(), rigged.devices(), &how).await;
        wait_for_image(&world, &volume).await;
        for at in (0..24).map(|i| MIB * i) {
            volume.write(at, &filled(&rigged.arena, MIB, 1), Durability::Volatile).await.unwrap();
        }
        wait_until_applied(&world, &volume).await;

        let left = [SSD, DISK].map(|device| rigged.left_of(device, None));
        left[SSD.index()].lose_cache();
        let again = Rigged::of(&world, left.to_vec());
        let volume = open(world.clone(), again.devices()).await.unwrap();
        for at in (0..24).map(|i| MIB * i) {
            assert!(holds(&volume, &again.arena, at, MIB, 1).await.unwrap(), "the megabyte at {at}");
        }
        for _ in 0..200 {
            let alone = vec![again.sound(&again.left_of(DISK, None))];
            let past = Past::open(&world, alone, &["disk".to_owned()]).await;
            assert!(past.is_ok(), "{:?}", past.err());
            world.sleep(Nanos::from_millis(10)).await;
        }
        wait_until_applied(&world, &volume).await;
        volume.audit().await.expect("both copies are alike");
        volume.close().await.unwrap();
    });
}

/// The disk lacks a block of an extent. The SSD cannot read another block of the extent, which the disk has.
#[test]
fn current_image_block_replaces_bad_ssd_block() {
    let world = World::new(33);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let how = CreateOptions {
            policy: "pass,order=epoch,max-lag=4MiB,max-lag-time=none,idle=1h".to_owned(),
            ..epochs(33)
        };
        let volume = make(world.clone(), rigged.devices(), &how).await;
        wait_for_image(&world, &volume).await;
        let write = async |at: Bytes, len, value| {
            volume.write(at, &filled(&rigged.arena, len, value), Durability::Fua).await.unwrap();
        };
        write(Bytes::ZERO, EXTENT, 1).await;
        volume.set_policy(&epochs(33).policy).await.unwrap();
        wait_until_applied(&world, &volume).await;
        volume.set_policy(&how.policy).await.unwrap();
        write(BLOCK, BLOCK, 2).await;
        spoil(&volume, &rigged.faults[0], Bytes::ZERO);
        assert!(holds(&volume, &rigged.arena, Bytes::ZERO, BLOCK, 1).await.unwrap(), "the disk has it");
        spoil(&volume, &rigged.faults[0], BLOCK);
        let read = holds(&volume, &rigged.arena, BLOCK, BLOCK, 2).await;
        assert!(read.is_err(), "the disk lacks it");
        rigged.faults[0].set(FaultPlan::default());
        assert!(holds(&volume, &rigged.arena, BLOCK, BLOCK, 2).await.unwrap());
        volume.close().await.unwrap();
    });
}

/// An epoch is in the journal and not yet in place: the older bytes in place must not replace a bad place of
/// the SSD.
#[test]
fn unapplied_epoch_range_is_not_read_in_place() {
    let unapplied = Cell::new(0);
    for seed in 0..20 {
        let world = World::new(seed);
        let rigged = two(&world);
        let is_unapplied = world.clone().block_on(async move {
            let volume = make(world.clone(), rigged.devices(), &epochs(34)).await;
            wait_for_image(&world, &volume).await;
            volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 1), Durability::Fua).await.unwrap();
            wait_until_applied(&world, &volume).await;
            volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB / 4, 2), Durability::Fua).await.unwrap();
            while volume.status().journaled == Bytes::ZERO {
                world.sleep(Nanos::from_micros(50)).await;
            }
            spoil(&volume, &rigged.faults[0], Bytes::ZERO);
            let is_unapplied = volume.status().journaled > Bytes::ZERO;
            for _ in 0..100 {
                if let Ok(holds) = holds(&volume, &rigged.arena, Bytes::ZERO, BLOCK, 2).await {
                    assert!(holds, "seed {seed}: older bytes");
                }
                world.sleep(Nanos::from_millis(1)).await;
            }
            rigged.faults[0].set(FaultPlan::default());
            volume.close().await.unwrap();
            is_unapplied
        });
        unapplied.set(unapplied.get() + u32::from(is_unapplied));
    }
    assert!(unapplied.get() > 0, "no epoch was in the journal alone");
}
