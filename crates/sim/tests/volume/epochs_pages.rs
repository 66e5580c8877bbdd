//! The two state pages of a disk that keeps epochs: the valid page must be the newest, whatever fails and
//! whichever page is lost.

use crate::device_returns::{plugged_in, wait_until_active};
use crate::epochs::{BLOCK, EXTENT, SIZE, SSD, content, epochs, recovered, sound, wait_for_image};
use crate::epochs_damaged::{SECTOR, check_damage, with_bad};
use crate::epochs_failing::{DISK, Rigged, two, wait_until_applied};
use crate::epochs_recovery::just_recovered;
use crate::recovery_campaign::{Lost, alone, lose_ssd_at_work, readable};
use crate::recovery_damage::journal_of;
use crate::rig::{Rig, filled, make, open, open_with, refused};
use braid_base::{Bytes, ExtentId, MIB, Nanos, Rng};
use braid_engine::{Durability, ErrorKind, Export, OpenOptions, identify};
use braid_format::epoch_journal::{
    PAGE, Run, SEGMENTS, STATE_PAGES, SegmentEntry, State, StatePage, encode_index, encode_state,
    newest_state,
};
use braid_format::superblock::{DeviceState, Features, Region, RegionKind, Superblock};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

const RAID1: &str = "raid1";

fn journal_of_epochs(superblock: &Superblock) -> Region {
    *superblock.region(RegionKind::EpochJournal, 0).expect("it keeps epochs")
}

/// The newest state page of the disk.
async fn newest(disk: &Disk, superblock: &Superblock) -> StatePage {
    let (region, states) = (journal_of_epochs(superblock), Arena::new(MIB).alloc(SEGMENTS).await);
    disk.read(region.offset, &states).await.expect("the disk is sound");
    states.with_bytes(|bytes| newest_state(bytes, superblock.volume)).expect("one is valid")
}

/// Makes a disk an image of another byte, with segments of most of a MiB each, and writes a state page for
/// the image. Returns the place of the last segment.
async fn write_older_run(disk: &Disk, superblock: &Superblock, segments: u64) -> Bytes {
    let (region, volume) = (journal_of_epochs(superblock), superblock.volume);
    assert!(region.len - SEGMENTS >= MIB * segments);
    let page = newest(disk, superblock).await;
    let run = Run { at: Bytes::ZERO, first: page.run.emptied().first, segments: segments as u32 };
    let (arena, len) = (Arena::new(MIB), MIB - PAGE);
    let write = async |at: Bytes, bytes: &[u8]| {
        let buf = arena.alloc(Bytes(bytes.len() as u64)).await;
        buf.copy_from_slice(Bytes::ZERO, bytes);
        disk.write(region.offset + at, &buf).await.expect("the disk is sound");
    };
    let content = vec![5; len.as_usize()];
    for i in 0..segments {
        let entry = SegmentEntry { range: Bytes::ZERO..len, zeros: false };
        let index = encode_index(volume, run.first + i, &[entry], &content);
        write(SEGMENTS + MIB * i, &index).await;
        write(SEGMENTS + MIB * i + PAGE, &content).await;
    }
    let state = StatePage { sequence: page.sequence + 1, state: State::Image, run, ..page };
    write(PAGE * (state.sequence % STATE_PAGES), &encode_state(volume, &state, &[])).await;
    disk.flush().await.expect("the disk is sound");
    region.offset + SEGMENTS + MIB * (segments - 1)
}

/// A volume with two copies of `7`, shut down.
async fn made(world: &World, rigged: &Rigged) -> Superblock {
    let volume = make(world.clone(), rigged.devices(), &epochs(21)).await;
    wait_for_image(world, &volume).await;
    volume
        .write(Bytes::ZERO, &filled(&rigged.arena, MIB, 7), Durability::Fua)
        .await
        .expect("the devices are sound");
    wait_until_applied(world, &volume).await;
    let superblock = volume.superblock();
    volume.close().await.expect("the devices are sound");
    superblock
}

/// Each batch applied at an opening makes a state page durable. When a batch failed, the page that ended the
/// image had too low a number to be the newest. The next opening wrote the remainder of the run over newer
/// bytes.
#[test]
fn partly_applied_epoch_journal_voids_image() {
    // Two segments are a batch.
    for segments in [5, 7] {
        let world = World::new(21);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let superblock = made(&world, &rigged).await;
            let disk = &rigged.disks[1];
            let last = write_older_run(disk, &superblock, segments).await;
            let faults = Faults::new(FaultPlan::default(), world.fork_rng());
            faults.set(FaultPlan { bad_reads: Some(last..last + PAGE), ..FaultPlan::default() });
            let devices = vec![rigged.sound(&rigged.disks[0]), Faulty::new(disk.clone(), &faults)];
            let volume = open(world.clone(), devices).await.expect("the SSD has all of it");
            assert_eq!(newest(disk, &superblock).await.state, State::Void);
            wait_until_applied(&world, &volume).await;
            volume.set_policy(RAID1).await.unwrap();
            volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 8), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            volume.close().await.unwrap();
            let volume = open(world.clone(), rigged.devices()).await.unwrap();
            volume.audit().await.expect("both copies are alike");
            volume.close().await.unwrap();
        });
    }
}

/// A single page recorded that the disk was no image any more. After damage to this page, the other page
/// counted, and the run's content overwrote newer bytes.
#[test]
fn damaged_state_page_does_not_revive_void_image() {
    for page in 0..STATE_PAGES {
        let world = World::new(22);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let superblock = made(&world, &rigged).await;
            let disk = &rigged.disks[1];
            write_older_run(disk, &superblock, 2).await;
            let image = newest(disk, &superblock).await;
            let (sequence, run) = (image.sequence + 1, image.run.emptied());
            let void = StatePage { sequence, state: State::Void, run, ..image };
            let at = journal_of_epochs(&superblock).offset + PAGE * (sequence % STATE_PAGES);
            let bytes = rigged.arena.alloc(PAGE).await;
            bytes.copy_from_slice(Bytes::ZERO, &encode_state(superblock.volume, &void, &[]));
            disk.write(at, &bytes).await.unwrap();
            let volume = open(world.clone(), rigged.devices()).await.unwrap();
            volume.set_policy(RAID1).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            volume.close().await.unwrap();
            let zeros = filled(&rigged.arena, PAGE, 0);
            disk.write(journal_of_epochs(&superblock).offset + PAGE * page, &zeros).await.unwrap();
            let volume = open(world.clone(), rigged.devices()).await.unwrap();
            volume.audit().await.expect("both copies are alike");
            volume.close().await.unwrap();
        });
    }
}

/// A page of a returned disk was unreadable, so the disk counted as no image, but the decision was not
/// recorded. The next opening read the page, and wrote the old run over newer bytes.
#[test]
fn disk_returning_with_bad_state_page_voids_image() {
    for page in 0..STATE_PAGES {
        let world = World::new(26);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let volume = make(world.clone(), rigged.devices(), &epochs(26)).await;
            wait_for_image(&world, &volume).await;
            volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB / 4, 1), Durability::Fua).await.unwrap();
            while volume.status().journaled == Bytes::ZERO {
                world.sleep(Nanos::from_millis(1)).await;
            }
            volume.fail_device(DISK).await.unwrap();
            volume.set_policy(RAID1).await.unwrap();
            world.sleep(Nanos::from_secs(1)).await;
            let superblock = volume.superblock();
            assert!(newest(&rigged.disks[1], &superblock).await.run.segments > 0);
            let (start, faults) =
                (journal_of_epochs(&superblock).offset + PAGE * page, rigged.disks[1].faults());
            faults.set(FaultPlan { bad_reads: Some(start..start + PAGE), ..FaultPlan::default() });
            volume.return_device(plugged_in(&world, &rigged.disks[1]), "it").await.unwrap();
            faults.set(FaultPlan::default());
            wait_until_active(&world, &volume, 1).await;
            volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB / 4, 2), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            volume.close().await.unwrap();
            let volume = open(world.clone(), rigged.devices()).await.unwrap();
            volume.audit().await.expect("both copies are alike");
            volume.close().await.unwrap();
        });
    }
}

/// A bad place in the map or in the journal of the disk prevented a recovery that needs neither. Later the
/// bad place prevented the next opening, as without a recovery, and each opening needed a repair.
#[test]
fn a_recovery_needs_neither_the_map_nor_the_journal() {
    let world = World::new(24);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, superblock } = lose_ssd_at_work(&world, 24, &mut rng).await;
        let is_needed = |region: &&Region| region.device == DISK && region.kind != RegionKind::EpochJournal;
        let arena = Arena::new(MIB * 4);
        for region in superblock.regions.iter().filter(is_needed) {
            let (left, rotten) = (disk.fork(&world).restart(&world), disk.fork(&world).restart(&world));
            rotten.write(region.offset, &filled(&arena, region.len, 0x5a)).await.expect("the disk is sound");
            let bad = Faults::new(FaultPlan::default(), world.fork_rng());
            let bad_reads = Some(region.offset..region.offset + region.len);
            bad.set(FaultPlan {
                bad_reads: bad_reads.clone(),
                bad_until_written: true,
                ..FaultPlan::default()
            });
            for (is_read, device) in [(false, Faulty::new(left, &bad)), (true, sound(&rotten, &world))] {
                let opened = open_with(world.clone(), vec![device.clone()], alone).await;
                let (volume, recovery) = opened.unwrap_or_else(|error| panic!("{:?}: {error}", region.kind));
                assert!(recovery.adopted.is_some() && recovery.lost.is_empty());
                assert!(content(&volume).await == base, "{:?}", region.kind);
                volume.complete_recovery().await.expect("the journal of epochs is sound");
                volume.close().await.expect("the disk can be written");
                let volume = open(world.clone(), vec![device.clone()]).await.expect("all is there");
                assert!(content(&volume).await == base, "{:?}", region.kind);
                volume.close().await.expect("the disk can be written");
                if matches!(region.kind, RegionKind::Journal | RegionKind::Proof) && !is_read {
                    bad.set(FaultPlan {
                        bad_reads: bad_reads.clone(),
                        bad_until_written: true,
                        ..FaultPlan::default()
                    });
                    repaired(&world, device, &base).await;
                }
            }
        }
    });
}

/// The opening is refused and names the repair. The repair lists the extents given up, serves all others,
/// and is needed once.
async fn repaired(world: &World, device: Faulty<Disk>, base: &[u8]) {
    let error = refused(open(world.clone(), vec![device.clone()]).await);
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("--repair"), "{error}");
    let repair = |options: &mut OpenOptions| options.repair = true;
    let (volume, recovery) =
        open_with(world.clone(), vec![device.clone()], repair).await.expect("it can be repaired");
    let lost = recovery.lost;
    check_lost(&volume, base, &lost).await;
    volume.close().await.expect("the disk can be written");
    let volume = open(world.clone(), vec![device]).await.expect("it has been repaired");
    check_lost(&volume, base, &lost).await;
    volume.close().await.expect("the disk can be written");
}

/// Checks that all blocks are correct, except blocks of lost extents, which must be errors.
async fn check_lost(volume: &Rig, base: &[u8], lost: &[ExtentId]) {
    assert_eq!(volume.status().lost, lost);
    for (i, block) in (0..).zip(readable(volume).await) {
        let at = BLOCK * i;
        let is_lost = lost.contains(&ExtentId((at / EXTENT) as u32));
        let expected = &base[at.as_usize()..(at + BLOCK).as_usize()];
        assert!(block.as_deref() == (!is_lost).then_some(expected), "byte {}", at.0);
    }
}

/// The start of a recovery was recorded durably before the last checks that may refuse the recovery. A later
/// opening without a request for recovery then continued the recovery.
#[test]
fn refused_recovery_changes_nothing() {
    let world = World::new(25);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, superblock, .. } = lose_ssd_at_work(&world, 25, &mut rng).await;
        let before = newest(&disk, &superblock).await;
        let opened = open_with(world.clone(), vec![sound(&disk, &world)], |options| {
            alone(options);
            options.cache_extents = 1 << 40;
        });
        assert_eq!(refused(opened.await).kind(), ErrorKind::Invalid);
        assert_eq!(newest(&disk, &superblock).await, before);
    });
}

/// The page of the newest epoch is damaged: the disk is the image of the previous epoch, and the content of
/// the newest epoch counts as lag.
#[test]
fn a_damaged_page_costs_no_more_than_a_comparison() {
    for page in 0..STATE_PAGES {
        let world = World::new(23);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let volume = make(world.clone(), rigged.devices(), &epochs(23)).await;
            wait_for_image(&world, &volume).await;
            for (i, value) in (0..).zip(1..9u8) {
                let block = filled(&rigged.arena, BLOCK, value);
                volume.write(SIZE / 16 * i, &block, Durability::Fua).await.unwrap();
                wait_until_applied(&world, &volume).await;
            }
            volume.write(Bytes::ZERO, &filled(&rigged.arena, BLOCK, 9), Durability::Fua).await.unwrap();
            while volume.status().journaled == Bytes::ZERO {
                world.sleep(Nanos::from_micros(50)).await;
            }
            let left = [rigged.left_of(SSD, None), rigged.left_of(DISK, None)];
            let region = journal_of_epochs(&volume.superblock());
            volume.close().await.unwrap();
            let zeros = filled(&rigged.arena, PAGE, 0);
            left[1].write(region.offset + PAGE * page, &zeros).await.unwrap();
            let all = left.iter().map(|disk| sound(disk, &world)).collect();
            let volume = open(world.clone(), all).await.unwrap();
            wait_until_applied(&world, &volume).await;
            assert!(volume.status().devices.iter().all(|device| device.state == DeviceState::Active));
            let bytes = recovered(&world, &left[1], None).await;
            assert!(bytes[..BLOCK.as_usize()].iter().all(|&byte| byte == 9));
            volume.audit().await.expect("both copies are alike");
            volume.close().await.unwrap();
        });
    }
}

/// Power fails while a disk is opened: the disk opens again, with the same content.
async fn cut_at_any_instant(world: &World, disk: &Disk, base: &[u8], rng: &mut Rng) {
    let is_open = Rc::new(Cell::new(false));
    let (opening, rt, device) = (is_open.clone(), world.clone(), sound(disk, world));
    world.spawn(async move {
        let volume = open(rt, vec![device]).await.expect("it is being made the volume");
        opening.set(true);
        volume.close().await.expect("the disk is sound");
    });
    let mut cuts = Vec::new();
    while !is_open.get() {
        let mut left = disk.store();
        left.power_cut(rng);
        cuts.push(left);
        world.sleep(Nanos::from_micros(500)).await;
    }
    for left in cuts {
        let device = sound(&left.attach(world), world);
        let volume = open(world.clone(), vec![device]).await.expect("one page is whole");
        check_damage(&volume, base, &BTreeSet::new()).await;
        volume.close().await.expect("the disk can be written");
    }
}

/// The page that records the recovery was damaged, and the older page called the disk an image. The map
/// counted, which says that everything is in place, and the journal's content was dropped.
#[test]
fn damaged_state_page_of_interrupted_recovery_costs_nothing() {
    let world = World::new(16);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, superblock } = lose_ssd_at_work(&world, 16, &mut rng).await;
        let region = superblock.region(RegionKind::EpochJournal, 0).expect("it has a journal of epochs");
        let (mut gone_on, arena) = (0, Arena::new(MIB));
        let is_open = Rc::new(Cell::new(false));
        let (opening, rt, device) = (is_open.clone(), world.clone(), sound(&disk, &world));
        world.spawn(async move {
            let (volume, _) = open_with(rt, vec![device], alone).await.expect("it is an image");
            opening.set(true);
            volume.close().await.expect("the disk is sound");
        });
        let mut killed = Vec::new();
        while !is_open.get() {
            world.sleep(Nanos::from_millis(1)).await;
            killed.push(disk.store());
        }
        for mut left in killed {
            left.kill();
            let left = left.attach(&world);
            let (page, _) = journal_of(&left, &superblock).await;
            if page.state != State::Adopting {
                continue;
            }
            let at = region.offset + PAGE * (page.sequence % STATE_PAGES);
            let unread = with_bad(&world, &left.fork(&world).restart(&world), at..at + SECTOR);
            left.write(at, &filled(&arena, PAGE, 0)).await.expect("the disk is sound");
            left.flush().await.expect("the disk is sound");
            let rotten = left.fork(&world);
            let header = identify(&world, Rc::new(sound(&left, &world)), "the disk").await;
            if header.expect("it is one of a volume").features.incompat & Features::UNAPPLIED == 0 {
                // No superblock names the disk as the volume yet.
                continue;
            }
            for device in [sound(&left, &world), unread] {
                let volume = open(world.clone(), vec![device]).await.expect("the other page tells");
                check_damage(&volume, &base, &BTreeSet::new()).await;
                volume.close().await.expect("the disk can be written");
                gone_on += 1;
            }
            if gone_on == 2 {
                cut_at_any_instant(&world, &rotten, &base, &mut rng).await;
            }
        }
        assert!(gone_on > 0, "no instant was between");
    });
}

/// A disk with a completed recovery was refused entirely if one of the two pages was unreadable or
/// unwritable.
#[test]
fn bad_state_page_of_lone_disk_costs_nothing() {
    let world = World::new(17);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let Lost { disk, base, superblock } = lose_ssd_at_work(&world, 17, &mut rng).await;
        let region = superblock.region(RegionKind::EpochJournal, 0).expect("it has a journal of epochs");
        let volume =
            just_recovered(&world, &disk, &Faults::new(FaultPlan::default(), world.fork_rng())).await;
        volume.complete_recovery().await.expect("the disk is sound");
        let (arena, mut expected) = (Arena::new(MIB), base);
        volume
            .write(Bytes::ZERO, &filled(&arena, BLOCK, 9), Durability::Fua)
            .await
            .expect("the disk is sound");
        expected[..BLOCK.as_usize()].fill(9);
        let used = disk.fork(&world).restart(&world);
        volume.close().await.expect("the disk is sound");
        for left in [used, disk.restart(&world)] {
            for page in (0..STATE_PAGES).map(|i| region.offset + PAGE * i) {
                let rotten = left.fork(&world).restart(&world);
                rotten.write(page, &filled(&arena, PAGE, 0)).await.expect("the disk is sound");
                let unread = with_bad(&world, &left.fork(&world).restart(&world), page..page + SECTOR);
                let is_dead = Faults::new(FaultPlan::default(), world.fork_rng());
                let bad = Some(page..page + PAGE);
                is_dead.set(FaultPlan {
                    bad_reads: bad.clone(),
                    bad_writes: bad.clone(),
                    ..FaultPlan::default()
                });
                let dead = Faulty::new(left.fork(&world).restart(&world), &is_dead);
                let no_writes = Faults::new(FaultPlan::default(), world.fork_rng());
                no_writes.set(FaultPlan { bad_writes: bad, ..FaultPlan::default() });
                let unwritten = Faulty::new(left.fork(&world).restart(&world), &no_writes);
                for device in [sound(&rotten, &world), unread, dead, unwritten] {
                    for _ in 0..2 {
                        let opened = open(world.clone(), vec![device.clone()]).await;
                        let volume = opened.expect("all of it is there");
                        check_damage(&volume, &expected, &BTreeSet::new()).await;
                        volume.close().await.expect("the disk can be written");
                    }
                }
            }
        }
    });
}
