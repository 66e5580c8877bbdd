//! SSDs that lie about flushes, or are lost with the journal, in volumes with one copy of everything: the
//! other device and the host as witnesses.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Error, ErrorKind, Export, Noted, OpenOptions, check_noted};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};

const EXTENT: Bytes = Bytes(128 << 10);
const SECOND: Nanos = Nanos::from_secs(1);

fn sound(world: &World, disk: Disk) -> Faulty<Disk> {
    Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()))
}

fn all(world: &World, disks: &[Disk]) -> Vec<Faulty<Disk>> {
    disks.iter().map(|disk| sound(world, disk.clone())).collect()
}

fn with(policy: &str) -> CreateOptions {
    CreateOptions { policy: policy.to_owned(), ..options(80) }
}

/// Writes extents whole, each durably.
async fn write(volume: &Rig, arena: &Arena, extents: std::ops::Range<u64>, value: u8) {
    for extent in extents {
        volume.write(EXTENT * extent, &filled(arena, EXTENT, value), Durability::Fua).await.unwrap();
    }
}

async fn reads(volume: &Rig, arena: &Arena, extent: u64, value: u8) -> Option<bool> {
    holds(volume, arena, EXTENT * extent, EXTENT, value).await.ok()
}

fn tells_of_lost_batches(error: &Error) -> bool {
    let text = error.to_string();
    error.kind() == ErrorKind::Corrupt && text.contains("on d0 lacks") && text.contains("--repair")
}

/// The SSD lost its last acknowledged flushes, as consumer SSDs do at a power cut. The volume opened
/// silently, the check said "clean", and guests' flushed data was gone.
pub fn an_ssd_that_forgot_promised_batches_is_refused() {
    for (seed, policy) in ["hdd-only", "stripe", "ssd-first"].into_iter().enumerate() {
        let bench = bench(10 + seed as u64);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let volume = make(world.clone(), all(&world, &disks), &with(policy)).await;
            write(&volume, &arena, 0..8, 1).await;
            world.sleep(SECOND * 7).await;
            let old = disks[0].fork(&world);
            write(&volume, &arena, 8..20, 2).await;
            // The witness is at most 5 s old.
            world.sleep(SECOND * 6).await;
            let found = [old, disks[1].fork(&world)];
            let error = refused(open(world.clone(), all(&world, &found)).await);
            assert!(tells_of_lost_batches(&error), "{policy}: {error}");
            let names = ["ssd".to_owned(), "disk".to_owned()];
            let report = check_noted(&world, all(&world, &found), &names, None, None).await.unwrap();
            assert!(report.fatal.iter().any(|what| what.contains("lacks")), "{report:?}");
            // If forced, the volume continues with the present data, once and for all.
            let (volume, recovery) =
                open_with(world.clone(), all(&world, &found), |o| o.repair = true).await.unwrap();
            assert_eq!(recovery.warnings.len(), 1, "{recovery:?}");
            for extent in 0..8 {
                assert_eq!(reads(&volume, &arena, extent, 1).await, Some(true), "{policy}: {extent}");
            }
            write(&volume, &arena, 20..24, 3).await;
            let killed = found.each_ref().map(|disk| disk.fork(&world));
            let again = open(world.clone(), all(&world, &killed)).await.unwrap();
            assert_eq!(reads(&again, &arena, 20, 3).await, Some(true));
            volume.close().await.unwrap();
            let again = open(world.clone(), all(&world, &found)).await.unwrap();
            assert_eq!(reads(&again, &arena, 23, 3).await, Some(true));
        });
    }
}

#[test]
fn ssd_with_lost_journal_batches_is_refused_by_name() {
    an_ssd_that_forgot_promised_batches_is_refused();
}

/// The disk beside the SSD with the journal was restored to an older state of the same opening, or lied
/// about flushes. The check said "clean", and flushed data in new extents read as zeros.
#[test]
fn disk_with_lost_flushes_is_refused_by_name() {
    for (seed, policy) in ["hdd-only", "stripe"].into_iter().enumerate() {
        let bench = bench(70 + seed as u64);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let volume = make(world.clone(), all(&world, &disks), &with(policy)).await;
            write(&volume, &arena, 0..8, 1).await;
            world.sleep(SECOND * 7).await;
            let old = disks[1].fork(&world);
            write(&volume, &arena, 8..20, 2).await;
            world.sleep(SECOND * 7).await;
            let found = [disks[0].fork(&world), old];
            let error = refused(open(world.clone(), all(&world, &found)).await);
            let text = error.to_string();
            assert!(error.kind() == ErrorKind::Corrupt && text.contains("d1 of volume"), "{policy}: {text}");
            let names = ["ssd".to_owned(), "disk".to_owned()];
            let report = check_noted(&world, all(&world, &found), &names, None, None).await.unwrap();
            assert!(report.fatal.iter().any(|what| what.contains("d1 of volume")), "{report:?}");
            // If forced, the volume continues with the present data, once and for all.
            let (volume, recovery) =
                open_with(world.clone(), all(&world, &found), |o| o.repair = true).await.unwrap();
            assert_eq!(recovery.warnings.len(), 1, "{recovery:?}");
            write(&volume, &arena, 20..24, 3).await;
            world.sleep(SECOND * 7).await;
            let killed = found.each_ref().map(|disk| disk.fork(&world));
            let again = open(world.clone(), all(&world, &killed)).await.unwrap();
            assert_eq!(reads(&again, &arena, 20, 3).await, Some(true));
            volume.close().await.unwrap();
            open(world.clone(), all(&world, &found)).await.unwrap();
        });
    }
}

/// A crash at any instant accuses no disk, even if the power fails during a page write.
#[test]
fn sound_disks_are_not_refused_after_power_cut() {
    for seed in 0..24 {
        let bench = bench(80 + seed);
        let (world, arena, mut disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let policy = ["hdd-only", "stripe", "ssd-first"][seed as usize % 3];
        let mut rng = Rng::new(seed);
        let rt = world.clone();
        let given = disks.clone();
        let mut sleeps = rng.fork();
        bench.run(async move {
            let volume = make(rt.clone(), all(&rt, &given), &with(policy)).await;
            for extent in 0..1 + sleeps.below(24) {
                write(&volume, &arena, extent..extent + 1, 1).await;
                rt.sleep(Nanos::from_millis(sleeps.below(2500))).await;
            }
        });
        for life in 0..3 {
            disks.iter().for_each(|disk| disk.power_cut(&mut rng));
            let world = World::new(rng.next_u64());
            disks = disks.iter().map(|disk| disk.restart(&world)).collect();
            world.power().cut_at(200 + rng.below(600));
            let (rt, given, mut sleeps) = (world.clone(), disks.clone(), rng.fork());
            let arena = Arena::new(MIB * 4);
            let _ended = world.block_on_until_cut(async move {
                let volume = open(rt.clone(), all(&rt, &given)).await;
                let volume = volume.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
                for extent in 0..24 {
                    write(&volume, &arena, extent..extent + 1, 2).await;
                    rt.sleep(Nanos::from_millis(sleeps.below(2500))).await;
                }
            });
            world.halt();
        }
    }
}

/// A disk that lies about flushes, until the power fails: a volume that opens silently has all noted
/// batches.
#[test]
fn lying_disk_hides_no_noted_batch_after_power_cut() {
    let mut refusals = 0;
    for seed in 0..24 {
        let bench = bench(100 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let handles = disks.clone();
        let policy = ["hdd-only", "stripe", "ssd-first"][seed as usize % 3];
        let noted = bench.run(async move {
            let volume = make(world.clone(), all(&world, &disks), &with(policy)).await;
            write(&volume, &arena, 0..4, 1).await;
            disks[0].faults().set(FaultPlan { lies: true, ..FaultPlan::default() });
            for extent in 4..24 {
                write(&volume, &arena, extent..extent + 1, 2).await;
                world.sleep(Nanos::from_millis(100 * (seed % 4))).await;
            }
            let noted = volume.noted();
            world.sleep(SECOND * 6).await;
            noted
        });
        let mut rng = Rng::new(seed);
        handles.iter().for_each(|disk| disk.power_cut(&mut rng));
        let world = World::new(seed);
        let disks: Vec<Disk> = handles.iter().map(|disk| disk.restart(&world)).collect();
        let rt = world.clone();
        refusals += world.block_on(async move {
            match open(rt.clone(), all(&rt, &disks)).await {
                Ok(volume) => {
                    assert!(volume.noted().batch >= noted.batch, "seed {seed}");
                    0
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "seed {seed}: {error}");
                    1
                }
            }
        });
        world.halt();
    }
    assert!(refusals > 4, "{refusals} of 24: the disks did not lose anything");
}

/// A volume on one device, or all devices restored to an older state: only the host knows.
#[test]
fn host_note_refuses_older_state_of_all_devices() {
    let bench = bench(2);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let one = vec![disks[0].clone()];
        let made = CreateOptions { size: Some(MIB * 3), ..with("ssd-only") };
        let volume = make(world.clone(), all(&world, &one), &made).await;
        write(&volume, &arena, 0..8, 1).await;
        let old = vec![disks[0].fork(&world)];
        write(&volume, &arena, 8..16, 2).await;
        let noted = Some(volume.noted());
        let how = |o: &mut OpenOptions| (o.noted, o.owner) = (noted, 3);
        let error = refused(open_with(world.clone(), all(&world, &old), how).await);
        assert!(tells_of_lost_batches(&error) && error.to_string().contains("this host"), "{error}");
        let names = ["ssd".to_owned()];
        let report = check_noted(&world, all(&world, &old), &names, None, noted).await.unwrap();
        assert!(!report.fatal.is_empty());
        let repaired = |o: &mut OpenOptions| (o.noted, o.repair) = (noted, true);
        let (volume, recovery) = open_with(world.clone(), all(&world, &old), repaired).await.unwrap();
        assert_eq!(recovery.warnings.len(), 1);
        volume.close().await.unwrap();
        let (volume, _) = open_with(world.clone(), all(&world, &old), how).await.unwrap();
        assert_eq!(reads(&volume, &arena, 7, 1).await, Some(true));
        // Without a note, a consistent state of all devices counts as a backup.
        let strange = |o: &mut OpenOptions| o.noted = Some(Noted::default());
        open_with(world.clone(), vec![sound(&world, disks[0].fork(&world))], strange).await.unwrap();
    });
}

/// The SSD died with the map of the disk's extents: 32 MiB of guests' flushed data read as zeros, without an
/// error.
pub fn what_was_flushed_to_the_disk_does_not_read_as_zeros_without_its_map() {
    for (seed, waits) in [(0u64, false), (1, true)] {
        for policy in ["hdd-only", "stripe", "ssd-only"] {
            let bench = bench(30 + seed);
            let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
            bench.run(async move {
                let volume = make(world.clone(), all(&world, &disks), &with(policy)).await;
                write(&volume, &arena, 0..8, 1).await;
                volume.checkpoint().await.unwrap();
                world.sleep(SECOND * 6).await;
                write(&volume, &arena, 6..20, 2).await;
                if waits {
                    world.sleep(SECOND * 6).await;
                }
                let homes: Vec<usize> =
                    (0..20).map(|i| volume.explain(EXTENT * i).unwrap().home.unwrap().0.index()).collect();
                let rest = [disks[1].fork(&world)];
                let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(0)];
                let (volume, recovery) = open_with(world.clone(), all(&world, &rest), give_up).await.unwrap();
                for extent in 0..20u64 {
                    let home = homes[extent as usize];
                    let value = 1 + u8::from(extent >= 6);
                    let read = reads(&volume, &arena, extent, value).await;
                    // After a commit that wrote to the lost SSD alone, the disk does not know of the commit
                    // at once.
                    let is_known = waits || home == 1 && (policy == "hdd-only" || extent < 6);
                    match read {
                        Some(true) | None => {}
                        Some(false) => {
                            assert!(!is_known, "{policy}: extent {extent} is not what was flushed")
                        }
                    }
                    let is_told = recovery.lost.iter().any(|lost| u64::from(lost.0) == extent);
                    assert_eq!(read.is_none(), is_told, "{policy}: extent {extent}");
                }
                for extent in (20..32).filter(|_| waits) {
                    assert_eq!(reads(&volume, &arena, extent, 0).await, Some(true), "it was never written");
                }
                // A guest's write heals the extent.
                write(&volume, &arena, 10..12, 4).await;
                let killed = [rest[0].fork(&world)];
                let again = open(world.clone(), all(&world, &killed)).await.unwrap();
                assert_eq!(reads(&again, &arena, 10, 4).await, Some(true), "{policy}");
                volume.audit().await.unwrap();
                volume.close().await.unwrap();
                let again = open(world.clone(), all(&world, &rest)).await.unwrap();
                assert_eq!(reads(&again, &arena, 11, 4).await, Some(true), "{policy}");
                for lost in recovery.lost.iter().filter(|lost| !(10..12).contains(&lost.0)) {
                    assert_eq!(reads(&again, &arena, u64::from(lost.0), 2).await, None, "{policy}: {lost:?}");
                }
            });
        }
    }
}

#[test]
fn extent_with_lost_map_reads_as_error() {
    what_was_flushed_to_the_disk_does_not_read_as_zeros_without_its_map();
}

/// Two pages named the same batch. If the new extent had a lower number, the page with fewer extents
/// counted: the extent read as zeros.
#[test]
fn newest_listed_extent_is_remembered_after_ssd_loss() {
    let bench = bench(33);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let volume = make(world.clone(), all(&world, &disks), &with("hdd-only")).await;
        for extent in [9, 3, 5, 1] {
            write(&volume, &arena, extent..extent + 1, 1).await;
            let rest = [disks[1].fork(&world)];
            let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(0)];
            let (alone, _) = open_with(world.clone(), all(&world, &rest), give_up).await.unwrap();
            assert_ne!(reads(&alone, &arena, extent, 1).await, Some(false), "extent {extent}");
            // The same list, with the newest batch.
            world.sleep(SECOND * 6).await;
        }
    });
}

/// After a clean shutdown the disk's image is complete: nothing is lost except data on the SSD.
#[test]
fn ssd_loss_after_clean_shutdown_keeps_data_on_disk() {
    let bench = bench(40);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let volume = make(world.clone(), all(&world, &disks), &with("hdd-only")).await;
        write(&volume, &arena, 0..20, 1).await;
        volume.close().await.unwrap();
        let rest = [disks[1].fork(&world)];
        let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(0)];
        let (volume, recovery) = open_with(world.clone(), all(&world, &rest), give_up).await.unwrap();
        assert_eq!(recovery.lost, []);
        for extent in 0..20 {
            assert_eq!(reads(&volume, &arena, extent, 1).await, Some(true));
        }
    });
}

/// The opening without the SSD is interrupted, at any step: extents given up do not become zeros at the next
/// opening.
#[test]
fn interrupted_opening_without_ssd_remembers_lost_extents() {
    for seed in 0..30 {
        let bench = bench(50 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let mut rest = bench.run(async move {
            let volume = make(world.clone(), all(&world, &disks), &with("hdd-only")).await;
            write(&volume, &arena, 0..8, 1).await;
            disks[1].fork(&world)
        });
        let mut rng = Rng::new(seed);
        let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(0)];
        for _ in 0..2 {
            let world = World::new(rng.next_u64());
            rest = rest.restart(&world);
            world.power().cut_at(1 + rng.below(80));
            let (rt, one) = (world.clone(), [rest.clone()]);
            let _ended = world.block_on_until_cut(async move {
                let _volume = open_with(rt.clone(), all(&rt, &one), give_up).await.unwrap();
                rt.sleep(SECOND * 40).await;
            });
            world.halt();
            rest.power_cut(&mut rng);
        }
        let world = World::new(rng.next_u64());
        let (rt, one, arena) = (world.clone(), [rest.restart(&world)], Arena::new(KIB * 512));
        world.block_on(async move {
            let (volume, _) = open_with(rt.clone(), all(&rt, &one), give_up).await.unwrap();
            for extent in 0..8 {
                let read = reads(&volume, &arena, extent, 1).await;
                assert!(
                    read.is_none_or(|right| right),
                    "seed {seed}: extent {extent} reads as something else"
                );
            }
        });
        world.halt();
    }
}
