//! The disk that keeps epochs leaves an open volume.

use crate::device_returns::{plugged_in, state};
use crate::epochs::wait_for_image;
use crate::epochs_failing::{DISK, epochs_of_three, three};
use crate::rig::{filled, holds, make, open, refused};
use braid_base::{Bytes, MIB, Nanos};
use braid_engine::{Durability, ErrorKind, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::Runtime;
use braid_sim::{FaultPlan, World};

/// Without the disk, which keeps addresses, no extent seemed to have room. So such a disk could neither be
/// removed nor replaced while the volume was served, whether the disk was present or lost.
#[test]
fn image_disk_leaves_under_policy_without_epochs() {
    for is_lost in [false, true] {
        let world = World::new(30);
        let rigged = three(&world);
        world.clone().block_on(async move {
            let volume = make(world.clone(), rigged.devices(), &epochs_of_three(1)).await;
            wait_for_image(&world, &volume).await;
            let by_epochs = volume.policy();
            for at in [Bytes::ZERO, MIB] {
                volume.write(at, &filled(&rigged.arena, MIB, 1), Durability::Fua).await.unwrap();
            }
            if is_lost {
                volume.fail_device(DISK).await.unwrap();
                world.sleep(Nanos::from_secs(1)).await;
            }
            assert_eq!(
                refused(volume.remove_device(DISK).await).kind(),
                ErrorKind::Invalid,
                "it keeps epochs"
            );
            volume.set_policy("pass").await.unwrap();
            world.sleep(Nanos::from_secs(1)).await;
            volume.remove_device(DISK).await.unwrap();
            assert_eq!(refused(volume.set_policy(&by_epochs).await).kind(), ErrorKind::Invalid, "it leaves");
            volume.set_policy("raid1").await.expect("the others have room");
            world.sleep(Nanos::from_secs(60)).await;
            assert_eq!(state(&volume, 1), DeviceState::Removed);
            volume.set_policy("pass").await.expect("the others have room");
            assert_eq!(
                refused(volume.set_policy(&by_epochs).await).kind(),
                ErrorKind::Invalid,
                "it has gone"
            );
            volume.audit().await.expect("the others have two copies of everything");
            volume.close().await.expect("the others are sound");
            let others = [0, 2].map(|device: usize| rigged.sound(&rigged.disks[device]));
            let volume = open(world.clone(), others.to_vec()).await.expect("none is missing");
            for at in [Bytes::ZERO, MIB] {
                assert!(holds(&volume, &rigged.arena, at, MIB, 1).await.unwrap());
            }
            assert_eq!(volume.status().epoch, None);
            volume.close().await.expect("both are sound");
        });
    }
}

/// A lost disk was to be removed, and an attempt to use the disk again failed: the removal was forgotten
/// until the next opening.
#[test]
fn lost_disk_is_removed_after_failed_return() {
    let world = World::new(23);
    let rigged = three(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs_of_three(1)).await;
        wait_for_image(&world, &volume).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.fail_device(DISK).await.unwrap();
        volume.set_policy("pass").await.unwrap();
        world.sleep(Nanos::from_secs(1)).await;
        volume.remove_device(DISK).await.unwrap();
        rigged.disks[1].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        let back = plugged_in(&world, &rigged.disks[1]);
        assert_eq!(refused(volume.return_device(back, "it").await).kind(), ErrorKind::Io);
        world.sleep(Nanos::from_secs(60)).await;
        assert_eq!(state(&volume, 1), DeviceState::Removed);
        volume.audit().await.expect("the others have two copies of everything");
        volume.close().await.expect("the others are sound");
    });
}
