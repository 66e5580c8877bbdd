//! A daemon that dies and restarts on a running machine: all acknowledged writes are read again, from the
//! devices and the pending log.
//!
//! The story: 16 writes of 4 KiB to new extents were acknowledged, and nothing was flushed. The daemon was
//! killed, and served the volume again: all 16 read as zeros. The bytes were on the device; only the memory
//! of the daemon had known their place.

use crate::rig::{Bench, Rig, bench, cached, filled, holds, make, open_with, options};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, Recovery, Result};
use braid_format::pending_log::{HEAD, HEAD_USED, READER, decode_head};
use braid_runtime::{LastingMemory, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, LastingBytes, StoredMemory, World};
use std::cell::Cell;
use std::rc::Rc;

const LEN: Bytes = Bytes(4 << 10);
const STEP: Bytes = Bytes(128 << 10);
const WRITES: u8 = 16;

/// Disks as after a death of the software now.
fn forks(bench: &Bench, disks: &[Disk]) -> Vec<Disk> {
    disks.iter().map(|disk| disk.fork(&bench.world)).collect()
}

fn sound(bench: &Bench, disks: &[Disk]) -> Vec<Faulty<Disk>> {
    disks.iter().map(|disk| bench.sound(disk.clone())).collect()
}

async fn open_in(world: &World, devices: Vec<Faulty<Disk>>, memory: &LastingBytes) -> (Rig, Recovery) {
    let opened = open_as(0, world, devices, memory).await;
    opened.expect("what lies in memory is no reason not to open a volume")
}

/// The same for an opening with this random number.
async fn open_as(
    owner: u64,
    world: &World,
    devices: Vec<Faulty<Disk>>,
    memory: &LastingBytes,
) -> Result<(Rig, Recovery)> {
    let memory = Rc::new(memory.clone()) as Rc<dyn LastingMemory>;
    let how = |options: &mut OpenOptions| (options.memory, options.owner) = (Some(memory), owner);
    open_with(world.clone(), devices, how).await
}

/// A volume with a log, with writes to 16 extents and without a flush.
async fn written(bench: &Bench) -> (Rig, LastingBytes) {
    let world = &bench.world;
    make(world.clone(), bench.devices(), &options(1)).await.close().await.expect("the disks are sound");
    let memory = world.give_memory(StoredMemory::default());
    let (volume, _) = open_in(world, bench.devices(), &memory).await;
    assert!(volume.has_pending_log());
    for i in 0..WRITES {
        let bytes = filled(&bench.arena, LEN, i + 1);
        volume.write(STEP * u64::from(i), &bytes, Durability::Volatile).await.expect("there is room");
    }
    (volume, memory)
}

/// Number of writes that are read back.
async fn found(bench: &Bench, volume: &Rig) -> usize {
    let mut found = 0;
    for i in 0..WRITES {
        let is_there = holds(volume, &bench.arena, STEP * u64::from(i), LEN, i + 1).await;
        found += usize::from(is_there.expect("the disks are sound"));
    }
    found
}

/// Results of the next daemon if `change` happens to the memory in between.
fn after_a_death(change: impl FnOnce(&mut StoredMemory) + 'static) -> (usize, Recovery) {
    let bench = Rc::new(bench(1));
    let here = bench.clone();
    bench.run(async move {
        let (_dead, memory) = written(&here).await;
        let mut stored = memory.store_away();
        change(&mut stored);
        let memory = here.world.give_memory(stored);
        let (volume, recovery) = open_in(&here.world, here.killed(), &memory).await;
        let found = found(&here, &volume).await;
        volume.audit().await.expect("no slot is lost");
        (found, recovery)
    })
}

#[test]
fn acknowledged_unflushed_writes_survive_daemon_death() {
    let (found, recovery) = after_a_death(|_| ());
    assert_eq!((found, recovery.has_log, recovery.log_refused), (16, true, None));
    assert_eq!(recovery.changes_of_log, 16);
}

#[test]
fn log_from_before_machine_restart_is_ignored() {
    let (found, recovery) = after_a_death(StoredMemory::restart_machine);
    assert_eq!((found, recovery.has_log), (0, false));
    assert!(recovery.log_refused.unwrap().contains("restarted"));
}

#[test]
fn damaged_log_is_reported_and_ignored() {
    for (what, change) in [
        ("an entry", (|bytes| bytes[HEAD.as_usize() + 5] ^= 1) as fn(&mut Vec<u8>)),
        ("the volume", |bytes| bytes[16] ^= 1),
        ("its length", |bytes| bytes.truncate(HEAD.as_usize() + 100)),
        ("its last entry", |bytes| bytes[87] ^= 0xff),
        ("the number of its first entry", |bytes| bytes[72] = 9),
        ("its newest batch", |bytes| bytes[88] ^= 1),
        ("its loss", |bytes| bytes[96] = 77),
        ("its layout", |bytes| bytes[7] = b'3'),
        ("its owner", |bytes| bytes[120] ^= 1),
        ("its reader's owner", |bytes| bytes[104] ^= 1),
        ("all of it", |bytes| bytes.fill(0xa5)),
    ] {
        let (found, recovery) = after_a_death(move |stored| change(stored.bytes_mut()));
        assert_eq!((found, recovery.has_log), (0, false), "{what}");
        assert!(recovery.log_refused.is_some(), "{what}");
    }
    let (found, recovery) = after_a_death(|stored| stored.bytes_mut().clear());
    assert_eq!((found, recovery.has_log, recovery.log_refused), (0, false, None), "nothing was there");
}

/// With any content of the file, the volume opens: with all writes, or as after the last flush. A damaged
/// number in the head hid some of the writes.
#[test]
fn no_bytes_in_the_log_keep_a_volume_from_opening() {
    for seed in 0..40 {
        let (found, _) = after_a_death(move |stored| {
            let mut rng = braid_base::Rng::new(seed);
            let bytes = stored.bytes_mut();
            for _ in 0..1 + rng.below(3) {
                // The words of the head that change, and the first entries.
                let at = if rng.chance(0.5) { READER.0 + rng.below(40) } else { HEAD.0 + rng.below(400) };
                bytes[at as usize] = rng.below(256) as u8;
            }
        });
        assert!(found == 0 || found == 16, "seed {seed}: {found} of 16");
    }
}

/// The volume was opened in between without the log, as on another machine, and the new writes count.
#[test]
fn log_skipped_by_opening_is_ignored() {
    let bench = Rc::new(bench(2));
    let here = bench.clone();
    bench.run(async move {
        let (_dead, memory) = written(&here).await;
        let stored = memory.store_away();
        let disks = forks(&here, &here.disks);
        let (volume, _) = open_with(here.world.clone(), sound(&here, &disks), |_| ()).await.unwrap();
        let bytes = filled(&here.arena, LEN, 99);
        volume.write(STEP, &bytes, Durability::Fua).await.unwrap();
        let (memory, disks) = (here.world.give_memory(stored), forks(&here, &disks));
        let (volume, recovery) = open_in(&here.world, sound(&here, &disks), &memory).await;
        assert!(recovery.log_refused.unwrap().contains("opened again since"));
        assert!(holds(&volume, &here.arena, STEP, LEN, 99).await.unwrap());
    });
}

/// An opening read the log and failed before a device had its number. An opening without the log took the
/// same number. In the next opening the log hid the writes of the opening without the log.
#[test]
fn log_is_ignored_after_failed_and_unlogged_openings() {
    let bench = Rc::new(bench(7));
    let here = bench.clone();
    bench.run(async move {
        let (_dead, memory) = written(&here).await;
        let memory = here.world.give_memory(memory.store_away());
        let disks = forks(&here, &here.disks);
        let plan = FaultPlan { writes: 1.0, ..FaultPlan::default() };
        let faults = Faults::new(plan, here.world.fork_rng());
        let broken = disks.iter().map(|disk| Faulty::new(disk.clone(), &faults)).collect();
        let lasting = Rc::new(memory.clone()) as Rc<dyn LastingMemory>;
        let opened = open_with(here.world.clone(), broken, |options| options.memory = Some(lasting)).await;
        assert!(opened.is_err(), "no superblock could be written");
        let disks = forks(&here, &disks);
        let (volume, _) = open_with(here.world.clone(), sound(&here, &disks), |_| ()).await.unwrap();
        let bytes = filled(&here.arena, LEN, 99);
        volume.write(STEP, &bytes, Durability::Fua).await.unwrap();
        let (memory, disks) = (here.world.give_memory(memory.store_away()), forks(&here, &disks));
        let (volume, recovery) = open_in(&here.world, sound(&here, &disks), &memory).await;
        assert!(recovery.log_refused.unwrap().contains("opened again since"));
        assert!(holds(&volume, &here.arena, STEP, LEN, 99).await.unwrap());
    });
}

/// A backup of a closed volume was served beside the volume, for inspection: same UUID, same number of
/// openings. Discards in the copy were applied to the original after both had died: the copy's log had taken
/// the place of the original's.
#[test]
fn log_of_volume_copy_is_ignored() {
    let bench = Rc::new(bench(9));
    let here = bench.clone();
    bench.run(async move {
        let world = &here.world;
        let (volume, _) = written(&here).await;
        volume.close().await.unwrap();
        let copies = forks(&here, &here.disks);
        let memory = world.give_memory(StoredMemory::default());
        let (volume, _) = open_as(11, world, here.devices(), &memory).await.unwrap();
        assert_eq!(found(&here, &volume).await, 16);
        let memory = world.give_memory(StoredMemory::default());
        let (copy, _) = open_as(22, world, sound(&here, &copies), &memory).await.unwrap();
        copy.discard(Bytes::ZERO, MIB).await.unwrap();
        assert!(entries(&memory) > 0);
        let (memory, disks) = (world.give_memory(memory.store_away()), forks(&here, &here.disks));
        let (volume, recovery) = open_as(33, world, sound(&here, &disks), &memory).await.unwrap();
        let refused = recovery.log_refused.expect("the log is of the copy");
        assert!(refused.contains("copy of the volume"), "{refused}");
        assert_eq!((found(&here, &volume).await, recovery.has_log), (16, false));
    });
}

/// Openings read the log and fail: no device has the number of such an opening, or one device has. The
/// superblock of the next opening names another owner than the log's opening, and the opening reads the log
/// all the same.
#[test]
fn log_read_by_failed_openings_is_replayed() {
    let bench = Rc::new(bench(10));
    let here = bench.clone();
    bench.run(async move {
        let (_dead, mut memory) = written(&here).await;
        let mut disks = here.disks.clone();
        for owner in 1..7 {
            (disks, memory) = (forks(&here, &disks), here.world.give_memory(memory.store_away()));
            let plan = |writes| FaultPlan { writes, ..FaultPlan::default() };
            let broken = (0..).zip(&disks).map(|(place, disk)| {
                let is_broken = owner % 3 == 0 || place == owner % 2;
                let plan = plan(f64::from(u8::from(is_broken)));
                Faulty::new(disk.clone(), &Faults::new(plan, here.world.fork_rng()))
            });
            let opened = open_as(owner, &here.world, broken.collect(), &memory).await;
            assert!(opened.is_err(), "a superblock could not be written");
        }
        (disks, memory) = (forks(&here, &disks), here.world.give_memory(memory.store_away()));
        let (volume, recovery) = open_as(99, &here.world, sound(&here, &disks), &memory).await.unwrap();
        assert_eq!((recovery.log_refused, recovery.has_log), (None, true));
        assert_eq!(found(&here, &volume).await, 16);
    });
}

/// Each opening dies once it has replayed the log: a series of such openings loses no acknowledged write.
#[test]
fn repeated_daemon_deaths_lose_no_acknowledged_writes() {
    let bench = Rc::new(bench(3));
    let here = bench.clone();
    bench.run(async move {
        let (_dead, mut memory) = written(&here).await;
        let mut disks = here.disks.clone();
        for owner in 1..5 {
            disks = forks(&here, &disks);
            memory = here.world.give_memory(memory.store_away());
            let (volume, _) = open_as(owner, &here.world, sound(&here, &disks), &memory).await.unwrap();
            assert_eq!(found(&here, &volume).await, 16);
        }
    });
}

/// A commit was in progress with as many changes as a batch holds, and as many changes again were pending.
/// An opening that made all changes durable ended in a panic: the opening held the map while waiting for the
/// journal.
#[test]
fn a_log_with_more_changes_than_a_batch_holds_is_replayed() {
    const SIZE: Bytes = Bytes(128 << 20);
    const BATCH: u64 = 12_072;
    let bench = Rc::new(cached::bench(8, SIZE * 2, SIZE * 2));
    let here = bench.clone();
    bench.run(async move {
        let world = &here.world;
        let mut made = CreateOptions { policy: "hdd-only".to_owned(), ..options(1) };
        (made.size, made.extent_size, made.block_size) = (Some(SIZE), LEN, LEN);
        made.span_size = LEN * 64;
        make(world.clone(), here.devices(), &made).await.close().await.unwrap();
        let memory = world.give_memory(StoredMemory::default());
        let (writer, _) = open_in(world, here.devices(), &memory).await;
        // The journal's device takes long over the first batch, while guests write to the other device.
        here.disks[0].faults().set(FaultPlan { hangs: true, ..FaultPlan::default() });
        let (arena, written) = (here.arena.clone(), Rc::new(Cell::new(0)));
        let (count, sleeper) = (written.clone(), world.clone());
        world.spawn(async move {
            for at in 0..SIZE / MIB {
                if at == 32 {
                    // A commit of the pending changes begins after five seconds.
                    sleeper.sleep(Nanos::from_secs(8)).await;
                }
                let bytes = filled(&arena, MIB, 7);
                writer.write(MIB * at, &bytes, Durability::Volatile).await.unwrap();
                count.set(at + 1);
            }
        });
        while entries(&memory) <= BATCH + 100 {
            assert!(
                world.now() < Nanos::from_secs(20),
                "{} changes: no commit took long enough",
                entries(&memory)
            );
            world.sleep(Nanos::from_millis(1)).await;
        }
        let (stored, disks) = (memory.store_away(), forks(&here, &here.disks));
        let acknowledged = written.get();
        let memory = world.give_memory(stored);
        let (volume, recovery) = open_in(world, sound(&here, &disks), &memory).await;
        assert!(recovery.changes_of_log > BATCH, "{recovery:?}");
        for at in 0..acknowledged {
            assert!(holds(&volume, &here.arena, MIB * at, MIB, 7).await.unwrap(), "MiB {at}");
        }
        volume.audit().await.expect("no slot is lost");
    });
}

/// Number of changes in a log.
fn entries(memory: &LastingBytes) -> u64 {
    let mut head = [0; HEAD_USED];
    memory.load(Bytes::ZERO, &mut head);
    decode_head(&head, memory.len()).map_or(0, |head| head.end - head.first)
}

/// A closed volume leaves no log, and after a flush the log has nothing that the next opening needs.
#[test]
fn a_closed_volume_has_no_log() {
    let bench = Rc::new(bench(4));
    let here = bench.clone();
    bench.run(async move {
        let (volume, memory) = written(&here).await;
        volume.close().await.expect("the disks are sound");
        let (volume, recovery) = open_in(&here.world, here.devices(), &memory).await;
        assert_eq!((recovery.has_log, recovery.log_refused), (false, None));
        assert_eq!(found(&here, &volume).await, 16);
    });
}

/// Without room for the log the volume is served all the same, as before logs existed.
#[test]
fn volume_is_served_without_log_if_memory_is_full() {
    let bench = Rc::new(bench(5));
    let here = bench.clone();
    bench.run(async move {
        make(here.world.clone(), here.devices(), &options(1)).await.close().await.unwrap();
        let memory = here.world.give_memory(StoredMemory::default());
        memory.set_limit(KIB * 64);
        let (volume, _) = open_in(&here.world, here.devices(), &memory).await;
        assert!(!volume.has_pending_log());
        let bytes = filled(&here.arena, MIB, 7);
        volume.write(Bytes::ZERO, &bytes, Durability::Fua).await.unwrap();
        volume.close().await.unwrap();
    });
}

/// A flush failed, so the device may have lost accepted writes. The daemon died, and the next daemon must
/// not call these writes good. The volume is as after the last good flush, and the first flush of a guest
/// reports the failure. The next flush counts.
#[test]
fn failed_flush_is_reported_after_daemon_death() {
    let bench = Rc::new(bench(6));
    let here = bench.clone();
    bench.run(async move {
        let (volume, memory) = written(&here).await;
        for faults in &here.faults {
            faults.set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        }
        volume.flush().await.unwrap_err();
        let disks = forks(&here, &here.disks);
        let memory = here.world.give_memory(memory.store_away());
        let (volume, recovery) = open_in(&here.world, sound(&here, &disks), &memory).await;
        assert!(recovery.flush_had_failed && !recovery.has_log);
        assert_eq!(found(&here, &volume).await, 0);
        // The daemon died again before any guest saw the failure.
        let (memory, disks) = (here.world.give_memory(memory.store_away()), forks(&here, &disks));
        let (volume, recovery) = open_in(&here.world, sound(&here, &disks), &memory).await;
        assert!(recovery.flush_had_failed);
        let bytes = filled(&here.arena, LEN, 5);
        volume.write(Bytes::ZERO, &bytes, Durability::Volatile).await.unwrap();
        assert_eq!(volume.flush().await.unwrap_err().kind(), ErrorKind::Io);
        volume.flush().await.expect("only the first one is told");
        volume.close().await.expect("nothing is owed any more");
    });
}
