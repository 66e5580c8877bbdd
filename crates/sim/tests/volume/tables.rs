//! Devices without a table of devices, or with an unreadable table.

use crate::apart::interrupted;
use crate::device_returns::{plugged_in, state, wait_until_active};
use crate::epochs::sound;
use crate::openings::{made_mirror, mirror, parts};
use crate::replace::replacement;
use crate::rig::life::disk;
use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, identify, replace};
use braid_format::superblock::{DeviceState, Header, Layout, Phase};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

/// An SSD and a disk with tables, and a disk without a table.
const SSD: usize = 0;
const WITH: usize = 1;
const WITHOUT: usize = 2;

/// A volume of these disks, with data in each MiB, shut down. All homes are on the SSD.
async fn made(world: &World, arena: &Arena) -> Vec<Disk> {
    let disks = vec![disk(world, true), disk(world, false), disk(world, false)];
    let devices = disks.iter().map(|disk| sound(disk, world)).collect();
    let how = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..options(30) };
    let volume = make(world.clone(), devices, &how).await;
    write(&volume, arena, 1).await;
    volume.close().await.expect("the devices are sound");
    let without = Rc::new(sound(&disks[WITHOUT], world));
    let header = identify(world, without, "it").await.expect("it has a superblock");
    assert!(header.tables.iter().all(|place| place.device.index() != WITHOUT), "{header:?}");
    disks
}

async fn write(volume: &Rig, arena: &Arena, value: u8) {
    for i in 0..4u64 {
        let bytes = filled(arena, MIB, value);
        volume.write(MIB * i, &bytes, Durability::Fua).await.expect("the devices are sound");
    }
}

async fn all_hold(volume: &Rig, arena: &Arena, value: u8) -> bool {
    for i in 0..4u64 {
        if !holds(volume, arena, MIB * i, MIB, value).await.expect("the devices are sound") {
            return false;
        }
    }
    true
}

/// An opening with the SSD was interrupted, and another opening of the same number was without the SSD. The
/// disk of both openings has no table to reveal the second opening: its data was overwritten, or read, by
/// chance.
#[test]
fn device_without_table_is_refused_after_separate_use() {
    let bench = bench(30);
    let (world, arena) = parts(&bench);
    bench.run(async move {
        let disks = made(&world, &arena).await;
        let both = [disks[SSD].clone(), disks[WITHOUT].clone()];
        let told = [Phase::Opening, Phase::Closed];
        let mut left = interrupted(&world, &both, &told).await;
        let (without, ssd) = (sound(&left.remove(1), &world), sound(&left.remove(0), &world));
        let with = sound(&disks[WITH], &world);
        let volume = open(world.clone(), vec![with.clone(), without.clone()]).await.unwrap();
        write(&volume, &arena, 2).await;
        volume.close().await.unwrap();
        let volume = open(world.clone(), vec![ssd.clone()]).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 3), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let all = vec![ssd.clone(), with.clone(), without.clone()];
        for devices in [all.clone(), vec![ssd, without.clone()]] {
            let error = refused(open(world.clone(), devices).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        }
        let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(WITH as u16)];
        let error = refused(open_with(world.clone(), all.clone(), give_up).await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(SSD as u16)];
        let (volume, _) = open_with(world.clone(), all, give_up).await.unwrap();
        for wait in [0, 60] {
            world.sleep(Nanos::from_secs(wait)).await;
            assert!(all_hold(&volume, &arena, 2).await);
        }
        volume.audit().await.unwrap();
    });
}

/// The table of an interrupted opening was on the SSD alone, which was then lost for good. The disks hold
/// everything, and were refused for ever.
#[test]
fn volume_opens_if_table_of_interrupted_opening_is_lost() {
    let bench = bench(31);
    let (world, arena) = parts(&bench);
    bench.run(async move {
        let disks = made(&world, &arena).await;
        let both = [disks[SSD].clone(), disks[WITHOUT].clone()];
        let told = [Phase::Opening, Phase::Opening];
        let without = interrupted(&world, &both, &told).await.remove(1);
        let all = vec![sound(&disks[WITH], &world), sound(&without, &world)];
        let volume = open(world.clone(), all.clone()).await.unwrap();
        assert!(all_hold(&volume, &arena, 1).await);
        write(&volume, &arena, 2).await;
        volume.close().await.unwrap();
        let volume = open(world.clone(), all).await.unwrap();
        assert!(all_hold(&volume, &arena, 2).await);
        volume.audit().await.unwrap();
    });
}

/// The same, but the other disk had been failed while the volume was open: its data is older.
#[test]
fn interrupted_opening_does_not_revive_failed_device() {
    let bench = bench(32);
    let (world, arena) = parts(&bench);
    bench.run(async move {
        let disks = made(&world, &arena).await;
        let volume =
            open(world.clone(), disks.iter().map(|disk| sound(disk, &world)).collect()).await.unwrap();
        let older = disks[WITH].fork(&world);
        volume.fail_device(DeviceId(WITH as u16)).await.unwrap();
        write(&volume, &arena, 2).await;
        volume.close().await.unwrap();
        let both = [disks[SSD].clone(), disks[WITHOUT].clone()];
        let without = interrupted(&world, &both, &[Phase::Opening, Phase::Opening]).await.remove(1);
        let error = refused(open(world.clone(), vec![sound(&older, &world), sound(&without, &world)]).await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
    });
}

/// One half was used without the other, and then the other without the first. Only the table of the first
/// half knows, and this table is unreadable.
#[test]
fn half_with_unreadable_table_is_rebuilt_only_after_exclusion() {
    let bench = bench(33);
    let (world, arena) = parts(&bench);
    let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
    bench.run(async move {
        made_mirror(&both, &all).await;
        let volume = open(world.clone(), all.clone()).await.unwrap();
        volume.fail_device(DeviceId(1)).await.unwrap();
        volume.write(MIB, &filled(&arena, MIB, 7), Durability::Fua).await.unwrap();
        drop(volume);
        let (first, second) = (sound(&disks[0].fork(&world), &world), sound(&disks[1].fork(&world), &world));
        let volume = open(world.clone(), vec![second.clone()]).await.unwrap();
        volume.write(MIB * 2, &filled(&arena, MIB, 8), Durability::Fua).await.unwrap();
        let header = identify(&world, Rc::new(first.clone()), "it").await.unwrap();
        let place = *header.tables.iter().find(|place| place.device == header.this_device).unwrap();
        first.write(place.offset, &filled(&arena, place.len, 0x5a)).await.unwrap();
        let error = refused(volume.return_device(first.clone(), "it").await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        volume.close().await.unwrap();
        let error = refused(open(world.clone(), vec![first.clone(), second.clone()]).await);
        assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
        let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(0)];
        let (volume, _) = open_with(world.clone(), vec![first, second], give_up).await.unwrap();
        wait_until_active(&world, &volume, 0).await;
        assert!(holds(&volume, &arena, MIB * 2, MIB, 8).await.unwrap());
        volume.audit().await.unwrap();
    });
}

/// A half was failed while the volume was open, and was not used since. This half is rebuilt though its
/// table is unreadable: the devices that failed the half know everything.
#[test]
fn failed_half_with_bad_table_is_rebuilt() {
    let bench = bench(38);
    let (world, arena) = parts(&bench);
    let (both, all) = (parts(&bench), bench.devices());
    bench.run(async move {
        made_mirror(&both, &all).await;
        let volume = open(world.clone(), all.clone()).await.unwrap();
        volume.fail_device(DeviceId(1)).await.unwrap();
        volume.write(MIB, &filled(&arena, MIB, 7), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let header = identify(&world, Rc::new(all[1].clone()), "it").await.unwrap();
        let place = *header.tables.iter().find(|place| place.device == header.this_device).unwrap();
        all[1].write(place.offset, &filled(&arena, place.len, 0x5a)).await.unwrap();
        let volume = open(world.clone(), all).await.unwrap();
        wait_until_active(&world, &volume, 1).await;
        assert!(holds(&volume, &arena, MIB, MIB, 7).await.unwrap());
        volume.audit().await.unwrap();
    });
}

/// A half failed just after the other had been resynchronised from it: its table calls the other half
/// returning, though the failed half never continued alone.
#[test]
fn half_failed_right_after_resync_of_peer_is_rebuilt() {
    let bench = bench(34);
    let (world, arena) = parts(&bench);
    let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
    bench.run(async move {
        made_mirror(&both, &all).await;
        let volume = open(world.clone(), all.clone()).await.unwrap();
        volume.fail_device(DeviceId(0)).await.unwrap();
        volume.write(MIB, &filled(&arena, MIB, 7), Durability::Fua).await.unwrap();
        volume.return_device(plugged_in(&world, &disks[0]), "it").await.unwrap();
        let mut as_it_failed = None;
        while state(&volume, 0) == DeviceState::Returning {
            let now = disks[1].fork(&world);
            as_it_failed = Some(now);
            world.sleep(Nanos::from_micros(200)).await;
        }
        volume.fail_device(DeviceId(1)).await.unwrap();
        volume.write(MIB * 2, &filled(&arena, MIB, 8), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let back = as_it_failed.expect("it takes some time to bring a device up to date");
        let volume = open(world.clone(), vec![sound(&disks[0], &world), sound(&back, &world)]).await.unwrap();
        wait_until_active(&world, &volume, 1).await;
        assert!(holds(&volume, &arena, MIB, MIB, 7).await.unwrap());
        assert!(holds(&volume, &arena, MIB * 2, MIB, 8).await.unwrap());
        volume.audit().await.unwrap();
    });
}

/// Each half was about to be opened alone, one of them more often, so that its numbers exceed the numbers of
/// the volume to which the half is to return.
#[test]
fn a_device_with_higher_numbers_does_not_come_back_to_an_open_volume() {
    let mut refusals = 0;
    for (its, own) in (1..=3).flat_map(|its| [(its, 0), (its, 1), (its, 2)]) {
        let bench = bench(35);
        let (world, arena) = parts(&bench);
        let (both, all, disks) = (parts(&bench), bench.devices(), bench.disks.clone());
        refusals += bench.run(async move {
            made_mirror(&both, &all).await;
            let half = async |i: usize, times: i32| {
                let mut half = disks[i].fork(&world);
                for _ in 0..times {
                    half = interrupted(&world, &[half], &[Phase::Opening]).await.remove(0);
                }
                half
            };
            let (one, other) = (half(0, own).await, half(1, its).await);
            let header: Header = identify(&world, Rc::new(sound(&other, &world)), "it").await.unwrap();
            let volume = open(world.clone(), vec![sound(&one, &world)]).await.unwrap();
            volume.write(MIB, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
            let result = volume.return_device(plugged_in(&world, &other), "it").await;
            let known = identify(&world, Rc::new(sound(&one, &world)), "it").await.unwrap();
            let is_higher = (header.epoch, header.sequence) > (known.epoch, known.sequence);
            assert_eq!(result.is_err(), is_higher, "{result:?}");
            assert!(result.is_ok_and(|id| id == DeviceId(1)) || is_higher);
            i32::from(is_higher)
        });
    }
    assert!(refusals > 0);
}

/// The superblock of a new device was written before any table with the device: with the device, the volume
/// was refused.
#[test]
fn volume_opens_after_interrupted_replacement() {
    let bench = bench(36);
    let (world, arena) = parts(&bench);
    bench.run(async move {
        let disks = made(&world, &arena).await;
        let new = disk(&world, false);
        let used = [disks[SSD].clone(), disks[WITH].clone(), new];
        let devices: Vec<_> = used.iter().map(|disk| sound(disk, &world)).collect();
        let has_ended = Rc::new(Cell::new(false));
        let (rt, ended) = (world.clone(), has_ended.clone());
        world.spawn(async move {
            let names = ["one".to_owned(), "other".to_owned()];
            let (rest, new) = (devices[..2].to_vec(), &devices[2]);
            replace(&rt, rest, &names, new, &replacement(WITHOUT as u16)).await.unwrap();
            ended.set(true);
        });
        let mut cuts = Vec::new();
        while !has_ended.get() {
            cuts.push(used.iter().map(Disk::store).collect::<Vec<_>>());
            world.sleep(Nanos::from_micros(100)).await;
        }
        let mut opened = [0, 0];
        for mut cut in cuts {
            cut.iter_mut().for_each(|disk| disk.kill());
            let left: Vec<Disk> = cut.iter().map(|disk| disk.attach(&world)).collect();
            let left: Vec<Faulty<Disk>> = left.iter().map(|disk| sound(disk, &world)).collect();
            let is_one = identify(&world, Rc::new(left[2].clone()), "it").await.is_ok();
            let devices = if is_one { left } else { left[..2].to_vec() };
            let volume = open(world.clone(), devices).await.unwrap();
            assert!(all_hold(&volume, &arena, 1).await);
            volume.close().await.unwrap();
            opened[usize::from(is_one)] += 1;
        }
        assert!(opened[0] > 0 && opened[1] > 0, "{opened:?}");
    });
}

/// A table with a correct checksum, and with a device that has no room for superblocks.
#[test]
fn opening_with_undersized_device_in_table_is_refused() {
    let bench = bench(37);
    let (world, arena) = parts(&bench);
    let disks = bench.disks.clone();
    bench.run(async move {
        let how = CreateOptions { layouts: vec![Layout::Head, Layout::Tail], ..mirror(37) };
        let all: Vec<_> = disks.iter().map(|disk| sound(disk, &world)).collect();
        let volume = make(world.clone(), all.clone(), &how).await;
        let table = volume.status();
        assert_eq!(table.devices.len(), 2);
        volume.close().await.unwrap();
        let header = identify(&world, Rc::new(all[0].clone()), "it").await.unwrap();
        let place = *header.tables.iter().find(|place| place.device == header.this_device).unwrap();
        let half = arena.alloc(place.len / 2).await;
        for sequence in 0..2 {
            all[0].read(place.half(sequence), &half).await.unwrap();
            let table =
                half.with_bytes(|bytes| braid_format::superblock::DeviceTable::decode(bytes, header.volume));
            let Ok(table) = table else { continue };
            let number = table.sequence;
            let Ok(mut superblock) = header.clone().with_table(table) else { continue };
            (superblock.sequence, superblock.devices[1].size) = (number, KIB * 4);
            let bytes = superblock.encode_table();
            half.with_bytes_mut(|to| to[..bytes.len()].copy_from_slice(&bytes));
            all[0].write(place.half(sequence), &half).await.unwrap();
        }
        let stranger = sound(&disk(&world, false), &world);
        let error = refused(open(world.clone(), vec![all[0].clone(), stranger]).await);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    });
}
