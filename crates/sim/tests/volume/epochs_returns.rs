//! A disk that keeps epochs, or the SSD before the disk, fails while the volume is open; the disk returns
//! meanwhile.

use crate::device_returns::{plugged_in, state, wait_until_active};
use crate::epochs::{EXTENT, SSD, epochs, wait_for_image};
use crate::epochs_failing::{DISK, epochs_of_three, three, two};
use crate::rig::{filled, holds, make, refused};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{Durability, ErrorKind, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::Runtime;
use braid_sim::{FaultPlan, World};

/// An extent received its second copy in the image, and the disk lost the copy with its cache. No intent had
/// marked the span as dirty, so the resync skipped the extent, and the earlier content of the image counted
/// as equal.
#[test]
fn second_copy_lost_by_failed_flush_is_reproduced() {
    let world = World::new(20);
    let rigged = three(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs_of_three(1)).await;
        wait_for_image(&world, &volume).await;
        let by_epochs = volume.policy();
        volume.set_policy("raid1").await.unwrap();
        world.sleep(Nanos::from_secs(1)).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 5), Durability::Fua).await.unwrap();
        let is_in_image = || volume.explain(Bytes::ZERO).unwrap().second.is_some_and(|(d, ..)| d == DISK);
        assert!(!is_in_image(), "the other disk has more room");
        // Long enough for the span to be called clean.
        world.sleep(Nanos::from_secs(20)).await;

        volume.set_policy(&by_epochs).await.unwrap();
        while !is_in_image() {
            world.sleep(Nanos::from_micros(100)).await;
        }
        rigged.disks[1].lose_cache();
        rigged.disks[1].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        volume.flush().await.expect("the others have all of it");
        assert_eq!(state(&volume, 1), DeviceState::Failed);

        rigged.disks[1].faults().set(FaultPlan::default());
        volume.set_policy("raid1").await.unwrap();
        world.sleep(Nanos::from_secs(1)).await;
        volume.return_device(plugged_in(&world, &rigged.disks[1]), "it").await.unwrap();
        wait_until_active(&world, &volume, 1).await;
        assert!(is_in_image());
        volume.audit().await.expect("both copies are alike");
        volume.fail_device(SSD).await.unwrap();
        assert!(holds(&volume, &rigged.arena, Bytes::ZERO, MIB, 5).await.unwrap());
    });
}

/// The disk returned its superblock, and hung when its state page was read: dropping the disk while it owed
/// an answer was a panic.
#[test]
fn disk_hanging_during_return_stays_failed_until_answer() {
    let world = World::new(21);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs(1)).await;
        wait_for_image(&world, &volume).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.fail_device(DISK).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&rigged.arena, EXTENT, 2), Durability::Fua).await.unwrap();
        world.sleep(Nanos::from_secs(1)).await;
        let back = async || volume.return_device(plugged_in(&world, &rigged.disks[1]), "it").await;

        // Each answer is too late for an unused device, and early enough for a superblock request.
        let stall = Nanos::from_secs(7)..Nanos::from_secs(7) + Nanos(1);
        rigged.disks[1].faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        assert_eq!(refused(back().await).kind(), ErrorKind::Io);
        assert_eq!(state(&volume, 1), DeviceState::Failed);
        rigged.disks[1].faults().set(FaultPlan::default());
        assert_eq!(refused(back().await).kind(), ErrorKind::Invalid, "it owes an answer");

        world.sleep(Nanos::from_secs(10)).await;
        back().await.expect("it has answered");
        wait_until_active(&world, &volume, 1).await;
        wait_for_image(&world, &volume).await;
        assert!(holds(&volume, &rigged.arena, Bytes::ZERO, EXTENT, 2).await.unwrap());
        volume.audit().await.expect("both copies are alike");
        volume.close().await.expect("both devices are sound");
    });
}

/// The first epoch after the return was written to the start of the ring, or behind the last run before the
/// failure. The disk recorded another place: the epoch could not be recovered.
#[test]
fn epochs_of_returned_disk_are_recoverable() {
    for fails_to_flush in [false, true] {
        let world = World::new(22);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let mut volume = make(world.clone(), rigged.devices(), &epochs(1)).await;
            wait_for_image(&world, &volume).await;
            let by_epochs = volume.policy();
            let quarter = |value| filled(&rigged.arena, MIB / 4, value);
            volume.write(Bytes::ZERO, &quarter(1), Durability::Fua).await.unwrap();
            while volume.status().journaled == Bytes::ZERO {
                world.sleep(Nanos::from_millis(1)).await;
            }
            if fails_to_flush {
                // The disk is about to record that it is no state of the volume, and no device knows of the
                // record.
                volume.fail_device(DISK).await.unwrap();
                world.sleep(Nanos::from_secs(1)).await;
                rigged.disks[1].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
                let back = plugged_in(&world, &rigged.disks[1]);
                assert_eq!(refused(volume.return_device(back, "it").await).kind(), ErrorKind::Io);
                rigged.disks[1].faults().set(FaultPlan::default());
            } else {
                // The record exists since the policy changed, and the volume is opened without the disk.
                volume.set_policy("raid1").await.unwrap();
                world.sleep(Nanos::from_secs(1)).await;
                volume.close().await.unwrap();
                let ssd = vec![plugged_in(&world, &rigged.disks[0])];
                volume = crate::rig::open(world.clone(), ssd).await.expect("the SSD has all of it");
                volume.set_policy(&by_epochs).await.unwrap();
            }
            volume.return_device(plugged_in(&world, &rigged.disks[1]), "it").await.unwrap();
            wait_until_active(&world, &volume, 1).await;
            wait_for_image(&world, &volume).await;
            volume.write(KIB * 512, &quarter(2), Durability::Fua).await.unwrap();
            while volume.status().journaled == Bytes::ZERO {
                world.sleep(Nanos::from_millis(1)).await;
            }
            let bytes = rigged.recovered(&rigged.left_of(DISK, None)).await.expect("it is an image");
            let is =
                |at: Bytes, value| bytes[at.as_usize()..][..(MIB / 4).as_usize()].iter().all(|&b| b == value);
            assert!(is(Bytes::ZERO, 1) && is(KIB * 512, 2));
            volume.close().await.expect("both devices are sound");
        });
    }
}

/// For up to 100 ms after the loss of the last SSD, the disk still kept epochs, and had no room for a new
/// extent.
#[test]
fn new_extent_finds_space_at_once_after_ssd_loss() {
    let world = World::new(22);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs(1)).await;
        wait_for_image(&world, &volume).await;
        volume.fail_device(SSD).await.unwrap();
        volume.write(MIB, &filled(&rigged.arena, EXTENT, 7), Durability::Fua).await.unwrap();
        assert!(holds(&volume, &rigged.arena, MIB, EXTENT, 7).await.unwrap());
        assert_eq!(volume.explain(MIB).unwrap().home.map(|(device, _)| device), Some(DISK));
        volume.close().await.unwrap();
    });
}
