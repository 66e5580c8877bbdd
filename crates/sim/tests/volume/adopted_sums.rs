//! Identification of the disk after a crash: an adopted disk without a serial number is recognised by
//! samples of bytes that guests did not write, and by the marks of its file systems.

use crate::adopted::{
    Adopted, DISK, SIZE, copies_of, dirty, disks, make, raw, run, scribble, seen, try_open,
};
use crate::chaos::Chaos;
use crate::rig::{filled, refused, seeds};
use braid_base::{Bytes, KIB, MIB, Nanos, Rng};
use braid_engine::{Durability, ErrorKind, Export, Noted, OpenOptions};
use braid_format::Uuid;
use braid_format::fingerprint::NO_SERIAL;
use braid_format::sums::addresses;
use braid_format::superblock::RegionKind;
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Blank, Disk, DiskOptions, World};
use std::cell::Cell;
use std::rc::Rc;

/// The identity of the volumes of these tests.
const VOLUME: Uuid = Uuid([1; 16]);

fn no_serial(options: &mut OpenOptions) {
    options.adopted.as_mut().expect("the disk is there").identity = NO_SERIAL;
}

/// Writes a few dirty blocks, and flushes them.
async fn write_some(volume: &Adopted, expected: &mut [u8]) {
    let arena = Arena::new(MIB);
    for at in [KIB * 8, KIB * 200, MIB, MIB * 3 + KIB * 8] {
        volume
            .write(at, &filled(&arena, KIB * 8, 0xa5), Durability::Fua)
            .await
            .expect("the devices are sound");
        expected[at.as_usize()..][..8 << 10].fill(0xa5);
    }
}

async fn crashed(world: &World, disks: &[Disk]) -> Vec<Disk> {
    let left = copies_of(world, disks).await;
    left.iter().for_each(Disk::lose_cache);
    left
}

/// Two disks without serial numbers changed places after a crash: dirty blocks of the first disk silently
/// overwrote the other disk.
#[test]
fn swapped_disk_receives_no_dirty_blocks_after_crash() {
    run(async |world| {
        for is_dirty in [true, false] {
            let disks = disks(&world, SIZE);
            let mut expected = raw(&disks[DISK]).await;
            let volume = make(&world, &disks).await;
            match is_dirty {
                true => dirty(&world, &volume),
                false => volume.set_policy("hdd-only").await.expect("all are there"),
            }
            write_some(&volume, &mut expected).await;
            let left = crashed(&world, &disks).await;
            let mut swapped = left.clone();
            swapped[DISK] = Disk::new(&world, DiskOptions::hdd(SIZE).with_blank(Blank::Garbage(8)));
            let before = raw(&swapped[DISK]).await;
            let kind = refused(try_open(&world, &swapped, no_serial).await).kind();
            assert_eq!(kind, if is_dirty { ErrorKind::Degraded } else { ErrorKind::Invalid });
            assert!(raw(&swapped[DISK]).await == before);
            let (volume, recovery) = try_open(&world, &left, no_serial).await.expect("it is the disk");
            assert!(!recovery.changed_elsewhere && (volume.status().extra_blocks.1 > 0) == is_dirty);
            assert!(seen(&volume).await == expected);
        }
    });
}

/// After a crash, a part of the disk without a known file system was written elsewhere. Clean copies are
/// forgotten, dirty blocks are kept back, and an interrupted opening forgets no less.
#[test]
fn external_change_is_detected_by_samples_after_crash() {
    run(async |world| {
        // In the last case another daemon may have the volume open: the opening begins again after a wait.
        for (is_dirty, noted) in [(true, None), (false, None), (false, Some(Noted::default()))] {
            let disks = disks(&world, SIZE);
            let mut expected = raw(&disks[DISK]).await;
            let volume = make(&world, &disks).await;
            match is_dirty {
                true => dirty(&world, &volume),
                false => volume.replace_policy(Box::new(Chaos::new(world.fork_rng()).caching())),
            }
            if is_dirty {
                write_some(&volume, &mut expected).await;
            }
            seen(&volume).await;
            let left = crashed(&world, &disks).await;
            let at = addresses(VOLUME, SIZE)[100];
            left[DISK].poke(at, &[0x77; 512]);
            expected[at.as_usize()..][..512].fill(0x77);
            let opened = try_open(&world, &left, |options| options.noted = noted).await;
            if is_dirty {
                assert_eq!(refused(opened).kind(), ErrorKind::Degraded);
                continue;
            }
            let (volume, recovery) = opened.expect("nothing is dirty");
            assert!(recovery.changed_elsewhere && seen(&volume).await == expected);
            drop(volume);
            // The disk is recognised again in its present state.
            world.sleep(Nanos::from_secs(30)).await;
            let (volume, recovery) =
                try_open(&world, &crashed(&world, &left).await, no_serial).await.expect("it is the disk");
            assert!(!recovery.changed_elsewhere && seen(&volume).await == expected);
        }
    });
}

/// The sector with a file system's mark, including a counter that each mount changes.
fn superblock(kind: usize, counter: u8) -> (Bytes, Vec<u8>) {
    let fields: [(u64, usize, &[u8], usize); 3] =
        [(1024, 0x38, &[0x53, 0xef], 0x34), (0, 0, b"XFSB", 247), (65536, 0x40, b"_BHRfS_M", 0x48)];
    let (at, place, magic, counted) = fields[kind];
    let mut sector = vec![0; 512];
    sector[place..place + magic.len()].copy_from_slice(magic);
    sector[counted] = counter;
    (Bytes(at), sector)
}

async fn write_superblock(volume: &Adopted, expected: &mut [u8], kind: usize, counter: u8) {
    let (at, sector) = superblock(kind, counter);
    let arena = Arena::new(MIB);
    let buf = arena.try_alloc(Bytes(512)).expect("the arena is large enough");
    buf.copy_from_slice(Bytes::ZERO, &sector);
    volume.write(at, &buf, Durability::Volatile).await.expect("the devices are sound");
    expected[at.as_usize()..][..512].copy_from_slice(&sector);
}

/// XFS and btrfs were recognised by their UUID alone: dirty blocks overwrote a disk that had been mounted
/// elsewhere after a crash.
#[test]
pub fn a_mount_elsewhere_after_a_crash_is_told_by_the_mark_of_the_file_system() {
    for kind in 0..3 {
        run(async move |world| {
            let disks = disks(&world, SIZE);
            let (at, sector) = superblock(kind, 0);
            disks[DISK].poke(at, &sector);
            let mut expected = raw(&disks[DISK]).await;
            let volume = make(&world, &disks).await;
            volume.set_policy("hdd-only").await.expect("all are there");
            // Each change through the volume is recorded at once, however fast the changes come.
            for counter in 1..6 {
                write_superblock(&volume, &mut expected, kind, counter).await;
                if counter == 3 {
                    volume.flush().await.expect("the devices are sound");
                }
                let opened = try_open(&world, &copies_of(&world, &disks).await, |_| ()).await;
                assert!(!opened.expect("it is the disk").1.changed_elsewhere);
                let opened = try_open(&world, &crashed(&world, &disks).await, |_| ()).await;
                assert!(!opened.expect("it is the disk").1.changed_elsewhere);
            }
            volume.flush().await.expect("the devices are sound");
            dirty(&world, &volume);
            write_some(&volume, &mut expected).await;
            let left = crashed(&world, &disks).await;
            let mounted = copies_of(&world, &left).await;
            mounted[DISK].poke(at, &superblock(kind, 77).1);
            assert_eq!(refused(try_open(&world, &mounted, |_| ()).await).kind(), ErrorKind::Degraded);
            let (volume, _) = try_open(&world, &left, |_| ()).await.expect("it is the disk");
            assert!(seen(&volume).await == expected);
        });
    }
}

/// Guests rewrite all of the disk: no sum is left, and within seconds all sums are known again.
#[test]
fn rewritten_disk_is_recognized_within_one_minute() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        volume.set_policy("hdd-only").await.expect("all are there");
        let arena = Arena::new(MIB);
        for at in (0..6).map(|i| MIB * i) {
            let len = MIB.min(SIZE - at);
            let bytes = filled(&arena, len, 7);
            volume.write(at, &bytes, Durability::Volatile).await.expect("the devices are sound");
            expected[at.as_usize()..][..len.as_usize()].fill(7);
        }
        volume.flush().await.expect("the devices are sound");
        dirty(&world, &volume);
        // At this moment nothing identifies the disk.
        let left = crashed(&world, &disks).await;
        let (volume_then, _) = try_open(&world, &left, no_serial).await.expect("nothing is dirty");
        assert!(seen(&volume_then).await == expected);
        world.sleep(Nanos::from_secs(60)).await;
        write_some(&volume, &mut expected).await;
        let left = crashed(&world, &disks).await;
        let (volume, _) = try_open(&world, &left, no_serial).await.expect("it is the disk");
        assert!(volume.status().extra_blocks.1 > 0 && seen(&volume).await == expected);
    });
}

/// A damaged table knows nothing: after a crash all cached data is in doubt, after a shutdown none is.
#[test]
fn opening_with_damaged_sums_is_refused_only_after_crash() {
    run(async |world| {
        let disks = disks(&world, SIZE);
        let mut expected = raw(&disks[DISK]).await;
        let volume = make(&world, &disks).await;
        dirty(&world, &volume);
        write_some(&volume, &mut expected).await;
        let region = *volume.superblock().region(RegionKind::Sums, 0).expect("it has one");
        let left = crashed(&world, &disks).await;
        left[2].poke(region.offset, &vec![0x55; region.len.as_usize()]);
        assert_eq!(refused(try_open(&world, &left, |_| ()).await).kind(), ErrorKind::Degraded);
        let force =
            |options: &mut OpenOptions| options.adopted.as_mut().expect("the disk is there").force = true;
        let (forced, _) = try_open(&world, &left, force).await.expect("it is forced");
        assert!(seen(&forced).await == expected);
        volume.close().await.expect("the devices are sound");
        disks[2].poke(region.offset, &vec![0x55; region.len.as_usize()]);
        let (volume, recovery) = try_open(&world, &disks, |_| ()).await.expect("it was shut down");
        assert!(!recovery.changed_elsewhere && seen(&volume).await == expected);
    });
}

/// The power is cut at any point of a life that writes samples and marks, and notes both again and again:
/// the disk never looks changed, nor like another disk. `BRAID_CRASH_SEEDS=n` cuts at n times as many
/// points.
#[test]
pub fn a_power_cut_at_any_point_makes_no_disk_look_changed() {
    let (begin, end) = live_until(None);
    let seeds = seeds("BRAID_CRASH_SEEDS", 1);
    let cuts = 150 * seeds;
    for i in 0..cuts {
        live_until(Some(begin + 1 + (end - begin) * i / cuts));
    }
}

/// Returns the points at which the life began and ended.
fn live_until(cut: Option<u64>) -> (u64, u64) {
    let world = World::new(5);
    let all = disks(&world, SIZE);
    let points = Rc::new(Cell::new((0, 0)));
    if let Some(cut) = cut {
        world.power().cut_at(cut);
    }
    let (rt, disks, told) = (world.clone(), all.clone(), points.clone());
    let done = world.block_on_until_cut(async move {
        for kind in 0..3 {
            let (at, sector) = superblock(kind, 0);
            disks[DISK].poke(at, &sector);
        }
        let mut bytes = raw(&disks[DISK]).await;
        let volume = make(&rt, &disks).await;
        told.set((rt.power().points(), 0));
        for round in 0..3_u8 {
            match round {
                1 => dirty(&rt, &volume),
                _ => volume.set_policy("hdd-only").await.expect("the devices are sound"),
            }
            scribble(&volume, &mut bytes, 20 + u64::from(round)).await;
            for (kind, counter) in [(0, 1), (1, 1), (1, 2), (2, 1), (1, 3), (2, 2)] {
                write_superblock(&volume, &mut bytes, kind, round * 10 + counter).await;
            }
            if round != 1 {
                volume.flush().await.expect("the devices are sound");
            }
            rt.sleep(Nanos::from_secs(11)).await;
        }
        told.set((told.get().0, rt.power().points()));
        volume.close().await.expect("the devices are sound");
    });
    world.halt();
    if done.is_none() {
        let mut rng = Rng::new(cut.unwrap_or_default());
        all.iter().for_each(|disk| disk.power_cut(&mut rng));
    }
    let world = World::new(6);
    let disks: Vec<Disk> = all.iter().map(|disk| disk.restart(&world)).collect();
    let rt = world.clone();
    world.block_on(async move {
        let opened = try_open(&rt, &disks, no_serial).await;
        let (volume, recovery) = opened.unwrap_or_else(|error| panic!("cut at {cut:?}: {error}"));
        assert!(!recovery.changed_elsewhere, "cut at {cut:?}");
        volume.close().await.expect("the devices are sound");
        let (_, recovery) = try_open(&rt, &disks, no_serial).await.expect("it was shut down");
        assert!(!recovery.changed_elsewhere, "cut at {cut:?}, then shut down");
        assert_eq!(disks[DISK].geometry().size, SIZE);
    });
    world.halt();
    points.get()
}
