//! PASS on the engine: the lag is known by block, a resync copies exactly the lag, and the lag never exceeds
//! the bound.

use crate::deadlines::{hang, no_faults, timed, write};
use crate::rig::life::disk;
use crate::rig::{bench, filled, holds, make, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime, join_all};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};

const EXTENT: Bytes = Bytes(128 << 10);
const BLOCK: Bytes = Bytes(4 << 10);

fn mirrored(policy: &str) -> CreateOptions {
    CreateOptions { copies: 2, size: Some(MIB * 2), policy: policy.to_owned(), ..options(9) }
}

#[test]
fn lag_is_tracked_by_block_and_copied_with_gaps() {
    let bench = bench(1);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make(world.clone(), all, &mirrored("pass,max-lag=4MiB,window=4MiB,idle=1s")).await;
        for at in [Bytes::ZERO, MIB] {
            volume.write(at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        assert_eq!(volume.status().behind, MIB * 2);
        world.sleep(Nanos::from_secs(5)).await;
        let status = volume.status();
        assert_eq!((status.behind, status.background.resynced_bytes), (Bytes::ZERO, (MIB * 2).0));
        // Two blocks with a short gap between them in each of four extents, one of the blocks twice.
        for extent in [1, 4, 5, 9] {
            for block in [2, 4, 2] {
                let at = EXTENT * extent + BLOCK * block;
                volume.write(at, &filled(&arena, BLOCK, 2), Durability::Volatile).await.unwrap();
            }
        }
        assert_eq!(volume.status().behind, BLOCK * 8);
        world.sleep(Nanos::from_secs(5)).await;
        let after = volume.status();
        let copied = after.background.resynced_bytes - status.background.resynced_bytes;
        assert_eq!((after.behind, copied), (Bytes::ZERO, (BLOCK * 12).0), "with the gaps");
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
    });
}

/// As published: nothing happens before the window is full. Then the duplication begins at once, regardless
/// of other waits, and no gap is written.
#[test]
fn only_full_window_starts_duplication() {
    let bench = bench(41);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make(world.clone(), all, &mirrored("pass,as-published,window=64KiB")).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        world.sleep(Nanos::from_secs(5)).await;
        let before = volume.status();
        assert_eq!(before.behind, Bytes::ZERO);
        // Every second block: the window is full except for one block.
        let bytes = filled(&arena, BLOCK, 2);
        let write = async |block: u64| {
            volume.write(BLOCK * 2 * block, &bytes, Durability::Volatile).await.unwrap();
        };
        for block in 0..15 {
            write(block).await;
        }
        world.sleep(Nanos::from_secs(3600)).await;
        assert_eq!(volume.status().behind, BLOCK * 15, "in idle time");
        write(15).await;
        world.sleep(Nanos::from_secs(1)).await;
        let after = volume.status();
        let copied = after.background.resynced_bytes - before.background.resynced_bytes;
        assert_eq!((after.behind, copied), (Bytes::ZERO, (BLOCK * 16).0), "without the gaps");
        // Without any lag, the policy asks for a call every 100 ms: the callback comes first.
        let mut slowest = Nanos::ZERO;
        for round in 0..20 {
            world.sleep(Nanos::from_millis(1000 + round * 7)).await;
            volume.write(MIB, &filled(&arena, KIB * 64, 3), Durability::Volatile).await.unwrap();
            let full = world.now();
            while volume.status().background.resynced_bytes
                == after.background.resynced_bytes + (KIB * 64).0 * round
            {
                world.sleep(Nanos::from_micros(100)).await;
            }
            slowest = slowest.max(world.now() - full);
        }
        assert!(slowest < Nanos::from_millis(50), "{slowest}");
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
    });
}

/// A first write fills unwritten parts with zeros, and these zeros must reach the second copy, too.
#[test]
fn zero_padding_of_first_write_is_resynced() {
    let bench = bench(2);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let volume = make(world.clone(), all, &mirrored("pass,idle=1s")).await;
        volume.write(BLOCK, &filled(&arena, BLOCK, 7), Durability::Volatile).await.unwrap();
        assert_eq!(volume.status().behind, KIB * 8, "a part of an extent of 128 KiB");
        world.sleep(Nanos::from_secs(5)).await;
        assert_eq!(volume.status().behind, Bytes::ZERO);
        volume.audit().await.expect("the disks held other bytes there before");
        assert!(holds(&volume, &arena, Bytes::ZERO, BLOCK, 0).await.unwrap());
    });
}

/// Concurrent guests must not each claim room under the bound that only one guest can have.
#[test]
fn no_acknowledged_write_puts_more_behind_than_the_bound_while_the_disk_stalls() {
    let bench = bench(3);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    let faults = bench.faults.clone();
    bench.run(async move {
        let volume = make(world.clone(), all, &mirrored("pass,window=32KiB,max-lag=64KiB,idle=10ms")).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        let stall = Nanos::from_millis(200)..Nanos::from_millis(400);
        faults[1].set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
        let bytes = filled(&arena, BLOCK, 2);
        let writers = (0..24).map(async |i| {
            for round in 0..4 {
                let at = KIB * 40 * i + BLOCK * round * 2;
                volume.write(at, &bytes, Durability::Volatile).await.unwrap();
                let behind = volume.status().behind;
                assert!(behind <= KIB * 64, "{behind} are behind");
            }
        });
        join_all(writers).await;
        faults[1].set(FaultPlan::default());
        world.sleep(Nanos::from_secs(20)).await;
        assert_eq!(volume.status().behind, Bytes::ZERO);
        volume.audit().await.unwrap();
    });
}

/// A disk that rejected writes, and answered all other requests, stayed in use: each write beyond the bound
/// was acknowledged though the disk lacked the write.
#[test]
fn unwritable_disk_is_failed_at_lag_bound() {
    for stops in [false, true] {
        let world = World::new(8);
        let rt = world.clone();
        world.block_on(async move {
            let disks: Vec<Disk> = [true, false, false].map(|ssd| disk(&rt, ssd)).to_vec();
            let faults: Vec<Faults> = disks.iter().map(|_| no_faults(&rt)).collect();
            let all = disks.iter().zip(&faults).map(|(disk, faults)| Faulty::new(disk.clone(), faults));
            let on_failure = if stops { ",on-disk-failure=stop" } else { "" };
            let policy = format!("pass,window=32KiB,max-lag=64KiB,idle=10ms{on_failure}");
            let volume = make(rt.clone(), all.collect(), &mirrored(&policy)).await;
            let arena = Arena::new(MIB * 2);
            for at in 0..2 {
                volume.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            }
            rt.sleep(Nanos::from_secs(60)).await;
            let last = volume.explain(Bytes::ZERO).unwrap().second.unwrap().0;
            // Only writes to its slots fail: metadata is still written.
            let bad_writes = Some(volume.explain(Bytes::ZERO).unwrap().second.unwrap().1..MIB * 10);
            faults[last.index()].set(FaultPlan { bad_writes, ..FaultPlan::default() });
            let state = || volume.status().devices[last.index()].state;
            let mut refused = 0;
            for block in 0..256 {
                let at = BLOCK * (block * 37 % 512);
                refused += u64::from(
                    volume.write(at, &filled(&arena, BLOCK, 2), Durability::Volatile).await.is_err(),
                );
                let behind = volume.status().behind;
                assert!(behind <= KIB * 64 || state() == DeviceState::Failed, "{behind} are behind");
            }
            assert_eq!((state(), refused > 0), (DeviceState::Failed, stops));
        });
        world.halt();
    }
}

#[test]
fn volume_with_one_copy_refuses_pass() {
    let bench = bench(4);
    let (world, all) = (bench.world.clone(), bench.devices());
    bench.run(async move {
        let one = CreateOptions { copies: 1, ..mirrored("pass") };
        assert_eq!(refused(braid_engine::create(&all, &one).await).kind(), ErrorKind::Invalid);
        let volume = make(world, all, &CreateOptions { copies: 1, ..mirrored("ssd-only") }).await;
        assert_eq!(refused(volume.set_policy("pass").await).kind(), ErrorKind::Invalid);
    });
}

/// Guests never rest, and the window is never full: the disk receives old data all the same.
#[test]
fn old_lag_is_copied_while_guests_write() {
    let bench = bench(7);
    let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
    bench.run(async move {
        let policy = "pass,window=90%,max-lag=100%,max-lag-time=500ms,idle=1h";
        let volume = make(world.clone(), all, &mirrored(policy)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        let bytes = filled(&arena, BLOCK, 2);
        for i in 0..200 {
            volume.write(MIB + BLOCK * (i % 50), &bytes, Durability::Volatile).await.unwrap();
            world.sleep(Nanos::from_millis(10)).await;
        }
        assert!(volume.status().behind < MIB / 2, "{}", volume.status().behind);
        world.sleep(Nanos::from_secs(2)).await;
        assert_eq!(volume.status().behind, Bytes::ZERO);
        volume.audit().await.unwrap();
    });
}

/// A user who wants no volume without its safe copy had no choice: the volume continued on the SSD alone.
#[test]
fn volume_without_disk_follows_on_disk_failure_setting() {
    for (seed, stops) in [(20, true), (21, false)] {
        let bench = bench(seed);
        let (world, arena, all) = (bench.world.clone(), bench.arena.clone(), bench.devices());
        let faults = bench.faults.clone();
        bench.run(async move {
            let policy = if stops { "pass,idle=10ms,on-disk-failure=stop" } else { "pass,idle=10ms" };
            let volume = make(world.clone(), all, &mirrored(policy)).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            faults[1].vanish();
            // If writes are to stop, a write fails at the latest when the disk is to receive its copy.
            let mut written = Ok(());
            for _ in 0..10 {
                written = volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 2), Durability::Fua).await;
                world.sleep(Nanos::from_secs(1)).await;
            }
            if stops {
                assert_eq!(refused(written).kind(), ErrorKind::Degraded);
                let zeroed = volume.discard(Bytes::ZERO, MIB).await;
                assert_eq!(refused(zeroed).kind(), ErrorKind::Degraded);
                assert!(holds(&volume, &arena, KIB * 4, KIB * 64, 1).await.unwrap(), "reads go on");
                volume.flush().await.unwrap();
                volume.set_policy("pass,on-disk-failure=continue").await.unwrap();
            }
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 3), Durability::Fua).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 3).await.unwrap());
            assert_eq!(volume.status().devices[1].state, DeviceState::Failed);
        });
    }
}

/// The first write to an extent went to the SSD alone. The SSD fell silent and was failed, as a device
/// without an only copy. The guest was told that no device was there, though the disk was.
#[test]
fn a_first_write_goes_to_the_disk_if_the_ssd_falls_silent() {
    // At once, while the journal records the lag, and while the SSD is written.
    for millis in [0, 1, 2, 4, 8, 16, 24, 32] {
        let bench = bench(30 + millis);
        let (world, arena, all, disks) =
            (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.disks.clone());
        bench.run(async move {
            let volume = make(world.clone(), all, &mirrored("pass,idle=100ms")).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_secs(60)).await;
            assert_eq!(volume.status().behind, Bytes::ZERO);
            let (clock, ssd) = (world.clone(), disks[0].clone());
            world.spawn(async move {
                clock.sleep(Nanos::from_millis(millis)).await;
                hang(&ssd);
            });
            let bytes = filled(&arena, KIB * 64, 2);
            let write = write(&volume, MIB, bytes, Durability::Volatile);
            let (took, written) = timed(&world, write).await;
            written.unwrap();
            if millis > 0 && took < Nanos::from_secs(1) {
                // Only the SSD has the write.
                return;
            }
            volume.flush().await.unwrap();
            world.sleep(Nanos::from_secs(120)).await;
            assert_eq!(volume.status().devices[0].state, DeviceState::Failed);
            assert!(holds(&volume, &arena, MIB, KIB * 64, 2).await.unwrap());
            let alone = Faulty::new(disks[1].fork(&world), &no_faults(&world));
            let volume = crate::rig::open(world, vec![alone]).await.unwrap();
            assert!(holds(&volume, &arena, MIB, KIB * 64, 2).await.unwrap());
        });
    }
}

/// The check used the classes of all places of the volume, including the place to be emptied.
#[test]
fn only_ssd_cannot_be_removed_if_policy_needs_ssd() {
    let world = World::new(40);
    let rt = world.clone();
    world.block_on(async move {
        let disks = [true, false, false].map(|ssd| Faulty::new(disk(&rt, ssd), &no_faults(&rt)));
        let volume = make(rt.clone(), disks.to_vec(), &mirrored("raid1")).await;
        for policy in ["pass", "raid1,write-behind"] {
            volume.set_policy(policy).await.unwrap();
            let error = refused(volume.remove_device(DeviceId(0)).await);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{policy}: {error}");
            assert_eq!(volume.status().devices[0].state, DeviceState::Active);
        }
        volume.set_policy("raid1").await.unwrap();
        volume.remove_device(DeviceId(0)).await.unwrap();
        rt.sleep(Nanos::from_secs(60)).await;
        assert_eq!(volume.status().devices[0].state, DeviceState::Removed);
        assert_eq!(refused(volume.set_policy("pass").await).kind(), ErrorKind::Invalid);
        volume.close().await.unwrap();
    });
    world.halt();
}
