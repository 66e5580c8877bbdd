//! The crash model itself: the disk must be able to lose, keep, tear and reorder unflushed writes, and
//! nothing else.

#![allow(clippy::unwrap_used)]

use braid_base::{Bytes, KIB, MIB, Nanos, Rng, SECTOR, TIB};
use braid_runtime::{Arena, Buf, Device, Runtime, conformance};
use braid_sim::{Blank, Disk, DiskOptions, FaultPlan, Faults, Faulty, Trace, World};
use std::cell::Cell;
use std::rc::Rc;

const SEEDS: u64 = 200;

fn buf(arena: &Arena, len: Bytes, fill: u8) -> Buf {
    let buf = arena.try_alloc(len).unwrap();
    buf.with_bytes_mut(|bytes| bytes.fill(fill));
    buf
}

fn durable(disk: &Disk, offset: Bytes, len: Bytes) -> Vec<u8> {
    let mut bytes = vec![0; len.as_usize()];
    disk.peek_durable(offset, &mut bytes);
    bytes
}

/// Performs the writes `(offset, len, fill)` in order, flushes before number `flush_before`, cuts the power,
/// and returns the remainder.
fn written_and_cut(seed: u64, writes: &[(Bytes, Bytes, u8)], flush_before: usize) -> Disk {
    let world = World::new(seed);
    let disk = Disk::new(&world, DiskOptions::ssd(MIB));
    let (arena, owned, writes) = (Arena::new(MIB), disk.clone(), writes.to_vec());
    world.block_on(async move {
        for (at, (offset, len, fill)) in writes.into_iter().enumerate() {
            if at == flush_before {
                owned.flush().await.unwrap();
            }
            owned.write(offset, &buf(&arena, len, fill)).await.unwrap();
        }
    });
    world.halt();
    disk.power_cut(&mut Rng::new(seed));
    disk
}

#[test]
fn an_unflushed_write_can_be_kept_lost_or_torn_by_sector_and_within() {
    let (mut kept, mut lost, mut by_sector, mut torn) = (0, 0, 0, 0);
    for seed in 0..2 * SEEDS {
        let disk = written_and_cut(seed, &[(Bytes::ZERO, KIB * 8, 7)], usize::MAX);
        let bytes = durable(&disk, Bytes::ZERO, KIB * 8);
        let sectors: Vec<_> = bytes.chunks(SECTOR.as_usize()).collect();
        let whole = |fill: u8| sectors.iter().filter(|s| s.iter().all(|&b| b == fill)).count();
        let (new, old) = (whole(7), whole(0));
        kept += u32::from(new == 16);
        lost += u32::from(old == 16);
        by_sector += u32::from(new > 0 && old > 0);
        torn += u32::from(new + old < 16);
    }
    assert!(kept > 20 && lost > 20 && by_sector > 20 && torn > 20, "{kept} {lost} {by_sector} {torn}");
}

#[test]
fn later_write_can_survive_without_earlier_write() {
    let (mut only_first, mut only_second) = (0, 0);
    for seed in 0..SEEDS {
        let writes = [(Bytes::ZERO, SECTOR, 1), (KIB * 64, SECTOR, 2)];
        let disk = written_and_cut(seed, &writes, usize::MAX);
        let first = durable(&disk, Bytes::ZERO, SECTOR) == [1; 512];
        let second = durable(&disk, KIB * 64, SECTOR) == [2; 512];
        only_first += u32::from(first && !second);
        only_second += u32::from(second && !first);
    }
    assert!(only_first > 10 && only_second > 10, "{only_first} {only_second}");
}

#[test]
fn of_two_overlapping_writes_either_can_be_on_top_in_each_sector() {
    let (mut first, mut second, mut neither, mut both) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let writes = [(Bytes::ZERO, KIB * 8, 1), (Bytes::ZERO, KIB * 8, 2)];
        let bytes = durable(&written_and_cut(seed, &writes, usize::MAX), Bytes::ZERO, KIB * 8);
        first += u32::from(bytes.iter().all(|&b| b == 1));
        second += u32::from(bytes.iter().all(|&b| b == 2));
        neither += u32::from(bytes.iter().all(|&b| b == 0));
        both += u32::from(bytes.contains(&1) && bytes.contains(&2));
    }
    assert!(first > 10 && second > 10 && neither > 10 && both > 10, "{first} {second} {neither} {both}");
}

#[test]
fn a_flushed_write_is_never_lost() {
    for seed in 0..SEEDS {
        let writes = [(Bytes::ZERO, KIB * 8, 1), (KIB * 64, KIB * 8, 2)];
        let disk = written_and_cut(seed, &writes, 1);
        assert!(durable(&disk, Bytes::ZERO, KIB * 8).iter().all(|&b| b == 1), "seed {seed}");
    }
}

/// A flush that begins while a write is in flight does not cover the write.
#[test]
fn flush_does_not_cover_writes_in_flight_at_start() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let world = World::new(seed);
        let disk = Disk::new(&world, DiskOptions::ssd(MIB));
        let (arena, written) = (Arena::new(MIB), Rc::new(Cell::new(false)));
        let (writer, done) = (disk.clone(), written.clone());
        world.spawn(async move {
            writer.write(Bytes::ZERO, &buf(&arena, SECTOR, 1)).await.unwrap();
            done.set(true);
        });
        let (flusher, runtime) = (disk.clone(), world.clone());
        world.block_on(async move {
            flusher.flush().await.unwrap();
            while !written.get() {
                runtime.sleep(Nanos::from_micros(1)).await;
            }
        });
        world.halt();
        disk.power_cut(&mut Rng::new(seed));
        match durable(&disk, Bytes::ZERO, SECTOR)[0] {
            1 => kept += 1,
            _ => lost += 1,
        }
    }
    assert!(kept > 10 && lost > 10, "{kept} {lost}");
}

#[test]
fn an_operation_in_flight_at_the_cut_never_completes_and_may_have_happened() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let world = World::new(seed);
        let disk = Disk::new(&world, DiskOptions::ssd(MIB));
        world.power().cut_at(2);
        let (arena, owned) = (Arena::new(MIB), disk.clone());
        let output = world.block_on_until_cut(async move {
            owned.write(Bytes::ZERO, &buf(&arena, SECTOR, 1)).await.unwrap();
        });
        assert_eq!(output, None);
        assert_eq!(world.power().points(), 1, "it started, and did not complete");
        world.halt();
        disk.power_cut(&mut Rng::new(seed));
        match durable(&disk, Bytes::ZERO, SECTOR)[0] {
            1 => kept += 1,
            _ => lost += 1,
        }
    }
    assert!(kept > 10 && lost > 10, "{kept} {lost}");
}

#[test]
fn discarded_range_is_undefined_and_neighbours_are_unchanged() {
    let (mut old, mut zeros, mut garbage) = (0, 0, 0);
    for seed in 0..SEEDS {
        let world = World::new(seed);
        let disk = Disk::new(&world, DiskOptions::ssd(MIB));
        let arena = Arena::new(MIB);
        let bytes = world.block_on(async move {
            disk.write(Bytes::ZERO, &buf(&arena, KIB * 16, 5)).await.unwrap();
            disk.discard(KIB * 4, KIB * 8).await.unwrap();
            let into = buf(&arena, KIB * 16, 0);
            disk.read(Bytes::ZERO, &into).await.unwrap();
            into.to_vec()
        });
        world.halt();
        assert!(bytes[..4096].iter().chain(&bytes[12_288..]).all(|&b| b == 5), "seed {seed}");
        let inside = &bytes[4096..12_288];
        old += u32::from(inside.iter().all(|&b| b == 5));
        zeros += u32::from(inside.iter().all(|&b| b == 0));
        garbage += u32::from(inside.iter().any(|&b| b != 0 && b != 5));
    }
    assert!(old > 5 && zeros > 5 && garbage > 20, "{old} {zeros} {garbage}");
}

#[test]
fn four_tebibyte_disk_reads_writes_and_discards() {
    let world = World::new(1);
    let disk = Disk::new(&world, DiskOptions::hdd(TIB * 4).with_blank(Blank::Garbage(9)));
    let (arena, owned) = (Arena::new(MIB), disk.clone());
    let (before, after) = world.block_on(async move {
        let end = TIB * 4 - KIB * 4;
        let into = buf(&arena, KIB * 4, 0);
        owned.read(end, &into).await.unwrap();
        let before = into.to_vec();
        owned.write(end, &buf(&arena, KIB * 4, 3)).await.unwrap();
        owned.flush().await.unwrap();
        owned.discard(Bytes::ZERO, TIB * 2).await.unwrap();
        owned.read(end, &into).await.unwrap();
        assert!(owned.read(end + SECTOR, &into).await.is_err(), "beyond the end");
        assert!(owned.read(Bytes(1), &into).await.is_err(), "not aligned");
        (before, into.to_vec())
    });
    assert!(before.iter().any(|&b| b != 0), "a used disk holds old data");
    assert_eq!(after, [3; 4096]);
    world.halt();
}

/// Concurrent readers, writers and flushes, then a cut: returns the bytes, the time and the number of
/// points.
fn history_of(seed: u64) -> (Vec<u8>, u64, u64) {
    let world = World::new(seed);
    let disk = Disk::new(&world, DiskOptions::ssd(MIB));
    world.power().cut_at(150);
    for client in 0..4 {
        let (disk, arena, mut rng) = (disk.clone(), Arena::new(MIB), world.fork_rng());
        world.spawn(async move {
            let buf = buf(&arena, KIB * 4, client + 1);
            loop {
                let offset = SECTOR * rng.below(64);
                match rng.below(5) {
                    0 => disk.flush().await.unwrap(),
                    1 => disk.discard(offset, KIB * 4).await.unwrap(),
                    _ => disk.write(offset, &buf).await.unwrap(),
                }
            }
        });
    }
    world.run_for(Nanos::MAX);
    world.halt();
    disk.power_cut(&mut Rng::new(seed));
    (durable(&disk, Bytes::ZERO, KIB * 64), world.now().0, world.power().points())
}

#[test]
fn same_seed_reproduces_bytes_times_and_points() {
    for seed in 0..20 {
        let history = history_of(seed);
        assert_eq!(history, history_of(seed), "seed {seed}");
        assert_eq!(history.2, 149);
    }
    assert_ne!(history_of(1).0, history_of(2).0);
}

#[test]
fn unflushed_writes_survive_restart_without_power_cut() {
    for seed in 0..SEEDS {
        let world = World::new(seed);
        let disk = Disk::new(&world, DiskOptions::ssd(MIB));
        let (arena, owned) = (Arena::new(MIB), disk.clone());
        world.block_on(async move { owned.write(Bytes::ZERO, &buf(&arena, KIB * 4, 6)).await.unwrap() });
        world.halt();
        let next = World::new(seed + 1);
        let disk = disk.restart(&next);
        let arena = Arena::new(MIB);
        let bytes = next.block_on(async move {
            let into = buf(&arena, KIB * 4, 0);
            disk.read(Bytes::ZERO, &into).await.unwrap();
            into.to_vec()
        });
        next.halt();
        assert_eq!(bytes, [6; 4096], "seed {seed}");
    }
}

#[test]
fn disk_and_wrappers_pass_device_conformance() {
    for seed in 0..5 {
        let world = World::new(seed);
        let disk = Disk::new(&world, DiskOptions::ssd(MIB * 2).with_blank(Blank::Garbage(seed)));
        let faulty = Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()));
        let device = Rc::new(faulty.traced(&Trace::default()));
        let runtime = world.clone();
        world.block_on(async move { conformance::device(&runtime, device, seed).await });
        world.halt();
    }
}
