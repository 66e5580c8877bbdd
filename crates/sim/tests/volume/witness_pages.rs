//! Unreadable or unwritable pages of the witness. Without the SSD with the journal, the witness lists the
//! changes that the disk's image of the map lacks.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::rig::{Bench, Rig, bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, check};
use braid_format::superblock::RegionKind;
use braid_format::witness::{self, Witness};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, FaultPlan, Faulty};
use std::rc::Rc;

const EXTENT: Bytes = Bytes(128 << 10);
const SSD: DeviceId = DeviceId(0);

fn run(seed: u64, test: impl AsyncFnOnce(Rc<Bench>) + 'static) {
    let bench = Rc::new(bench(seed));
    let same = bench.clone();
    bench.run(async move { test(same).await });
}

fn give_up(o: &mut OpenOptions) {
    o.distrust = vec![SSD];
}

fn repaired(o: &mut OpenOptions) {
    (o.distrust, o.repair) = (vec![SSD], true);
}

async fn write(volume: &Rig, arena: &Arena, extents: std::ops::Range<u64>, value: u8) {
    for extent in extents {
        volume.write(EXTENT * extent, &filled(arena, EXTENT, value), Durability::Fua).await.unwrap();
    }
}

async fn reads(volume: &Rig, arena: &Arena, extent: u64, value: u8) -> Option<bool> {
    holds(volume, arena, EXTENT * extent, EXTENT, value).await.ok()
}

/// Places of the two pages of the witness on the disk.
fn places(volume: &Rig) -> [Bytes; 2] {
    let superblock = volume.superblock();
    let mut proofs = superblock.regions.iter().filter(|region| region.kind == RegionKind::Proof);
    let offset = proofs.find(|region| region.device == DeviceId(1)).unwrap().offset;
    [offset, offset + witness::SIZE]
}

fn page(disk: &Disk, volume: &Rig, at: Bytes) -> Option<Witness> {
    let mut bytes = vec![0; 4096];
    disk.peek_durable(at, &mut bytes);
    witness::decode(&bytes, volume.superblock().volume).ok()
}

async fn made(bench: &Bench) -> Rig {
    let how = CreateOptions { policy: "hdd-only".to_owned(), ..options(83) };
    make(bench.world.clone(), bench.devices(), &how).await
}

fn one(bench: &Bench, disk: &Disk) -> Vec<Faulty<Disk>> {
    vec![bench.sound(disk.clone())]
}

/// One read took both pages, and a read error passed for a volume without a witness: eight extents that had
/// been flushed to the disk read as zeros without the SSD.
#[test]
fn unreadable_witness_is_refused_without_ssd() {
    for spoils in [&[0usize][..], &[1], &[0, 1]] {
        for rots in [false, true] {
            run(10, async move |bench| {
                let (world, arena) = (bench.world.clone(), bench.arena.clone());
                let volume = made(&bench).await;
                write(&volume, &arena, 0..4, 1).await;
                volume.checkpoint().await.unwrap();
                world.sleep(Nanos::from_secs(6)).await;
                write(&volume, &arena, 4..8, 2).await;
                let rest = bench.disks[1].fork(&world);
                let places = places(&volume);
                assert!(
                    places.iter().all(|at| page(&rest, &volume, *at).is_some()),
                    "both pages were written"
                );
                for &place in spoils {
                    match rots {
                        true => rest.poke(places[place] + Bytes(200), &[0xee; 8]),
                        false => rest.spoil(places[place]..places[place] + KIB * 4, Bad::UntilWritten),
                    }
                }
                let opened = open_with(world.clone(), one(&bench, &rest.fork(&world)), give_up).await;
                if rots && spoils.len() == 1 {
                    // A torn page looks the same.
                    let (alone, _) = opened.unwrap();
                    assert_eq!(reads(&alone, &arena, 3, 1).await, Some(true));
                    return;
                }
                let error = refused(opened);
                let (text, kind) = (error.to_string(), if rots { ErrorKind::Corrupt } else { ErrorKind::Io });
                assert!(error.kind() == kind && text.contains("d1") && text.contains("--repair"), "{error}");
                match check(&world, one(&bench, &rest.fork(&world)), &["disk".to_owned()], None).await {
                    Ok(report) => assert!(!report.fatal.is_empty(), "the check says so"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Io),
                }
                // Nothing was changed: with the SSD back, all data is there. The SSD knows that a page was
                // durable.
                let both = vec![bench.sound(bench.disks[0].fork(&world)), bench.sound(rest.fork(&world))];
                match open(world.clone(), both).await {
                    Ok(whole) => assert_eq!(reads(&whole, &arena, 7, 2).await, Some(true)),
                    Err(error) => assert_eq!((error.kind(), spoils.len()), (kind, 2), "{error}"),
                }
                let (alone, recovery) = open_with(world.clone(), one(&bench, &rest), repaired).await.unwrap();
                assert_eq!(recovery.warnings.len(), 1, "{recovery:?}");
                for extent in 0..4 {
                    assert_eq!(reads(&alone, &arena, extent, 1).await, Some(true), "extent {extent}");
                }
                alone.close().await.unwrap();
                open(world.clone(), one(&bench, &rest)).await.unwrap();
            });
        }
    }
}

/// After a shutdown the image of the map is complete, and nothing needs the witness.
#[test]
fn after_a_shutdown_no_opening_needs_the_witness() {
    run(20, async move |bench| {
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let volume = made(&bench).await;
        write(&volume, &arena, 0..4, 1).await;
        let places = places(&volume);
        volume.close().await.unwrap();
        let rest = bench.disks[1].fork(&world);
        places.iter().for_each(|at| rest.poke(*at + Bytes(200), &[0xee; 8]));
        let (alone, _) = open_with(world.clone(), one(&bench, &rest), give_up).await.unwrap();
        assert_eq!(reads(&alone, &arena, 3, 1).await, Some(true));
    });
}

/// A place of the witness was unwritable. The flush was acknowledged, and no page listed the newly placed
/// extents on the disk: without the SSD these extents read as zeros.
#[test]
fn extents_stay_listed_if_one_witness_page_is_unwritable() {
    for bad in 0..2 {
        run(30, async move |bench| {
            let (world, arena) = (bench.world.clone(), bench.arena.clone());
            let volume = made(&bench).await;
            write(&volume, &arena, 0..4, 1).await;
            volume.checkpoint().await.unwrap();
            world.sleep(Nanos::from_secs(6)).await;
            let places = places(&volume);
            bench.disks[1].spoil(places[bad]..places[bad] + KIB * 4, Bad::ForEver);
            for extent in 4..10 {
                write(&volume, &arena, extent..extent + 1, 2).await;
                let rest = bench.disks[1].fork(&world);
                let (alone, _) = open_with(world.clone(), one(&bench, &rest), repaired).await.unwrap();
                for known in 4..=extent {
                    assert_ne!(
                        reads(&alone, &arena, known, 2).await,
                        Some(false),
                        "extent {known} of {extent}"
                    );
                }
            }
        });
    }
}

/// Both places are unwritable for a while. The witness is written once the disk accepts writes, even without
/// further changes.
#[test]
fn failed_witness_write_is_retried() {
    run(40, async move |bench| {
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let volume = made(&bench).await;
        write(&volume, &arena, 0..4, 1).await;
        volume.checkpoint().await.unwrap();
        world.sleep(Nanos::from_secs(6)).await;
        let places = places(&volume);
        let numbers = |disk: &Disk| places.map(|at| page(disk, &volume, at).map_or(0, |page| page.number));
        let before = numbers(&bench.disks[1]).into_iter().max();
        bench.faults[1]
            .set(FaultPlan { bad_writes: Some(places[0]..places[1] + KIB * 4), ..FaultPlan::default() });
        write(&volume, &arena, 4..6, 2).await;
        world.sleep(Nanos::from_secs(6)).await;
        assert!(numbers(&bench.disks[1]).into_iter().max() <= before);
        bench.faults[1].set(FaultPlan::default());
        world.sleep(Nanos::from_secs(6)).await;
        assert!(numbers(&bench.disks[1]).into_iter().max() > before);
    });
}
