//! Devices that join and leave an open volume while guests work: requests, refusals, reports, and losses
//! meanwhile.

use crate::deadlines::no_faults;
use crate::rig::busy::{busy, end};
use crate::rig::life::{ADDED, LAST, Oracle, addition, disk, names, open, state, wait_until_removed, work};
use crate::rig::{filled, is_all, make, options, refused, sound, sound_one};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{
    Addition, CreateOptions, Durability, Error, ErrorKind, Export, OpenOptions, Volume, create,
};
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, Faulty, World};
use std::cell::Cell;
use std::rc::Rc;

/// Data moves to a new device by itself, and the device serves its data.
#[test]
fn a_new_device_gets_data() {
    for (ssd, layout) in ADDED {
        let world = World::new(7);
        let disks = [disk(&world, true), disk(&world, false), disk(&world, ssd)];
        let rt = world.clone();
        world.block_on(async move {
            let arena = Arena::new(MIB * 2);
            let create_options = CreateOptions { policy: "stripe".to_owned(), ..options(1) };
            create(&sound(&disks[..2]), &create_options).await.unwrap();
            let volume = open(&rt, disks[..2].to_vec()).await;
            let filled = |value| crate::rig::filled(&arena, MIB, value);
            volume.write(Bytes::ZERO, &filled(1), Durability::Fua).await.unwrap();
            let id = volume.add_device(sound_one(&disks[2]), &addition(layout), |_| Ok(())).await.unwrap();
            assert_eq!(id, LAST);
            for at in 1..4 {
                volume.write(MIB * at, &filled(at as u8 + 1), Durability::Fua).await.unwrap();
            }
            let device = &volume.status().devices[2];
            assert!(device.stats.guest_writes > 0, "{device:?}");
            assert_eq!((device.state, device.keeps_addresses), (DeviceState::Active, layout == Layout::Tail));
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let volume = open(&rt, disks.to_vec()).await;
            let buf = arena.alloc(MIB).await;
            for at in 0..4 {
                volume.read(MIB * at, &buf).await.unwrap();
                assert!(is_all(&buf, at as u8 + 1));
            }
            assert!(volume.status().devices[2].free < volume.status().devices[2].slots);
        });
        world.halt();
    }
}

#[test]
fn unfit_or_unrecorded_device_is_not_added() {
    let world = World::new(8);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
    let small = Disk::new(&world, DiskOptions::hdd(MIB * 3));
    let rt = world.clone();
    world.block_on(async move {
        create(&sound(&disks[..2]), &options(1)).await.unwrap();
        let volume = open(&rt, disks[..2].to_vec()).await;
        let add = async |disk: &Disk, how: Addition| {
            let record = |_| panic!("nothing is to be noted");
            volume.add_device(sound_one(disk), &how, record).await
        };
        let head = || addition(Layout::Head);
        assert_eq!(refused(add(&small, head()).await).kind(), ErrorKind::Invalid);
        let careful = Addition { overwrite: false, ..head() };
        assert_eq!(refused(add(&disks[2], careful).await).kind(), ErrorKind::Invalid);
        assert_eq!(volume.status().devices.len(), 2);
        let failed = |_| Err(Error::new(ErrorKind::Io, "the record cannot be written"));
        let error = refused(volume.add_device(sound_one(&disks[2]), &head(), failed).await);
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(state(&volume, LAST), DeviceState::Removed);
        // The addition can be repeated, in a place of its own.
        let again = Addition { identity: Uuid([10; 16]), ..head() };
        let id = volume.add_device(sound_one(&disks[2]), &again, |_| Ok(())).await.unwrap();
        assert_eq!(id, DeviceId(3));
        volume.close().await.unwrap();
        let volume = open(&rt, disks.to_vec()).await;
        let states: Vec<DeviceState> = volume.status().devices.iter().map(|device| device.state).collect();
        use DeviceState::{Active, Removed};
        assert_eq!(states, [Active, Active, Removed, Active]);
        volume.audit().await.unwrap();
    });
    world.halt();
}

/// A new device had recorded its membership, and failed before the other devices knew. With one copy of
/// everything, no flush succeeded any more.
#[test]
fn device_failed_during_addition_is_not_a_member() {
    let mut refused_additions = 0;
    let cases = [(1, false), (1, true), (2, false), (2, true)];
    for ((copies, ssd), instant) in cases.into_iter().flat_map(|case| (0..40).map(move |at| (case, at))) {
        let world = World::new(820 + instant);
        let disks = [disk(&world, true), disk(&world, false), disk(&world, ssd)];
        let rt = world.clone();
        let is_refused = world.block_on(async move {
            let policy = if copies == 1 { "stripe" } else { "raid1" }.to_owned();
            let made = CreateOptions { policy, copies, size: Some(MIB * 4), ..options(1) };
            let all: Vec<Faulty<Disk>> =
                disks.iter().map(|disk| Faulty::new(disk.clone(), &no_faults(&rt))).collect();
            let faults = no_faults(&rt);
            let volume = make(rt.clone(), all[..2].to_vec(), &made).await;
            let arena = Arena::new(MIB * 2);
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            let (noted, failing, clock) = (Rc::new(Cell::new(false)), faults.clone(), rt.clone());
            let (is_noted, cut) = (noted.clone(), Rc::new(Cell::new(None)));
            let (seen, forked) = (cut.clone(), disks.clone());
            rt.spawn(async move {
                while !is_noted.get() {
                    clock.sleep(Nanos::from_micros(100)).await;
                }
                clock.sleep(Nanos::from_micros(250) * instant).await;
                failing.vanish();
                // The moment of a power cut.
                clock.sleep(Nanos::from_millis(5)).await;
                let mut rng = clock.fork_rng();
                let left = forked[..2].iter().map(|disk| {
                    let left = disk.fork(&clock);
                    left.power_cut(&mut rng);
                    left.restart(&clock)
                });
                seen.set(Some(left.collect::<Vec<_>>()));
            });
            let record = |_| {
                noted.set(true);
                Ok(())
            };
            let new = Faulty::new(disks[2].clone(), &faults);
            // A guest with a flush that may be the first request to meet the failure.
            let guest = volume.clone();
            rt.spawn(async move { guest.flush().await.expect("the others are sound") });
            let added = volume.add_device(new, &addition(Layout::Head), record).await;
            let told: Vec<Disk> = disks[..2].iter().map(|disk| disk.fork(&rt)).collect();
            rt.sleep(Nanos::from_millis(20)).await;
            if added.is_ok() {
                return false;
            }
            assert_eq!(refused(added).kind(), ErrorKind::Io);
            assert_eq!(volume.removed_devices(), [LAST]);
            assert!(volume.superblock().regions.iter().all(|region| region.device != LAST));
            volume.write(MIB, &filled(&arena, MIB, 2), Durability::Volatile).await.unwrap();
            volume.flush().await.unwrap();
            volume.audit().await.unwrap();
            // Whatever the superblocks say after a power cut, nothing lies on the new device.
            let left = cut.take().expect("the addition took longer");
            let given_up = OpenOptions { distrust: vec![LAST], ..OpenOptions::new(names(2)) };
            let (opened, recovery) = Volume::open(rt.clone(), left, given_up).await.unwrap();
            assert_eq!(recovery.lost, []);
            let buf = arena.alloc(MIB).await;
            opened.read(Bytes::ZERO, &buf).await.unwrap();
            assert!(is_all(&buf, 1));
            // Once the command has failed, an opening does without the new device.
            let mut rng = rt.fork_rng();
            told.iter().for_each(|disk| disk.power_cut(&mut rng));
            let opened = open(&rt, told.iter().map(|disk| disk.restart(&rt)).collect()).await;
            assert_eq!(state(&opened, LAST), DeviceState::Removed);
            let opened = open(&rt, disks[..2].iter().map(|disk| disk.fork(&rt)).collect()).await;
            for (at, value) in [(Bytes::ZERO, 1), (MIB, 2)] {
                opened.read(at, &buf).await.unwrap();
                assert!(is_all(&buf, value));
            }
            opened.audit().await.unwrap();
            true
        });
        world.halt();
        refused_additions += u32::from(is_refused);
    }
    assert!(refused_additions > 20, "only {refused_additions} devices failed in time");
}

#[test]
fn device_removal_is_refused_if_space_is_lacking() {
    for (copies, size, expected) in [
        (1, MIB * 4, None),
        (1, MIB * 18, Some(ErrorKind::NoSpace)),
        (2, MIB * 4, None),
        (2, MIB * 9, Some(ErrorKind::NoSpace)),
    ] {
        let world = World::new(9);
        let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
        let rt = world.clone();
        world.block_on(async move {
            let create_options = CreateOptions { copies, size: Some(size), ..options(1) };
            create(&sound(&disks), &create_options).await.unwrap();
            let volume = open(&rt, disks.to_vec()).await;
            assert_eq!(refused(volume.remove_device(DeviceId(3)).await).kind(), ErrorKind::Invalid);
            assert_eq!(refused(volume.cancel_removal(LAST).await).kind(), ErrorKind::Invalid);
            assert_eq!(refused(volume.erase_removed(LAST).await).kind(), ErrorKind::Invalid);
            let removed = volume.remove_device(LAST).await;
            assert_eq!(removed.as_ref().err().map(Error::kind), expected, "{removed:?}");
            let draining = if expected.is_none() { DeviceState::Draining } else { DeviceState::Active };
            assert_eq!(state(&volume, LAST), draining);
        });
        world.halt();
    }
}

/// Only cached copies lie on the device: the device leaves at once.
#[test]
fn a_cache_without_dirty_blocks_leaves_within_a_second() {
    let world = World::new(10);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, true)];
    let rt = world.clone();
    world.block_on(async move {
        let create_options = CreateOptions { policy: "ssd-first,cache=60%".to_owned(), ..options(1) };
        create(&sound(&disks[..2]), &create_options).await.unwrap();
        let volume = open(&rt, disks[..2].to_vec()).await;
        let arena = Arena::new(MIB * 2);
        volume.add_device(sound_one(&disks[2]), &addition(Layout::Head), |_| Ok(())).await.unwrap();
        volume.replace_policy(Box::new(crate::rig::cached::Cache { writes: false }));
        for _ in 0..2 {
            let buf = arena.alloc(KIB * 64).await;
            volume.read(Bytes::ZERO, &buf).await.unwrap();
        }
        let begin = rt.now();
        volume.set_policy("equi").await.unwrap();
        volume.remove_device(LAST).await.unwrap();
        wait_until_removed(&rt, &volume).await;
        assert!(rt.now() - begin < Nanos::from_secs(1), "{:?}", rt.now() - begin);
    });
    world.halt();
}

/// A volume as large as its devices could not exchange a device for another of the same size: relocated
/// metadata takes whole extents on the new device, unlike before. A smaller device is refused before its
/// addition.
#[test]
fn full_volume_accepts_replacement_device_of_same_size() {
    for (seed, first_ssd, policy) in (0..8).flat_map(|seed| {
        [true, false]
            .into_iter()
            .flat_map(move |ssd| ["stripe", "raid1", "ssd-first"].map(|p| (seed, ssd, p)))
    }) {
        let world = World::new(640 + seed);
        let rt = world.clone();
        world.block_on(async move {
            let size = MIB * 16 + KIB * 4 * (seed * 37);
            let disk = |ssd: bool, size| {
                Disk::new(&rt, if ssd { DiskOptions::ssd(size) } else { DiskOptions::hdd(size) })
            };
            let (disks, extent_size) = (vec![disk(first_ssd, size), disk(false, size)], KIB * 64);
            let options = CreateOptions {
                copies: 2,
                size: None,
                policy: if first_ssd { policy } else { "stripe" }.to_owned(),
                extent_size,
                ..options(1)
            };
            create(&sound(&disks), &options).await.unwrap();
            let volume = open(&rt, disks).await;
            let smaller = volume.check_replacement(
                DeviceId(0),
                &sound_one(&disk(first_ssd, size - MIB)),
                &addition(Layout::Head),
            );
            assert_eq!(refused(smaller).kind(), ErrorKind::NoSpace);
            assert_eq!(volume.status().devices.len(), 2);
            let same = sound_one(&disk(first_ssd, size));
            volume.check_replacement(DeviceId(0), &same, &addition(Layout::Head)).unwrap();
            volume.add_device(same, &addition(Layout::Head), |_| Ok(())).await.unwrap();
            volume.remove_device(DeviceId(0)).await.unwrap();
            for _ in 0..60 {
                rt.sleep(Nanos::from_secs(1)).await;
            }
            assert_eq!(state(&volume, DeviceId(0)), DeviceState::Removed);
            // The whole volume can still be written.
            let (arena, size) = (Arena::new(MIB * 2), volume.status().shape.volume_size);
            let mut at = Bytes::ZERO;
            while at < size {
                let len = MIB.min(size - at);
                volume.write(at, &crate::rig::filled(&arena, len, 3), Durability::Volatile).await.unwrap();
                at += len;
            }
            volume.flush().await.unwrap();
            volume.audit().await.unwrap();
        });
        world.halt();
    }
}

/// The status of a draining device reports the remaining amount, and the amount decreases.
#[test]
fn drain_reports_remaining_bytes() {
    let world = World::new(11);
    let disks = [disk(&world, true), disk(&world, false), disk(&world, false)];
    let rt = world.clone();
    world.block_on(async move {
        let create_options = CreateOptions { policy: "stripe".to_owned(), ..options(1) };
        create(&sound(&disks), &create_options).await.unwrap();
        let volume = open(&rt, disks.to_vec()).await;
        let arena = Arena::new(MIB * 2);
        for at in 0..4 {
            volume.write(MIB * at, &crate::rig::filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        }
        let drain = || volume.status().devices[2].drain;
        assert_eq!(drain(), None);
        let used = volume.status().devices[2].slots - volume.status().devices[2].free;
        assert!(used > 0);
        volume.remove_device(LAST).await.unwrap();
        let first = drain().unwrap();
        assert_eq!(first.left_bytes, KIB * 128 * u64::from(used));
        wait_until_removed(&rt, &volume).await;
        assert_eq!(drain(), None);
        volume.audit().await.unwrap();
    });
    world.halt();
}

/// Any device may be lost while another device drains: as long as there is a current copy, no guest meets an
/// error.
#[test]
fn device_loss_during_drain_causes_no_guest_error() {
    for (seed, lost) in (0..4).flat_map(|seed| [0, 1, 2].map(|lost| (seed, lost))) {
        lose_during_a_drain(540 + seed, seed, lost);
    }
}

/// Within one commit the drain moves the second copy of an extent, and a failed write exchanges the extent's
/// copies. The journal still names the old second copy, which was taken for a copy without the failed write.
#[test]
fn drain_survives_device_loss_with_moved_second_copy() {
    for (seed, lost) in (0..4).flat_map(|seed| [0, 1, 2].map(|lost| (seed, lost))) {
        lose_during_a_drain(500 + seed, seed, lost);
    }
}

fn lose_during_a_drain(world: u64, seed: u64, lost: usize) {
    let world = World::new(world);
    let rt = world.clone();
    world.block_on(async move {
        let busy = busy(&rt, seed).await;
        busy.volume.remove_device(LAST).await.expect("the devices are sound");
        rt.sleep(Nanos::from_millis(seed * 7)).await;
        busy.faults[lost].vanish();
        rt.sleep(Nanos::from_secs(60)).await;
        let states: Vec<DeviceState> = busy.volume.status().devices.iter().map(|d| d.state).collect();
        // A removal that has begun completes by itself.
        let expected = if lost == 2 { DeviceState::Removed } else { DeviceState::Failed };
        assert_eq!(states[lost], expected, "{states:?}");
        let left: Vec<usize> = (0..3).filter(|&i| i != lost && states[i] != DeviceState::Removed).collect();
        end(&rt, busy, &left).await;
    });
    world.halt();
}

/// The first SSD joins a volume without a table of spans.
#[test]
fn a_volume_of_disks_gets_a_cache() {
    for seed in 0..4 {
        let world = World::new(700 + seed);
        let disks = [disk(&world, false), disk(&world, false), disk(&world, true)];
        let rt = world.clone();
        world.block_on(async move {
            create(&sound(&disks[..2]), &options(1)).await.unwrap();
            let volume = open(&rt, disks[..2].to_vec()).await;
            let (oracle, stop) = (Oracle::new(), Rc::new(Cell::new(false)));
            rt.spawn(work(rt.clone(), volume.clone(), oracle.clone(), Rng::new(seed), stop.clone()));
            rt.sleep(Nanos::from_secs(1)).await;
            volume.add_device(sound_one(&disks[2]), &addition(Layout::Head), |_| Ok(())).await.unwrap();
            volume.set_policy("ssd-first,cache=50%").await.unwrap();
            rt.sleep(Nanos::from_secs(20)).await;
            stop.set(true);
            rt.sleep(Nanos::from_secs(1)).await;
            let arena = Arena::new(MIB);
            volume.audit().await.unwrap();
            oracle.check(&volume, &arena, "with a cache").await;
            let forks: Vec<Disk> = disks.iter().map(|disk| disk.fork(&rt)).collect();
            let volume = open(&rt, forks).await;
            oracle.check(&volume, &arena, "after a crash").await;
            volume.audit().await.unwrap();
        });
        world.halt();
    }
}

/// An SSD that caches for a disk, and has the journal, is removed; the disk alone is the volume until
/// another SSD joins.
#[test]
fn the_first_ssd_leaves_with_the_journal() {
    for seed in 0..3 {
        let world = World::new(720 + seed);
        let disks = [disk(&world, true), disk(&world, false), disk(&world, true)];
        let rt = world.clone();
        world.block_on(async move {
            let create_options = CreateOptions { policy: "ssd-first,cache=60%".to_owned(), ..options(1) };
            create(&sound(&disks[..2]), &create_options).await.unwrap();
            let volume = open(&rt, disks[..2].to_vec()).await;
            let (oracle, stop) = (Oracle::new(), Rc::new(Cell::new(false)));
            rt.spawn(work(rt.clone(), volume.clone(), oracle.clone(), Rng::new(seed), stop.clone()));
            rt.sleep(Nanos::from_secs(5)).await;
            volume.set_policy("equi").await.unwrap();
            volume.remove_device(DeviceId(0)).await.unwrap();
            while state(&volume, DeviceId(0)) != DeviceState::Removed {
                rt.sleep(Nanos::from_millis(100)).await;
            }
            let superblock = volume.superblock();
            assert!(superblock.regions.iter().all(|region| region.device == DeviceId(1)), "{superblock:?}");
            assert_eq!(superblock.tables.len(), 1);
            assert_eq!(refused(volume.remove_device(DeviceId(1)).await).kind(), ErrorKind::Invalid);
            let arena = Arena::new(MIB);
            let (fork, then) = (disks[1].fork(&rt), Oracle::of(oracle.0.borrow().clone()));
            let alone = open(&rt, vec![fork]).await;
            then.check(&alone, &arena, "the disk alone").await;
            alone.audit().await.unwrap();
            volume.add_device(sound_one(&disks[2]), &addition(Layout::Head), |_| Ok(())).await.unwrap();
            rt.sleep(Nanos::from_secs(2)).await;
            stop.set(true);
            rt.sleep(Nanos::from_secs(1)).await;
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            oracle.flushed();
            let volume = open(&rt, disks[1..].to_vec()).await;
            oracle.check(&volume, &arena, "with another SSD").await;
        });
        world.halt();
    }
}

/// Only clean extra copies lie on the SSD: its removal does not wait.
#[test]
fn first_ssd_with_clean_cache_leaves_within_one_second() {
    let world = World::new(730);
    let disks = [disk(&world, true), disk(&world, false)];
    let rt = world.clone();
    world.block_on(async move {
        create(&sound(&disks), &CreateOptions { policy: "hdd-only".to_owned(), ..options(1) }).await.unwrap();
        let volume = open(&rt, disks.to_vec()).await;
        let arena = Arena::new(MIB * 2);
        for at in 0..4 {
            let bytes = crate::rig::filled(&arena, MIB, at as u8 + 1);
            volume.write(MIB * at, &bytes, Durability::Fua).await.unwrap();
        }
        volume.replace_policy(Box::new(crate::rig::cached::Cache { writes: false }));
        let buf = arena.alloc(MIB).await;
        volume.read(Bytes::ZERO, &buf).await.unwrap();
        rt.sleep(Nanos::from_secs(1)).await;
        assert!(volume.status().devices[0].free < volume.status().devices[0].slots);
        let begin = rt.now();
        volume.set_policy("hdd-only").await.unwrap();
        volume.remove_device(DeviceId(0)).await.unwrap();
        while state(&volume, DeviceId(0)) != DeviceState::Removed {
            rt.sleep(Nanos::from_millis(10)).await;
        }
        assert!(rt.now() - begin < Nanos::from_secs(1), "{:?}", rt.now() - begin);
        volume.close().await.unwrap();
        let volume = open(&rt, disks[1..].to_vec()).await;
        volume.read(Bytes::ZERO, &buf).await.unwrap();
        assert!(is_all(&buf, 1));
    });
    world.halt();
}
