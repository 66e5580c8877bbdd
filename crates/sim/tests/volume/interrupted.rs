//! Openings interrupted between the superblocks of two devices, and devices failed or excluded meanwhile.

use crate::apart::interrupted;
use crate::epochs::sound;
use crate::openings::{made_mirror, mirror, parts};
use crate::rig::life::{addition, disk};
use crate::rig::{bench, filled, holds, make, open, open_with, refused};
use braid_base::{Bytes, DeviceId, MIB, Nanos};
use braid_engine::{Durability, ErrorKind, Export, OpenOptions, identify};
use braid_format::superblock::{DeviceTable, Layout, Phase};
use braid_runtime::{Device, Runtime};
use braid_sim::World;
use std::cell::Cell;
use std::rc::Rc;

/// The first device has recorded the opening, the second has not.
const FIRST_TOLD: [Phase; 2] = [Phase::Opening, Phase::Closed];

/// Openings of both halves were interrupted before the write of the second superblock. Then the second half
/// was used alone, with the first excluded, in an opening with a number that the first half had already.
/// With both halves, the first half counted, and the data written to the second half was gone.
#[test]
fn half_used_after_interrupted_openings_is_newest() {
    let mut opened = 0;
    for (cuts, turned) in (1..=4).flat_map(|cuts| [(cuts, false), (cuts, true)]) {
        let bench = bench(19);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        opened += bench.run(async move {
            made_mirror(&both, &all).await;
            let volume = open(world.clone(), vec![all[0].clone()]).await.unwrap();
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 8), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            let mut left = disks.clone();
            for _ in 0..cuts {
                left = interrupted(&world, &left, &FIRST_TOLD).await;
            }
            let (second, first) = (left.remove(1), left.remove(0));
            let without = |o: &mut OpenOptions| o.distrust = vec![DeviceId(0)];
            // The second half may only know that a resync was about to begin.
            let Ok((volume, _)) = open_with(world.clone(), vec![sound(&second, &world)], without).await
            else {
                return 0;
            };
            volume.write(MIB, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
            let mut left = [sound(&first, &world), sound(&second.restart(&world), &world)];
            if turned {
                left.reverse();
            }
            // The first half was excluded while missing, and had been written alone before.
            let error = refused(open(world.clone(), left.to_vec()).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
            let (volume, _) = open_with(world.clone(), left.to_vec(), without).await.unwrap();
            for wait in [0, 60] {
                world.sleep(Nanos::from_secs(wait)).await;
                assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap(), "{cuts} cuts");
                assert!(holds(&volume, &arena, MIB, MIB, 9).await.unwrap(), "{cuts} cuts");
            }
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            1
        });
    }
    assert!(opened > 0);
}

/// The newest table of a device belonged to no superblock of the device yet: an opening of the device alone
/// overwrote this table.
#[test]
fn opening_keeps_current_table_until_next_table_is_whole() {
    let bench = bench(20);
    let (world, arena) = parts(&bench);
    let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
    bench.run(async move {
        made_mirror(&both, &all).await;
        let second = interrupted(&world, &disks, &FIRST_TOLD).await.remove(1);
        let device = sound(&second, &world);
        let header = identify(&world, Rc::new(device.clone()), "it").await.unwrap();
        let place = *header.tables.iter().find(|place| place.device == header.this_device).unwrap();
        // The table after the current table was torn.
        let torn = filled(&arena, place.len / 2, 0x5a);
        device.write(place.half(header.sequence), &torn).await.unwrap();
        device.flush().await.unwrap();
        let counts = place.half(header.sequence + 1);
        let is_open = Rc::new(Cell::new(false));
        let (rt, opened) = (world.clone(), is_open.clone());
        world.spawn(async move {
            let volume = open(rt, vec![device]).await.unwrap();
            opened.set(true);
            volume.close().await.unwrap();
        });
        let mut cuts = Vec::new();
        while !is_open.get() {
            let mut left = second.store();
            left.kill();
            cuts.push(left);
            world.sleep(Nanos::from_micros(150)).await;
        }
        let (mut kept, mut both_kinds) = (None, [0, 0]);
        for left in cuts {
            let disk = left.attach(&world);
            let read = async |half: Bytes| {
                let buf = arena.alloc(place.len / 2).await;
                disk.read(half, &buf).await.expect("the disk is sound");
                buf.with_bytes(<[u8]>::to_vec)
            };
            let (counting, other) = (read(counts).await, read(place.half(header.sequence)).await);
            let is_kept = *kept.get_or_insert_with(|| counting.clone()) == counting;
            // The other table is whole before this table is overwritten.
            assert!(is_kept || DeviceTable::decode(&other, header.volume).is_ok());
            both_kinds[usize::from(is_kept)] += 1;
            let volume = open(world.clone(), vec![sound(&disk, &world)]).await.unwrap();
            volume.close().await.unwrap();
        }
        assert!(both_kinds[0] > 0 && both_kinds[1] > 0, "{both_kinds:?}");
    });
}

/// One half was excluded while missing, and was then used alone: data written to this half was silently
/// lost.
#[test]
fn half_used_alone_after_exclusion_is_refused() {
    for (i, used) in [(0u16, true), (1, true), (0, false), (1, false)] {
        let bench = bench(21);
        let (world, arena) = parts(&bench);
        let (both, all) = (parts(&bench), bench.devices());
        bench.run(async move {
            made_mirror(&both, &all).await;
            let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(i)];
            let (kept, given_up) = (all[usize::from(1 - i)].clone(), all[usize::from(i)].clone());
            for _ in 0..3 {
                let (volume, _) = open_with(world.clone(), vec![kept.clone()], give_up).await.unwrap();
                volume.write(MIB, &filled(&arena, MIB, 8), Durability::Fua).await.unwrap();
                volume.close().await.unwrap();
            }
            if used {
                let volume = open(world.clone(), vec![given_up]).await.unwrap();
                volume.write(MIB, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
                volume.close().await.unwrap();
                let error = refused(open(world.clone(), all.clone()).await);
                assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
            }
            let choose = |o: &mut OpenOptions| o.distrust = if used { vec![DeviceId(i)] } else { vec![] };
            let (volume, _) = open_with(world.clone(), all, choose).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            assert!(holds(&volume, &arena, MIB, MIB, 8).await.unwrap());
            volume.audit().await.unwrap();
        });
    }
}

/// A device was added after one half had been excluded. Then all others were to be excluded in favour of
/// this half, which does not know the new device.
#[test]
fn exclusion_of_device_unknown_to_remaining_half_is_refused() {
    let world = World::new(22);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
    world.clone().block_on(async move {
        let devices = |of: &[usize]| of.iter().map(|&i| sound(&disks[i], &world)).collect::<Vec<_>>();
        let volume = make(world.clone(), devices(&[0, 1]), &mirror(22)).await;
        volume.fail_device(DeviceId(0)).await.unwrap();
        let how = addition(Layout::Head);
        volume.add_device(devices(&[2]).remove(0), &how, |_| Ok(())).await.unwrap();
        volume.close().await.unwrap();
        let others = |o: &mut OpenOptions| o.distrust = vec![DeviceId(1), DeviceId(2)];
        let error = refused(open_with(world.clone(), devices(&[0, 1, 2]), others).await);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let other = |o: &mut OpenOptions| o.distrust = vec![DeviceId(1)];
        let (volume, _) = open_with(world.clone(), devices(&[0, 1]), other).await.unwrap();
        volume.close().await.unwrap();
    });
}
