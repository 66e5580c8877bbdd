//! The SSD before an adopted disk fails, or does not answer, while the volume serves guests. The loss of a
//! clean SSD costs nothing: no guest gets an error, and the disk has all data. The loss of a dirty SSD costs
//! the data on the SSD alone, and these ranges are named.

use crate::adopted::{
    Adopted, DISK, SIZE, SSD, copies_of, disks, make, open, raw, run, scribble, seen, state_of, try_open,
};
use crate::rig::cached::Cache;
use crate::rig::{filled, is_all, refused};
use crate::toy_policies::WriteBackCache;
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{Durability, ErrorKind, Export, OpenOptions};
use braid_format::superblock::{DeviceState, RegionKind};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, World};
use std::cell::Cell;
use std::rc::Rc;

const BLOCK: Bytes = Bytes(4 << 10);
/// The record, with neither the data of the SSD nor of the disk.
const RECORD: DeviceId = DeviceId(2);

/// The ways in which an SSD fails: all requests fail, writes fail, flushes fail, or no request is answered.
fn ways() -> [FaultPlan; 4] {
    let none = FaultPlan::default;
    [
        FaultPlan { vanished: true, ..none() },
        FaultPlan { writes: 1.0, ..none() },
        FaultPlan { flushes: 1.0, ..none() },
        FaultPlan { hangs: true, ..none() },
    ]
}

/// Runs a test on an adopted disk with a warm and clean cache, once for each way of failing, with several
/// seeds.
fn on_clean_cache(test: impl AsyncFn(&World, &[Disk], Adopted, &mut Vec<u8>, FaultPlan) + Copy + 'static) {
    for (seed, way) in (0..4).flat_map(|seed| ways().map(|way| (seed, way))) {
        run(async move |world| {
            let disks = disks(&world, SIZE);
            let mut expected = raw(&disks[DISK]).await;
            let volume = make(&world, &disks).await;
            volume.replace_policy(Box::<WriteBackCache>::default());
            scribble(&volume, &mut expected, seed).await;
            // Durable on the SSD alone, for now.
            volume.flush().await.expect("the devices are sound");
            seen(&volume).await;
            while volume.status().extra_blocks.1 > 0 {
                world.sleep(Nanos::from_millis(1)).await;
            }
            assert!(volume.status().extra_blocks.0 > 0);
            // Flushes the SSD but not the disk; the flush proves that the SSD had the written-back data.
            volume.set_policy("cache").await.expect("the devices are sound");
            // Dirty blocks at the time of a failed flush are lost.
            match way.flushes > 0.0 {
                true => volume.replace_policy(Box::new(Cache { writes: false })),
                false => volume.replace_policy(Box::<WriteBackCache>::default()),
            }
            test(&world, &disks, volume, &mut expected, way).await;
        });
    }
}

#[test]
fn clean_ssd_failure_causes_no_guest_error() {
    on_clean_cache(async |world, disks, volume, expected, way| {
        disks[SSD.index()].faults().set(way);
        scribble(&volume, expected, 100).await;
        volume.flush().await.expect("the disk has all");
        assert_eq!(state_of(&volume), DeviceState::Failed);
        assert!(seen(&volume).await == *expected);
        // The volume continues for long: the journal goes round, tables are written.
        for pass in 0..30 {
            scribble(&volume, expected, 200 + pass).await;
            volume.flush().await.expect("the disk has all");
            world.sleep(Nanos::from_secs(3)).await;
        }
        assert_eq!(volume.status().extra_blocks, (0, 0));
        volume.audit().await.expect("the disk has all");
        let killed = copies_of(world, disks).await;
        disks[SSD.index()].faults().set(FaultPlan::default());
        volume.close().await.expect("the disk has all");
        assert!(raw(&disks[DISK]).await == *expected, "the disk alone is the volume");
        for disks in [disks, &killed] {
            let (volume, recovery) = try_open(world, &disks[1..], |_| ()).await.expect("nothing is lacking");
            assert_eq!((recovery.older, recovery.lost), (Vec::new(), Vec::new()));
            assert!(seen(&volume).await == *expected);
            volume.close().await.expect("the disk has all");
            // The SSD returns with older content, perhaps unable to be written.
            for plan in [FaultPlan { writes: 1.0, ..FaultPlan::default() }, FaultPlan::default()] {
                disks[SSD.index()].faults().set(plan);
                let volume = open(world, disks).await;
                assert!(state_of(&volume) == DeviceState::Failed && seen(&volume).await == *expected);
                volume.close().await.expect("the disk has all");
            }
        }
        // The record, which alone knows of the SSD's failure, is excluded: the content of the SSD is not
        // believed.
        let give_up = |options: &mut OpenOptions| options.distrust = vec![RECORD];
        match try_open(world, &disks[..2], give_up).await {
            Ok((volume, _)) => assert!(seen(&volume).await == *expected),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Degraded, "{error}"),
        }
    });
}

/// Guests write and flush during the failure, with a write-through cache.
#[test]
fn concurrent_guests_survive_clean_ssd_failure() {
    on_clean_cache(async |world, disks, volume, _, way| {
        volume.set_policy("cache").await.expect("all devices are there");
        let (ends, ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        for client in 0..4 {
            let (volume, ends, ended) = (volume.clone(), ends.clone(), ended.clone());
            world.spawn(async move {
                let arena = Arena::new(MIB);
                let (start, len) = (MIB * client + KIB * 3, KIB * 50);
                for pass in 0.. {
                    let bytes = filled(&arena, len, pass);
                    volume.write(start, &bytes, Durability::Volatile).await.expect("the disk takes it");
                    if pass % 3 == 0 {
                        volume.flush().await.expect("the disk has all");
                    }
                    let read = filled(&arena, len, !pass);
                    volume.read(start, &read).await.expect("the disk has it");
                    assert!(is_all(&read, pass));
                    if ends.get() || pass == u8::MAX {
                        break;
                    }
                }
                ended.set(ended.get() + 1);
            });
        }
        world.sleep(Nanos::from_millis(30)).await;
        disks[SSD.index()].faults().set(way);
        world.sleep(Nanos::from_millis(100)).await;
        ends.set(true);
        while ended.get() < 4 {
            world.sleep(Nanos::from_secs(1)).await;
        }
        volume.flush().await.expect("the disk has all");
        // Until the journal is to record that extra copies have gone.
        world.sleep(Nanos::from_secs(60)).await;
        assert_eq!(state_of(&volume), DeviceState::Failed);
        let before = seen(&volume).await;
        let killed = copies_of(world, disks).await;
        assert!(seen(&open(world, &killed[1..]).await).await == before);
        assert!(seen(&open(world, &killed).await).await == before);
    });
}

/// The disk had written-back data without a flush, so only the SSD had the data durably. Then a checkpoint
/// or a change of the superblocks found that the SSD had failed. The power is cut as soon as the superblocks
/// or the checkpoint say so.
#[test]
pub fn what_was_written_back_is_durable_before_the_ssd_is_given_up() {
    for finds in [true, false] {
        on_clean_cache(async move |world, disks, volume, expected, way| {
            lose_what_is_not_flushed(finds, (world, disks), volume, expected, way).await;
        });
    }
}

async fn lose_what_is_not_flushed(
    by_checkpoint: bool,
    (world, disks): (&World, &[Disk]),
    volume: Adopted,
    expected: &[u8],
    way: FaultPlan,
) {
    disks[SSD.index()].faults().set(way);
    while state_of(&volume) != DeviceState::Failed {
        match by_checkpoint {
            true => volume.checkpoint().await.expect("the disk has all"),
            false => volume.set_policy("cache").await.expect("the disk has all"),
        }
    }
    disks.iter().for_each(Disk::lose_cache);
    let left = copies_of(world, disks).await;
    let (volume, recovery) =
        try_open(world, &left[1..], |_| ()).await.expect("nothing lies on the SSD alone");
    assert_eq!(recovery.older, Vec::new());
    assert!(seen(&volume).await == *expected);
}

/// With dirty blocks on the SSD no flush succeeds any more. Flushes and reads of dirty blocks fail, and
/// nothing else, until the volume is opened again without the SSD. That opening names the ranges that may be
/// older.
#[test]
fn dirty_ssd_failure_loses_only_dirty_blocks() {
    for way in [
        FaultPlan { vanished: true, ..FaultPlan::default() },
        FaultPlan { hangs: true, ..FaultPlan::default() },
    ] {
        run(async move |world| {
            let disks = disks(&world, SIZE);
            let mut expected = raw(&disks[DISK]).await;
            let volume = make(&world, &disks).await;
            volume.replace_policy(Box::new(Cache { writes: true }));
            let arena = Arena::new(MIB);
            for at in [KIB * 4, KIB * 200, MIB, MIB * 3 + KIB * 8] {
                volume.write(at, &filled(&arena, KIB * 12, 0xa5), Durability::Fua).await.unwrap();
                expected[at.as_usize()..][..12 << 10].fill(0xa5);
            }
            let dirty = volume.status().extra_blocks.1;
            assert_eq!(dirty, 12);
            disks[SSD.index()].faults().set(way);
            let (mut lost, into) = (Vec::new(), arena.alloc(BLOCK).await);
            for at in (0..SIZE / BLOCK).map(|block| BLOCK * block) {
                match volume.read(at, &into).await {
                    Ok(()) => {
                        let is_there =
                            into.with_bytes(|bytes| *bytes == expected[at.as_usize()..][..BLOCK.as_usize()]);
                        assert!(is_there, "at {at}");
                    }
                    Err(_) => lost.push(at),
                }
            }
            assert_eq!(lost.len(), dirty, "the dirty blocks");
            volume.flush().await.expect_err("what was acknowledged is gone");
            let left = copies_of(&world, &disks).await;
            let error = refused(try_open(&world, &left[1..], |_| ()).await);
            assert_eq!(error.kind(), ErrorKind::Degraded);
            // With the SSD all data is there.
            let again = copies_of(&world, &disks).await;
            assert!(seen(&open(&world, &again).await).await == expected);
            let distrust = |options: &mut braid_engine::OpenOptions| options.distrust = vec![SSD];
            let (volume, recovery) = try_open(&world, &left[1..], distrust).await.unwrap();
            let is_named = |at: Bytes| recovery.older.iter().any(|range| range.contains(&at));
            assert!(lost.iter().all(|&at| is_named(at)), "{:?}", recovery.older);
            let now = seen(&volume).await;
            let differs = |at: &usize| now[*at] != expected[*at];
            assert!(
                (0..now.len()).filter(differs).all(|at| lost.contains(&Bytes::of_len(at).align_down(BLOCK)))
            );
            let whole = filled(&Arena::new(MIB), MIB, 1);
            volume.write(Bytes::ZERO, &whole, Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            let (_, recovery) = try_open(&world, &left[1..], |_| ()).await.unwrap();
            assert_eq!(recovery.older, Vec::new());
        });
    }
}

/// Half of the table of dirty spans is damaged. The damaged half may have been the newer half, so every
/// range is in doubt, and no loss goes unreported.
#[test]
fn a_damaged_half_of_the_table_of_dirty_spans_names_every_span() {
    for half in 0..2 {
        run(async move |world| {
            let disks = disks(&world, SIZE);
            let volume = make(&world, &disks).await;
            let region = *volume.superblock().region(RegionKind::DirtySpans, 0).expect("it has one");
            volume.close().await.expect("the devices are sound");
            let nothing = try_open(&world, &copies_of(&world, &disks[1..]).await, |_| ()).await;
            nothing.expect("no span is named");
            disks[RECORD.index()].poke(region.offset + region.len / 2 * half, &[0x55; 512]);
            let error = refused(try_open(&world, &disks[1..], |_| ()).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
            // With the SSD there is no doubt.
            open(&world, &disks).await.close().await.expect("the devices are sound");
            try_open(&world, &disks[1..], |_| ()).await.expect("no span is named any more");
        });
    }
}
