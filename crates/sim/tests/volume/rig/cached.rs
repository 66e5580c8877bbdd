//! Volumes whose SSD holds extra copies of blocks of the disk.

use super::{Bench, Rig, filled, holds, make, options};
use braid_base::{Bytes, DeviceId, ExtentId, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_policy::{DeviceView, Occasion, Placement, Plan, Policy, View};
use braid_runtime::Arena;
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};

pub const SSD: DeviceId = DeviceId(0);
pub const HDD: DeviceId = DeviceId(1);

/// A policy with homes on the disk. Reads make extra copies on the SSD, and so do writes if `writes` is
/// true.
pub struct Cache {
    pub writes: bool,
}

impl Policy for Cache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(HDD),
            Occasion::Write(_) if self.writes => Placement::write_back(SSD),
            Occasion::ReadMiss(_) if !self.writes => Placement::cached(Some(SSD)),
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

pub fn bench(seed: u64, ssd: Bytes, hdd: Bytes) -> Bench {
    let world = World::new(seed);
    let disks = [DiskOptions::ssd(ssd), DiskOptions::hdd(hdd)].map(|o| Disk::new(&world, o)).to_vec();
    let faults = disks.iter().map(|_| Faults::new(FaultPlan::default(), world.fork_rng())).collect();
    Bench { world, disks, faults, arena: Arena::new(MIB * 4) }
}

/// The policy of the superblock keeps extra copies on the SSD when the volume is opened.
pub fn caching(identity: u8, size: Bytes) -> CreateOptions {
    CreateOptions { size: Some(size), policy: "ssd-first,cache=60%".to_owned(), ..options(identity) }
}

/// Makes all of the volume valid at homes on the disk, then dirties it.
pub async fn make_dirty(volume: &Rig, arena: &Arena, size: Bytes) {
    volume.replace_policy(Box::new(Cache { writes: true }));
    for at in (0..size / MIB).map(|i| MIB * i) {
        volume.write(at, &filled(arena, MIB, 1), Durability::Volatile).await.expect("there is room");
    }
    for at in (0..size / MIB).map(|i| MIB * i) {
        volume.write(at, &filled(arena, MIB, 2), Durability::Volatile).await.expect("there is room");
    }
    volume.flush().await.expect("the devices are sound");
}

pub async fn all_hold(volume: &Rig, arena: &Arena, size: Bytes, value: u8) -> bool {
    for at in (0..size / MIB).map(|i| MIB * i) {
        if !holds(volume, arena, at, MIB, value).await.expect("the devices are sound") {
            return false;
        }
    }
    true
}

/// A volume of 2 MiB on the disk, entirely read and so with clean extra copies.
pub async fn make_warm(world: &World, all: &[Faulty<Disk>], arena: &Arena, identity: u8) -> Rig {
    let volume = make(world.clone(), all.to_vec(), &caching(identity, MIB * 2)).await;
    volume.replace_policy(Box::new(Cache { writes: false }));
    for at in [Bytes::ZERO, MIB] {
        volume.write(at, &filled(arena, MIB, 1), Durability::Volatile).await.expect("there is room");
    }
    volume.flush().await.expect("the devices are sound");
    assert!(all_hold(&volume, arena, MIB * 2, 1).await);
    braid_runtime::Runtime::sleep(world, Nanos::from_millis(100)).await;
    assert_eq!(volume.status().extra_blocks, (512, 0));
    volume
}
