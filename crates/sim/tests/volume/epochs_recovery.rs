//! A volume that has lost its SSD continues on the disk at once: its content while the journal is applied,
//! and afterwards.

use crate::epochs::{BLOCK, EXTENT, SIZE, SSD, content, recovered, sound, wait_for_image};
use crate::recovery_campaign::{Lost, alone, lose_ssd_at_work};
use crate::rig::{Rig, filled, holds, open, open_with, refused};
use braid_base::{Bytes, MIB, Nanos};
use braid_engine::{Addition, Durability, ErrorKind, Export, Past, Replacement, replace};
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};

/// A recovered volume after its first opening.
pub async fn just_recovered(world: &World, disk: &Disk, faults: &Faults) -> Rig {
    let devices = vec![Faulty::new(disk.clone(), faults)];
    let (volume, recovery) = open_with(world.clone(), devices, alone).await.expect("it is an image");
    assert!(recovery.adopted.is_some());
    volume
}

#[test]
fn recovered_volume_serves_at_once_and_completes_in_place() {
    let world = World::new(5);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, .. } = lose_ssd_at_work(&world, 5, &mut rng).await;
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let volume = just_recovered(&world, &disk, &faults).await;
        let status = volume.status();
        assert!(status.unapplied.is_some_and(|left| left > Bytes::ZERO));
        assert_eq!((status.epoch, status.unapplied_failure), (None, None));
        let left = disk.fork(&world).restart(&world);
        let looked = Past::open(&world, vec![sound(&left, &world)], &["disk".to_owned()]).await;
        assert_eq!(refused(looked).kind(), ErrorKind::Degraded, "guests may have changed it");
        // Only reads that the disk can answer alone.
        let arena = Arena::new(MIB);
        for _ in 0..100 {
            let start = rng.below(SIZE.0 - 1);
            let len = rng.between(1, (SIZE.0 - start).min(9_000) + 1);
            let buf = arena.alloc(Bytes(len)).await;
            volume.read(Bytes(start), &buf).await.expect("the disk is sound");
            assert!(buf.with_bytes(|bytes| bytes == &base[start as usize..(start + len) as usize]));
        }
        volume.complete_recovery().await.expect("the disk is sound");
        assert_eq!(volume.status().unapplied, None);
        volume.close().await.expect("the disk is sound");
        let raw = arena.alloc(EXTENT).await;
        for (i, expected) in (0..).zip(base.chunks(EXTENT.as_usize())) {
            disk.read(EXTENT * i, &raw).await.expect("the disk is sound");
            assert!(raw.with_bytes(|bytes| bytes == expected), "extent {i} lies in its place");
        }
        let again = open_with(world.clone(), vec![sound(&disk, &world)], alone).await;
        assert_eq!(refused(again).kind(), ErrorKind::Degraded, "it is a volume like any other");
    });
}

/// An unreadable place of the journal costs only its own data: neither the volume nor other guests' writes.
#[test]
fn bad_epoch_journal_affects_only_covered_extents() {
    let world = World::new(6);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, .. } = lose_ssd_at_work(&world, 6, &mut rng).await;
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let volume = just_recovered(&world, &disk, &faults).await;
        // Its slots; only the slots are read from then on.
        let slots = Bytes::ZERO..EXTENT * u64::from(volume.status().devices[1].slots);
        let all = FaultPlan { bad_reads: Some(slots.end..disk.geometry().size), ..FaultPlan::default() };
        faults.set(all);
        let arena = Arena::new(MIB);
        let buf = arena.alloc(EXTENT).await;
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        for (i, expected) in (0..).zip(base.chunks(EXTENT.as_usize())) {
            let at = EXTENT * i;
            match volume.read(at, &buf).await {
                Ok(()) => {
                    assert!(buf.with_bytes(|bytes| bytes == expected));
                    kept.push(at);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    lost.push(at);
                }
            }
        }
        assert!(!lost.is_empty() && !kept.is_empty());
        for at in kept {
            volume.write(at, &filled(&arena, BLOCK, 7), Durability::Fua).await.expect("it is not there");
        }
        let part = filled(&arena, EXTENT - BLOCK, 7);
        let written = volume.write(lost[0], &part, Durability::Volatile).await;
        assert_eq!(refused(written).kind(), ErrorKind::Io, "older bytes would come over it");
        assert!(volume.status().unapplied_failure.is_some());
        assert!(volume.complete_recovery().await.is_err());
        // An extent that is written whole needs nothing of the journal.
        let rest = lost.split_off(1);
        let left = volume.status().unapplied;
        volume.write(lost[0], &filled(&arena, EXTENT, 8), Durability::Fua).await.expect("all of it is new");
        assert!(volume.status().unapplied < left, "it counts as applied");
        assert!(holds(&volume, &arena, lost[0], EXTENT, 8).await.expect("the place is sound"));
        // The disk can read the place again.
        faults.set(FaultPlan::default());
        while volume.status().unapplied.is_some() {
            world.sleep(Nanos::from_millis(10)).await;
        }
        for at in rest {
            volume.read(at, &buf).await.expect("the disk is sound");
            let expected = &base[at.as_usize()..(at + EXTENT).as_usize()];
            assert!(buf.with_bytes(|bytes| bytes == expected));
        }
        assert!(holds(&volume, &arena, lost[0], EXTENT, 8).await.expect("the disk is sound"));
        volume.close().await.expect("the disk is sound");
    });
}

/// A new SSD is added during the recovery of the disk: the SSD is resynchronised after the end of the
/// recovery.
#[test]
fn a_new_ssd_is_brought_up_to_date_after_the_recovery() {
    let world = World::new(7);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, .. } = lose_ssd_at_work(&world, 7, &mut rng).await;
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let first = just_recovered(&world, &disk, &faults).await;
        let left = disk.fork(&world).restart(&world);
        first.close().await.expect("the disk is sound");
        let replaced = Disk::new(&world, DiskOptions::ssd(MIB * 12));
        let new = Replacement {
            device: SSD,
            name: "the new one".to_owned(),
            identity: Uuid([8; 16]),
            model: String::new(),
            outdated: Vec::new(),
            overwrite: false,
        };
        let (rest, names) = (vec![sound(&left, &world)], ["disk".to_owned()]);
        replace(&world, rest, &names, &sound(&replaced, &world), &new).await.expect("it is large enough");
        let devices = vec![sound(&replaced, &world), sound(&left, &world)];
        let volume = open(world.clone(), devices).await.expect("both are there");
        let arena = Arena::new(MIB);
        volume
            .write(EXTENT, &filled(&arena, BLOCK, 9), Durability::Fua)
            .await
            .expect("the devices are sound");
        wait_for_image(&world, &volume).await;
        assert_eq!(volume.status().unapplied, None);
        assert!(volume.status().devices.iter().all(|device| device.state == DeviceState::Active));
        let mut expected = base;
        expected[EXTENT.as_usize()..(EXTENT + BLOCK).as_usize()].fill(9);
        assert!(content(&volume).await == expected);
        volume.close().await.expect("the devices are sound");
        assert!(recovered(&world, &left, None).await == expected, "the disk alone is the volume again");
    });
}

/// A second recovery believed the disk alone, and so gave up guests' flushed data on the new SSD.
#[test]
fn second_recovery_is_refused_after_device_addition() {
    let under_way = (0..12).filter(|&seed| go_on_with_another_device(seed)).count();
    assert!(under_way > 0, "each recovery had ended before the device was there");
}

/// True if the recovery was in progress when the volume had continued.
fn go_on_with_another_device(seed: u64) -> bool {
    let world = World::new(seed);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, .. } = lose_ssd_at_work(&world, seed, &mut rng).await;
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let volume = just_recovered(&world, &disk, &faults).await;
        let new = Disk::new(&world, DiskOptions::ssd(MIB * 12));
        let addition = Addition {
            name: "the new one".to_owned(),
            identity: Uuid([8; 16]),
            model: String::new(),
            layout: Layout::Head,
            overwrite: false,
        };
        volume.add_device(sound(&new, &world), &addition, |_| Ok(())).await.expect("it is large enough");
        let (arena, extent) = (Arena::new(MIB), EXTENT * 2);
        volume.discard(extent, EXTENT).await.expect("the devices are sound");
        volume.write(extent, &filled(&arena, BLOCK, 9), Durability::Fua).await.expect("there is room");
        if volume.status().unapplied.is_none() {
            return false;
        }
        let [left, new] = [&disk, &new].map(|disk| sound(&disk.fork(&world).restart(&world), &world));
        for devices in [vec![left.clone()], vec![left.clone(), new.clone()]] {
            let again = open_with(world.clone(), devices, alone).await;
            assert_eq!(refused(again).kind(), ErrorKind::Degraded);
        }
        let volume = open(world.clone(), vec![left, new]).await.expect("both are there");
        assert!(holds(&volume, &arena, extent, BLOCK, 9).await.expect("the devices are sound"));
        true
    })
}
