//! The two pages that say what a disk that keeps epochs is: the one that counts must be the newest, whatever fails and whichever is lost.

use crate::epochs::{BLOCK, SIZE, SSD, content, epochs, recovered, sound, wait_for_image};
use crate::epochs_failing::{DISK, Rigged, two, wait_until_applied};
use crate::recovery_campaign::{Lost, alone, lose_ssd_at_work};
use crate::rig::{filled, make, open, open_with, refused};
use braid_base::{Bytes, MIB, Nanos};
use braid_engine::{Durability, ErrorKind, Export};
use braid_format::epoch_journal::{
    Entry, PAGE, Run, SEGMENTS, STATE_PAGES, State, StatePage, encode_index, encode_state, newest_state,
};
use braid_format::superblock::{DeviceState, Region, RegionKind, Superblock};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};

const RAID1: &str = "raid1";

fn journal_of_epochs(superblock: &Superblock) -> Region {
    superblock.region(RegionKind::EpochJournal, 0).expect("it keeps epochs").clone()
}

/// What the disk says that it is.
async fn newest(disk: &Disk, superblock: &Superblock) -> StatePage {
    let (region, states) = (journal_of_epochs(superblock), Arena::new(MIB).alloc(SEGMENTS).await);
    disk.read(region.offset, &states).await.expect("the disk is sound");
    states.with_bytes(|bytes| newest_state(bytes, superblock.volume)).expect("one is valid")
}

/// Makes a disk an image of another byte, a segment of most of a MiB each, and has it say so. Where the last one lies.
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
        let entry = Entry { range: Bytes::ZERO..len, zeros: false };
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
    volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 7), Durability::Fua).await.unwrap();
    wait_until_applied(world, &volume).await;
    let superblock = volume.superblock();
    volume.close().await.unwrap();
    superblock
}

/// Each batch that is applied at an opening makes a page durable. When one failed, the page that called the disk no image any more was numbered as if none had: it
/// was not the newest, and the next opening wrote what was left of the run over newer bytes.
#[test]
#[cfg_attr(feature = "planted", ignore)]
fn a_disk_whose_journal_can_be_applied_in_part_is_no_image_any_more() {
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

/// One page alone said that the disk was no image any more. When that was damaged, the other one counted, and what its run had was written over newer bytes.
#[test]
#[cfg_attr(feature = "planted", ignore)]
fn a_damaged_page_brings_no_image_back_that_was_given_up() {
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

/// What a recovery needs nothing of kept it from all that it needs: a bad place in the map of the disk, or in its journal.
#[test]
#[cfg_attr(feature = "planted", ignore)]
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
            bad.set(FaultPlan { bad_reads, bad_until_written: true, ..FaultPlan::default() });
            for (is_read, device) in [(false, Faulty::new(left, &bad)), (true, sound(&rotten, &world))] {
                let opened = open_with(world.clone(), vec![device.clone()], alone).await;
                let (volume, recovery) = opened.unwrap_or_else(|error| panic!("{:?}: {error}", region.kind));
                assert!(recovery.adopted.is_some() && recovery.lost.is_empty());
                assert!(content(&volume).await == base, "{:?}", region.kind);
                volume.complete_recovery().await.expect("the journal of epochs is sound");
                volume.close().await.expect("the disk can be written");
                if matches!(region.kind, RegionKind::Journal | RegionKind::Proof) && !is_read {
                    // What was not written since may be what was promised last.
                    continue;
                }
                let volume = open(world.clone(), vec![device]).await.expect("all is there");
                assert!(content(&volume).await == base, "{:?}", region.kind);
                volume.close().await.expect("the disk can be written");
            }
        }
    });
}

/// It said durably that it was being made the volume before the last reasons to refuse that: an opening without being told so went on with it.
#[test]
#[cfg_attr(feature = "planted", ignore)]
fn a_recovery_that_is_refused_changes_nothing() {
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

/// The page of the newest epoch is damaged: the disk is the image of the epoch before, and what the newest had counts as behind.
#[test]
#[cfg_attr(feature = "planted", ignore)]
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
