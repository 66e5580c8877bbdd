//! With one copy of everything, the journal lies on the SSD alone. Data on the disk outlives the SSD all the
//! same.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::rig::life::disk;
use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, OpenOptions};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Blank, Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use std::cell::RefCell;
use std::rc::Rc;

const EXTENT: Bytes = Bytes(128 << 10);
const EXTENTS: u64 = 32;
const SECOND: Nanos = Nanos::from_secs(1);
/// Time after its flush for which data on the disk needs the SSD.
const OLDEST: Nanos = Nanos::from_secs(5);

fn sound(world: &World, disk: Disk) -> Faulty<Disk> {
    Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()))
}

fn all(world: &World, disks: &[Disk]) -> Vec<Faulty<Disk>> {
    disks.iter().map(|disk| sound(world, disk.clone())).collect()
}

fn with(policy: &str) -> CreateOptions {
    CreateOptions { policy: policy.to_owned(), ..options(81) }
}

fn give_up(options: &mut OpenOptions) {
    options.distrust = vec![DeviceId(0)];
}

/// Writes extents whole, each durably.
async fn write(volume: &Rig, arena: &Arena, extents: std::ops::Range<u64>, value: u8) {
    for extent in extents {
        volume.write(EXTENT * extent, &filled(arena, EXTENT, value), Durability::Fua).await.unwrap();
    }
}

/// True if an extent has this value; `None` if a read fails.
async fn reads(volume: &Rig, arena: &Arena, extent: u64, value: u8) -> Option<bool> {
    holds(volume, arena, EXTENT * extent, EXTENT, value).await.ok()
}

fn home(volume: &Rig, extent: u64) -> Option<usize> {
    volume.explain(EXTENT * extent).unwrap().home.map(|(device, _)| device.index())
}

/// The disk had the bytes, and only the lost SSD had known their place: half a minute of flushed writes read
/// as errors.
#[test]
fn data_flushed_to_disk_survives_ssd_loss() {
    for (seed, policy) in ["hdd-only", "stripe", "ssd-first"].into_iter().enumerate() {
        let bench = bench(10 + seed as u64);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let volume = make(world.clone(), all(&world, &disks), &with(policy)).await;
            write(&volume, &arena, 0..8, 1).await;
            volume.checkpoint().await.unwrap();
            write(&volume, &arena, 6..14, 2).await;
            world.sleep(OLDEST).await;
            write(&volume, &arena, 12..20, 3).await;
            volume.discard(EXTENT * 2, EXTENT).await.unwrap();
            volume.flush().await.unwrap();
            world.sleep(OLDEST).await;
            let rest = [disks[1].fork(&world)];
            let (alone, recovery) = open_with(world.clone(), all(&world, &rest), give_up).await.unwrap();
            let value = |extent: u64| [1, 2, 3][usize::from(extent >= 6) + usize::from(extent >= 12)];
            for extent in (0..20).filter(|extent| *extent != 2) {
                let is_there = home(&volume, extent) == Some(1);
                let read = reads(&alone, &arena, extent, value(extent)).await;
                assert_eq!(read, is_there.then_some(true), "{policy}: extent {extent}");
            }
            for extent in [2].into_iter().chain(20..EXTENTS) {
                assert_eq!(reads(&alone, &arena, extent, 0).await, Some(true), "{policy}: extent {extent}");
            }
            let on_ssd = (0..20).filter(|extent| home(&volume, *extent) == Some(0)).count();
            assert_eq!(recovery.lost.len(), on_ssd, "{policy}");
            // The volume continues on the disk.
            write(&alone, &arena, 20..24, 4).await;
            let killed = [rest[0].fork(&world)];
            let again = open(world.clone(), all(&world, &killed)).await.unwrap();
            for (extent, value) in [(13, 3), (23, 4)] {
                let expected = (home(&alone, extent) == Some(1)).then_some(true);
                assert_eq!(reads(&again, &arena, extent, value).await, expected, "{policy}");
            }
            alone.audit().await.unwrap();
        });
    }
}

/// A checkpoint flushed the bytes before the guest's flush. The disk received no flush then, and no record
/// said that the disk had the bytes. Without the SSD the bytes read as zeros.
#[test]
fn bytes_flushed_by_checkpoint_do_not_read_as_zeros() {
    for discards in [false, true] {
        let bench = bench(20);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let volume = make(world.clone(), all(&world, &disks), &with("hdd-only")).await;
            write(&volume, &arena, 0..4, 1).await;
            world.sleep(SECOND * 40).await;
            if discards {
                volume.discard(EXTENT * 3, EXTENT).await.unwrap();
            } else {
                volume.write(EXTENT * 4, &filled(&arena, EXTENT, 1), Durability::Volatile).await.unwrap();
            }
            // The checkpoint flushes the disk, and contains nothing that no flush has promised yet.
            volume.checkpoint().await.unwrap();
            volume.flush().await.unwrap();
            let rest = [disks[1].fork(&world)];
            let (alone, _) = open_with(world.clone(), all(&world, &rest), give_up).await.unwrap();
            let (extent, value) = if discards { (3, 0) } else { (4, 1) };
            assert_ne!(reads(&alone, &arena, extent, value).await, Some(false));
        });
    }
}

/// A list with an unreadable page counts for nothing, and all changed extents read as errors.
#[test]
fn damaged_entry_list_makes_changed_extents_lost() {
    let bench = bench(30);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let volume = make(world.clone(), all(&world, &disks), &with("hdd-only")).await;
        write(&volume, &arena, 0..4, 1).await;
        volume.checkpoint().await.unwrap();
        write(&volume, &arena, 4..8, 1).await;
        world.sleep(OLDEST).await;
        let mut found = 0;
        for spoils in [false, true] {
            let rest = disks[1].fork(&world);
            let mut page = vec![0; 4096];
            for at in (0..MIB.0 * 8).step_by(4096).map(Bytes) {
                rest.peek_durable(at, &mut page);
                if &page[..8] == b"BRAIDREC" {
                    found += 1;
                    match spoils {
                        true => rest.spoil(at..at + KIB * 4, Bad::UntilWritten),
                        false => rest.poke(at + Bytes(100), &[0xee; 8]),
                    }
                }
            }
            // A ring with a bad place is not taken for whole unless forced.
            let how = |o: &mut OpenOptions| (o.distrust, o.repair) = (vec![DeviceId(0)], spoils);
            let (alone, recovery) = open_with(world.clone(), all(&world, &[rest]), how).await.unwrap();
            assert_eq!(recovery.lost.iter().map(|lost| lost.0).collect::<Vec<_>>(), [4, 5, 6, 7]);
            for extent in 0..8 {
                let expected = (extent < 4).then_some(true);
                assert_eq!(reads(&alone, &arena, extent, 1).await, expected, "extent {extent}");
            }
        }
        assert!(found >= 2);
    });
}

/// A present SSD counts, however new the list on the disk is; an SSD restored to an older state is refused
/// as before.
#[test]
fn journal_on_present_ssd_takes_precedence() {
    let bench = bench(40);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let volume = make(world.clone(), all(&world, &disks), &with("hdd-only")).await;
        write(&volume, &arena, 0..4, 1).await;
        let older = disks[0].fork(&world);
        world.sleep(OLDEST).await;
        write(&volume, &arena, 2..6, 2).await;
        world.sleep(OLDEST).await;
        // Known to the SSD alone.
        let listed = disks[1].fork(&world);
        write(&volume, &arena, 4..8, 3).await;
        let killed = [disks[0].fork(&world), disks[1].fork(&world)];
        let again = open(world.clone(), all(&world, &killed)).await.unwrap();
        for (extent, value) in [(1, 1), (3, 2), (5, 3), (7, 3)] {
            assert_eq!(reads(&again, &arena, extent, value).await, Some(true), "extent {extent}");
        }
        let error = open(world.clone(), all(&world, &[older, listed])).await.err().unwrap();
        assert!(error.to_string().contains("on d0 lacks"), "{error}");
    });
}

/// The journal was on the disk for a while, and left batches in the ring. The list of entries overwrote some
/// of these batches. The other batches passed for a journal with missing batches, and the disk was refused
/// without the SSD.
#[test]
fn entry_list_may_overwrite_batches_of_retired_journal() {
    let mut overlaps = 0;
    for count in 0..40 {
        let world = World::new(50 + count);
        let rt = world.clone();
        overlaps += world.block_on(async move {
            let (world, arena) = (rt, Arena::new(MIB));
            let disks: Vec<Disk> = (0..3).map(|_| disk(&world, false)).collect();
            let first = make(world.clone(), all(&world, &disks), &with("stripe")).await;
            first.close().await.unwrap();
            let rest = [1, 2].map(|i| disks[i].fork(&world));
            let (volume, _) = open_with(world.clone(), all(&world, &rest), give_up).await.unwrap();
            let batches_of = async |count: u64| {
                for _ in 0..count {
                    volume.discard(Bytes::ZERO, EXTENT).await.unwrap();
                    volume.flush().await.unwrap();
                    write(&volume, &arena, 0..1, 1).await;
                }
            };
            batches_of(30 + count).await;
            // The journal moves from the second disk to the third, while guests continue.
            volume.remove_device(DeviceId(0)).await.unwrap();
            while volume.status().devices[0].state != DeviceState::Removed {
                batches_of(1).await;
            }
            let is_batch = |disk: &Disk, at: u64| {
                let mut page = vec![0; 4096];
                disk.peek_durable(Bytes(at), &mut page);
                &page[..8] == b"BRAIDJN2"
            };
            let batches = |disk: &Disk| (0..MIB.0 * 8).step_by(4096).filter(|at| is_batch(disk, *at)).count();
            let before = batches(&rest[0]);
            world.sleep(SECOND * 40).await;
            for extent in 1..4 {
                write(&volume, &arena, extent * 4..extent * 4 + 4, 2).await;
                world.sleep(OLDEST).await;
            }
            let homes: Vec<Option<usize>> = (4..16).map(|extent| home(&volume, extent)).collect();
            let alone = rest[0].fork(&world);
            let after = batches(&alone);
            let lost = |o: &mut OpenOptions| o.distrust = vec![DeviceId(2)];
            let (alone, _) = open_with(world.clone(), all(&world, &[alone]), lost).await.unwrap();
            for (extent, home) in (4..16).zip(homes) {
                let expected = (home == Some(1)).then_some(true);
                assert_eq!(reads(&alone, &arena, extent, 2).await, expected, "{count}: extent {extent}");
            }
            usize::from(after < before)
        });
        world.halt();
    }
    assert!(overlaps > 3, "{overlaps} of 40 lists lay over a batch");
}

/// The power fails at each instant of the write of a list, and takes the SSD. All extents of an older list
/// are whole.
pub fn power_fails_while_a_list_is_written(seed: u64) {
    let bench = bench(100 + seed);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let mut rng = Rng::new(seed);
        let volume = make(world.clone(), all(&world, &disks), &with("hdd-only")).await;
        // The images of a new volume are not known to contain anything.
        write(&volume, &arena, 20..21, 1).await;
        volume.checkpoint().await.unwrap();
        write(&volume, &arena, 0..8, 1).await;
        world.sleep(OLDEST + SECOND * rng.below(5)).await;
        write(&volume, &arena, 8..12, 1).await;
        let flushed = world.now();
        let (mut found, mut operations) = (Vec::new(), 0);
        while world.now() < flushed + OLDEST + SECOND {
            world.sleep(Nanos::from_millis(1 + rng.below(3))).await;
            if operations != disks[1].operations() {
                operations = disks[1].operations();
                found.push((world.now(), disks[1].fork(&world)));
            }
        }
        found.push((world.now(), disks[1].fork(&world)));
        for (at, disk) in found {
            disk.power_cut(&mut rng);
            let rest = [disk.restart(&world)];
            let (alone, _) = open_with(world.clone(), all(&world, &rest), give_up).await.unwrap();
            for extent in 0..12 {
                let read = reads(&alone, &arena, extent, 1).await;
                let is_due = extent < 8 || at >= flushed + OLDEST;
                assert!(
                    read == Some(true) || read.is_none() && !is_due,
                    "seed {seed}: extent {extent} at {at}"
                );
            }
        }
    });
}

#[test]
fn power_cut_during_list_write_keeps_older_list() {
    (0..20).for_each(power_fails_while_a_list_is_written);
}

/// Knowledge about an extent.
#[derive(Clone, Copy, Default)]
struct Known {
    value: u8,
    /// Time of the flush of the value.
    at: Nanos,
    /// True if the SSD had or has the extent.
    on_ssd: bool,
    /// True during a change.
    busy: bool,
}

type Ledger = Rc<RefCell<Vec<Known>>>;

/// Guests at work until the power fails. Calm guests leave the volume idle for longer than the recording of
/// their changes takes.
async fn work(world: World, volume: Rig, ledger: Ledger, seed: u64) {
    let (arena, mut rng) = (Arena::new(MIB * 4), Rng::new(seed));
    let are_calm = rng.chance(0.5);
    loop {
        let some: Vec<usize> = (0..1 + rng.below(4)).map(|_| rng.below(EXTENTS) as usize).collect();
        let value = if rng.chance(0.2) { 0 } else { 1 + rng.below(250) as u8 };
        for &extent in &some {
            ledger.borrow_mut()[extent].busy = true;
            let at = EXTENT * extent as u64;
            match value {
                0 => volume.discard(at, EXTENT).await.unwrap(),
                _ => volume.write(at, &filled(&arena, EXTENT, value), Durability::Volatile).await.unwrap(),
            }
        }
        if !are_calm && rng.chance(0.1) {
            volume.checkpoint().await.unwrap();
        }
        volume.flush().await.unwrap();
        for extent in some {
            let known = &mut ledger.borrow_mut()[extent];
            let on_ssd = match home(&volume, extent as u64) {
                Some(device) => device == 0,
                None => known.on_ssd,
            };
            *known = Known { value, at: world.now(), on_ssd, busy: false };
        }
        let longest = if are_calm || rng.chance(0.3) { 9_000 } else { 300 };
        world.sleep(Nanos::from_millis(rng.below(longest))).await;
    }
}

/// Checks all extents after the loss of the SSD; returns the numbers of whole extents and of errors.
async fn check(volume: &Rig, ledger: &[Known], now: Nanos, story: &str) -> (usize, usize) {
    let (arena, mut whole, mut errors) = (Arena::new(MIB * 4), 0, 0);
    for (extent, known) in ledger.iter().enumerate().filter(|(_, known)| !known.busy) {
        let read = reads(volume, &arena, extent as u64, known.value).await;
        let is_old = now >= known.at + OLDEST;
        whole += usize::from(read == Some(true));
        errors += usize::from(read.is_none());
        let value = known.value;
        match (known.on_ssd, is_old, read) {
            (_, _, Some(true)) | (_, false, None) => {}
            (true, _, None) => {}
            // An extent on the SSD with a recent change may be older.
            (true, false, Some(false)) => {}
            (_, _, None) => panic!("{story}: extent {extent} lies on the disk, and is lost"),
            (_, _, Some(false)) => panic!("{story}: extent {extent} reads as something else than {value}"),
        }
    }
    (whole, errors)
}

/// The power fails at any instant, and the SSD with it: possibly after lives with the SSD, and possibly
/// during the opening without the SSD.
pub fn lives_end_with_the_ssd(seeds: std::ops::Range<u64>) -> (usize, usize) {
    let (mut whole, mut errors) = (0, 0);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let has_ssd = rng.chance(0.7);
        let policies = if has_ssd { ["hdd-only", "stripe", "ssd-first"] } else { ["stripe"; 3] };
        let policy = policies[rng.below(3) as usize];
        let ledger: Ledger = Rc::new(RefCell::new(vec![Known::default(); EXTENTS as usize]));
        let mut world = World::new(rng.next_u64());
        // Without an SSD the journal is on the first disk.
        let first = if has_ssd { DiskOptions::ssd(MIB * 8) } else { DiskOptions::hdd(MIB * 8) };
        let mut disks =
            [first, DiskOptions::hdd(MIB * 8)].map(|o| Disk::new(&world, o.with_blank(Blank::Garbage(seed))));
        let (rt, made) = (world.clone(), disks.clone());
        world.block_on(async move {
            make(rt.clone(), all(&rt, &made), &with(policy)).await.close().await.unwrap();
        });
        let lives = 1 + rng.below(3);
        for life in 0..lives {
            world.halt();
            world = World::new(rng.next_u64());
            disks = disks.each_ref().map(|disk| disk.restart(&world));
            let (rt, mine, books, guests) = (world.clone(), disks.clone(), ledger.clone(), rng.next_u64());
            let ended = Rc::new(RefCell::new(None));
            let opened = ended.clone();
            // A second of work passes hundreds of points.
            world.power().cut_at(if rng.chance(0.3) { 100 + rng.below(400) } else { 300 + rng.below(6_000) });
            let _cut = world.block_on_until_cut(async move {
                let volume = open(rt.clone(), all(&rt, &mine)).await.unwrap();
                books.borrow_mut().iter_mut().for_each(|known| known.at = rt.now());
                opened.replace(Some(()));
                work(rt, volume, books, guests).await;
            });
            disks.iter().for_each(|disk| disk.power_cut(&mut rng));
            if ended.borrow().is_none() {
                // No flushed write is old enough.
                ledger.borrow_mut().iter_mut().for_each(|known| known.at = world.now());
            }
            if life + 1 < lives {
                // Returning guests find either value.
                ledger
                    .borrow_mut()
                    .iter_mut()
                    .filter(|known| known.busy)
                    .for_each(|known| known.on_ssd = true);
            }
        }
        let now = world.now();
        let mut rest = disks[1].clone();
        for _ in 0..rng.below(3) {
            world.halt();
            world = World::new(rng.next_u64());
            rest = rest.restart(&world);
            world.power().cut_at(1 + rng.below(300));
            let (rt, one) = (world.clone(), [rest.clone()]);
            let _ended = world.block_on_until_cut(async move {
                let _volume = open_with(rt.clone(), all(&rt, &one), give_up).await.unwrap();
                rt.sleep(SECOND * 40).await;
            });
            rest.power_cut(&mut rng);
        }
        world.halt();
        world = World::new(rng.next_u64());
        let (rt, one, books) = (world.clone(), [rest.restart(&world)], ledger.borrow().clone());
        let counts = world.block_on(async move {
            let story = format!("seed {seed}, {policy}");
            let (volume, _) = open_with(rt.clone(), all(&rt, &one), give_up).await.unwrap();
            let counts = check(&volume, &books, now, &story).await;
            // New writes of guests free no slot that others need, and the next opening finds all of these
            // writes.
            let arena = Arena::new(MIB);
            write(&volume, &arena, 3..9, 251).await;
            let killed = [one[0].fork(&rt)];
            let again = open(rt.clone(), all(&rt, &killed)).await.unwrap();
            let mut books = books;
            (3..9).for_each(|extent| books[extent] = Known { value: 251, ..Known::default() });
            check(&again, &books, now, &format!("{story}, again")).await;
            volume.audit().await.unwrap();
            counts
        });
        world.halt();
        (whole, errors) = (whole + counts.0, errors + counts.1);
    }
    (whole, errors)
}

#[test]
fn power_cut_with_ssd_loss_keeps_data_on_disk() {
    let (whole, errors) = lives_end_with_the_ssd(0..100);
    assert!(whole > 1000 && errors > 50, "{whole} extents were whole, {errors} read as errors");
}
