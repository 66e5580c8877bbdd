//! Extra copies that survive: dirty ones a power cut, clean ones too where nothing was written, and what rot of the cache table leaves of both.

mod rig;

use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, Status, check};
use braid_format::extra_directory::Content;
use braid_format::journal::{Batch, Extra, Record};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{Features, Region, RegionKind, Superblock};
use braid_format::{SlotNumber, extra_directory, extra_page, journal};
use braid_policy::{DeviceView, Occasion, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Buf, Device};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use rig::{Bench, Rig, filled, holds, make, open, open_with, options, refused};

const SSD: DeviceId = DeviceId(0);
const HDD: DeviceId = DeviceId(1);

/// Homes are on the disk; the SSD gets an extra copy of what is read, and of what is written if `writes` says so.
struct Cache {
    writes: bool,
}

impl Policy for Cache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => Placement::on(HDD),
            Occasion::Write(_) if self.writes => Placement::write_back(SSD),
            Occasion::ReadMiss(_) if !self.writes => Placement::cached(Some(SSD)),
            _ => Placement::KEEP,
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots } else { 0 }
    }

    fn plan(&mut self, view: &View, _: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(1)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "a test".to_owned()
    }
}

fn bench(seed: u64, ssd: Bytes, hdd: Bytes) -> Bench {
    let world = World::new(seed);
    let disks = [DiskOptions::ssd(ssd), DiskOptions::hdd(hdd)].map(|o| Disk::new(&world, o)).to_vec();
    let faults = disks.iter().map(|_| Faults::new(FaultPlan::default(), world.fork_rng())).collect();
    Bench { world, disks, faults, arena: Arena::new(MIB * 4) }
}

/// The policy of the superblock keeps extra copies on the SSD when the volume is opened.
fn caching(identity: u8, size: Bytes) -> CreateOptions {
    CreateOptions { size: Some(size), policy: "ssd-first,cache=60%".to_owned(), ..options(identity) }
}

/// Makes all of the volume valid at homes on the disk, then dirties it.
async fn make_dirty(volume: &Rig, arena: &Arena, size: Bytes) {
    volume.replace_policy(Box::new(Cache { writes: true }));
    for at in (0..size / MIB).map(|i| MIB * i) {
        volume.write(at, &filled(arena, MIB, 1), Durability::Volatile).await.expect("there is room");
    }
    for at in (0..size / MIB).map(|i| MIB * i) {
        volume.write(at, &filled(arena, MIB, 2), Durability::Volatile).await.expect("there is room");
    }
    volume.flush().await.expect("the devices are sound");
}

async fn all_hold(volume: &Rig, arena: &Arena, size: Bytes, value: u8) -> bool {
    for at in (0..size / MIB).map(|i| MIB * i) {
        if !holds(volume, arena, at, MIB, value).await.expect("the devices are sound") {
            return false;
        }
    }
    true
}

/// As many dirty blocks as the batch that ends a checkpoint could repeat was the limit: 6,036 with a journal of 1 MiB. What came beyond
/// went to the disk.
#[test]
fn as_many_blocks_are_dirty_as_the_cache_holds_and_all_survive_kill_and_shutdown() {
    let (size, bench) = (MIB * 40, bench(1, MIB * 96, MIB * 64));
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let forks: Vec<Disk> = bench.disks.clone();
    let sound = bench.faults.clone();
    bench.run(async move {
        let volume = make(world.clone(), all.clone(), &caching(1, size)).await;
        make_dirty(&volume, &arena, size).await;
        let blocks = (size / (KIB * 4)) as usize;
        assert_eq!(volume.status().extra_blocks, (blocks, blocks));
        volume.checkpoint().await.unwrap();
        volume.checkpoint().await.unwrap();
        assert!(volume.status().journal <= KIB * 8, "the journal forgets what the cache table has");
        let killed = forks.iter().zip(&sound).map(|(disk, f)| Faulty::new(disk.fork(&world), f)).collect();
        volume.close().await.unwrap();
        for devices in [killed, all] {
            let volume = open(world.clone(), devices).await.unwrap();
            assert_eq!(volume.status().extra_blocks, (blocks, blocks));
            assert!(all_hold(&volume, &arena, size, 2).await);
            volume.audit().await.unwrap();
        }
    });
}

fn guest_reads(status: &Status, device: DeviceId) -> u64 {
    status.devices[device.index()].stats.guest_reads
}

/// A volume of 2 MiB on the disk, all of which has been read and so has clean extra copies.
async fn make_warm(world: &World, all: &[Faulty<Disk>], arena: &Arena, identity: u8) -> Rig {
    let volume = make(world.clone(), all.to_vec(), &caching(identity, MIB * 2)).await;
    volume.replace_policy(Box::new(Cache { writes: false }));
    for at in [Bytes::ZERO, MIB] {
        volume.write(at, &filled(arena, MIB, 1), Durability::Volatile).await.expect("there is room");
    }
    volume.flush().await.expect("the devices are sound");
    assert!(all_hold(&volume, arena, MIB * 2, 1).await);
    braid_runtime::Runtime::sleep(world, Nanos::from_millis(100)).await;
    assert_eq!(volume.status().extra_blocks, (512, 0));
    volume
}

#[test]
fn a_cache_is_warm_after_a_shutdown_and_follows_what_is_written_then() {
    let bench = bench(2, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 2).await;
        volume.discard(MIB, MIB).await.unwrap();
        volume.close().await.unwrap();
        for round in 1..4 {
            let volume = open(world.clone(), all.clone()).await.unwrap();
            assert_eq!(volume.status().extra_blocks, (256, 0), "round {round}");
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, round).await.unwrap());
            let status = volume.status();
            assert_eq!(guest_reads(&status, HDD), 0, "all is read from the SSD");
            assert!(guest_reads(&status, SSD) > 0);
            volume.write(Bytes::ZERO, &filled(&arena, MIB, round + 1), Durability::Volatile).await.unwrap();
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        }
    });
}

/// Until what was cached last is durable without a flush, and spans that nobody writes to are called clean.
async fn settle(world: &World) {
    braid_runtime::Runtime::sleep(world, Nanos::from_secs(120)).await;
}

/// What is cached as a kill at this moment leaves it, after all that was read holds what it should.
async fn cached_after_kill(world: &World, disks: &[Disk], faults: &[Faults], arena: &Arena) -> (usize, u64) {
    let volume =
        open(world.clone(), sound(&killed(world, disks), faults)).await.expect("a kill damages nothing");
    let cached = volume.status().extra_blocks;
    assert_eq!(cached.1, 0);
    assert!(all_hold(&volume, arena, MIB * 2, 1).await);
    volume.audit().await.expect("extra copies are like their homes");
    let from_disk = guest_reads(&volume.status(), HDD);
    volume.close().await.expect("the devices are sound");
    (cached.0, from_disk)
}

#[test]
fn a_cache_is_warm_after_a_kill_but_for_spans_with_writes_that_were_not_flushed() {
    let bench = bench(3, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (disks, faults) = (bench.disks.clone(), bench.faults.clone());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 3).await;
        let cached = async || cached_after_kill(&world, &disks, &faults, &arena).await;
        assert_eq!(cached().await.0, 0, "nothing of it is durable yet");
        settle(&world).await;
        assert_eq!(cached().await, (512, 0), "all is read from the SSD");
        // A span is an extent here.
        volume.write(KIB * 128 * 3, &filled(&arena, KIB * 4, 1), Durability::Volatile).await.unwrap();
        assert_eq!(cached().await.0, 480, "the span's 32 blocks are forgotten");
        volume.flush().await.unwrap();
        assert_eq!(cached().await.0, 480, "the flush does not wait for the span to be called clean");
        settle(&world).await;
        assert_eq!(cached().await, (512, 0));
        volume.close().await.unwrap();
        drop(open(world.clone(), all.clone()).await.unwrap());
        assert_eq!(cached().await, (512, 0), "a shutdown before the kill changes nothing");
    });
}

/// The disks as a kill at this moment leaves them.
fn killed(world: &World, disks: &[Disk]) -> Vec<Disk> {
    disks.iter().map(|disk| disk.fork(world)).collect()
}

fn sound(disks: &[Disk], faults: &[Faults]) -> Vec<Faulty<Disk>> {
    disks.iter().zip(faults).map(|(disk, f)| Faulty::new(disk.clone(), f)).collect()
}

/// A block slot whose block recovery had forgotten must not get another one while table or journal still name the first.
#[test]
fn what_a_kill_made_the_cache_forget_does_not_come_back() {
    let bench = bench(13, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (mut disks, faults) = (bench.disks.clone(), bench.faults.clone());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 13).await;
        settle(&world).await;
        volume.write(KIB * 128 * 3, &filled(&arena, KIB * 4, 1), Durability::Volatile).await.unwrap();
        for _ in 0..3 {
            // Killed before it has done anything.
            disks = killed(&world, &disks);
            let volume = open(world.clone(), sound(&disks, &faults)).await.unwrap();
            assert_eq!(volume.status().extra_blocks, (480, 0));
        }
        disks = killed(&world, &disks);
        let volume = open(world.clone(), sound(&disks, &faults)).await.unwrap();
        volume.replace_policy(Box::new(Cache { writes: false }));
        assert!(all_hold(&volume, &arena, MIB * 2, 1).await);
        settle(&world).await;
        assert_eq!(cached_after_kill(&world, &disks, &faults, &arena).await, (512, 0));
    });
}

/// An earlier version recorded no clean copy: after a crash of that, what its table says of them is nothing.
#[test]
fn after_a_kill_of_an_earlier_version_the_cache_is_cold_once() {
    let bench = bench(14, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (disks, faults) = (bench.disks.clone(), bench.faults.clone());
    bench.run(async move {
        let volume = make_warm(&world, &all, &arena, 14).await;
        settle(&world).await;
        volume.checkpoint().await.unwrap();
        let mut earlier = volume.superblock();
        assert_eq!(earlier.features.incompat, Features::CLEAN_EXTRAS);
        earlier.features.incompat = 0;
        let disks = killed(&world, &disks);
        for (id, (disk, entry)) in (0..).map(DeviceId).zip(disks.iter().zip(&earlier.devices)) {
            let places = superblock_offsets(entry.size, entry.layout);
            places.into_iter().for_each(|at| disk.poke(at, &earlier.encode(id)));
        }
        let volume = open(world.clone(), sound(&disks, &faults)).await.unwrap();
        assert_eq!(volume.status().extra_blocks, (0, 0));
        assert_eq!(volume.superblock().features.incompat, Features::CLEAN_EXTRAS);
        assert_eq!(cached_after_kill(&world, &disks, &faults, &arena).await.0, 0);
        volume.replace_policy(Box::new(Cache { writes: false }));
        assert!(all_hold(&volume, &arena, MIB * 2, 1).await);
        settle(&world).await;
        assert_eq!(cached_after_kill(&world, &disks, &faults, &arena).await, (512, 0));
    });
}

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
    let report = check(world, all.to_vec(), &names).await.expect("these are the volume's devices");
    (report.repairable.len(), report.lost)
}

#[test]
fn a_page_that_is_bad_in_one_image_is_read_from_the_other_and_written_again() {
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

/// A block of 4 KiB is half a part: where the part is not valid, a write to the other half writes zeros over this one, too. No intent said so,
/// so after a kill the extra copy of this one was trusted beside a home of zeros.
#[test]
fn zeros_around_a_write_make_a_neighbour_differ_that_has_a_clean_extra_copy() {
    let bench = bench(11, MIB * 8, MIB * 8);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let (disks, faults) = (bench.disks.clone(), bench.faults.clone());
    bench.run(async move {
        let (block, part) = (KIB * 4, KIB * 8);
        let volume = make(world.clone(), all.clone(), &caching(11, MIB * 2)).await;
        volume.replace_policy(Box::new(Cache { writes: false }));
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, block, 1).await.unwrap());
        settle(&world).await;
        assert_eq!(volume.status().extra_blocks, (1, 0));
        volume.discard(Bytes::ZERO, part).await.unwrap();
        volume.write(block, &filled(&arena, block, 2), Durability::Volatile).await.unwrap();
        let volume = open(world.clone(), sound(&killed(&world, &disks), &faults)).await.unwrap();
        volume.audit().await.expect("extra copies are like their homes");
        volume.close().await.unwrap();
    });
}

/// Which blocks were dirty is in no other place, so a repair gives up all that may have been: no read returns the older bytes at a home.
#[test]
fn dirty_entries_that_are_bad_in_both_images_are_refused_and_a_repair_lists_what_may_be_old() {
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
fn clean_entries_that_are_bad_in_both_images_are_forgotten() {
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

/// The ring of the first journal, and the batches in it by their sequence numbers: where each begins on the device.
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

/// The extents of a lost batch were listed by what it said of homes alone: one whose dirty blocks it named passed for whole, and a repair let
/// guests read older bytes from its home.
#[test]
fn an_extent_whose_dirty_blocks_a_lost_batch_named_is_given_up() {
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

/// Has the newest batch, whose checksum is right, name other places of dirty blocks.
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
        let journal::Header { sequence, tail, epoch, .. } = header;
        let batch = Batch { sequence, tail, epoch, previous: previous.as_deref(), records: &records };
        journal::encode(bytes, superblock.volume, &batch);
    });
    device.write(at, &buf.slice(Bytes::ZERO..KIB * 4)).await.expect("the devices are sound");
}

/// Where a record says that a dirty block lies is looked up in tables: a place that no table has ended the opening with a panic, or another
/// block's bytes passed for this one's.
#[test]
fn a_record_that_names_a_place_which_is_none_is_refused_and_a_repair_gives_its_extent_up() {
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

/// Two images of a directory with one sequence number passed for alike: the one that said nothing was in the table stayed, until the other
/// one rotted.
#[test]
fn images_of_a_directory_that_differ_are_made_alike() {
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

#[test]
fn a_cached_block_takes_less_than_24_bytes_with_its_place_in_the_list_for_eviction() {
    let (size, bench) = (MIB * 40, bench(9, MIB * 32, MIB * 64));
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let made = CreateOptions { policy: "ssd-first,cache=50%".to_owned(), ..caching(9, size) };
        let volume = make(world.clone(), all.clone(), &made).await;
        for at in (0..size / MIB).map(|i| MIB * i) {
            volume.write(at, &filled(&arena, MIB, 1), Durability::Volatile).await.unwrap();
        }
        let before = volume.status().map_memory;
        for _ in 0..2 {
            assert!(all_hold(&volume, &arena, size, 1).await);
            braid_runtime::Runtime::sleep(&world, Nanos::from_millis(100)).await;
            let status = volume.status();
            let blocks = status.extra_blocks.0;
            assert!(blocks >= 3_750, "the cache is full, but for block slots that are spare: {blocks}");
            let bytes = status.map_memory - before + status.policy_memory;
            assert!(bytes <= 24 * blocks, "{} bytes a block", bytes as f64 / blocks as f64);
        }
        assert!(volume.status().background.promotions > 5_000, "blocks have been evicted for others");
        volume.audit().await.unwrap();
    });
}

/// A discard of an extent of 64 MiB with 16,384 dirty blocks asked for more room than the journal has, and ended the daemon.
#[test]
fn a_large_extent_that_is_all_dirty_can_be_discarded() {
    let bench = bench(7, MIB * 512, MIB * 512);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let made = CreateOptions { extent_size: MIB * 64, ..caching(7, MIB * 64) };
        let volume = make(world.clone(), all.clone(), &made).await;
        make_dirty(&volume, &arena, MIB * 64).await;
        assert_eq!(volume.status().extra_blocks, (16_384, 16_384));
        volume.discard(Bytes::ZERO, MIB * 64).await.unwrap();
        volume.flush().await.unwrap();
        assert_eq!(volume.status().extra_blocks, (0, 0));
        assert_eq!(volume.status().mapped_extents, 0);
        volume.audit().await.unwrap();
    });
}
