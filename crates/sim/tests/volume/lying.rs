//! Mirrors with a device that lost acknowledged flushes, or was restored to an older state of the same
//! opening: the other devices know.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options, refused, sound_one};
use crate::unwritable::with;
use braid_base::{Bytes, DeviceId, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, Recovery, Report, check};
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faulty, World};

const EXTENT: Bytes = Bytes(128 << 10);
const SECOND: Nanos = Nanos::from_secs(1);
const POLICIES: [&str; 4] = ["raid1", "pass", "ssd-first", "stripe"];

fn mirror(policy: &str) -> CreateOptions {
    CreateOptions { copies: 2, policy: policy.to_owned(), ..options(81) }
}

fn all(disks: &[Disk]) -> Vec<Faulty<Disk>> {
    disks.iter().map(sound_one).collect()
}

async fn write(volume: &Rig, arena: &Arena, extents: std::ops::Range<u64>, value: u8) {
    for extent in extents {
        volume.write(EXTENT * extent, &filled(arena, EXTENT, value), Durability::Volatile).await.unwrap();
    }
    volume.flush().await.unwrap();
}

/// True if all twelve extents are correct: four old, four overwritten, four new.
async fn holds_all(volume: &Rig, arena: &Arena) -> bool {
    let mut all = true;
    for extent in 0..12 {
        let value = 1 + u8::from(extent >= 4);
        all &= holds(volume, arena, EXTENT * extent, EXTENT, value).await.unwrap();
    }
    all
}

async fn wait_until_active(world: &World, volume: &Rig, device: usize) {
    for _ in 0..600 {
        if volume.status().devices[device].state == DeviceState::Active {
            return;
        }
        world.sleep(Nanos::from_millis(100)).await;
    }
    panic!("a minute is enough: {:?}", volume.status().devices[device]);
}

async fn checked(world: &World, disks: &[Disk]) -> Report {
    let names: Vec<String> = (0..disks.len()).map(|i| format!("disk {i}")).collect();
    check(world, all(disks), &names, None).await.unwrap()
}

async fn opened(world: &World, disks: &[Disk]) -> (Rig, Recovery) {
    open_with(world.clone(), all(disks), |_| ()).await.unwrap()
}

/// The devices after a kill, with device `half` restored to its state before the last flush.
async fn restored(world: &World, arena: &Arena, disks: &[Disk], policy: &str, half: usize) -> Vec<Disk> {
    let volume = make(world.clone(), all(disks), &mirror(policy)).await;
    write(&volume, arena, 0..8, 1).await;
    world.sleep(SECOND * 7).await;
    let old = disks[half].fork(world);
    write(&volume, arena, 4..12, 2).await;
    world.sleep(SECOND * 15).await;
    let mut found: Vec<Disk> = disks.iter().map(|disk| disk.fork(world)).collect();
    found[half] = old;
    found
}

/// One half of a mirror was restored to an older copy of the same opening, or lied about flushes, and the
/// power failed. The check said "clean", and the volume opened silently. Half of the flushed data read as
/// old bytes, though the other half had the newer bytes.
pub fn a_half_that_lost_acknowledged_flushes_is_made_again() {
    for (seed, policy) in POLICIES.into_iter().enumerate() {
        for half in [0, 1] {
            let bench = bench(10 + seed as u64);
            let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
            bench.run(async move {
                let found = restored(&world, &arena, &disks, policy, half).await;
                let report = checked(&world, &found).await;
                assert_eq!(report.cut.len(), 1, "{policy}: {report:?}");
                let (id, what) = &report.cut[0];
                assert!(id.index() == half && what.contains("lost writes"), "{policy}: {what}");
                assert!(report.fatal.is_empty() && report.lost.is_empty(), "{policy}: {report:?}");
                let (volume, recovery) = opened(&world, &found).await;
                assert_eq!(recovery.forgetful, [DeviceId(half as u16)], "{policy}");
                assert!(holds_all(&volume, &arena).await, "{policy}: d{half} was read");
                wait_until_active(&world, &volume, half).await;
                volume.audit().await.unwrap();
                // A crash later the device is as good as the other, and sufficient alone.
                let killed: Vec<Disk> = found.iter().map(|disk| disk.fork(&world)).collect();
                let (again, recovery) = opened(&world, &killed).await;
                assert_eq!(recovery.forgetful, [], "{policy}");
                assert!(holds_all(&again, &arena).await);
                volume.close().await.unwrap();
                let alone = open(world.clone(), all(&found[half..=half])).await.unwrap();
                assert!(holds_all(&alone, &arena).await, "{policy}: d{half} alone");
            });
        }
    }
}

#[test]
fn mirror_half_with_lost_flushes_is_rebuilt() {
    a_half_that_lost_acknowledged_flushes_is_made_again();
}

/// Of two halves, one lost flushes and the other is unwritable. No device has all data and accepts writes:
/// the volume is refused, and the device that lost flushes is not served alone.
#[test]
fn volume_is_refused_if_only_writable_half_lost_flushes() {
    for half in [0, 1] {
        let bench = bench(30 + half as u64);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let found = restored(&world, &arena, &disks, "raid1", half).await;
            let unwritable =
                FaultPlan { bad_writes: Some(Bytes::ZERO..Bytes(u64::MAX / 2)), ..FaultPlan::default() };
            let given = with(&world, &found, 1 - half, &unwritable);
            let refused = open_with(world.clone(), given, |_| ()).await.err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Degraded, "{refused}");
            let (volume, recovery) = opened(&world, &found).await;
            assert_eq!(recovery.forgetful, [DeviceId(half as u16)]);
            assert!(holds_all(&volume, &arena).await);
        });
    }
}

/// The opening that discovered the loss is interrupted, at any step: the next opening does not take the
/// device for current.
#[test]
fn interrupted_opening_remembers_device_with_lost_writes() {
    for seed in 0..12 {
        let bench = bench(40 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let half = seed as usize % 2;
        let found = bench.run(async move {
            let found = restored(&world, &arena, &disks, "raid1", half).await;
            found.iter().map(|disk| disk.fork(&world)).collect::<Vec<Disk>>()
        });
        let world = World::new(seed);
        let found: Vec<Disk> = found.iter().map(|disk| disk.restart(&world)).collect();
        world.power().cut_at(1 + seed * seed);
        let (rt, these) = (world.clone(), found.clone());
        let _ended = world.block_on_until_cut(async move {
            let _volume = opened(&rt, &these).await;
            rt.sleep(SECOND * 2).await;
        });
        world.halt();
        let mut rng = Rng::new(seed);
        found.iter().for_each(|disk| disk.power_cut(&mut rng));
        let world = World::new(seed);
        let found: Vec<Disk> = found.iter().map(|disk| disk.restart(&world)).collect();
        let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
        world.block_on(async move {
            let (volume, _) = opened(&rt, &found).await;
            assert!(holds_all(&volume, &arena).await, "seed {seed}: d{half} was read");
        });
        world.halt();
    }
}

/// No half is resynchronised without a reason: both halves are as after a crash, at once after a flush and
/// later, and after a device left and returned.
#[test]
fn a_crash_of_a_sound_mirror_accuses_no_device() {
    for (seed, policy) in POLICIES.into_iter().enumerate() {
        let bench = bench(20 + seed as u64);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let volume = make(world.clone(), all(&disks), &mirror(policy)).await;
            for pause in [0, 1, 3, 8, 20] {
                write(&volume, &arena, pause..pause + 4, 1).await;
                world.sleep(SECOND * pause).await;
                let killed: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
                let (_, recovery) = opened(&world, &killed).await;
                assert_eq!(recovery.forgetful, [], "{policy}: {pause} s");
            }
            volume.close().await.unwrap();
            let alone = open(world.clone(), all(&disks[..1])).await.unwrap();
            write(&alone, &arena, 2..6, 2).await;
            alone.return_device(sound_one(&disks[1]), "disk 1").await.unwrap();
            wait_until_active(&world, &alone, 1).await;
            for _ in 0..3 {
                let killed: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
                assert_eq!(checked(&world, &killed).await.cut, [], "{policy}");
                let (_, recovery) = opened(&world, &killed).await;
                assert_eq!(recovery.forgetful, [], "{policy}");
                world.sleep(SECOND * 4).await;
            }
        });
    }
}

/// At any instant: the state after a crash accuses no device, and a half that lacks more than the newest
/// batch is resynchronised.
#[test]
fn restored_half_is_detected_and_sound_half_is_accepted() {
    for seed in 0..8u64 {
        let bench = bench(60 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let found = bench.run(async move {
            let volume = make(world.clone(), all(&disks), &mirror(POLICIES[seed as usize % 4])).await;
            let (mut rng, mut values, mut found) = (Rng::new(seed), [0u8; 24], 0);
            let mut before: Option<(Vec<Disk>, u64)> = None;
            for round in 1..12u8 {
                for _ in 0..1 + rng.below(4) {
                    let extent = rng.below(24);
                    write(&volume, &arena, extent..extent + 1, round).await;
                    values[extent as usize] = round;
                }
                world.sleep(Nanos::from_millis(rng.below(7000))).await;
                let forked = || disks.iter().map(|disk| disk.fork(&world)).collect::<Vec<Disk>>();
                let (killed, batch, half) = (forked(), volume.noted().batch, rng.below(2) as usize);
                let (sound, recovery) = opened(&world, &forked()).await;
                assert_eq!(recovery.forgetful, [], "seed {seed}, round {round}");
                sound.close().await.unwrap();
                let mut mixed = forked();
                if let Some((older, known)) =
                    before.replace((killed, batch)).filter(|(_, known)| known + 1 < batch)
                {
                    mixed[half] = older[half].clone();
                    found += 1;
                    let opened = open_with(world.clone(), all(&mixed), |_| ()).await;
                    if let Err(error) = &opened {
                        // The other half may lack data that the policy had not copied yet.
                        assert_eq!(
                            (seed % 4, error.kind()),
                            (1, ErrorKind::Degraded),
                            "seed {seed}: {error}"
                        );
                        assert!(error.to_string().contains("lost writes"), "{error}");
                        continue;
                    }
                    let (volume, recovery) = opened.unwrap();
                    let what = format!("seed {seed}, round {round}: batch {known}, not {batch}");
                    assert_eq!(recovery.forgetful, [DeviceId(half as u16)], "{what}");
                    for (extent, &value) in (0..).zip(&values) {
                        assert!(
                            holds(&volume, &arena, EXTENT * extent, EXTENT, value).await.unwrap(),
                            "{what}"
                        );
                    }
                    volume.close().await.unwrap();
                }
            }
            found
        });
        assert!(found > 3, "seed {seed}: {found} halves were older");
    }
}

/// After a shutdown the superblocks reveal the older half.
#[test]
fn an_older_half_is_refused_by_name_after_a_clean_shutdown() {
    let bench = bench(3);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let volume = make(world.clone(), all(&disks), &mirror("raid1")).await;
        write(&volume, &arena, 0..8, 1).await;
        let old = disks[0].fork(&world);
        write(&volume, &arena, 4..12, 2).await;
        volume.close().await.unwrap();
        let error = refused(open(world.clone(), all(&[old, disks[1].clone()])).await);
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("--distrust d0"), "{error}");
    });
}

/// The SSD was restored, and had been the only device with data that the disk with epochs did not have yet:
/// 4 MiB of flushed data silently became older.
#[test]
fn epoch_device_with_lost_flushes_is_not_read() {
    for half in [0, 1] {
        let world = World::new(50);
        let sizes = [DiskOptions::ssd(MIB * 16), DiskOptions::hdd(MIB * 24)];
        let disks: Vec<Disk> = sizes.map(|options| Disk::new(&world, options)).to_vec();
        let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
        world.block_on(async move {
            let policy = "pass,order=epoch,max-lag=1MiB,idle=20ms".to_owned();
            let layouts = vec![Layout::Head, Layout::Tail];
            let made = CreateOptions { layouts, policy, size: Some(MIB * 3), ..mirror("") };
            let volume = make(rt.clone(), all(&disks), &made).await;
            write(&volume, &arena, 0..8, 1).await;
            rt.sleep(SECOND * 7).await;
            let old = disks[half].fork(&rt);
            write(&volume, &arena, 4..12, 2).await;
            rt.sleep(SECOND * 15).await;
            let mut found: Vec<Disk> = disks.iter().map(|disk| disk.fork(&rt)).collect();
            found[half] = old;
            match open_with(rt.clone(), all(&found), |_| ()).await {
                Ok((volume, recovery)) => {
                    assert_eq!(recovery.forgetful, [DeviceId(half as u16)]);
                    assert!(holds_all(&volume, &arena).await, "d{half} was read");
                }
                Err(error) => assert!(error.to_string().contains("lost writes"), "{error}"),
            }
        });
        world.halt();
    }
}
