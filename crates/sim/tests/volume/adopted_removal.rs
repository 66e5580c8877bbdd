//! The SSD before an adopted disk leaves; then the disk alone is the volume.

use crate::adopted::{
    DISK, SIZE, SSD, copies_of, dirty, disks, make, open, raw, run, scribble, seen, state_of, until_removed,
};
use crate::rig::{filled, is_all, refused, seeds};
use braid_base::{DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{Durability, ErrorKind, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[test]
fn adopted_disk_equals_volume_after_ssd_removal() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        dirty(&world, &volume);
        scribble(&volume, &mut expected, 3).await;
        assert!(volume.status().extra_blocks.1 > 0);
        assert!(seen(&volume).await == expected);
        volume.flush().await.unwrap();
        volume.close().await.unwrap();
        let volume = open(&world, &disks).await;
        assert!(volume.status().extra_blocks.1 > 0 && seen(&volume).await == expected);
        volume.remove_device(SSD).await.unwrap();
        until_removed(&world, &volume).await;
        volume.erase_removed(SSD).await.unwrap();
        assert!(raw(&disks[DISK]).await == expected, "the disk alone is the volume");
        // The volume continues without the SSD.
        scribble(&volume, &mut expected, 4).await;
        volume.flush().await.unwrap();
        let killed = copies_of(&world, &disks).await;
        volume.close().await.unwrap();
        assert!(raw(&disks[DISK]).await == expected);
        for disks in [&disks[1..], &killed[1..]] {
            assert!(seen(&open(&world, disks).await).await == expected);
        }
        let error = refused(volume.remove_device(DeviceId(1)).await);
        assert_eq!(error.kind(), ErrorKind::Invalid);
    });
}

/// Each dirty block was written back alone, one after the other: 64 MiB of dirty blocks took minutes.
#[test]
fn ssd_removal_writes_back_adjacent_dirty_blocks_together() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        volume.set_policy("cache,mode=write-back").await.unwrap();
        let (block, arena) = (KIB * 4, Arena::new(KIB * 4));
        // Each block once, and never beside the previous block.
        for i in 0..MIB * 4 / block {
            let at = block * (i * 389 % (MIB * 4 / block));
            volume.write(at, &filled(&arena, block, i as u8), Durability::Volatile).await.unwrap();
            expected[at.0 as usize..(at + block).0 as usize].fill(i as u8);
        }
        let dirty = volume.status().extra_blocks.1;
        assert!(dirty > 300, "{dirty} of 1024 blocks are dirty");
        let start = world.now();
        volume.remove_device(SSD).await.unwrap();
        until_removed(&world, &volume).await;
        let least = Nanos::from_micros(500);
        let took = world.now().saturating_sub(start);
        assert!(
            took < least * dirty as u64,
            "{took} for {dirty} blocks of a disk that needs {least} for each request"
        );
        assert!(raw(&disks[DISK]).await == expected, "the disk alone is the volume");
    });
}

/// The power is cut at each point while the SSD leaves, with dirty blocks on the SSD. When the journal
/// continued in the record, the record proved the journal at once. An opening that still found the SSD in
/// use missed the proved batches in the SSD's journal. `BRAID_CRASH_SEEDS=n` cuts n times at each.
#[test]
fn flushed_data_survives_power_cut_during_ssd_removal() {
    let (begin, end) = remove_until(None);
    let seeds = seeds("BRAID_CRASH_SEEDS", 1);
    for cut in begin + 1..end + 5 {
        (0..seeds).for_each(|seed| _ = remove_until(Some((cut, seed))));
    }
}

/// Returns the points at which the removal began and ended.
fn remove_until(cut: Option<(u64, u64)>) -> (u64, u64) {
    let world = World::new(5);
    let all = disks(&world, SIZE);
    let expected = Rc::new(RefCell::new(Vec::new()));
    let points = Rc::new(Cell::new((0, 0)));
    if let Some((cut, _)) = cut {
        world.power().cut_at(cut);
    }
    let (rt, disks, known, told) = (world.clone(), all.clone(), expected.clone(), points.clone());
    let done = world.block_on_until_cut(async move {
        let mut bytes = raw(&disks[DISK]).await;
        let volume = make(&rt, &disks).await;
        dirty(&rt, &volume);
        scribble(&volume, &mut bytes, 13).await;
        volume.set_policy("cache,mode=write-back").await.expect("the devices are sound");
        // Earlier dirty blocks may have been written back by now.
        scribble(&volume, &mut bytes, 14).await;
        volume.flush().await.expect("the devices are sound");
        assert!(volume.status().extra_blocks.1 > 0);
        *known.borrow_mut() = bytes;
        told.set((rt.power().points(), 0));
        volume.remove_device(SSD).await.expect("the devices are sound");
        until_removed(&rt, &volume).await;
        volume.erase_removed(SSD).await.expect("the devices are sound");
        told.set((told.get().0, rt.power().points()));
        volume.close().await.expect("the devices are sound");
    });
    world.halt();
    if done.is_none() {
        let (cut, seed) = cut.unwrap_or_default();
        let mut rng = Rng::new(cut ^ seed << 32);
        all.iter().for_each(|disk| disk.power_cut(&mut rng));
    }
    let world = World::new(6);
    let disks: Vec<Disk> = all.iter().map(|disk| disk.restart(&world)).collect();
    let (rt, expected) = (world.clone(), expected.borrow().clone());
    world.block_on(async move {
        // An SSD without a superblock is no longer a member of the volume.
        let is_member = braid_engine::identify(&rt, Rc::new(disks[0].clone()), "it").await.is_ok();
        let disks = if is_member { &disks[..] } else { &disks[1..] };
        let volume = open(&rt, disks).await;
        assert!(seen(&volume).await == expected, "cut at {cut:?}");
        if state_of(&volume) == DeviceState::Active {
            volume.remove_device(SSD).await.expect("the devices are sound");
        }
        until_removed(&rt, &volume).await;
        assert!(
            raw(disks.iter().find(|d| d.geometry().size == SIZE).expect("the devices are sound")).await
                == expected
        );
        volume.audit().await.expect("the devices are sound");
        let arena = Arena::new(MIB);
        volume
            .write(KIB * 4, &filled(&arena, KIB * 4, 1), Durability::Fua)
            .await
            .expect("the devices are sound");
        volume.close().await.expect("the devices are sound");
        let volume = open(&rt, if is_member { &disks[1..] } else { disks }).await;
        let buf = filled(&arena, KIB * 4, 0);
        volume.read(KIB * 4, &buf).await.expect("the devices are sound");
        assert!(is_all(&buf, 1));
    });
    world.halt();
    points.get()
}
