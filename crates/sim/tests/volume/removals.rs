//! Lost devices that leave a volume, and devices lost while they leave.

use crate::deadlines::{hang, mirror, no_faults, recover};
use crate::rig::busy::{busy, end};
use crate::rig::life::{LAST, disk, names, open, state, wait_until_removed};
use crate::rig::{Rig, filled, holds, is_all, make, options, refused, sound};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, Volume, create};
use braid_format::superblock::DeviceState;
use braid_policy::{CurrentCopy, Occasion, Placement, Plan, Policy, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};

const EXTENT: Bytes = Bytes(128 << 10);

/// A device failed while draining, or was missing at the next opening: its removal was forgotten, and the
/// administrator had to request the removal again. A device found later does not return, either.
#[test]
fn removal_continues_if_device_is_lost_during_drain() {
    for (seed, crash) in (0..3).flat_map(|seed| [(seed, false), (seed, true)]) {
        let world = World::new(620 + seed);
        let rt = world.clone();
        world.block_on(async move {
            let busy = busy(&rt, seed).await;
            busy.volume.remove_device(LAST).await.unwrap();
            assert_eq!(busy.volume.status().devices[2].state, DeviceState::Draining);
            if !crash {
                busy.volume.fail_device(LAST).await.unwrap();
                assert_eq!(busy.volume.status().devices[2].state, DeviceState::Failed);
            }
            let forks: Vec<Disk> = busy.disks.iter().map(|disk| disk.fork(&rt)).collect();
            drop(busy);
            let volume = open(&rt, forks[..2].to_vec()).await;
            let found = state(&volume, LAST);
            assert!(matches!(found, DeviceState::Missing | DeviceState::Failed), "{found}");
            wait_until_removed(&rt, &volume).await;
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
        world.halt();
    }
}

/// A device was failed while its removal waited for another change of the superblocks. The removal was
/// acknowledged, but the superblocks did not record the removal: after a crash the removal was forgotten.
#[test]
fn removal_continues_if_device_fails_before_record() {
    let world = World::new(630);
    let rt = world.clone();
    world.block_on(async move {
        let disks: Vec<Disk> = [true, false, false, false].map(|ssd| disk(&rt, ssd)).to_vec();
        let faults: Vec<Faults> = disks.iter().map(|_| no_faults(&rt)).collect();
        let all = disks.iter().zip(&faults).map(|(disk, faults)| Faulty::new(disk.clone(), faults));
        let made = CreateOptions { size: Some(MIB * 4), policy: "raid1".to_owned(), ..mirror(63) };
        let volume = make(rt.clone(), all.collect(), &made).await;
        let arena = Arena::new(MIB * 2);
        for at in 0..4 {
            volume.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        let of = |device: usize| volume.status().devices[device].state;
        volume.fail_device(DeviceId(3)).await.unwrap();
        volume.return_device(Faulty::new(disks[3].clone(), &no_faults(&rt)), "it").await.unwrap();
        while of(3) != DeviceState::Active {
            rt.sleep(Nanos::from_micros(10)).await;
        }
        // The superblocks are being written.
        faults[2].vanish();
        volume.remove_device(LAST).await.unwrap();
        assert_eq!(of(2), DeviceState::Failed);
        let volume = open(&rt, disks.iter().map(|disk| disk.fork(&rt)).collect()).await;
        wait_until_removed(&rt, &volume).await;
    });
    world.halt();
}

/// A mirror of 4 MiB striped over some disks; each MiB has a value of its own.
async fn striped(rt: &World, disks: &[Disk]) -> (Volume<World, Faulty<Disk>>, Arena) {
    let stripe = "stripe".to_owned();
    let made = CreateOptions { copies: 2, size: Some(MIB * 4), policy: stripe, ..options(1) };
    create(&sound(disks), &made).await.expect("the volume is created");
    let volume = open(rt, disks.to_vec()).await;
    let arena = Arena::new(MIB * 2);
    for at in 0..4 {
        let written = volume.write(MIB * at, &filled(&arena, MIB, at as u8 + 1), Durability::Fua).await;
        written.expect("the volume is written");
    }
    (volume, arena)
}

/// Extents that could not move were recorded as changing all the same, every second: after a crash an idle
/// volume copied all of its data.
#[test]
fn blocked_drain_leaves_no_dirty_or_stale_spans() {
    let world = World::new(640);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
    let rt = world.clone();
    world.block_on(async move {
        let (volume, arena) = striped(&rt, &disks).await;
        rt.sleep(Nanos::from_secs(60)).await;
        // This write makes the volume check whether another daemon has the devices. The removal does not
        // wait for a check then, so the drain has moved nothing when the other device fails.
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 1), Durability::Fua).await.unwrap();
        volume.remove_device(LAST).await.unwrap();
        // Only the first device is left, with a copy of the extents that both others held.
        volume.fail_device(DeviceId(1)).await.unwrap();
        rt.sleep(Nanos::from_secs(60)).await;
        assert_eq!((state(&volume, LAST), volume.status().spans), (DeviceState::Draining, (0, 0)));
    });
    world.halt();
}

/// All of a lost device's extents in dirty spans were stale. Once the drain had copied them from the other
/// device, the resync copied them once more.
#[test]
fn copies_made_for_lost_device_need_no_resync() {
    let world = World::new(650);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
    let rt = world.clone();
    world.block_on(async move {
        let (volume, arena) = striped(&rt, &disks).await;
        volume.fail_device(LAST).await.unwrap();
        assert_ne!(volume.status().behind, Bytes::ZERO);
        volume.remove_device(LAST).await.unwrap();
        wait_until_removed(&rt, &volume).await;
        rt.sleep(Nanos::from_secs(60)).await;
        let status = volume.status();
        assert_eq!((status.behind, status.background.resynced_bytes), (Bytes::ZERO, 0));
        assert!(status.background.migrated_bytes > 0);
        volume.fail_device(DeviceId(1)).await.unwrap();
        for at in 0..4 {
            let buf = filled(&arena, MIB, 0);
            volume.read(MIB * at, &buf).await.unwrap();
            assert!(is_all(&buf, at as u8 + 1));
        }
    });
    world.halt();
}

/// At any time while the drain copies and the copies become durable. Afterwards either remaining device
/// serves alone.
#[test]
fn copies_made_for_lost_device_survive_power_cut_at_any_time() {
    let world = World::new(651);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
    let rt = world.clone();
    world.block_on(async move {
        let (volume, arena) = striped(&rt, &disks).await;
        volume.fail_device(LAST).await.unwrap();
        volume.remove_device(LAST).await.unwrap();
        let mut cuts: Vec<Vec<Disk>> = Vec::new();
        while volume.status().devices[2].state != DeviceState::Removed {
            cuts.push(disks[..2].iter().map(|disk| disk.fork(&rt)).collect());
            rt.sleep(Nanos::from_micros(500)).await;
        }
        assert!(cuts.len() > 10, "the drain is cut in its course: {}", cuts.len());
        let some = cuts.len().div_ceil(20);
        for (cut, forks) in (0..).zip(cuts.into_iter().step_by(some)) {
            let volume = open(&rt, forks).await;
            wait_until_removed(&rt, &volume).await;
            rt.sleep(Nanos::from_secs(60)).await;
            assert_eq!(volume.status().behind, Bytes::ZERO, "cut {cut}");
            volume.audit().await.unwrap();
            volume.fail_device(DeviceId(cut % 2)).await.unwrap();
            for at in 0..4 {
                let buf = filled(&arena, MIB, 0);
                volume.read(MIB * at, &buf).await.unwrap();
                assert!(is_all(&buf, at as u8 + 1), "cut {cut}");
            }
        }
    });
    world.halt();
}

/// Value of an extent of [`striped`].
fn value_of(extent: u64) -> u8 {
    (EXTENT * extent / MIB) as u8 + 1
}

/// Devices with the home and the second copy of an extent of [`striped`], and the place of the second copy.
fn copies_of(volume: &Rig, extent: u64) -> ([DeviceId; 2], Bytes) {
    let explained = volume.explain(EXTENT * extent).expect("it is in the volume");
    let (home, _) = explained.home.expect("the extent is written");
    let (second, at, _) = explained.second.expect("there are two copies");
    ([home, second], at)
}

/// A policy like `stripe` that reads the second copies.
struct ReadsSecond;

impl Policy for ReadsSecond {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn place<'a>(&mut self, _: &Occasion<'a>, _: &View) -> Placement<'a> {
        Placement::KEEP
    }

    fn rank_reads(&self, copies: &mut [CurrentCopy], _: &View) {
        copies.reverse();
    }

    fn plan(&mut self, view: &View, _: &mut Plan) -> Nanos {
        view.now + Nanos::from_secs(1)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "a test".to_owned()
    }
}

/// A copy made for a lost device had a bad place, which a guest's read found before the copies were durable.
/// The copy became stale, and then counted as equal all the same: the volume would have lost the other copy.
#[test]
fn copy_made_for_lost_device_with_bad_place_is_stale_until_resync() {
    let world = World::new(652);
    let disks = [true, false, false, false].map(|ssd| disk(&world, ssd));
    let rt = world.clone();
    world.block_on(async move {
        let (volume, arena) = striped(&rt, &disks).await;
        // No span is dirty, so the loss of the device makes no copy stale.
        rt.sleep(Nanos::from_secs(60)).await;
        volume.replace_policy(Box::new(ReadsSecond));
        let held = |&extent: &u64| copies_of(&volume, extent).0.contains(&LAST);
        let lost: Vec<u64> = (0..MIB * 4 / EXTENT).filter(held).collect();
        volume.fail_device(LAST).await.unwrap();
        assert_eq!((volume.status().behind, volume.status().spans), (Bytes::ZERO, (0, 0)));
        volume.remove_device(LAST).await.unwrap();
        let between = [DeviceId(0), DeviceId(1)];
        let is_new = |&&extent: &&u64| copies_of(&volume, extent).0 == between;
        let extent = loop {
            if let Some(&extent) = lost.iter().find(is_new) {
                break extent;
            }
            assert!(lost.iter().any(held), "a copy went from the lost device to the second device");
            rt.sleep(Nanos::from_micros(100)).await;
        };
        // The copies do not become durable before this device answers.
        hang(&disks[3]);
        let at = copies_of(&volume, extent).1;
        let bad = Some(at..at + KIB * 4);
        let plan = FaultPlan { bad_reads: bad.clone(), bad_writes: bad, ..FaultPlan::default() };
        disks[1].faults().set(plan);
        assert!(holds(&volume, &arena, EXTENT * extent, EXTENT, value_of(extent)).await.unwrap());
        rt.sleep(Nanos::from_secs(1)).await;
        assert_eq!(volume.status().behind, EXTENT, "the place could not be rewritten");
        recover(&disks[3]);
        wait_until_removed(&rt, &volume).await;
        rt.sleep(Nanos::from_secs(10)).await;
        assert_eq!(volume.status().behind, EXTENT, "no resync succeeded");
        let error = refused(volume.fail_device(DeviceId(0)).await);
        assert_eq!(error.kind(), ErrorKind::Degraded);
        recover(&disks[1]);
        rt.sleep(Nanos::from_secs(60)).await;
        let status = volume.status();
        assert_eq!((status.behind, status.background.resynced_bytes), (Bytes::ZERO, EXTENT.0));
        volume.audit().await.unwrap();
        volume.fail_device(DeviceId(0)).await.unwrap();
        for extent in 0..MIB * 4 / EXTENT {
            assert!(holds(&volume, &arena, EXTENT * extent, EXTENT, value_of(extent)).await.unwrap());
        }
    });
    world.halt();
}

/// The journal went on calling a span behind although the drain had made the lost copies anew, as long as
/// guests wrote to the span. After a crash the new copy was useless without the other copy.
#[test]
fn copies_made_for_lost_device_serve_alone_after_crash_in_busy_span() {
    let world = World::new(653);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
    let rt = world.clone();
    world.block_on(async move {
        let (volume, arena) = striped(&rt, &disks).await;
        let held = |&extent: &u64| copies_of(&volume, extent).0.contains(&LAST);
        let busy = (0..MIB * 4 / EXTENT).find(held).unwrap();
        let write = async |extent, value| {
            let bytes = filled(&arena, EXTENT, value);
            volume.write(EXTENT * extent, &bytes, Durability::Fua).await.unwrap();
        };
        rt.sleep(Nanos::from_secs(60)).await;
        write(busy, 100).await;
        volume.fail_device(LAST).await.unwrap();
        assert_eq!(volume.status().spans, (1, 1));
        // With the record that another span is dirty, the journal records that the busy span is behind.
        let other = busy + 1;
        write(other, value_of(other)).await;
        volume.remove_device(LAST).await.unwrap();
        wait_until_removed(&rt, &volume).await;
        assert_eq!(volume.status().spans.1, 0, "no copy is stale");
        for value in 101..=120 {
            write(busy, value).await;
            rt.sleep(Nanos::from_secs(1)).await;
        }
        let status = volume.status();
        assert_eq!((status.spans, status.background.resynced_bytes), ((1, 0), 0));
        for disk in &disks[..2] {
            let alone = open(&rt, vec![disk.fork(&rt)]).await;
            for extent in 0..MIB * 4 / EXTENT {
                let value = if extent == busy { 120 } else { value_of(extent) };
                assert!(holds(&alone, &arena, EXTENT * extent, EXTENT, value).await.unwrap(), "{extent}");
            }
        }
    });
    world.halt();
}

/// Extents of a lost device receive a second copy elsewhere, and no extent stays degraded.
#[test]
fn removal_of_lost_device_restores_two_copies() {
    for seed in 0..4 {
        let world = World::new(600 + seed);
        let rt = world.clone();
        world.block_on(async move {
            let busy = busy(&rt, seed).await;
            busy.faults[2].vanish();
            rt.sleep(Nanos::from_secs(30)).await;
            assert_eq!(busy.volume.status().devices[2].state, DeviceState::Failed);
            let error = refused(busy.volume.cancel_removal(LAST).await);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            busy.volume.remove_device(LAST).await.unwrap();
            rt.sleep(Nanos::from_secs(60)).await;
            let status = busy.volume.status();
            assert_eq!(status.devices[2].state, DeviceState::Removed, "{:?}", status.devices[2].drain);
            assert_eq!(busy.volume.status().behind, Bytes::ZERO);
            // Either remaining device can go now.
            busy.faults[seed as usize % 2].vanish();
            rt.sleep(Nanos::from_secs(30)).await;
            end(&rt, busy, &[1 - seed as usize % 2]).await;
        });
        world.halt();
    }
}

/// A device was taken out of use and was to be removed, and the machine crashed. The device was still
/// present, so the next opening resynchronised the device: the device never left, and its replacement stayed
/// empty.
#[test]
fn removal_of_failed_device_completes_after_crash() {
    let world = World::new(610);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
    let rt = world.clone();
    world.block_on(async move {
        create(&sound(&disks), &CreateOptions { copies: 2, size: Some(MIB * 4), ..options(1) })
            .await
            .unwrap();
        let volume = open(&rt, disks.to_vec()).await;
        let arena = Arena::new(MIB * 2);
        for at in 0..4 {
            let bytes = crate::rig::filled(&arena, MIB, at as u8 + 1);
            volume.write(MIB * at, &bytes, Durability::Fua).await.unwrap();
        }
        volume.fail_device(DeviceId(1)).await.unwrap();
        volume.remove_device(DeviceId(1)).await.unwrap();
        assert_eq!(state(&volume, DeviceId(1)), DeviceState::Failed);
        let forks = disks.iter().map(|disk| disk.fork(&rt)).collect();
        let volume = open(&rt, forks).await;
        rt.sleep(Nanos::from_secs(10)).await;
        assert_eq!(state(&volume, DeviceId(1)), DeviceState::Removed);
        volume.audit().await.unwrap();
        let buf = arena.alloc(MIB).await;
        for at in 0..4 {
            volume.read(MIB * at, &buf).await.unwrap();
            assert!(is_all(&buf, at as u8 + 1));
        }
    });
    world.halt();
}

/// With one copy, data on a dead device alone is lost by name: the device can be removed all the same, with
/// its journal.
#[test]
fn excluded_dead_device_can_be_removed_with_one_copy() {
    for dead in [0, 1, 2] {
        let world = World::new(740);
        let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
        let rt = world.clone();
        world.block_on(async move {
            create(&sound(&disks), &CreateOptions { policy: "stripe".to_owned(), ..options(1) })
                .await
                .unwrap();
            let volume = open(&rt, disks.to_vec()).await;
            let arena = Arena::new(MIB * 2);
            for at in 0..4 {
                let bytes = crate::rig::filled(&arena, MIB, 7);
                volume.write(MIB * at, &bytes, Durability::Fua).await.unwrap();
            }
            volume.close().await.unwrap();
            let left: Vec<Disk> = (0..3).filter(|&i| i != dead).map(|i| disks[i].clone()).collect();
            let open_left = async |distrust: Vec<DeviceId>| {
                let options = OpenOptions { distrust, ..OpenOptions::new(names(2)) };
                Volume::open(rt.clone(), sound(&left), options).await.unwrap()
            };
            let (volume, recovery) = open_left(vec![DeviceId(dead as u16)]).await;
            assert!(!recovery.lost.is_empty());
            volume.remove_device(DeviceId(dead as u16)).await.unwrap();
            // The device is absent, so it is never draining.
            while state(&volume, DeviceId(dead as u16)) == DeviceState::Missing {
                rt.sleep(Nanos::from_micros(20)).await;
            }
            assert_eq!(state(&volume, DeviceId(dead as u16)), DeviceState::Removed);
            volume.close().await.unwrap();
            let (volume, _) = open_left(vec![]).await;
            let buf = arena.alloc(KIB * 128).await;
            for extent in 0..32 {
                let read = volume.read(KIB * 128 * extent, &buf).await;
                let is_lost = recovery.lost.contains(&ExtentId(extent as u32));
                assert_eq!(read.is_err(), is_lost, "{extent}: {read:?}");
            }
            let first = KIB * 128 * u64::from(recovery.lost[0].0);
            volume.write(first, &buf, Durability::Fua).await.unwrap();
            volume.read(first, &buf).await.unwrap();
            volume.audit().await.unwrap();
        });
        world.halt();
    }
}
