//! A disk that keeps epochs fails, and is back while the volume is open.

use crate::device_returns::{plugged_in, state, wait_until_active};
use crate::epochs::{SSD, epochs, wait_for_image};
use crate::epochs_failing::{DISK, two};
use crate::rig::{filled, make, refused};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{Durability, ErrorKind, Export};
use braid_runtime::Runtime;
use braid_sim::{FaultPlan, World};

/// The first epoch after the return was written to the start of the ring, or where the run had ended before the disk failed, and the disk said that it
/// lay elsewhere: it could not be recovered.
#[test]
#[cfg_attr(feature = "planted", ignore)]
fn epochs_of_a_disk_that_is_back_lie_where_it_says() {
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
                // The disk comes to say that it is no state of the volume, and nobody knows that it does.
                volume.fail_device(DISK).await.unwrap();
                world.sleep(Nanos::from_secs(1)).await;
                rigged.disks[1].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
                let back = plugged_in(&world, &rigged.disks[1]);
                assert_eq!(refused(volume.return_device(back, "it").await).kind(), ErrorKind::Io);
                rigged.disks[1].faults().set(FaultPlan::default());
            } else {
                // It says so since the policy changed, and the volume is opened without it.
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
