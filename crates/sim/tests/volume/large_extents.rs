//! Extents of 64 MiB with blocks of 4 KiB: many thousand blocks in an extent, more than one batch of the
//! journal has records.

use crate::rig::cached::{Cache, bench};
use crate::rig::{Rig, filled, holds, make, open, open_with, options};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, Zeroing};
use braid_runtime::{Arena, Runtime};
use braid_sim::{FaultPlan, Faults, Faulty};

const EXTENT: Bytes = Bytes(64 << 20);
const EXTENTS: u64 = 6;
const PIECE: Bytes = Bytes(64 << 10);

fn made(policy: &str) -> CreateOptions {
    let mut made = CreateOptions { policy: policy.to_owned(), ..options(40) };
    (made.size, made.extent_size, made.block_size) = (Some(EXTENT * EXTENTS), EXTENT, KIB * 4);
    made.span_size = EXTENT;
    made
}

/// A guest discarded a GiB of lost extents. Lost extents were not cut at parts, so one request needed 16,385
/// records, and the journal takes 12,072: an assertion ended the daemon.
#[test]
fn lost_large_extents_are_discarded_or_zeroed_at_once() {
    for zeroing in [None, Some(Zeroing::MayDiscard), Some(Zeroing::KeepAllocated)] {
        let bench = bench(40, MIB * 768, MIB * 768);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        let disks = bench.disks.clone();
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &made("stripe")).await;
            for extent in 0..EXTENTS {
                let bytes = filled(&arena, PIECE, 7);
                volume.write(EXTENT * extent, &bytes, Durability::Volatile).await.expect("there is room");
            }
            volume.flush().await.expect("the devices are sound");
            world.sleep(Nanos::from_secs(31)).await;
            volume.close().await.expect("the devices are sound");
            let (volume, recovery) =
                open_with(world.clone(), vec![all[1].clone()], |o| o.distrust = vec![DeviceId(0)])
                    .await
                    .expect("the rest is given up");
            assert!(!recovery.lost.is_empty() && recovery.lost.len() < EXTENTS as usize);
            match zeroing {
                None => volume.discard(Bytes::ZERO, EXTENT * EXTENTS).await,
                Some(zeroing) => {
                    volume.write_zeroes(Bytes::ZERO, EXTENT * EXTENTS, zeroing, Durability::Volatile).await
                }
            }
            .expect("zeros need no bytes that are lost");
            volume.flush().await.expect("the device is sound");
            check_zeros(&volume, &arena).await;
            let faults = Faults::new(FaultPlan::default(), world.fork_rng());
            let killed = Faulty::new(disks[1].fork(&world), &faults);
            let again =
                open(world.clone(), vec![killed]).await.expect("nothing is missing but what was given up");
            check_zeros(&again, &arena).await;
            assert!(again.status().lost.is_empty());
        });
    }
}

async fn check_zeros(volume: &Rig, arena: &Arena) {
    for extent in 0..EXTENTS {
        assert!(holds(volume, arena, EXTENT * extent, PIECE, 0).await.expect("it is not lost"), "{extent}");
    }
}

/// Each block has a dirty extra copy, so a request for the whole extent is cut, and each piece has room in
/// the journal.
#[test]
fn an_extent_of_many_thousand_dirty_blocks_is_discarded() {
    let bench = bench(41, MIB * 768, MIB * 768);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make(world.clone(), all, &made("ssd-first,cache=60%")).await;
        volume.replace_policy(Box::new(Cache { writes: true }));
        for value in [1, 2] {
            for at in 0..EXTENT / MIB {
                let bytes = filled(&arena, MIB, value);
                volume.write(MIB * at, &bytes, Durability::Volatile).await.expect("there is room");
            }
        }
        let (_, dirty) = volume.status().extra_blocks;
        assert!(dirty > 12_000, "{dirty} dirty blocks");
        volume.discard(Bytes::ZERO, EXTENT).await.expect("the devices are sound");
        volume.flush().await.expect("the devices are sound");
        assert_eq!(volume.status().extra_blocks.1, 0);
        for at in 0..EXTENT / MIB {
            assert!(holds(&volume, &arena, MIB * at, MIB, 0).await.expect("the devices are sound"), "{at}");
        }
        volume.audit().await.expect("the map is sound");
    });
}
