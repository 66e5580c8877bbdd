//! Large volumes with little data: the cost of creation and openings follows the mapped data, not the size
//! of the volume.

use crate::rig::{Rig, filled, holds, is_all, make, open, open_with, options, refused, sound};
use braid_base::{Bytes, GIB, KIB, MIB, Nanos, TIB};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, check, create};
use braid_format::Uuid;
use braid_format::map_summary::{PAGES, SIZE};
use braid_format::superblock::{Features, RegionKind, Superblock};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Blank, Disk, DiskOptions, Faulty, Operation, Step, Trace, World};

/// A volume of 4 KiB extents: one page of the map describes 680 extents, 2.7 MiB, and each page is a group.
fn small_groups(identity: u8) -> CreateOptions {
    let mut made = options(identity);
    (made.extent_size, made.size, made.map_group) = (KIB * 4, Some(MIB * 16), Some(1));
    made.span_size = MIB;
    made
}

/// The map pages of such a volume.
const MAP_PAGES: u64 = 7;
/// Size of the range that one page of the map describes.
const PER_PAGE: Bytes = Bytes(680 * 4096);

/// Two disks with earlier content.
fn disks(world: &World, sizes: [Bytes; 2]) -> Vec<Disk> {
    let options = [DiskOptions::ssd(sizes[0]), DiskOptions::hdd(sizes[1])];
    options.map(|options| Disk::new(world, options.with_blank(Blank::Garbage(1)))).to_vec()
}

/// The disks as devices, with a trace of each.
fn traced(disks: &[Disk]) -> (Vec<Faulty<Disk>>, Vec<Trace>) {
    let traces = vec![(); disks.len()].iter().map(|()| Trace::default()).collect::<Vec<_>>();
    let devices = sound(disks).into_iter().zip(&traces).map(|(device, trace)| device.traced(trace));
    (devices.collect(), traces)
}

async fn open_traced(world: &World, disks: &[Disk]) -> (Rig, Vec<Trace>) {
    let (devices, traces) = traced(disks);
    (open(world.clone(), devices).await.expect("the disks are sound"), traces)
}

/// Number of bytes read, and number of bytes written.
fn moved(traces: &[Trace]) -> (Bytes, Bytes) {
    let mut moved = (Bytes::ZERO, Bytes::ZERO);
    for step in traces.iter().flat_map(Trace::take) {
        match step {
            Step::Begin(Operation::Read(_, len)) => moved.0 += len,
            Step::Begin(Operation::Write(_, len)) => moved.1 += len,
            _ => {}
        }
    }
    moved
}

/// Number of requests that read pages of each image of the map.
fn reads_of_map(superblock: &Superblock, traces: &[Trace]) -> [usize; 2] {
    [0, 1].map(|copy| {
        let image = superblock.region(RegionKind::Map, copy).expect("no image is void");
        traces[image.device.index()].count(|operation| is_read_of_map(superblock, copy, operation))
    })
}

fn is_read_of_map(superblock: &Superblock, copy: u8, operation: Operation) -> bool {
    let image = superblock.region(RegionKind::Map, copy).expect("no image is void");
    let end = image.offset + SIZE * u64::from(superblock.map_pages());
    matches!(operation, Operation::Read(at, _) if at >= image.offset && at < end)
}

/// Largest number of such requests in flight on each image's device.
fn most_reads_of_map_at_once(superblock: &Superblock, traces: &[Trace]) -> [usize; 2] {
    [0, 1].map(|copy| {
        let image = superblock.region(RegionKind::Map, copy).expect("no image is void");
        let (mut now, mut most) = (0, 0);
        for step in traces[image.device.index()].take() {
            match step {
                Step::Begin(operation) if is_read_of_map(superblock, copy, operation) => now += 1,
                Step::End(operation) if is_read_of_map(superblock, copy, operation) => now -= 1,
                _ => {}
            }
            most = most.max(now);
        }
        most
    })
}

/// The places of the four pages of summaries: device and offset.
fn summaries(superblock: &Superblock) -> Vec<(usize, Bytes)> {
    let images = (0..2).map(|copy| superblock.region(RegionKind::Map, copy).expect("no image is void"));
    let pages = |offset| (0..PAGES).map(move |page| offset + SIZE * u64::from(superblock.map_pages() + page));
    images.flat_map(|image| pages(image.offset).map(|at| (image.device.index(), at))).collect()
}

fn run(world: &World, test: impl Future<Output = ()> + 'static) {
    world.block_on(test);
    world.halt();
}

/// An empty volume of 30 TiB took 4 s to create and 12 s to open: both scanned the whole map, 3 GB.
#[test]
fn creation_and_opening_cost_follow_mapped_data() {
    let world = World::new(1);
    let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
    run(&world, async move {
        let disks = disks(&rt, [GIB * 8, TIB * 3]);
        let mut made = options(1);
        (made.size, made.span_size) = (Some(TIB * 2), MIB * 16);
        let (devices, trace) = traced(&disks);
        let superblock = create(&devices, &made).await.unwrap();
        let image = SIZE * u64::from(superblock.map_pages());
        assert!(image > MIB * 96, "{image}");
        let (_, written) = moved(&trace);
        assert!(written < MIB * 32, "the journals and little more: {written}");
        let (volume, trace) = open_traced(&rt, &disks).await;
        let (empty, _) = moved(&trace);
        for at in [Bytes::ZERO, TIB, TIB * 2 - MIB] {
            volume.write(at, &filled(&arena, MIB, 7), Durability::Volatile).await.unwrap();
        }
        volume.close().await.unwrap();
        let (_, written) = moved(&trace);
        assert!(written < MIB * 16, "three groups of 64 KiB in each image: {written}");
        let (volume, trace) = open_traced(&rt, &disks).await;
        let (sparse, _) = moved(&trace);
        assert!(sparse < empty + MIB, "an empty one reads {empty}, one with three groups {sparse}");
        for at in [Bytes::ZERO, TIB, TIB * 2 - MIB] {
            let buf = filled(&arena, MIB, 0);
            volume.read(at, &buf).await.unwrap();
            assert!(is_all(&buf, 7), "at {at}");
        }
        volume.close().await.unwrap();
        let (devices, trace) = traced(&disks);
        let names = ["ssd".to_owned(), "hdd".to_owned()];
        let report = check(&rt, devices, &names, None).await.unwrap();
        assert!(report.repairable.is_empty() && report.fatal.is_empty(), "{report:?}");
        assert_eq!(report.mapped_extents, 24);
        let (read, _) = moved(&trace);
        assert!(read < (empty + MIB) * 2, "a check reads {read}");
    });
}

#[test]
fn opening_reads_only_written_map_pages() {
    for copies in [1, 2] {
        let world = World::new(2);
        let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
        run(&world, async move {
            let disks = disks(&rt, [MIB * 40, MIB * 40]);
            let made = CreateOptions { copies, ..small_groups(2) };
            let superblock = create(&disks, &made).await.unwrap();
            let per_page = KIB * 4 * u64::from(braid_format::map_page::extents_per_page(copies));
            let pages = u64::from(superblock.map_pages());
            assert!(pages >= MAP_PAGES);
            let mut written = 0;
            for page in [None, Some(1), Some(pages - 1), Some(2)] {
                let (volume, trace) = open_traced(&rt, &disks).await;
                // Neighbouring pages are read at once.
                let runs = [0, 1, 2][written];
                assert_eq!(reads_of_map(&superblock, &trace), [runs; 2], "{copies} copies, {written} pages");
                if let Some(page) = page {
                    volume
                        .write(per_page * page, &filled(&arena, KIB * 4, 3), Durability::Fua)
                        .await
                        .unwrap();
                }
                written += usize::from(page.is_some());
                volume.close().await.unwrap();
            }
            let (volume, _) = open_traced(&rt, &disks).await;
            for at in (0..16).map(|at| MIB * at) {
                volume.write(at, &filled(&arena, MIB, 4), Durability::Volatile).await.unwrap();
            }
            volume.close().await.unwrap();
            let (volume, trace) = open_traced(&rt, &disks).await;
            assert_eq!(reads_of_map(&superblock, &trace), [1; 2], "all of each image at once");
            let buf = filled(&arena, MIB, 0);
            for at in (0..16).map(|at| MIB * at) {
                volume.read(at, &buf).await.unwrap();
                assert!(is_all(&buf, 4), "at {at}");
            }
            volume.close().await.unwrap();
        });
    }
}

/// The map of 100 TiB is 5 GB. Each read waited for the read before, so a pool of a hundred disks delivered
/// the map at the rate of one disk.
#[test]
fn opening_reads_runs_of_map_pages_side_by_side() {
    let world = World::new(5);
    let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
    run(&world, async move {
        let disks = disks(&rt, [MIB * 80, MIB * 80]);
        let made = CreateOptions { size: Some(PER_PAGE * 24), ..small_groups(5) };
        let superblock = create(&disks, &made).await.unwrap();
        let (volume, _) = open_traced(&rt, &disks).await;
        for page in (0..24).step_by(2) {
            let bytes = filled(&arena, KIB * 4, page as u8 + 1);
            volume.write(PER_PAGE * page, &bytes, Durability::Volatile).await.unwrap();
        }
        volume.close().await.unwrap();
        let (volume, traces) = open_traced(&rt, &disks).await;
        assert_eq!(reads_of_map(&superblock, &traces), [12; 2], "every other page was written");
        assert_eq!(most_reads_of_map_at_once(&superblock, &traces), [8; 2]);
        let buf = filled(&arena, KIB * 4, 0);
        for page in (0..24).step_by(2) {
            volume.read(PER_PAGE * page, &buf).await.unwrap();
            assert!(is_all(&buf, page as u8 + 1), "page {page}");
        }
        volume.close().await.unwrap();
    });
}

/// An older version would meet pages that were never written, and call the volume damaged.
#[test]
fn only_large_volume_has_map_summary_feature() {
    let world = World::new(3);
    let rt = world.clone();
    run(&world, async move {
        for (size, has_summary) in [(GIB * 20, false), (GIB * 30, true)] {
            let disks = disks(&rt, [GIB, GIB * 40]);
            let superblock = create(&disks, &CreateOptions { size: Some(size), ..options(3) }).await.unwrap();
            assert_eq!(superblock.features.incompat & Features::MAP_SUMMARY != 0, has_summary, "{size}");
            let image = superblock.region(RegionKind::Map, 0).unwrap();
            assert!(image.len >= superblock.map_len());
        }
    });
}

/// A volume with two of seven pages written, closed; its disks.
async fn two_pages(rt: &World, arena: &Arena, made: &CreateOptions) -> (Vec<Disk>, Superblock) {
    let disks = disks(rt, [MIB * 40, MIB * 40]);
    let superblock = create(&disks, made).await.expect("the disks are fit");
    for page in [1, 4] {
        let (volume, _) = open_traced(rt, &disks).await;
        let bytes = filled(arena, KIB * 64, page as u8);
        volume.write(PER_PAGE * page, &bytes, Durability::Fua).await.expect("there is room");
        volume.close().await.expect("the disks are sound");
    }
    (disks, superblock)
}

/// Each of the four pages may be torn by a power cut, or rot. One valid page is enough, and the others are
/// rewritten.
#[test]
fn one_valid_summary_page_is_sufficient() {
    for copies in [1, 2] {
        for whole in 0..4 {
            let world = World::new(4);
            let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
            run(&world, async move {
                let made = CreateOptions { copies, ..small_groups(4) };
                let (disks, superblock) = two_pages(&rt, &arena, &made).await;
                let others = summaries(&superblock).into_iter().enumerate().filter(|(i, _)| *i != whole);
                others.for_each(|(_, (device, at))| disks[device].poke(at + Bytes(30), &[0x55; 600]));
                let names = ["ssd".to_owned(), "hdd".to_owned()];
                let report = check(&rt, disks.clone(), &names, None).await.unwrap();
                assert_eq!((report.repairable.len(), report.fatal.len()), (3, 0), "{report:?}");
                let volume = open(rt.clone(), sound(&disks)).await.unwrap();
                for page in [1, 4] {
                    assert!(holds(&volume, &arena, PER_PAGE * page, KIB * 64, page as u8).await.unwrap());
                }
                volume.close().await.unwrap();
                let report = check(&rt, disks.clone(), &names, None).await.unwrap();
                assert!(report.repairable.is_empty() && report.fatal.is_empty(), "{report:?}");
            });
        }
    }
}

/// A disk that lost the newest write of the summary must not hide extents mapped earlier.
#[test]
fn newest_summary_of_all_images_is_used() {
    for old_image in 0..2 {
        let world = World::new(5);
        let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
        run(&world, async move {
            let disks = disks(&rt, [MIB * 40, MIB * 40]);
            let superblock = create(&disks, &small_groups(5)).await.unwrap();
            let places = &summaries(&superblock)[old_image * 2..][..2];
            let old: Vec<[u8; 4096]> = places
                .iter()
                .map(|&(device, at)| {
                    let mut page = [0; 4096];
                    disks[device].peek_durable(at, &mut page);
                    page
                })
                .collect();
            let volume = open(rt.clone(), sound(&disks)).await.unwrap();
            volume.write(PER_PAGE * 2, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
            places.iter().zip(&old).for_each(|(&(device, at), page)| disks[device].poke(at, page));
            let volume = open(rt.clone(), sound(&disks)).await.unwrap();
            assert!(holds(&volume, &arena, PER_PAGE * 2, MIB, 9).await.unwrap());
            volume.close().await.unwrap();
        });
    }
}

/// Without any summary nothing identifies the pages never written: the opening is refused, and a repair
/// gives up no proved page.
#[test]
fn repair_without_summary_keeps_valid_map_pages() {
    let world = World::new(6);
    let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
    run(&world, async move {
        let (disks, superblock) = two_pages(&rt, &arena, &small_groups(6)).await;
        summaries(&superblock).into_iter().for_each(|(device, at)| disks[device].poke(at, &[0x55; 600]));
        assert_eq!(refused(open(rt.clone(), sound(&disks)).await).kind(), ErrorKind::Corrupt);
        let (volume, recovery) =
            open_with(rt.clone(), sound(&disks), |options| options.repair = true).await.unwrap();
        assert!(recovery.lost.iter().all(|extent| ![1, 4].contains(&(extent.0 / 680))), "{recovery:?}");
        for page in [1, 4] {
            assert!(holds(&volume, &arena, PER_PAGE * page, KIB * 64, page as u8).await.unwrap());
        }
        volume.close().await.unwrap();
        let volume = open(rt.clone(), sound(&disks)).await.unwrap();
        assert!(holds(&volume, &arena, PER_PAGE, KIB * 64, 1).await.unwrap(), "the summary was written anew");
    });
}

/// With one copy, the disk's image must be enough once the SSD with the journal is gone.
#[test]
fn after_the_loss_of_the_ssd_the_summary_on_the_disk_is_enough() {
    let world = World::new(7);
    let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
    run(&world, async move {
        let made = CreateOptions { policy: "hdd-only".to_owned(), ..small_groups(7) };
        let disks = disks(&rt, [MIB * 40, MIB * 40]);
        let volume = make(rt.clone(), sound(&disks), &made).await;
        for page in [0, 5] {
            volume.write(PER_PAGE * page, &filled(&arena, KIB * 64, 8), Durability::Fua).await.unwrap();
        }
        // A checkpoint brings both images up to date.
        rt.sleep(Nanos::from_secs(40)).await;
        volume.write(PER_PAGE * 3, &filled(&arena, KIB * 64, 9), Durability::Fua).await.unwrap();
        let left = sound(&[disks[1].fork(&rt)]);
        let (volume, recovery) =
            open_with(rt.clone(), left, |options| options.distrust = vec![braid_base::DeviceId(0)])
                .await
                .unwrap();
        for page in [0, 5] {
            assert!(holds(&volume, &arena, PER_PAGE * page, KIB * 64, 8).await.unwrap(), "{recovery:?}");
        }
        // Only the journal knew the place of this extent: the extent is lost by name, and does not read as
        // zeros.
        assert!(holds(&volume, &arena, PER_PAGE * 3, KIB * 64, 9).await.is_err(), "{recovery:?}");
        volume.close().await.unwrap();
    });
}

/// Bytes of an earlier volume with the same UUID lie in the place of the map: none of these pages may count.
#[test]
fn recreated_volume_has_no_data_of_earlier_volume() {
    let world = World::new(8);
    let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
    run(&world, async move {
        let (disks, _) = two_pages(&rt, &arena, &small_groups(8)).await;
        let volume = make(rt.clone(), sound(&disks), &small_groups(8)).await;
        assert_eq!(volume.superblock().volume, Uuid([8; 16]));
        for page in [1, 4] {
            assert!(holds(&volume, &arena, PER_PAGE * page, KIB * 64, 0).await.unwrap());
        }
        // The first page of a group brings all pages of the group.
        volume.write(PER_PAGE * 6, &filled(&arena, KIB * 64, 5), Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
        let volume = open(rt.clone(), sound(&disks)).await.unwrap();
        for (page, value) in [(1, 0), (4, 0), (6, 5)] {
            assert!(holds(&volume, &arena, PER_PAGE * page, KIB * 64, value).await.unwrap());
        }
    });
}
