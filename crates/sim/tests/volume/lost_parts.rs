//! Extents that are lost and restored from a backup: part by part, across power cuts.

use crate::rig::cached::bench;
use crate::rig::{Bench, Rig, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, Zeroing};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, World};
use std::collections::BTreeMap;

const EXTENT: Bytes = Bytes(4 << 20);
const PART: Bytes = Bytes(256 << 10);
const SIZE: Bytes = Bytes(24 << 20);
const PARTS: u64 = SIZE.0 / PART.0;

/// A volume that has lost the SSD with some of its extents; returns the volume on the disk, and the lost
/// parts.
async fn without_ssd(bench: &Bench) -> (Rig, Vec<u64>) {
    let world = &bench.world;
    let mut made = CreateOptions { policy: "stripe".to_owned(), ..options(30) };
    (made.size, made.extent_size, made.span_size) = (Some(SIZE), EXTENT, EXTENT);
    let volume = make(world.clone(), bench.devices(), &made).await;
    for at in 0..SIZE / MIB {
        let bytes = filled(&bench.arena, MIB, 7);
        volume.write(MIB * at, &bytes, Durability::Volatile).await.expect("there is room");
    }
    volume.flush().await.expect("the devices are sound");
    world.sleep(Nanos::from_secs(31)).await;
    volume.close().await.expect("the devices are sound");
    let left = vec![bench.devices().swap_remove(1)];
    let (volume, recovery) =
        open_with(world.clone(), left, |o| o.distrust = vec![DeviceId(0)]).await.expect("it is given up");
    let lost: Vec<u64> = recovery.lost.iter().map(|extent| u64::from(extent.0)).collect();
    assert!(lost.len() >= 2 && (lost.len() as u64) < SIZE / EXTENT, "{lost:?}");
    (volume, lost)
}

async fn killed(world: &World, bench: &Bench, disk: &Disk) -> Rig {
    let left = vec![bench.sound(disk.fork(world))];
    open(world.clone(), left).await.expect("nothing is missing but what was given up")
}

async fn is_lost(volume: &Rig, arena: &Arena, at: Bytes, len: Bytes) -> bool {
    match holds(volume, arena, at, len, 0).await {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            true
        }
    }
}

/// A lost extent counted as whole only after a single write of the whole extent. Frontends cut writes at 1
/// MiB, so no restore could heal a larger extent: `dd` ended with an I/O error.
#[test]
fn a_restore_by_the_mebibyte_heals_an_extent_of_four() {
    let bench = bench(30, MIB * 64, MIB * 64);
    let world = bench.world.clone();
    world.clone().block_on(async move {
        let arena = bench.arena.clone();
        let (volume, lost) = without_ssd(&bench).await;
        let start = EXTENT * lost[0];
        volume.write(start, &filled(&arena, MIB, 9), Durability::Fua).await.expect("four whole parts");
        for volume in [volume.clone(), killed(&world, &bench, &bench.disks[1]).await] {
            assert!(holds(&volume, &arena, start, MIB, 9).await.expect("it was written"));
            for at in (4..16).map(|part| start + PART * part) {
                assert!(is_lost(&volume, &arena, at, PART).await, "a part that was not written is no zeros");
            }
            assert!(is_lost(&volume, &arena, start + MIB - KIB * 4, KIB * 8).await);
            let damaged = volume.status().damaged;
            assert_eq!(damaged, [start + MIB..start + EXTENT]);
        }
        let small = filled(&arena, KIB * 64, 3);
        let refused = refused(volume.write(start + MIB, &small, Durability::Volatile).await);
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "the rest of the part would become zeros: {refused}");
        volume.write(start + KIB * 64, &small, Durability::Fua).await.expect("that part is good");
        volume.write_zeroes(start + MIB, PART, Zeroing::KeepAllocated, Durability::Fua).await.expect("zeros");
        volume.discard(start + MIB + PART, PART).await.expect("a whole part");
        assert!(holds(&volume, &arena, start + MIB, PART * 2, 0).await.expect("zeros"));
        for at in 1..4 {
            volume
                .write(start + MIB * at, &filled(&arena, MIB, 9), Durability::Fua)
                .await
                .expect("a restore");
        }
        for volume in [volume.clone(), killed(&world, &bench, &bench.disks[1]).await] {
            for at in 1..4 {
                assert!(holds(&volume, &arena, start + MIB * at, MIB, 9).await.expect("it was written"));
            }
            assert!(holds(&volume, &arena, start + KIB * 64, KIB * 64, 3).await.expect("it was written"));
            assert!(volume.status().damaged.is_empty());
            assert_eq!(volume.status().lost.len(), lost.len() - 1);
            volume.audit().await.expect("the map is sound");
        }
        let other = EXTENT * lost[1];
        volume.write(other + PART, &filled(&arena, PART, 9), Durability::Fua).await.expect("a whole part");
        volume.discard(other, EXTENT).await.expect("all of it");
        for at in 0..4 {
            assert!(holds(&volume, &arena, other + MIB * at, MIB, 0).await.expect("nothing of it is lost"));
        }
        world.halt();
    });
}

/// After a power cut each part has its flushed state: parts never written are lost as before, and written
/// parts are there.
#[test]
fn good_and_lost_parts_survive_power_cuts() {
    for seed in 0..12 {
        let bench = bench(800 + seed, MIB * 64, MIB * 64);
        let world = bench.world.clone();
        world.clone().block_on(async move {
            let (arena, mut rng) = (bench.arena.clone(), world.fork_rng());
            let (mut volume, lost) = without_ssd(&bench).await;
            let lost: Vec<u64> = (0..PARTS).filter(|part| lost.contains(&(part / 16))).collect();
            let mut disk = bench.disks[1].clone();
            // By part: the value that a flush has promised; `None` for a lost part. And the parts changed
            // since.
            let mut known: BTreeMap<u64, Option<u8>> = lost.iter().map(|&part| (part, None)).collect();
            for life in 0..5 {
                let (mut newest, mut unflushed) = (known.clone(), BTreeMap::<u64, Vec<Option<u8>>>::new());
                for _ in 0..rng.between(3, 30) {
                    let first = lost[rng.below(lost.len() as u64) as usize];
                    let parts = rng.between(1, 5).min(16 - first % 16);
                    let (at, len) = (PART * first, PART * parts);
                    let value = match rng.below(6) {
                        0 => {
                            volume.discard(at, len).await.expect("whole parts");
                            0
                        }
                        1 => {
                            let whole = PART * (first / 16 * 16);
                            volume.discard(whole, EXTENT).await.expect("all of it");
                            for part in first / 16 * 16..first / 16 * 16 + 16 {
                                unflushed.entry(part).or_default().push(newest[&part]);
                                newest.insert(part, Some(0));
                            }
                            0
                        }
                        _ => {
                            let value = 1 + rng.below(250) as u8;
                            for part in 0..parts {
                                let bytes = filled(&arena, PART, value);
                                let place = at + PART * part;
                                volume
                                    .write(place, &bytes, Durability::Volatile)
                                    .await
                                    .expect("a whole part");
                            }
                            value
                        }
                    };
                    for part in first..first + parts {
                        unflushed.entry(part).or_default().push(newest[&part]);
                        newest.insert(part, Some(value));
                    }
                    if rng.chance(0.3) {
                        volume.flush().await.expect("the disk is sound");
                        unflushed.clear();
                    }
                    if rng.chance(0.1) {
                        volume.checkpoint().await.expect("the disk is sound");
                    }
                    world.sleep(Nanos(rng.below(5_000_000_000))).await;
                }
                let what = format!("seed {seed}, life {life}");
                disk = disk.fork(&world);
                disk.lose_cache();
                let left = vec![bench.sound(disk.clone())];
                volume = open(world.clone(), left).await.unwrap_or_else(|e| panic!("{what}: {e}"));
                for &part in &lost {
                    let before = unflushed.get(&part).cloned().unwrap_or_default();
                    let mut allowed = vec![newest[&part]];
                    allowed.extend(before);
                    let found = value_of(&volume, &arena, PART * part).await;
                    assert!(
                        allowed.contains(&found) || allowed.len() > 1 && found == Some(u8::MAX),
                        "{what}: part {part} is {found:?}, and not one of {allowed:?}"
                    );
                    known.insert(part, found.filter(|&value| value != u8::MAX));
                    if found == Some(u8::MAX) {
                        // Torn between two writes.
                        volume.write(PART * part, &filled(&arena, PART, 1), Durability::Fua).await.unwrap();
                        known.insert(part, Some(1));
                    }
                }
            }
            volume.audit().await.expect("the map is sound");
            world.halt();
        });
    }
}

/// The byte that fills a part, or 255 for a part with different bytes; `None` for a lost part.
async fn value_of(volume: &Rig, arena: &Arena, at: Bytes) -> Option<u8> {
    let buf = filled(arena, PART, 0);
    match volume.read(at, &buf).await {
        Ok(()) => Some(buf.with_bytes(|b| if b.iter().all(|&x| x == b[0]) { b[0] } else { u8::MAX })),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            None
        }
    }
}
