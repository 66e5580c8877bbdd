//! A volume of one copy that loses a device for good: the data that the administrator gives up, and the
//! remaining data.

use crate::chaos::Chaos;
use crate::rig::life::disk;
use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options, refused, seeds};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{Durability, ErrorKind, Export, Recovery, Result};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Buf, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};

const BLOCK: Bytes = Bytes(KIB.0 * 4);
const SIZE: Bytes = Bytes(MIB.0 * 4);

/// Opens the remaining devices, with the lost device excluded.
async fn open_without(world: World, left: Vec<Faulty<Disk>>, lost: usize) -> Result<(Rig, Recovery)> {
    open_with(world, left, |options| options.distrust = vec![DeviceId(lost as u16)]).await
}

/// After the loss of a disk, a guest reads the data on the other disks, and an error, not zeros or old
/// bytes, for the rest.
#[test]
fn remaining_data_is_readable_and_lost_extents_are_listed() {
    for lost in 0..2 {
        let bench = bench(1 + lost as u64);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let all = bench.devices();
        bench.run(async move {
            let made = braid_engine::CreateOptions { policy: "stripe".to_owned(), ..options(1) };
            let volume = make(world.clone(), all.clone(), &made).await;
            for at in 0..4 {
                volume.write(MIB * at, &filled(&arena, MIB, 1 + at as u8), Durability::Fua).await.unwrap();
            }
            // Until then the map of the second metadata device may be stale.
            world.sleep(Nanos::from_secs(31)).await;
            let homes: Vec<usize> =
                (0..32).map(|i| volume.explain(KIB * 128 * i).unwrap().home.unwrap().0.index()).collect();
            assert!(homes.contains(&0) && homes.contains(&1));
            volume.close().await.unwrap();
            drop(volume);

            let rest = vec![all[1 - lost].clone()];
            let error = refused(open(world.clone(), rest.clone()).await);
            assert_eq!(error.kind(), ErrorKind::Degraded, "it is not given up yet: {error}");
            let (volume, recovery) = open_without(world.clone(), rest.clone(), lost).await.unwrap();
            for (i, home) in (0..32).zip(homes) {
                let read = holds(&volume, &arena, KIB * 128 * i, KIB * 128, 1 + (i / 8) as u8).await;
                let is_listed = recovery.lost.iter().any(|extent| u64::from(extent.0) == i);
                assert_eq!(is_listed, home == lost, "extent {i}");
                if home == lost {
                    assert_eq!(refused(read).kind(), ErrorKind::Corrupt, "extent {i}");
                } else {
                    assert!(read.unwrap(), "extent {i}");
                }
            }
            assert_eq!(volume.status().devices[lost].state, DeviceState::Missing);
            // The volume serves as before, on the remaining devices.
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
            let killed = sound(disks[1 - lost].fork(&world), &world);
            let again = open(world.clone(), vec![killed]).await.unwrap();
            assert!(holds(&again, &arena, Bytes::ZERO, MIB, 9).await.unwrap(), "after a kill");
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            drop(volume);

            // Excluded data does not return.
            let volume = open(world.clone(), all).await.unwrap();
            assert_eq!(volume.status().devices[lost].state, DeviceState::Missing);
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 9).await.unwrap());
            volume.close().await.unwrap();
            drop(volume);
            let volume = open(world, rest).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 9).await.unwrap());
        });
    }
}

/// A device without faults.
fn sound(disk: Disk, world: &World) -> Faulty<Disk> {
    Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()))
}

/// Fills a block with its number.
fn stamp(arena: &Arena, block: u64) -> Buf {
    let buf = filled(arena, BLOCK, 0);
    buf.with_bytes_mut(|bytes| {
        bytes.chunks_exact_mut(8).for_each(|place| place.copy_from_slice(&(block + 1).to_le_bytes()));
    });
    buf
}

/// The journal was on the first SSD alone. Without the journal, the map on the disk may be 30 s old. A slot
/// reused meanwhile returned the bytes of another extent.
#[test]
fn no_extent_reads_foreign_bytes_after_device_loss() {
    let seeds = seeds("BRAID_CRASH_SEEDS", 24);
    let (mut lost_extents, mut read_blocks) = (0, 0);
    for seed in 0..seeds {
        let bench = bench(100 + seed);
        let (world, arena, mut disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let (lost, read) = bench.run(async move {
            let mut rng = world.fork_rng();
            if rng.chance(0.5) {
                disks.push(Disk::new(&world, DiskOptions::ssd(MIB * 8)));
            }
            let all = disks.iter().map(|disk| sound(disk.clone(), &world)).collect();
            let mut volume = make(world.clone(), all, &options(2)).await;
            for _ in 0..rng.below(3) {
                use_for_a_while(&world, &volume, &arena, &mut rng).await;
                // The daemon is killed, and its disks are opened again: the newest records are in the
                // journal alone.
                disks = disks.iter().map(|disk| disk.fork(&world).restart(&world)).collect();
                let all = disks.iter().map(|disk| sound(disk.clone(), &world)).collect();
                volume = open(world.clone(), all).await.unwrap();
            }
            use_for_a_while(&world, &volume, &arena, &mut rng).await;
            let (gone, power_fails) = (rng.below(disks.len() as u64) as usize, rng.chance(0.5));
            disks.remove(gone);
            let mut rest = Vec::new();
            for disk in &disks {
                let disk = disk.fork(&world);
                if power_fails {
                    disk.power_cut(&mut rng);
                }
                rest.push(sound(disk.restart(&world), &world));
            }
            let (after, recovery) = open_without(world.clone(), rest, gone).await.unwrap();
            let read = check(&after, &arena, seed).await;
            rewrite(&after, &arena, &mut rng).await;
            (recovery.lost.len(), read)
        });
        lost_extents += lost;
        read_blocks += read;
    }
    assert!(
        lost_extents > seeds as usize && read_blocks > 10 * seeds as usize,
        "{lost_extents} extents lost, {read_blocks} blocks read"
    );
}

/// A journal is used again after a pause: old batches must not be followed by new batches.
#[test]
fn journal_reused_after_pause_keeps_flushed_writes() {
    let world = World::new(9);
    let rt = world.clone();
    world.block_on(async move {
        let (world, arena) = (rt, Arena::new(MIB));
        let disks: Vec<Disk> = (0..3).map(|_| disk(&world, false)).collect();
        let left =
            |of: &[usize]| of.iter().map(|&i| sound(disks[i].fork(&world), &world)).collect::<Vec<_>>();
        let made = braid_engine::CreateOptions { policy: "stripe".to_owned(), ..options(9) };
        let all = disks.iter().map(|disk| sound(disk.clone(), &world)).collect();
        let volume = make(world.clone(), all, &made).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        // The first device is lost, then removed: its journal continues on the third device, and the journal
        // of the second device is out of use.
        let rest = left(&[1, 2]);
        let (volume, _) = open_without(world.clone(), rest.clone(), 0).await.unwrap();
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        volume.remove_device(DeviceId(0)).await.unwrap();
        while volume.status().devices[0].state != DeviceState::Removed {
            world.sleep(Nanos::from_secs(1)).await;
        }
        for value in 3..9 {
            volume.write(MIB, &filled(&arena, MIB, value), Durability::Fua).await.unwrap();
            volume.discard(MIB * 2, MIB).await.unwrap();
            volume.write(MIB * 2, &filled(&arena, MIB, value), Durability::Fua).await.unwrap();
            volume.checkpoint().await.unwrap();
        }
        volume.close().await.unwrap();
        // The third device is lost.
        let (volume, _) = open_without(world.clone(), rest[..1].to_vec(), 2).await.unwrap();
        volume.write(MIB * 3, &filled(&arena, KIB * 128, 9), Durability::Fua).await.unwrap();
        let killed = rest[0].clone();
        drop(volume);
        let volume = open(world.clone(), vec![killed]).await.expect("nothing that was promised is lacking");
        assert!(holds(&volume, &arena, MIB * 3, KIB * 128, 9).await.unwrap());
        volume.audit().await.unwrap();
    });
    world.halt();
}

async fn use_for_a_while(world: &World, volume: &Rig, arena: &Arena, rng: &mut Rng) {
    let chaos = Chaos::new(world.fork_rng());
    volume.replace_policy(Box::new(if rng.chance(0.5) { chaos.dirtying() } else { chaos }));
    for _ in 0..rng.below(800) {
        let block = rng.below(SIZE / BLOCK);
        match rng.below(20) {
            0 => volume.flush().await.expect("no disk fails"),
            1 => volume.discard(BLOCK * (block & !31), BLOCK * 32).await.expect("no disk fails"),
            2 => drop(holds(volume, arena, BLOCK * block, BLOCK, 0).await.expect("no disk fails")),
            3 if rng.chance(0.1) => volume.checkpoint().await.expect("no disk fails"),
            _ => volume
                .write(BLOCK * block, &stamp(arena, block), Durability::Volatile)
                .await
                .expect("no disk fails"),
        }
        world.sleep(Nanos::from_millis(rng.below(20))).await;
    }
}

/// Checks that each block reads as an error, as zeros, or as content written to the block.
async fn check(volume: &Rig, arena: &Arena, seed: u64) -> usize {
    let mut read = 0;
    for block in 0..SIZE / BLOCK {
        let into = filled(arena, BLOCK, 0xee);
        match volume.read(BLOCK * block, &into).await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            Ok(()) => {
                read += 1;
                // A sector in flight at the power cut may be torn anywhere.
                let own = (block + 1).to_le_bytes();
                into.with_bytes(|bytes| {
                    for number in bytes.chunks_exact(8) {
                        let is_own = number.iter().zip(own).all(|(&byte, own)| byte == 0 || byte == own);
                        assert!(is_own, "seed {seed}: block {block} reads as {number:?}");
                    }
                });
            }
        }
    }
    read
}

/// After a rewrite of all bytes, the volume is as good as new.
async fn rewrite(volume: &Rig, arena: &Arena, rng: &mut Rng) {
    for extent in 0..(SIZE / (KIB * 128)) {
        let value = rng.below(250) as u8 + 1;
        volume
            .write(KIB * 128 * extent, &filled(arena, KIB * 128, value), Durability::Volatile)
            .await
            .expect("no disk fails");
        assert!(holds(volume, arena, KIB * 128 * extent, KIB * 128, value).await.expect("no disk fails"));
    }
    volume.flush().await.expect("no disk fails");
    volume.audit().await.expect("no disk fails");
    volume.close().await.expect("no disk fails");
}
