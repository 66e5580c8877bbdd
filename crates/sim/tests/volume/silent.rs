//! Disks that fall silent and are failed for their silence, durably: the view of guests, the state after a
//! power cut, and the return of the disks.

use crate::deadlines::{hang, mirror, no_faults, parts, recover, state, timed, write};
use crate::rig::life::addition;
use crate::rig::{bench, filled, holds, make, open};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export};
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::Runtime;
use braid_sim::{Disk, DiskOptions, Faulty};

/// Without writes, a hung disk stayed `slow` as long as the hang lasted: the volume had one copy left, and
/// no record said so. The disk is failed after a minute, durably, whether guests read or only the watchdog
/// asked.
#[test]
fn device_silent_for_one_minute_is_failed_durably() {
    for (seed, reads) in [(21, true), (22, false), (23, true)] {
        for hung in 0..2 {
            let bench = bench(seed);
            let (world, arena, all, disks) = parts(&bench);
            bench.run(async move {
                let volume = make(world.clone(), all.clone(), &mirror(3)).await;
                volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
                // All pending writes are done.
                world.sleep(Nanos::from_secs(60)).await;
                hang(&disks[hung]);
                for second in 0..90 {
                    let at = KIB * 4 * (second * 7 % 256);
                    if reads {
                        let (took, right) = timed(&world, holds(&volume, &arena, at, KIB * 4, 1)).await;
                        assert!(right.unwrap() && took < Nanos::from_secs(7), "{took}");
                    }
                    world.sleep(Nanos::from_secs(1)).await;
                    let is_failed = state(&volume, hung) == DeviceState::Failed;
                    assert!(second < 88 || is_failed, "after {second} s: {}", state(&volume, hung));
                    assert!(second > 30 || !is_failed, "a device may be slow");
                }
                let killed: Vec<_> = disks.iter().map(|disk| disk.fork(&world)).collect();
                let write = write(&volume, Bytes::ZERO, filled(&arena, KIB * 64, 2), Durability::Fua);
                let (took, written) = timed(&world, write).await;
                assert!(written.is_ok() && took < Nanos::from_secs(1), "{took}");
                // The disk answers its old requests. The disk is stale, and returns as stale.
                recover(&disks[hung]);
                world.sleep(Nanos::from_secs(5)).await;
                assert_eq!(state(&volume, hung), DeviceState::Failed);
                let back = Faulty::new(disks[hung].clone(), &no_faults(&world));
                volume.return_device(back, "it").await.unwrap();
                world.sleep(Nanos::from_secs(30)).await;
                assert_eq!(state(&volume, hung), DeviceState::Active);
                volume.audit().await.unwrap();
                volume.close().await.unwrap();
                let back = Faulty::new(disks[hung].clone(), &no_faults(&world));
                let volume = open(world.clone(), vec![back]).await.unwrap();
                assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 64, 2).await.unwrap());
                drop(volume);
                // The record was durable: a kill finds it.
                let killed = killed.into_iter().map(|disk| Faulty::new(disk, &no_faults(&world)));
                let volume = open(world.clone(), killed.collect()).await.unwrap();
                assert_eq!(state(&volume, hung), DeviceState::Returning);
            });
        }
    }
}

/// The disk hangs while the window is on its way to the disk, and guests write beyond the bound, or wait for
/// flushes. Then the power fails, and the disk is found stale.
#[test]
fn guests_of_mirror_continue_without_hung_disk() {
    for (seed, policy) in [
        (24, "pass,max-lag=256KiB,window=128KiB"),
        (25, "pass,max-lag-time=2s,window=128KiB"),
        (26, "raid1"),
        (27, "raid1,write-behind"),
    ] {
        let bench = bench(seed);
        let (world, arena, all, disks) = parts(&bench);
        bench.run(async move {
            let options = CreateOptions { policy: policy.to_owned(), ..mirror(4) };
            let volume = make(world.clone(), all.clone(), &options).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            hang(&disks[1]);
            let mut longest = Nanos::ZERO;
            for i in 0..64 {
                let bytes = filled(&arena, KIB * 16, 2);
                let write = write(&volume, KIB * 16 * i, bytes, Durability::Volatile);
                let (took, written) = timed(&world, write).await;
                written.unwrap();
                longest = longest.max(took);
            }
            let (took, flushed) = timed(&world, volume.flush()).await;
            flushed.unwrap();
            assert!(longest + took < Nanos::from_secs(20), "{policy}: {longest}, {took}");
            world.sleep(Nanos::from_secs(80)).await;
            assert_eq!(state(&volume, 1), DeviceState::Failed, "{policy}");
            let cut: Vec<_> = disks.iter().map(|disk| disk.fork(&world)).collect();
            cut.iter().for_each(Disk::lose_cache);
            let cut = cut.into_iter().map(|disk| Faulty::new(disk, &no_faults(&world)));
            let cut: Vec<_> = cut.collect();
            drop(volume);
            let volume = open(world.clone(), cut.clone()).await.unwrap();
            assert_eq!(state(&volume, 1), DeviceState::Returning, "{policy}");
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 2).await.unwrap(), "{policy}");
            world.sleep(Nanos::from_secs(60)).await;
            assert_eq!(state(&volume, 1), DeviceState::Active, "{policy}");
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// Each device's silence was timed separately. A device that fell silent later never counted as having
/// answered since, so a hung device was not failed.
#[test]
fn hung_device_is_failed_beside_later_added_device() {
    for hung in [0, 1, 2] {
        let bench = bench(45 + hung as u64);
        let (world, arena, all, mut disks) = parts(&bench);
        disks.push(Disk::new(&world, DiskOptions::hdd(MIB * 16)));
        bench.run(async move {
            let made = CreateOptions { policy: "stripe".to_owned(), ..mirror(45) };
            let volume = make(world.clone(), all, &made).await;
            world.sleep(Nanos::from_secs(1000)).await;
            let new = Faulty::new(disks[2].clone(), &no_faults(&world));
            volume.add_device(new, &addition(Layout::Head), |_| Ok(())).await.unwrap();
            for at in 0..4 {
                volume.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            }
            hang(&disks[hung]);
            let start = world.now();
            for at in 0..4 {
                volume.write(MIB * at, &filled(&arena, MIB, 2), Durability::Volatile).await.unwrap();
            }
            volume.flush().await.unwrap();
            let took = world.now() - start;
            assert!(took < Nanos::from_secs(10), "{hung}: {took}");
            assert_eq!(state(&volume, hung), DeviceState::Failed);
            recover(&disks[hung]);
        });
    }
}
