//! Extra copies after rot of the cache table and after forged records of the journal.

use crate::rig::cached::{Cache, SSD, all_hold, bench, caching, make_dirty, make_warm};
use crate::rig::{filled, holds, make, open, open_with, refused};
use braid_base::{Bytes, ExtentId, KIB, MIB};
use braid_engine::{Durability, ErrorKind, Export, check};
use braid_format::extra_directory::Content;
use braid_format::journal::{Batch, Extra, Record};
use braid_format::superblock::{Region, RegionKind, Superblock};
use braid_format::{SlotNumber, extra_directory, extra_page, journal};
use braid_runtime::{Arena, Buf, Device};
use braid_sim::{Disk, Faulty, World};

/// A page of entries of the SSD's table, in one image.
fn page_of_entries(superblock: &Superblock, copy: u8, page: u32) -> Bytes {
    let directory = extra_directory::pages(1);
    table(superblock, copy).offset + extra_page::SIZE * u64::from(directory + page)
}

fn table(superblock: &Superblock, copy: u8) -> &Region {
    let tables = superblock.regions.iter().filter(|r| r.kind == RegionKind::CacheTable && r.device == SSD);
    tables.into_iter().find(|r| r.copy == copy).expect("an SSD has two images of its cache table")
}

async fn flip(device: &Faulty<Disk>, page: Bytes) {
    let buf = Arena::new(KIB * 4).alloc(KIB * 4).await;
    device.read(page, &buf).await.expect("the devices are sound");
    buf.with_bytes_mut(|bytes| bytes[2000] ^= 0x40);
    device.write(page, &buf).await.expect("the devices are sound");
}

async fn damage_in_check(world: &World, all: &[Faulty<Disk>]) -> (usize, Vec<ExtentId>) {
    let names = ["ssd".to_owned(), "hdd".to_owned()];
    let report = check(world, all.to_vec(), &names, None).await.expect("these are the volume's devices");
    (report.repairable.len(), report.lost)
}

#[test]
fn cache_table_page_is_repaired_from_intact_image() {
    for copy in 0..2 {
        for directory in [false, true] {
            let bench = bench(4, MIB * 8, MIB * 8);
            let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
            bench.run(async move {
                let volume = make(world.clone(), all.clone(), &caching(4, MIB * 2)).await;
                make_dirty(&volume, &arena, MIB * 2).await;
                let superblock = volume.superblock();
                volume.close().await.unwrap();
                let written = (0..3).map(|page| page_of_entries(&superblock, copy, page));
                let bad = if directory { vec![table(&superblock, copy).offset] } else { written.collect() };
                let (sound, _) = damage_in_check(&world, &all).await;
                assert_eq!(sound, 0);
                for &page in &bad {
                    flip(&all[0], page).await;
                }
                let (repairable, lost) = damage_in_check(&world, &all).await;
                assert!(repairable > 0 && lost.is_empty());
                let volume = open(world.clone(), all.clone()).await.unwrap();
                assert_eq!(volume.status().extra_blocks, (512, 512));
                assert!(all_hold(&volume, &arena, MIB * 2, 2).await);
                volume.close().await.unwrap();
                assert_eq!(damage_in_check(&world, &all).await, (0, Vec::new()));
            });
        }
    }
}

/// No other place names the dirty blocks, so a repair gives up all possibly dirty blocks: no read returns
/// the older bytes of a home.
#[test]
fn dirty_entries_without_intact_image_are_refused_until_repair() {
    for directory in [false, true] {
        let bench = bench(5, MIB * 8, MIB * 8);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &caching(5, MIB * 4)).await;
            make_dirty(&volume, &arena, MIB * 2).await;
            let superblock = volume.superblock();
            volume.close().await.unwrap();
            for copy in 0..2 {
                let pages = (0..3).map(|page| page_of_entries(&superblock, copy, page));
                let pages: Vec<Bytes> =
                    if directory { vec![table(&superblock, copy).offset] } else { pages.collect() };
                for page in pages {
                    flip(&all[0], page).await;
                }
            }
            assert_eq!(refused(open(world.clone(), all.clone()).await).kind(), ErrorKind::Corrupt);
            let mapped: Vec<u32> = (0..16).collect();
            let (_, lost) = damage_in_check(&world, &all).await;
            assert_eq!(lost.iter().map(|e| e.0).collect::<Vec<_>>(), mapped);
            let (volume, recovery) =
                open_with(world.clone(), all.clone(), |o| o.repair = true).await.unwrap();
            assert_eq!(recovery.lost, lost);
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 1).await.is_err());
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 128, 3), Durability::Fua).await.unwrap();
            volume.discard(KIB * 128, MIB * 2 - KIB * 128).await.unwrap();
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let volume = open(world, all).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 128, 3).await.unwrap());
            assert!(holds(&volume, &arena, KIB * 128, MIB, 0).await.unwrap());
        });
    }
}

#[test]
fn clean_entries_bad_in_both_images_are_forgotten() {
    let bench = bench(6, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 6).await;
        let superblock = volume.superblock();
        volume.close().await.unwrap();
        for copy in 0..2 {
            for page in 0..3 {
                flip(&all[0], page_of_entries(&superblock, copy, page)).await;
            }
        }
        let volume = open(world.clone(), all.clone()).await.unwrap();
        assert!(all_hold(&volume, &arena, MIB * 2, 1).await);
        assert!(volume.status().extra_blocks.0 < 512);
        volume.close().await.unwrap();
        assert_eq!(damage_in_check(&world, &all).await, (0, Vec::new()));
    });
}

/// Reads the ring of the first journal, with the batches by sequence number and the place of each batch on
/// the device.
async fn batches(device: &Faulty<Disk>, superblock: &Superblock) -> (Buf, Vec<(u64, Bytes)>) {
    let ring = *superblock.region(RegionKind::Journal, 0).expect("a volume has a journal");
    let buf = Arena::new(ring.len).alloc(ring.len).await;
    device.read(ring.offset, &buf).await.expect("the devices are sound");
    let mut batches: Vec<(u64, Bytes)> = buf.with_bytes(|bytes| {
        let starts = (0..bytes.len()).step_by(4096);
        let valid = starts
            .filter_map(|at| Some((journal::verify(&bytes[at..], superblock.volume).ok()?.sequence, at)));
        valid.map(|(sequence, at)| (sequence, ring.offset + Bytes::of_len(at))).collect()
    });
    batches.sort_unstable();
    (buf, batches)
}

/// The extents of a lost batch were listed by the batch's records of homes alone. An extent with only dirty
/// blocks in the batch passed for whole, and after a repair guests read older bytes from its home.
#[test]
fn repair_loses_extent_with_dirty_blocks_in_lost_batch() {
    let bench = bench(8, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &caching(8, MIB * 2)).await;
        volume.replace_policy(Box::new(Cache { writes: true }));
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        volume.checkpoint().await.unwrap();
        for extent in [3, 5] {
            let written = filled(&arena, KIB * 8, 2);
            volume.write(KIB * 128 * extent, &written, Durability::Fua).await.unwrap();
        }
        let superblock = volume.superblock();
        drop(volume);
        let (buf, batches) = batches(&all[0], &superblock).await;
        let (_, of_extent_3) = batches[batches.len() - 2];
        buf.with_bytes_mut(|bytes| bytes.fill(0));
        all[0].write(of_extent_3, &buf.slice(Bytes::ZERO..KIB * 4)).await.unwrap();
        assert_eq!(refused(open(world.clone(), all.clone()).await).kind(), ErrorKind::Corrupt);
        let (volume, recovery) = open_with(world.clone(), all.clone(), |o| o.repair = true).await.unwrap();
        assert_eq!(recovery.lost, [ExtentId(3)]);
        assert!(holds(&volume, &arena, KIB * 128 * 3, KIB * 4, 1).await.is_err());
        assert!(holds(&volume, &arena, KIB * 128 * 5, KIB * 8, 2).await.unwrap());
        volume.audit().await.unwrap();
    });
}

/// Makes the newest batch, with a correct checksum, name other places of dirty blocks.
async fn forge_newest(device: &Faulty<Disk>, superblock: &Superblock, forge: impl Fn(&mut Extra)) {
    let (buf, batches) = batches(device, superblock).await;
    let &(_, at) = batches.last().expect("something was committed");
    device.read(at, &buf.slice(Bytes::ZERO..KIB * 4)).await.expect("the devices are sound");
    buf.with_bytes_mut(|bytes| {
        let bytes = &mut bytes[..4096];
        let header = journal::verify(bytes, superblock.volume).expect("it was verified before");
        let previous = journal::previous(bytes, &header);
        let mut records: Vec<Record> =
            journal::records(bytes, &header).collect::<Result<_, _>>().expect("it was verified before");
        let extras = records.iter_mut().filter_map(|record| match record {
            Record::Extra(_, Some(extra)) => Some(extra),
            _ => None,
        });
        assert_eq!(extras.map(&forge).count(), 2);
        let journal::BatchHeader { sequence, tail, epoch, .. } = header;
        let batch = Batch { sequence, tail, epoch, previous: previous.as_deref(), records: &records };
        journal::encode(bytes, superblock.volume, &batch);
    });
    device.write(at, &buf.slice(Bytes::ZERO..KIB * 4)).await.expect("the devices are sound");
}

/// Tables are searched for the place of a dirty block that a record names. A place without a table ended the
/// opening with a panic, or another block's bytes passed for the block.
#[test]
fn record_with_invalid_place_is_refused_until_repair() {
    type Forge = fn(&mut Extra);
    let forges: [Forge; 4] = [
        |extra| extra.place = u16::MAX,
        |extra| extra.place = 32,
        |extra| extra.slot = SlotNumber(u32::MAX - 2),
        |extra| (extra.slot, extra.place) = (SlotNumber(extra.slot.0 + 1_000), 31),
    ];
    for forge in forges {
        let bench = bench(15, MIB * 8, MIB * 8);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &caching(15, MIB * 2)).await;
            volume.replace_policy(Box::new(Cache { writes: true }));
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.checkpoint().await.unwrap();
            volume.write(KIB * 128 * 3, &filled(&arena, KIB * 8, 2), Durability::Fua).await.unwrap();
            let superblock = volume.superblock();
            drop(volume);
            forge_newest(&all[0], &superblock, forge).await;
            assert_eq!(refused(open(world.clone(), all.clone()).await).kind(), ErrorKind::Corrupt);
            let (volume, recovery) =
                open_with(world.clone(), all.clone(), |o| o.repair = true).await.unwrap();
            assert_eq!(recovery.lost, [ExtentId(3)]);
            assert!(holds(&volume, &arena, KIB * 128 * 3, KIB * 4, 1).await.is_err());
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 128 * 3, 1).await.unwrap());
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            drop(open(world, all).await.unwrap());
        });
    }
}

/// Two images of a directory with the same sequence number passed for alike. The image with an empty table
/// stayed, until the other image rotted.
#[test]
fn differing_directory_images_are_made_equal() {
    let bench = bench(16, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &caching(16, MIB * 2)).await;
        make_dirty(&volume, &arena, MIB * 2).await;
        let superblock = volume.superblock();
        volume.close().await.unwrap();
        let [first, second] = [0, 1].map(|copy| table(&superblock, copy).offset);
        let buf = Arena::new(KIB * 4).alloc(KIB * 4).await;
        all[0].read(first, &buf).await.unwrap();
        buf.with_bytes_mut(|bytes| {
            let decoded = extra_directory::decode(bytes, superblock.volume, 0, |_, _| {});
            let sequence = decoded.expect("it was written by a checkpoint");
            extra_directory::encode(bytes, superblock.volume, 0, sequence, |_| Content::Unwritten);
        });
        all[0].write(second, &buf).await.unwrap();
        open(world.clone(), all.clone()).await.unwrap().close().await.unwrap();
        flip(&all[0], first).await;
        let volume = open(world, all).await.unwrap();
        assert_eq!(volume.status().extra_blocks, (512, 512));
        assert!(all_hold(&volume, &arena, MIB * 2, 2).await);
        volume.audit().await.unwrap();
    });
}
