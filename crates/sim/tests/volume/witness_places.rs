//! The journal's proof names the newest durable page of the witness, and one place of the witness is bad.
//! Sound devices are not accused, and a device that lost its flushes is refused all the same.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options, refused, sound};
use braid_base::{Bytes, DeviceId, KIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, check};
use braid_format::Uuid;
use braid_format::proof::{self, Proof};
use braid_format::superblock::RegionKind;
use braid_format::witness::{self, Witness};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, FaultPlan, Faults, Faulty, World};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

const EXTENT: Bytes = Bytes(128 << 10);
/// After this time without changes the witness is durable, and the proof names it.
const SETTLED: Nanos = Nanos::from_secs(7);

fn on_disk() -> CreateOptions {
    CreateOptions { policy: "hdd-only".to_owned(), ..options(85) }
}

async fn write(volume: &Rig, arena: &Arena, extents: Range<u64>, value: u8) {
    for extent in extents {
        volume.write(EXTENT * extent, &filled(arena, EXTENT, value), Durability::Fua).await.unwrap();
    }
}

/// Places of the two pages of the region on a device.
fn places(volume: &Rig, device: u16) -> [Bytes; 2] {
    let superblock = volume.superblock();
    let mut proofs = superblock.regions.iter().filter(|region| region.kind == RegionKind::Proof);
    let offset = proofs.find(|region| region.device == DeviceId(device)).unwrap().offset;
    [offset, offset + witness::SIZE]
}

fn page(disk: &Disk, volume: Uuid, at: Bytes) -> Option<Witness> {
    let mut bytes = vec![0; 4096];
    disk.peek_durable(at, &mut bytes);
    witness::decode(&bytes, volume).ok()
}

/// The place of the older page and the place of the newer one.
fn by_age(disk: &Disk, volume: &Rig) -> [Bytes; 2] {
    let mut places = places(volume, 1);
    places.sort_by_key(|at| page(disk, volume.superblock().volume, *at));
    places
}

fn tear(disk: &Disk, at: Bytes) {
    disk.poke(at + Bytes(512), &[0xee; 512]);
}

fn forked(world: &World, disks: &[Disk]) -> [Disk; 2] {
    [disks[0].fork(world), disks[1].fork(world)]
}

/// Kind of a bad place of the witness.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wrong {
    /// Neither readable nor writable.
    Sector,
    /// Not writable: the older page stays.
    Writes,
}

/// A device with one bad place.
fn with_bad(disk: &Disk, at: Bytes, wrong: Wrong) -> Faulty<Disk> {
    let place = at..at + KIB * 4;
    let bad_writes = (wrong == Wrong::Writes).then(|| place.clone());
    if wrong == Wrong::Sector {
        disk.spoil(place, Bad::ForEver);
    }
    Faulty::new(disk.clone(), &Faults::new(FaultPlan { bad_writes, ..FaultPlan::default() }, Rng::new(1)))
}

/// Every page went to the one remaining place. The proof named the page, and a crash that tore the next page
/// left a page older by more than one: a sound disk was accused.
#[test]
fn witness_page_in_second_place_satisfies_proof() {
    for (bad, wrong) in [(0, Wrong::Sector), (1, Wrong::Sector), (0, Wrong::Writes), (1, Wrong::Writes)] {
        let bench = bench(10);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let volume = make(world.clone(), sound(&disks), &on_disk()).await;
            write(&volume, &arena, 0..4, 1).await;
            let places = places(&volume, 1);
            volume.close().await.unwrap();
            let devices = vec![sound(&disks[..1]).remove(0), with_bad(&disks[1], places[bad], wrong)];
            let volume = open(world.clone(), devices).await.unwrap();
            let mut before = None;
            for extent in 4..9 {
                write(&volume, &arena, extent..extent + 1, 2).await;
                for pause in [0, 1, 7] {
                    world.sleep(Nanos::from_secs(pause)).await;
                    let what = format!("{wrong:?} of {bad}, extent {extent}, {pause} s");
                    let killed = forked(&world, &disks);
                    let opened = open(world.clone(), sound(&killed)).await.expect(&what);
                    assert!(holds(&opened, &arena, EXTENT * extent, EXTENT, 2).await.unwrap(), "{what}");
                    // The next page is torn.
                    let torn = forked(&world, &disks);
                    tear(&torn[1], places[1 - bad]);
                    open(world.clone(), sound(&torn)).await.expect(&what);
                }
                if let Some(old) = before.replace(disks[1].fork(&world)) {
                    let error = refused(open(world.clone(), sound(&[disks[0].fork(&world), old])).await);
                    let text = error.to_string();
                    assert!(text.contains("d1"), "{text}");
                    let kind = if wrong == Wrong::Sector { ErrorKind::Io } else { ErrorKind::Corrupt };
                    assert_eq!(error.kind(), kind, "{text}");
                }
            }
        });
    }
}

/// State of a life at the power cut, or at its end.
struct Life {
    disks: Vec<Disk>,
    /// Cut points between which a place became bad.
    points: Range<u64>,
    volume: Uuid,
    /// The remaining place.
    other: Bytes,
}

/// A place of the witness becomes bad, and the volume changes before and after the proof knows of the bad
/// place. `turn` counts from the next place to be written: a bad sector under the newest page is another
/// case.
fn life(seed: u64, turn: usize, wrong: Wrong, cut: Option<u64>) -> Life {
    let (bench, known) = (bench(seed), Rc::new(Cell::new(None)));
    let (rt, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    let (devices, faults, set) = (bench.devices(), bench.faults[1].clone(), known.clone());
    cut.into_iter().for_each(|cut| bench.world.power().cut_at(cut));
    let given = disks.clone();
    let _ended = bench.world.block_on_until_cut(async move {
        let volume = make(rt.clone(), devices, &on_disk()).await;
        write(&volume, &arena, 0..4, 1).await;
        rt.sleep(SETTLED).await;
        let at = by_age(&given[1], &volume)[turn];
        let (bad, other) =
            (at..at + KIB * 4, places(&volume, 1).into_iter().find(|place| *place != at).unwrap());
        match wrong {
            Wrong::Sector => given[1].spoil(bad, Bad::ForEver),
            Wrong::Writes => faults.set(FaultPlan { bad_writes: Some(bad), ..FaultPlan::default() }),
        }
        let (start, id) = (rt.power().points(), volume.superblock().volume);
        set.set(Some((start, id, other)));
        write(&volume, &arena, 4..6, 2).await;
        rt.sleep(SETTLED).await;
        write(&volume, &arena, 6..8, 2).await;
    });
    let end = bench.world.power().points();
    bench.world.halt();
    let (start, volume, other) = known.get().unwrap();
    Life { disks, points: start + 1..end, volume, other }
}

/// The power fails at any step, also during the write of a page over the only page: no sound disk is
/// accused.
#[test]
fn a_power_cut_beside_a_worn_place_accuses_no_sound_disk() {
    let mut torn = 0;
    for (turn, wrong) in [(0, Wrong::Sector), (0, Wrong::Writes), (1, Wrong::Writes)] {
        let whole = life(40, turn, wrong, None);
        for (seed, cut) in whole.points.flat_map(|cut| [cut; 3]).enumerate() {
            let Life { disks, volume, other, .. } = life(40, turn, wrong, Some(cut));
            let mut rng = Rng::new(seed as u64);
            disks.iter().for_each(|disk| disk.power_cut(&mut rng));
            let world = World::new(seed as u64);
            let disks: Vec<Disk> = disks.iter().map(|disk| disk.restart(&world)).collect();
            torn += usize::from(page(&disks[1], volume, other).is_none());
            let rt = world.clone();
            world.block_on(async move {
                let opened = open(rt, sound(&disks)).await;
                opened.unwrap_or_else(|error| panic!("{wrong:?} of {turn}, cut at {cut}: {error}"));
            });
            world.halt();
        }
    }
    assert!(torn > 3, "{torn} power cuts tore the only page");
}

/// The disk was restored to an older state, and one or both places of its newest page were unreadable or
/// rotten: the disk passed for a device without a witness.
#[test]
fn unreadable_witness_page_beside_older_page_is_refused() {
    let bench = bench(20);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let volume = make(world.clone(), sound(&disks), &on_disk()).await;
        write(&volume, &arena, 0..8, 1).await;
        world.sleep(SETTLED).await;
        let old = disks[1].fork(&world);
        write(&volume, &arena, 8..20, 2).await;
        world.sleep(SETTLED).await;
        let [older, newer] = by_age(&old, &volume);
        for (spoiled, rotten, kind) in [
            (&[newer][..], &[][..], ErrorKind::Io),
            (&[older], &[], ErrorKind::Io),
            (&[older, newer], &[], ErrorKind::Io),
            (&[older], &[newer], ErrorKind::Io),
            (&[], &[newer], ErrorKind::Corrupt),
            (&[], &[older, newer], ErrorKind::Corrupt),
        ] {
            let second = old.fork(&world);
            spoiled.iter().for_each(|at| second.spoil(*at..*at + KIB * 4, Bad::UntilWritten));
            rotten.iter().for_each(|at| tear(&second, *at));
            let found = || [disks[0].fork(&world), second.fork(&world)];
            let error = refused(open(world.clone(), sound(&found())).await);
            let text = error.to_string();
            assert!(error.kind() == kind && text.contains("d1") && text.contains("--repair"), "{text}");
            let names = ["ssd".to_owned(), "disk".to_owned()];
            match check(&world, sound(&found()), &names, None).await {
                Ok(report) => assert!(!report.fatal.is_empty(), "{report:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Io),
            }
            let disks = found();
            let (volume, recovery) =
                open_with(world.clone(), sound(&disks), |o| o.repair = true).await.unwrap();
            assert_eq!(recovery.warnings.len(), 1, "{recovery:?}");
            write(&volume, &arena, 20..24, 3).await;
            open(world.clone(), sound(&forked(&world, &disks))).await.unwrap();
        }
        // The other page of a sound disk is new enough.
        for at in by_age(&disks[1], &volume) {
            let found = forked(&world, &disks);
            found[1].spoil(at..at + KIB * 4, Bad::UntilWritten);
            open(world.clone(), sound(&found)).await.unwrap();
        }
    });
}

/// A proof of an older version names no page: the volume opens as under the older version.
#[test]
fn proof_without_page_number_refuses_no_witness() {
    let bench = bench(30);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let volume = make(world.clone(), sound(&disks), &on_disk()).await;
        write(&volume, &arena, 0..8, 1).await;
        world.sleep(SETTLED).await;
        let old = disks[1].fork(&world);
        write(&volume, &arena, 8..20, 2).await;
        world.sleep(SETTLED).await;
        let (ssd, id) = (disks[0].fork(&world), volume.superblock().volume);
        for at in places(&volume, 0) {
            let mut bytes = vec![0; 4096];
            ssd.peek_durable(at, &mut bytes);
            let proof = proof::decode(&bytes, id).unwrap();
            ssd.poke(at, &proof::encode(id, &Proof { witnessed: None, ..proof }));
        }
        let bad = by_age(&old, &volume)[1];
        old.spoil(bad..bad + KIB * 4, Bad::UntilWritten);
        open(world.clone(), sound(&[ssd, old])).await.unwrap();
    });
}
