//! Devices that vanish, so that every request fails: guests meet no error while a copy is left, and the loss
//! is noticed even without requests.

use crate::rig::busy::{busy_under, end};
use crate::rig::life::names;
use crate::rig::{filled, options};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions, Volume, create};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};

/// A write to a block with a clean extra copy on the SSD failed with the SSD, though both required copies
/// had been written.
#[test]
fn vanished_cache_causes_no_guest_errors() {
    for seed in 0..12 {
        let policy = ["ssd-first,cache=50%", "ssd-first,cache=90%", "cache"][seed as usize % 3];
        let world = World::new(800 + seed);
        let rt = world.clone();
        world.block_on(async move {
            let busy = busy_under(policy, &rt, seed).await;
            rt.sleep(Nanos::from_secs(5 + seed)).await;
            busy.faults[0].vanish();
            rt.sleep(Nanos::from_secs(20)).await;
            assert_eq!(busy.volume.status().guests.errors, 0);
            end(&rt, busy, &[1, 2]).await;
        });
        world.halt();
    }
}

/// Three disks with two copies of 4 MiB, without any requests.
async fn idle(world: &World) -> (Volume<World, Faulty<Disk>>, Vec<Faults>) {
    let disks = [MIB * 8, MIB * 10, MIB * 10].map(|size| Disk::new(world, DiskOptions::hdd(size)));
    let faults = disks.each_ref().map(|_| Faults::new(FaultPlan::default(), world.fork_rng()));
    let all: Vec<Faulty<Disk>> =
        disks.iter().zip(&faults).map(|(disk, faults)| Faulty::new(disk.clone(), faults)).collect();
    create(&all, &CreateOptions { copies: 2, ..options(1) }).await.expect("the devices are fit");
    let opened = Volume::open(world.clone(), all, OpenOptions::new(names(3))).await;
    let volume = opened.expect("the volume opens").0;
    let bytes = filled(&Arena::new(MIB), MIB, 1);
    volume.write(Bytes::ZERO, &bytes, Durability::Fua).await.expect("a write succeeds");
    world.sleep(Nanos::from_secs(60)).await;
    (volume, faults.to_vec())
}

fn states(volume: &Volume<World, Faulty<Disk>>) -> Vec<DeviceState> {
    volume.status().devices.iter().map(|device| device.state).collect()
}

/// The loss was noticed at the next write, of the policy's state or of a checkpoint: minutes later.
#[test]
fn vanished_idle_device_is_failed_within_ten_seconds() {
    for gone in 0..3 {
        let world = World::new(830);
        let rt = world.clone();
        world.block_on(async move {
            let (volume, faults) = idle(&rt).await;
            faults[gone].vanish();
            rt.sleep(Nanos::from_secs(10)).await;
            let expected = |i| if i == gone { DeviceState::Failed } else { DeviceState::Active };
            assert_eq!(states(&volume), [0, 1, 2].map(expected));
        });
        world.halt();
    }
}

/// A bad sector in one superblock copy is no reason to fail a device. A cause that takes all devices away is
/// no reason to fail a single device.
#[test]
fn bad_sector_or_total_loss_fails_no_device() {
    let world = World::new(831);
    let rt = world.clone();
    world.block_on(async move {
        let (volume, faults) = idle(&rt).await;
        faults[0].set(FaultPlan { bad_reads: Some(Bytes::ZERO..KIB * 4), ..FaultPlan::default() });
        rt.sleep(Nanos::from_secs(60)).await;
        assert_eq!(states(&volume), [DeviceState::Active; 3]);
        faults.iter().for_each(Faults::vanish);
        rt.sleep(Nanos::from_secs(60)).await;
        assert_eq!(states(&volume), [DeviceState::Active; 3]);
        faults.iter().for_each(|faults| faults.set(FaultPlan::default()));
        volume.flush().await.unwrap();
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
    });
    world.halt();
}
