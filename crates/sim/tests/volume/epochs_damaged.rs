//! A recovered disk with bad places in its journal. Each place costs its own data, at every opening, and
//! prevents neither the opening nor the recovery.

use crate::epochs::{BLOCK, EXTENT, SIZE, sound};
use crate::epochs_recovery::just_recovered;
use crate::recovery_campaign::{Lost, alone, lose_ssd_at_work, readable};
use crate::recovery_damage::{Segment, journal_of};
use crate::rig::{Rig, filled, holds, open, open_with, refused};
use braid_base::{Bytes, DeviceId, MIB, Nanos};
use braid_engine::{Addition, Durability, ErrorKind, Export, OpenOptions, Past, Zeroing, check};
use braid_format::Uuid;
use braid_format::epoch_journal::{PAGE, STATE_PAGES};
use braid_format::superblock::{Layout, RegionKind};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use std::collections::BTreeSet;
use std::ops::Range;

pub const SECTOR: Bytes = Bytes(512);

/// A disk with an unreadable place.
pub fn with_bad(world: &World, disk: &Disk, bad: Range<Bytes>) -> Faulty<Disk> {
    let plan = FaultPlan { bad_reads: Some(bad), ..FaultPlan::default() };
    Faulty::new(disk.clone(), &Faults::new(plan, world.fork_rng()))
}

/// The blocks whose newest bytes are in one segment alone, and are not zeros.
fn only_in(segments: &[Segment], number: usize) -> BTreeSet<Bytes> {
    let mut blocks = BTreeSet::new();
    for (i, segment) in segments.iter().enumerate().skip(number) {
        for entry in &segment.entries {
            for block in (entry.range.start / BLOCK..entry.range.end / BLOCK).map(|i| BLOCK * i) {
                match i == number && !entry.zeros {
                    true => blocks.insert(block),
                    false => blocks.remove(&block),
                };
            }
        }
    }
    blocks
}

/// The segment that alone has the newest bytes of most blocks, with these blocks.
fn worst(segments: &[Segment]) -> (&Segment, BTreeSet<Bytes>) {
    let all = segments.iter().enumerate().map(|(i, segment)| (segment, only_in(segments, i)));
    all.max_by_key(|(_, blocks)| blocks.len()).expect("there are segments")
}

/// Checks that all blocks read correctly, except lost blocks, which must be errors.
pub async fn check_damage(volume: &Rig, base: &[u8], lost: &BTreeSet<Bytes>) {
    let status = volume.status();
    let listed =
        status.damaged.iter().flat_map(|range| (range.start / BLOCK..range.end / BLOCK).map(|i| BLOCK * i));
    assert_eq!(listed.collect::<BTreeSet<_>>(), *lost);
    for (i, block) in (0..).zip(readable(volume).await) {
        let at = BLOCK * i;
        let expected = &base[at.as_usize()..(at + BLOCK).as_usize()];
        assert!(block.as_deref() == (!lost.contains(&at)).then_some(expected), "byte {}", at.0);
    }
}

/// If one sector of its journal was unreadable, the next opening of a recovered volume failed entirely.
#[test]
fn bad_sector_in_segment_loses_only_covered_ranges() {
    let world = World::new(15);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, superblock } = lose_ssd_at_work(&world, 15, &mut rng).await;
        let (_, segments) = journal_of(&disk, &superblock).await;
        let (segment, lost) = worst(&segments);
        let device = with_bad(&world, &disk, segment.lies.end - SECTOR..segment.lies.end);
        let (past, _) =
            Past::open(&world, vec![device.clone()], &["disk".to_owned()]).await.expect("it is an image");
        assert_eq!(
            past.damaged().iter().map(|range| range.end - range.start).sum::<Bytes>(),
            BLOCK * lost.len() as u64
        );
        let arena = Arena::new(MIB);
        let first = *lost.first().expect("it has some blocks");
        let read = past.read(first, &arena.alloc(BLOCK).await).await;
        assert_eq!(refused(read).kind(), ErrorKind::Corrupt);

        let (volume, _) =
            open_with(world.clone(), vec![device.clone()], alone).await.expect("it is an image");
        check_damage(&volume, &base, &lost).await;
        volume.close().await.expect("the disk can be written");
        let volume = open(world.clone(), vec![device.clone()]).await.expect("most of it is there");
        check_damage(&volume, &base, &lost).await;
        assert_eq!(refused(volume.complete_recovery().await).kind(), ErrorKind::Corrupt);
        assert!(volume.status().unapplied_failure.is_some());

        // All other extents are in place now, and follow the writes of guests.
        let damaged: BTreeSet<Bytes> = lost.iter().map(|block| block.align_down(EXTENT)).collect();
        let mut expected = base.clone();
        let (others, part) = ((0..SIZE / EXTENT).map(|i| EXTENT * i), filled(&arena, BLOCK, 9));
        for extent in others {
            let written = volume.write(extent, &part, Durability::Fua).await;
            match damaged.contains(&extent) {
                true => assert_eq!(refused(written).kind(), ErrorKind::Corrupt, "it would be read as whole"),
                false => {
                    written.expect("nothing of it is lost");
                    expected[extent.as_usize()..(extent + BLOCK).as_usize()].fill(9);
                }
            }
        }
        volume.close().await.expect("the disk can be written");
        let volume = open(world.clone(), vec![device.clone()]).await.expect("most of it is there");
        check_damage(&volume, &expected, &lost).await;

        // Extents written whole are whole, durably, …
        let mut left = lost.clone();
        for (i, &extent) in damaged.iter().enumerate() {
            assert!(volume.status().unapplied.is_some(), "the recovery has not ended");
            let value = if i % 3 == 0 { 5 } else { 0 };
            match i % 3 {
                0 => volume.write(extent, &filled(&arena, EXTENT, 5), Durability::Volatile).await,
                1 => volume.discard(extent, EXTENT).await,
                _ => volume.write_zeroes(extent, EXTENT, Zeroing::KeepAllocated, Durability::Volatile).await,
            }
            .expect("nothing of the journal is needed");
            expected[extent.as_usize()..(extent + EXTENT).as_usize()].fill(value);
            left.retain(|block| block.align_down(EXTENT) != extent);
            check_damage(&volume, &expected, &left).await;
        }
        volume.complete_recovery().await.expect("nothing of the journal is needed");
        volume.flush().await.expect("the disk can be written");
        // … and with the last such extent the recovery has ended.
        let killed = Faulty::new(
            disk.fork(&world).restart(&world),
            &Faults::new(FaultPlan::default(), world.fork_rng()),
        );
        let again = open(world.clone(), vec![killed]).await.expect("all is there");
        check_damage(&again, &expected, &BTreeSet::new()).await;
        assert_eq!(again.status().unapplied, None);
        again.close().await.expect("the disk is sound");
        volume.close().await.expect("the disk can be written");
    });
}

/// Power fails while a guest writes a whole damaged extent: the extent reads as before, with its errors, or
/// as the new write, never as older bytes.
#[test]
fn power_cut_during_damaged_extent_write_exposes_nothing_older() {
    let world = World::new(9);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, superblock } = lose_ssd_at_work(&world, 9, &mut rng).await;
        let (_, segments) = journal_of(&disk, &superblock).await;
        let (segment, lost) = worst(&segments);
        let bad = segment.lies.start..segment.lies.start + SECTOR;
        let extent = lost.first().expect("it has some blocks").align_down(EXTENT);
        let mut ends = BTreeSet::new();
        for _ in 0..40 {
            let disk = disk.fork(&world).restart(&world);
            let device = with_bad(&world, &disk, bad.clone());
            let (volume, _) = open_with(world.clone(), vec![device], alone).await.expect("it is an image");
            let writer = volume.clone();
            world.spawn(async move {
                let arena = Arena::new(MIB);
                let written = writer.write(extent, &filled(&arena, EXTENT, 5), Durability::Fua).await;
                written.expect("nothing of the journal is needed");
            });
            world.sleep(Nanos::from_micros(rng.below(60_000))).await;
            let left = disk.fork(&world);
            left.power_cut(&mut rng);
            let left = with_bad(&world, &left.restart(&world), bad.clone());
            let again = open(world.clone(), vec![left]).await.expect("most of it is there");
            let blocks = readable(&again).await;
            let (first, mut new) = ((extent / BLOCK) as usize, 0);
            for (i, block) in blocks.iter().enumerate().skip(first).take((EXTENT / BLOCK) as usize) {
                let at = BLOCK * i as u64;
                let old = &base[at.as_usize()..(at + BLOCK).as_usize()];
                match block {
                    None => assert!(lost.contains(&at), "byte {} is sound", at.0),
                    Some(block) => {
                        assert!(
                            block.iter().zip(old).all(|(byte, old)| *byte == 5 || byte == old),
                            "byte {}",
                            at.0
                        );
                        assert!(
                            !lost.contains(&at) || block.iter().all(|byte| *byte == 5),
                            "byte {} is older",
                            at.0
                        );
                        new += usize::from(block.iter().all(|byte| *byte == 5));
                    }
                }
            }
            ends.insert(new == (EXTENT / BLOCK) as usize);
            again.close().await.expect("the disk can be written");
            volume.close().await.expect("the disk can be written");
        }
        assert_eq!(ends.len(), 2, "the power fails before and after it is durable");
    });
}

/// The journal was read in pieces of 1 MiB, and the last piece reaches beyond the journal's content.
#[test]
fn bad_sector_after_last_segment_costs_nothing() {
    let world = World::new(10);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, superblock } = lose_ssd_at_work(&world, 10, &mut rng).await;
        let (_, segments) = journal_of(&disk, &superblock).await;
        let end = segments.last().expect("there are segments").lies.end.align_up(PAGE);
        let device = with_bad(&world, &disk, end..end + SECTOR);
        let (volume, _) = open_with(world.clone(), vec![device], alone).await.expect("it is an image");
        check_damage(&volume, &base, &BTreeSet::new()).await;
        volume.complete_recovery().await.expect("all of the journal is there");
        volume.close().await.expect("the disk can be written");
    });
}

/// Only the index page of a segment names the segment's ranges, and only all index pages together name the
/// valid bits: without one page nothing can be decided.
#[test]
fn opening_with_unreadable_index_page_is_refused_unchanged() {
    let world = World::new(11);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, superblock } = lose_ssd_at_work(&world, 11, &mut rng).await;
        let (before, segments) = journal_of(&disk, &superblock).await;
        let start = segments[segments.len() / 2].lies.start;
        let device = with_bad(&world, &disk, start - SECTOR..start);
        let opened = open_with(world.clone(), vec![device.clone()], alone).await;
        assert_eq!(refused(opened).kind(), ErrorKind::Corrupt);
        assert_eq!(journal_of(&disk, &superblock).await.0, before);
        let volume =
            just_recovered(&world, &disk, &Faults::new(FaultPlan::default(), world.fork_rng())).await;
        let left = disk.fork(&world).restart(&world);
        volume.close().await.expect("the disk is sound");
        for asked in [false, true] {
            let device = with_bad(&world, &left, start - SECTOR..start);
            let opened = open_with(world.clone(), vec![device], |options| {
                if asked {
                    alone(options)
                }
            })
            .await;
            assert_eq!(refused(opened).kind(), ErrorKind::Corrupt);
        }
        let volume = open(world.clone(), vec![sound(&left, &world)]).await.expect("the disk is sound again");
        check_damage(&volume, &base, &BTreeSet::new()).await;
        volume.close().await.expect("the disk is sound");
    });
}

/// Both pages were taken for pages never written, and the bytes in place for the volume.
#[test]
fn opening_without_recovery_progress_is_refused() {
    let world = World::new(12);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, superblock, .. } = lose_ssd_at_work(&world, 12, &mut rng).await;
        let volume =
            just_recovered(&world, &disk, &Faults::new(FaultPlan::default(), world.fork_rng())).await;
        let left = disk.fork(&world).restart(&world);
        volume.close().await.expect("the disk is sound");
        let region = superblock.region(RegionKind::EpochJournal, 0).expect("it has a journal of epochs");
        let zeros = filled(&Arena::new(MIB), PAGE * STATE_PAGES, 0);
        left.write(region.offset, &zeros).await.expect("the disk is sound");
        for asked in [false, true] {
            let opened = open_with(world.clone(), vec![sound(&left, &world)], |options| {
                if asked {
                    alone(options)
                }
            });
            assert_eq!(refused(opened.await).kind(), ErrorKind::Corrupt);
        }
    });
}

/// If the newer of the two pages with the progress of the recovery was damaged, the journal's content
/// overwrote guests' flushed data. If one page was unreadable, the volume was refused.
#[test]
fn one_damaged_state_page_costs_nothing() {
    let world = World::new(15);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, superblock, .. } = lose_ssd_at_work(&world, 15, &mut rng).await;
        let volume =
            just_recovered(&world, &disk, &Faults::new(FaultPlan::default(), world.fork_rng())).await;
        let region = superblock.region(RegionKind::EpochJournal, 0).expect("it has a journal of epochs");
        let arena = Arena::new(MIB);
        let mut looks = 0;
        for extent in (0..SIZE / EXTENT).map(|i| EXTENT * i) {
            volume
                .write(extent, &filled(&arena, BLOCK, 9), Durability::Fua)
                .await
                .expect("the disk is sound");
            if volume.status().unapplied.is_none() {
                break;
            }
            let left = [(); 4].map(|()| disk.fork(&world).restart(&world));
            for (left, page) in left.chunks(2).zip((0..STATE_PAGES).map(|i| region.offset + PAGE * i)) {
                left[0].write(page, &filled(&arena, PAGE, 0)).await.expect("the disk is sound");
                let rotten = sound(&left[0], &world);
                for device in [rotten, with_bad(&world, &left[1], page..page + SECTOR)] {
                    let again = open(world.clone(), vec![device]).await.expect("the other page says it");
                    let end = extent / EXTENT + 1;
                    for written in (0..end).map(|i| EXTENT * i) {
                        assert!(holds(&again, &arena, written, BLOCK, 9).await.expect("the disk is sound"));
                    }
                    again.close().await.expect("the disk can be written");
                    looks += 1;
                }
            }
        }
        assert!(looks > 0, "the recovery had ended before a guest wrote");
        volume.close().await.expect("the disk is sound");
    });
}

/// Data without any copy prevents the end of a recovery until an administrator gives the data up.
#[test]
fn a_repair_gives_up_damaged_extents_and_the_recovery_ends() {
    let world = World::new(13);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, superblock } = lose_ssd_at_work(&world, 13, &mut rng).await;
        let (_, segments) = journal_of(&disk, &superblock).await;
        let (segment, lost) = worst(&segments);
        let device = with_bad(&world, &disk, segment.lies.start..segment.lies.start + SECTOR);
        let (volume, _) =
            open_with(world.clone(), vec![device.clone()], alone).await.expect("it is an image");
        volume.close().await.expect("the disk can be written");
        let extents: BTreeSet<u64> = lost.iter().map(|block| *block / EXTENT).collect();
        let of_check = async |device: &Faulty<Disk>| {
            let found = check(&world, vec![device.clone()], &["disk".to_owned()], None).await;
            let lost = found.expect("it is a volume").lost;
            lost.iter().map(|extent| u64::from(extent.0)).collect::<BTreeSet<_>>()
        };
        assert_eq!(of_check(&device).await, extents, "what a repair gives up");
        let repair = |options: &mut OpenOptions| options.repair = true;
        let (volume, recovery) =
            open_with(world.clone(), vec![device.clone()], repair).await.expect("it is there");
        assert_eq!(recovery.lost.iter().map(|extent| u64::from(extent.0)).collect::<BTreeSet<_>>(), extents);
        let left = disk.fork(&world).restart(&world);
        volume.complete_recovery().await.expect("all that was not given up is there");
        volume.close().await.expect("the disk can be written");
        for disk in [left, disk] {
            // The bad place may be readable again: no data that was given up returns.
            assert_eq!(of_check(&sound(&disk, &world)).await, extents);
            let volume = open(world.clone(), vec![sound(&disk, &world)]).await.expect("it is there");
            volume.complete_recovery().await.expect("all that was not given up is there");
            let status = volume.status();
            assert_eq!((status.unapplied, status.lost.len(), status.damaged), (None, extents.len(), vec![]));
            for (i, block) in (0..).zip(readable(&volume).await) {
                let at = BLOCK * i;
                let expected = &base[at.as_usize()..(at + BLOCK).as_usize()];
                assert_eq!(
                    block.as_deref(),
                    (!extents.contains(&(at / EXTENT))).then_some(expected),
                    "byte {}",
                    at.0
                );
            }
            let arena = Arena::new(MIB);
            for extent in extents.iter().map(|&i| EXTENT * i) {
                let written = volume.write(extent, &filled(&arena, EXTENT, 3), Durability::Fua).await;
                written.expect("all of it is new");
                assert!(holds(&volume, &arena, extent, EXTENT, 3).await.expect("the disk is sound"));
            }
            volume.audit().await.expect("nothing is lost any more");
            volume.close().await.expect("the disk is sound");
        }
    });
}

/// Only the journal of this disk has some bytes of the volume: its drain never ended.
#[test]
fn disk_under_recovery_cannot_be_removed() {
    let unended = (14..20).filter(|&seed| cannot_be_removed(seed)).count();
    assert!(unended > 0, "each recovery had ended before");
}

/// False if the recovery ends before another disk is added.
fn cannot_be_removed(seed: u64) -> bool {
    let world = World::new(seed);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, .. } = lose_ssd_at_work(&world, seed, &mut rng).await;
        let volume =
            just_recovered(&world, &disk, &Faults::new(FaultPlan::default(), world.fork_rng())).await;
        let new = Disk::new(&world, DiskOptions::hdd(MIB * 14));
        let addition = Addition {
            name: "the new one".to_owned(),
            identity: Uuid([8; 16]),
            model: String::new(),
            layout: Layout::Head,
            overwrite: false,
        };
        volume.add_device(sound(&new, &world), &addition, |_| Ok(())).await.expect("it is large enough");
        let is_unended = volume.status().unapplied.is_some();
        if is_unended {
            assert_eq!(refused(volume.remove_device(DeviceId(1)).await).kind(), ErrorKind::Invalid);
        }
        volume.close().await.expect("the disks are sound");
        is_unended
    })
}
