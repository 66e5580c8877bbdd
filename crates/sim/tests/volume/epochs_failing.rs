//! Epochs while devices fail. The disk alone stays a past state of the volume, and guests continue as long
//! as one current copy is left. If the bound does not hold any more, the status reports the fact.

use crate::epochs::{BLOCK, BOUND, EXTENT, SIZE, SSD, disks, epochs, wait_for_image};
use crate::rig::{Rig, filled, holds, make, open, open_with};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, Past};
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};

pub const DISK: DeviceId = DeviceId(1);

/// Devices with faults that a test can switch on.
pub struct Rigged {
    pub world: World,
    pub disks: Vec<Disk>,
    pub faults: Vec<Faults>,
    pub arena: Arena,
}

impl Rigged {
    pub fn of(world: &World, disks: Vec<Disk>) -> Rigged {
        let faults = disks.iter().map(|_| Faults::new(FaultPlan::default(), world.fork_rng())).collect();
        Rigged { world: world.clone(), disks, faults, arena: Arena::new(MIB * 4) }
    }

    pub fn devices(&self) -> Vec<Faulty<Disk>> {
        self.disks.iter().zip(&self.faults).map(|(disk, faults)| Faulty::new(disk.clone(), faults)).collect()
    }

    /// Content of a device after a loss now; with `cut`, after a power cut.
    pub fn left_of(&self, device: DeviceId, cut: Option<&mut Rng>) -> Disk {
        let left = self.disks[device.index()].fork(&self.world);
        if let Some(rng) = cut {
            left.power_cut(rng);
        }
        left.restart(&self.world)
    }

    pub fn sound(&self, disk: &Disk) -> Faulty<Disk> {
        Faulty::new(disk.clone(), &Faults::new(FaultPlan::default(), self.world.fork_rng()))
    }

    /// The bytes that readers see on the disk alone, which stays unchanged.
    pub async fn looked_at(&self, disk: &Disk) -> braid_engine::Result<Vec<u8>> {
        let faults =
            Faults::new(FaultPlan { writes: 1.0, flushes: 1.0, ..FaultPlan::default() }, Rng::new(1));
        let alone = vec![Faulty::new(disk.clone(), &faults)];
        let (past, _) = Past::open(&self.world, alone, &["disk".to_owned()]).await?;
        assert_eq!(past.size(), SIZE);
        content(&past).await
    }

    /// The content of the disk alone.
    pub async fn recovered(&self, disk: &Disk) -> braid_engine::Result<Vec<u8>> {
        let alone = |options: &mut OpenOptions| (options.distrust, options.recover) = (vec![SSD], true);
        let (volume, _) = open_with(self.world.clone(), vec![self.sound(disk)], alone).await?;
        let bytes = content(&volume).await.expect("the disk is sound");
        volume.close().await.expect("the disk is sound");
        Ok(bytes)
    }
}

pub fn two(world: &World) -> Rigged {
    Rigged::of(world, disks(world).to_vec())
}

/// The two disks and a larger disk, on which no extent is to lie.
pub fn three(world: &World) -> Rigged {
    let other = Disk::new(world, DiskOptions::hdd(MIB * 40));
    Rigged::of(world, disks(world).into_iter().chain([other]).collect())
}

/// Options for three devices.
pub fn epochs_of_three(identity: u8) -> CreateOptions {
    CreateOptions { layouts: vec![Layout::Head, Layout::Tail, Layout::Head], ..epochs(identity) }
}

pub async fn content(volume: &impl Export) -> braid_engine::Result<Vec<u8>> {
    let (arena, mut bytes) = (Arena::new(MIB), Vec::new());
    for at in (0..SIZE / EXTENT).map(|i| EXTENT * i) {
        let buf = arena.alloc(EXTENT).await;
        volume.read(at, &buf).await?;
        buf.with_bytes(|part| bytes.extend_from_slice(part));
    }
    Ok(bytes)
}

/// Waits until the disk has all data in place.
pub async fn wait_until_applied(world: &World, volume: &Rig) {
    wait_for_image(world, volume).await;
    for _ in 0..100_000 {
        let status = volume.status();
        if status.deferred == Bytes::ZERO && status.behind == Bytes::ZERO {
            return;
        }
        world.sleep(Nanos::from_millis(1)).await;
    }
    panic!("the disk never gets all of it");
}

/// In a volume with two disks, second copies of new extents lay on the disk with more room, while epochs
/// went to the other disk. Extents with a second copy on the larger disk were never written by epochs, and
/// counted as equal.
#[test]
fn new_second_copies_lie_on_image_disk() {
    let world = World::new(1);
    let rigged = three(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs_of_three(1)).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 3), Durability::Fua).await.unwrap();
        wait_until_applied(&world, &volume).await;
        volume.audit().await.expect("both copies are alike");
        let second = volume.explain(Bytes::ZERO).unwrap().second.map(|(device, ..)| device);
        assert_eq!(second, Some(DISK));
        volume.close().await.unwrap();
    });
}

/// The same after an earlier policy that had put second copies on the other disk.
#[test]
fn second_copies_migrate_to_image_disk() {
    let world = World::new(2);
    let rigged = three(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs_of_three(1)).await;
        wait_for_image(&world, &volume).await;
        let by_epochs = volume.policy();
        for policy in ["raid1", "hdd-only", "pass"] {
            volume.set_policy(policy).await.unwrap();
            world.sleep(Nanos::from_secs(1)).await;
            let value = filled(&rigged.arena, MIB, policy.len() as u8);
            volume.write(Bytes::ZERO, &value, Durability::Fua).await.unwrap();
            volume.discard(MIB, MIB).await.unwrap();
            volume.write(MIB, &value, Durability::Fua).await.unwrap();
            volume.set_policy(&by_epochs).await.unwrap();
            wait_until_applied(&world, &volume).await;
            volume.audit().await.expect("both copies are alike");
            for at in [Bytes::ZERO, MIB] {
                let explanation = volume.explain(at).unwrap();
                assert_eq!(explanation.second.map(|(device, ..)| device), Some(DISK), "{policy}");
                assert!(explanation.home.is_some_and(|(device, _)| device != DISK), "{policy}");
            }
            assert!(holds(&volume, &rigged.arena, Bytes::ZERO, MIB, policy.len() as u8).await.unwrap());
        }
        volume.close().await.unwrap();
    });
}

/// Epochs began while an SSD was stale for writes that had gone to the disk alone. Guests continued to write
/// to the disk, and the disk never again was a past state of the volume.
#[test]
fn stale_ssd_is_resynced_before_disk_becomes_image() {
    let world = World::new(3);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs(1)).await;
        let by_epochs = volume.policy();
        volume.set_policy("hdd-only").await.unwrap();
        world.sleep(Nanos::from_secs(1)).await;
        for at in (0..SIZE / EXTENT).map(|i| EXTENT * i) {
            volume.write(at, &filled(&rigged.arena, EXTENT, 1), Durability::Fua).await.unwrap();
        }
        let last = SIZE - EXTENT;
        assert_eq!(volume.explain(last).unwrap().home.map(|(device, _)| device), Some(DISK), "before");

        volume.set_policy(&by_epochs).await.unwrap();
        volume.write(last, &filled(&rigged.arena, BLOCK, 2), Durability::Fua).await.unwrap();
        assert_eq!(volume.explain(last).unwrap().home.map(|(device, _)| device), Some(DISK));
        assert_eq!(volume.status().deferred, BLOCK);
        wait_for_image(&world, &volume).await;
        assert_eq!(volume.explain(last).unwrap().home.map(|(device, _)| device), Some(SSD));
        wait_until_applied(&world, &volume).await;
        volume.audit().await.expect("both copies are alike");
        assert!(holds(&volume, &rigged.arena, last, BLOCK, 2).await.unwrap());
        assert!(holds(&volume, &rigged.arena, last + BLOCK, EXTENT - BLOCK, 1).await.unwrap());
        volume.close().await.unwrap();
    });
}

/// With two SSDs, or another disk beside the disk with epochs, the map lay on other devices. A volume
/// without two of its devices was refused: there was no recovery.
#[test]
fn image_disk_recovers_volume_after_any_device_loss() {
    for (seed, other) in [(0, DiskOptions::ssd(MIB * 12)), (1, DiskOptions::hdd(MIB * 40))] {
        let world = World::new(seed);
        let [ssd, disk] = disks(&world);
        let rigged = Rigged::of(&world, vec![ssd, Disk::new(&world, other), disk]);
        world.clone().block_on(async move {
            let layouts = vec![Layout::Head, Layout::Head, Layout::Tail];
            let volume = make(world.clone(), rigged.devices(), &CreateOptions { layouts, ..epochs(1) }).await;
            for at in [Bytes::ZERO, MIB] {
                volume.write(at, &filled(&rigged.arena, MIB, 3), Durability::Volatile).await.unwrap();
            }
            wait_until_applied(&world, &volume).await;
            // No epoch contains this write.
            rigged.faults[2].set(FaultPlan { vanished: true, ..FaultPlan::default() });
            volume.write(MIB, &filled(&rigged.arena, EXTENT, 4), Durability::Volatile).await.unwrap();
            for lost in [vec![0], vec![0, 1], vec![1]] {
                let kept = (0..3).filter(|device| !lost.contains(device));
                let kept: Vec<Disk> = kept.map(|device| rigged.left_of(DeviceId(device), None)).collect();
                let all = || kept.iter().map(|disk| rigged.sound(disk)).collect::<Vec<_>>();
                let names: Vec<String> = (0..kept.len()).map(|i| format!("disk {i}")).collect();
                let (past, _) = Past::open(&world, all(), &names).await.expect("the disk is there");
                assert!(content(&past).await.unwrap().iter().all(|&byte| byte == 3), "without {lost:?}");
                let (again, recovery) =
                    open_with(world.clone(), all(), |options| options.recover = true).await.unwrap();
                assert_eq!(recovery.adopted.map(|past| past.device), Some(DeviceId(2)));
                assert!(content(&again).await.unwrap().iter().all(|&byte| byte == 3), "without {lost:?}");
                again.write(MIB, &filled(&rigged.arena, EXTENT, 5), Durability::Fua).await.unwrap();
                world.sleep(Nanos::from_secs(20)).await;
                assert!(holds(&again, &rigged.arena, MIB, EXTENT, 5).await.unwrap());
                again.audit().await.expect("what came back is up to date");
                again.close().await.unwrap();
            }
        });
    }
}

/// A policy without epochs took over while the disk was stale: the stale extents were never resynchronised.
#[test]
fn stale_image_disk_is_resynced_when_epochs_end() {
    for seed in 0..6 {
        let (world, bytes) = (World::new(seed), Bytes(64 << 10));
        let rigged = two(&world);
        world.clone().block_on(async move {
            let volume = make(world.clone(), rigged.devices(), &epochs(3)).await;
            wait_for_image(&world, &volume).await;
            volume.set_policy("raid1").await.unwrap();
            for i in 0..8 {
                let value = filled(&rigged.arena, bytes, i as u8 + 1);
                volume.write(bytes * i * 2, &value, Durability::Volatile).await.unwrap();
                world.sleep(Nanos::from_millis(20 * seed)).await;
            }
            world.sleep(Nanos::from_secs(20)).await;
            let status = volume.status();
            assert_eq!((status.behind, status.deferred, status.epoch), (Bytes::ZERO, Bytes::ZERO, None));
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// After a failed flush of the SSD, the volume could promise nothing any more, and epochs ended. Later
/// writes of guests went to the disk in place. The disk still claimed to be the volume at the end of an
/// epoch.
#[test]
fn image_disk_stays_unchanged_after_ssd_flush_failure() {
    for seed in 0..8 {
        let world = World::new(seed);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let volume = make(world.clone(), rigged.devices(), &epochs(4)).await;
            wait_for_image(&world, &volume).await;
            let all = filled(&rigged.arena, MIB, 1);
            for at in [Bytes::ZERO, MIB] {
                volume.write(at, &all, Durability::Volatile).await.unwrap();
            }
            wait_until_applied(&world, &volume).await;
            rigged.faults[0].set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
            // Only the first request to meet the failure reports the error.
            volume.write(Bytes::ZERO, &filled(&rigged.arena, BLOCK, 2), Durability::Volatile).await.unwrap();
            volume.flush().await.expect_err("the SSD fails it, and has something alone");
            let mut rng = world.fork_rng();
            for _ in 0..300 {
                let at = BLOCK * rng.below(SIZE / BLOCK - 1) + BLOCK;
                let at = at.min(SIZE - BLOCK);
                let _any = volume.write(at, &filled(&rigged.arena, BLOCK, 3), Durability::Volatile).await;
                world.sleep(Nanos::from_millis(rng.below(20))).await;
            }
            let bytes = rigged.recovered(&rigged.left_of(DISK, None)).await.expect("it is an image");
            let threes = bytes.chunks(BLOCK.as_usize()).filter(|block| block[0] == 3).count();
            assert_eq!(threes, 0, "seed {seed}: written after the last epoch");
        });
    }
}

/// The policy kept waiting for an epoch that could not end any more, and the stop waited two minutes for the
/// policy.
#[test]
fn close_is_prompt_after_ssd_flush_failure() {
    let world = World::new(10);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs(10)).await;
        wait_for_image(&world, &volume).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 1), Durability::Volatile).await.unwrap();
        wait_until_applied(&world, &volume).await;
        rigged.faults[0].set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
        volume.write(Bytes::ZERO, &filled(&rigged.arena, BLOCK, 2), Durability::Volatile).await.unwrap();
        volume.flush().await.expect_err("the SSD fails it, and has something alone");
        // The policy finds that the disk is stale.
        world.sleep(Nanos::from_secs(2)).await;
        let start = world.now();
        volume.close().await.expect_err("what was written is not durable");
        assert!(world.now() < start + Nanos::from_secs(5), "{} later", world.now() - start);
    });
}

/// A read from the SSD failed while an epoch was written to the journal: neither the epoch nor guests'
/// writes nor the close ever ended.
#[test]
fn unreadable_epoch_blocks_neither_guests_nor_image_disk() {
    let world = World::new(5);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs(5)).await;
        wait_for_image(&world, &volume).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB, 1), Durability::Fua).await.unwrap();
        wait_until_applied(&world, &volume).await;
        let (_, home) = volume.explain(EXTENT * 3).unwrap().home.expect("it is written");
        let bad = Some(home..home + BLOCK);
        rigged.faults[0].set(FaultPlan { bad_reads: bad, bad_until_written: true, ..FaultPlan::default() });
        // The bad spot comes after this write: only a read finds the spot.
        volume.write(EXTENT * 3, &filled(&rigged.arena, EXTENT, 2), Durability::Fua).await.unwrap();
        rigged.faults[0].set(FaultPlan {
            bad_reads: Some(home..home + BLOCK),
            bad_until_written: true,
            ..FaultPlan::default()
        });
        let before = volume.status().epoch.expect("it is an image");
        // Several times the bound.
        for round in 0..6 {
            for at in [MIB, MIB + MIB / 2] {
                let value = filled(&rigged.arena, MIB / 2, 10 + round);
                volume.write(at, &value, Durability::Volatile).await.unwrap();
            }
        }
        let status = volume.status();
        assert!(status.epoch_failure.is_some(), "more than the bound is lacking");
        assert_eq!(status.devices[1].state, DeviceState::Active);
        assert_eq!(status.epoch, Some(before), "the disk is what it was");
        let bytes = rigged.recovered(&rigged.left_of(DISK, None)).await.expect("it is an image");
        assert!(bytes[..MIB.as_usize()].iter().all(|&byte| byte == 1));
        assert!(bytes[MIB.as_usize()..].iter().all(|&byte| byte == 0));
        // A write makes the spot good again, and must not fail because of the old content.
        volume.write(EXTENT * 3, &filled(&rigged.arena, EXTENT, 4), Durability::Fua).await.unwrap();
        wait_until_applied(&world, &volume).await;
        assert_eq!(volume.status().epoch_failure, None);
        let bytes = rigged.recovered(&rigged.left_of(DISK, None)).await.expect("it is an image again");
        assert!(bytes[MIB.as_usize()..].iter().all(|&byte| byte == 15));
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
    });
}

/// The same with a policy that stops writes rather than continue without a safe copy.
#[test]
fn writes_beyond_lag_bound_fail_if_policy_says_stop() {
    let world = World::new(6);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let CreateOptions { policy, .. } = epochs(6);
        let options = CreateOptions { policy: format!("{policy},on-disk-failure=stop"), ..epochs(6) };
        let volume = make(world.clone(), rigged.devices(), &options).await;
        wait_for_image(&world, &volume).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB / 4, 1), Durability::Fua).await.unwrap();
        wait_until_applied(&world, &volume).await;
        rigged.faults[0].set(FaultPlan { reads: 1.0, ..FaultPlan::default() });
        let (mut acknowledged, mut error) = (Bytes::ZERO, None);
        for i in 0..SIZE / EXTENT {
            let value = filled(&rigged.arena, EXTENT, 2);
            match volume.write(EXTENT * i, &value, Durability::Volatile).await {
                Ok(()) => acknowledged += EXTENT,
                Err(refusal) => error = Some(refusal),
            }
        }
        assert_eq!(error.expect("more than the bound").kind(), ErrorKind::Degraded);
        assert!(acknowledged <= BOUND, "{acknowledged} were acknowledged");
        rigged.faults[0].set(FaultPlan::default());
        world.sleep(Nanos::from_secs(5)).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, EXTENT, 3), Durability::Fua).await.unwrap();
        wait_until_applied(&world, &volume).await;
        volume.close().await.unwrap();
    });
}

/// A bad spot of the SSD, found while the journal was applied, made the disk fail, though the disk had all
/// data.
#[test]
fn unreadable_ssd_data_is_applied_from_epoch_journal() {
    for seed in 0..10 {
        let world = World::new(seed);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let volume = make(world.clone(), rigged.devices(), &epochs(7)).await;
            wait_for_image(&world, &volume).await;
            volume
                .write(Bytes::ZERO, &filled(&rigged.arena, MIB / 4, 1), Durability::Volatile)
                .await
                .unwrap();
            while volume.status().journaled == Bytes::ZERO {
                world.sleep(Nanos::from_millis(1)).await;
            }
            // All places written by guests, but not the superblocks: a bad superblock would make the SSD
            // fail.
            let places =
                (0..MIB.0 / 4 / EXTENT.0).map(|i| volume.explain(EXTENT * i).unwrap().home.unwrap().1);
            let (first, last) = (places.clone().min().unwrap(), places.max().unwrap() + EXTENT);
            rigged.faults[0].set(FaultPlan { bad_reads: Some(first..last), ..FaultPlan::default() });
            world.sleep(Nanos::from_secs(10)).await;
            let status = volume.status();
            let states = [0, 1].map(|device| status.devices[device].state);
            assert_eq!((states, status.journaled), ([DeviceState::Active; 2], Bytes::ZERO));
            rigged.faults[0].set(FaultPlan::default());
            wait_until_applied(&world, &volume).await;
            let bytes = rigged.recovered(&rigged.left_of(DISK, None)).await.expect("it is an image");
            assert!(bytes[..(MIB / 4).as_usize()].iter().all(|&byte| byte == 1));
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
        });
    }
}

/// A disk that cannot write its journal is failed, durably. Guests continue, or stop if the policy says so.
#[test]
fn disk_with_unwritable_epoch_journal_is_failed() {
    for stops in [false, true] {
        let world = World::new(8);
        let rigged = two(&world);
        world.clone().block_on(async move {
            let CreateOptions { policy, .. } = epochs(8);
            let failure = if stops { "stop" } else { "continue" };
            let options =
                CreateOptions { policy: format!("{policy},on-disk-failure={failure}"), ..epochs(8) };
            let volume = make(world.clone(), rigged.devices(), &options).await;
            wait_for_image(&world, &volume).await;
            volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB / 4, 1), Durability::Fua).await.unwrap();
            wait_until_applied(&world, &volume).await;
            rigged.faults[1].set(FaultPlan { writes: 1.0, ..FaultPlan::default() });
            let mut refused = false;
            for i in 0..SIZE / EXTENT {
                let value = filled(&rigged.arena, EXTENT, 2);
                match volume.write(EXTENT * i, &value, Durability::Volatile).await {
                    Ok(()) => assert!(!refused, "once it stops, it stops"),
                    Err(error) => {
                        assert!(stops, "{error}");
                        assert_eq!(error.kind(), ErrorKind::Degraded);
                        refused = true;
                    }
                }
            }
            world.sleep(Nanos::from_secs(2)).await;
            assert_eq!((volume.status().devices[1].state, refused), (DeviceState::Failed, stops));
            volume.flush().await.expect("the SSD has all of it");
            volume.close().await.expect("the SSD has all of it");
        });
    }
}

/// An unreadable journal prevented the opening of the volume, though the SSD has all data.
#[test]
fn volume_opens_without_readable_epoch_journal() {
    let world = World::new(9);
    let rigged = two(&world);
    world.clone().block_on(async move {
        let volume = make(world.clone(), rigged.devices(), &epochs(9)).await;
        wait_for_image(&world, &volume).await;
        volume.write(Bytes::ZERO, &filled(&rigged.arena, MIB / 4, 1), Durability::Fua).await.unwrap();
        while volume.status().journaled == Bytes::ZERO {
            world.sleep(Nanos::from_millis(1)).await;
        }
        let left = [rigged.left_of(SSD, None), rigged.left_of(DISK, None)];
        let region =
            volume.superblock().region(braid_format::superblock::RegionKind::EpochJournal, 0).cloned();
        let region = region.expect("it keeps epochs");
        volume.close().await.unwrap();
        for bad in [KIB * 4, region.len] {
            let disks = left.each_ref().map(|disk| disk.fork(&world).restart(&world));
            let faults = Faults::new(
                FaultPlan {
                    bad_reads: Some(region.offset..region.offset + bad),
                    bad_until_written: true,
                    ..FaultPlan::default()
                },
                world.fork_rng(),
            );
            let all = vec![rigged.sound(&disks[0]), Faulty::new(disks[1].clone(), &faults)];
            let volume = open(world.clone(), all).await.expect("the SSD has all of it");
            assert!(holds(&volume, &rigged.arena, Bytes::ZERO, MIB / 4, 1).await.unwrap());
            volume.write(MIB, &filled(&rigged.arena, MIB / 2, 2), Durability::Fua).await.unwrap();
            volume.close().await.unwrap();
        }
    });
}
