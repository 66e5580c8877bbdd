//! The maximum age of the disk's newest epoch under any load.

use crate::epochs::{BLOCK, EXTENT, epochs, wait_for_image};
use crate::epochs_failing::{DISK, Rigged, wait_until_applied};
use crate::rig::{filled, make, open};
use braid_base::{Bytes, GIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_runtime::Runtime;
use braid_sim::{Disk, DiskOptions, World};

fn pair(world: &World) -> Rigged {
    let sizes = [DiskOptions::ssd(GIB), DiskOptions::hdd(GIB)];
    Rigged::of(world, sizes.map(|options| Disk::new(world, options)).to_vec())
}

fn large(identity: u8, policy: &str) -> CreateOptions {
    CreateOptions { size: Some(MIB * 256), policy: policy.to_owned(), ..epochs(identity) }
}

/// A load without pauses, with few overwrites, stayed far below the bound in bytes: no epoch ended during
/// the load, and the disk lagged by 13 s. The defaults had no bound in time.
#[test]
fn an_epoch_ends_every_few_seconds_under_a_load_without_a_pause() {
    let world = World::new(41);
    let rigged = pair(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &large(41, "pass,order=epoch")).await;
        wait_for_image(&world, &volume).await;
        wait_until_applied(&world, &volume).await;
        let bytes = filled(&rigged.arena, BLOCK, 1);
        let (mut newest, mut ended, mut longest) = (volume.status().epoch, world.now(), Nanos::ZERO);
        let end = world.now() + Nanos::from_secs(30);
        let mut i = 0;
        while world.now() < end {
            volume.write(BLOCK * (i % 1000), &bytes, Durability::Volatile).await.unwrap();
            world.sleep(Nanos::from_millis(5)).await;
            let epoch = volume.status().epoch;
            if epoch != newest {
                (newest, ended) = (epoch, world.now());
            }
            longest = longest.max(world.now() - ended);
            i += 1;
        }
        assert!(longest < Nanos::from_secs(6), "{longest} without an epoch");
        volume.close().await.unwrap();
    });
}

/// After a crash the disk is compared before an epoch can end. A guest that waited for an epoch meanwhile,
/// because the oldest write was too old, waited for the comparison of all spans that had been in use.
#[test]
fn guests_do_not_wait_for_delayed_epoch_after_crash() {
    let world = World::new(42);
    let rigged = pair(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &large(42, "pass,order=epoch,max-lag=4MiB")).await;
        wait_for_image(&world, &volume).await;
        let extents = MIB * 256 / EXTENT;
        let bytes = filled(&rigged.arena, BLOCK, 1);
        for extent in 0..extents {
            volume.write(EXTENT * extent, &bytes, Durability::Volatile).await.unwrap();
        }
        wait_until_applied(&world, &volume).await;
        // Puts all spans in use.
        for extent in 0..extents {
            volume.write(EXTENT * extent, &bytes, Durability::Volatile).await.unwrap();
        }
        volume.flush().await.unwrap();
        let mut rng = world.fork_rng();
        let left = [crate::epochs::SSD, DISK].map(|id| rigged.left_of(id, Some(&mut rng)));
        drop(volume);
        let again = open(world.clone(), left.iter().map(|disk| rigged.sound(disk)).collect()).await.unwrap();
        let began = world.now();
        let mut longest = Nanos::ZERO;
        let mut compares = 0;
        for i in 0..200 {
            let asked = world.now();
            again.write(EXTENT * (i * 37 % extents), &bytes, Durability::Volatile).await.unwrap();
            longest = longest.max(world.now() - asked);
            compares += u32::from(again.status().behind > Bytes::ZERO);
            world.sleep(Nanos::from_millis(5)).await;
        }
        assert!(compares > 100, "the comparison ends too soon for this test: {compares}");
        assert!(longest < Nanos::from_millis(500), "a write took {longest} of {}", world.now() - began);
        again.close().await.unwrap();
    });
}
