//! Undecided spans after a crash, and faults of devices before the end of the resync.

use crate::deadlines::hang;
use crate::rig::{Rig, bench, filled, holds, open, options, sound};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, Export, create};
use braid_format::superblock::Features;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, World};

pub const EXTENT: Bytes = Bytes(128 << 10);
pub const BLOCK: Bytes = Bytes(4 << 10);

/// A mirror with writes to a span of four extents at the death of its daemon, and its disks afterwards.
async fn crashed(rt: &World, arena: &Arena, disks: &[Disk], policy: &str) -> (Rig, Vec<Disk>) {
    crashed_with(
        rt,
        arena,
        disks,
        CreateOptions { policy: policy.to_owned(), span_size: EXTENT * 4, ..options(7) },
        4,
    )
    .await
}

async fn crashed_with(
    rt: &World,
    arena: &Arena,
    disks: &[Disk],
    how: CreateOptions,
    extents: u64,
) -> (Rig, Vec<Disk>) {
    let how = CreateOptions { copies: 2, ..how };
    create(&sound(disks), &how).await.expect("the disks are fit");
    let volume = open(rt.clone(), sound(disks)).await.expect("it is new");
    for extent in 0..extents {
        let bytes = filled(arena, EXTENT, 1 + extent as u8);
        volume.write(EXTENT * extent, &bytes, Durability::Fua).await.expect("the disks are sound");
    }
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(rt)).collect();
    let slow = Nanos::from_millis(500)..Nanos::from_millis(501);
    let volume = open(rt.clone(), sound(&disks)).await.expect("the disks are sound");
    disks.iter().for_each(|disk| {
        disk.faults().set(FaultPlan { stalls: 1.0, stall: slow.clone(), ..FaultPlan::default() });
    });
    assert_eq!(volume.status().behind, EXTENT * extents);
    (volume, disks)
}

pub fn made() -> CreateOptions {
    CreateOptions { policy: "ssd-first".to_owned(), extent_size: KIB * 16, span_size: MIB * 4, ..options(7) }
}

/// Reads one block, and returns its value.
pub async fn value_of(volume: &Rig, arena: &Arena, at: Bytes) -> braid_engine::Result<u8> {
    let buf = filled(arena, BLOCK, 77);
    volume.read(at, &buf).await?;
    Ok(buf.with_bytes(|bytes| bytes[0]))
}

/// Kind of a device's death.
#[derive(Clone, Copy, Debug)]
enum Death {
    Gone,
    Unreadable,
    Hangs,
}

fn dies(how: Death, is_home: bool, reads: bool, millis: u64) {
    let bench = bench(81);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let (volume, disks) = crashed_with(&world, &arena, &disks, made(), 32).await;
        let home = volume.explain(Bytes::ZERO).expect("it is sound").home.expect("it is sound").0.index();
        disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        let dead = if is_home { home } else { 1 - home };
        world.sleep(Nanos::from_millis(millis)).await;
        match how {
            Death::Gone => disks[dead].faults().vanish(),
            Death::Unreadable => disks[dead].faults().set(FaultPlan {
                reads: 1.0,
                writes: 1.0,
                flushes: 1.0,
                ..FaultPlan::default()
            }),
            Death::Hangs => hang(&disks[dead]),
        }
        let what = format!("{how:?}, home {is_home}, reads {reads}, after {millis} ms");
        if reads {
            for extent in (0..32).rev() {
                let read = holds(&volume, &arena, EXTENT * extent, EXTENT, 1 + extent as u8).await;
                assert!(read.unwrap_or_else(|error| panic!("{what}: extent {extent}: {error}")), "{what}");
            }
        }
        let bytes = filled(&arena, BLOCK, 9);
        let written = volume.write(EXTENT, &bytes, Durability::Volatile).await;
        written.unwrap_or_else(|error| panic!("{what}: write: {error}"));
        volume.flush().await.unwrap_or_else(|error| panic!("{what}: flush: {error}"));
        world.sleep(Nanos::from_secs(200)).await;
        let bytes = filled(&arena, BLOCK, 9);
        let written = volume.write(EXTENT, &bytes, Durability::Volatile).await;
        written.unwrap_or_else(|error| panic!("{what}: later write: {error}"));
        volume.flush().await.unwrap_or_else(|error| panic!("{what}: later flush: {error}"));
        for extent in 2..4 {
            let read = holds(&volume, &arena, EXTENT * extent, EXTENT, 1 + extent as u8).await;
            assert!(read.unwrap_or_else(|error| panic!("{what}: later: extent {extent}: {error}")), "{what}");
        }
    });
}

/// With the spans and extents that `create` makes, of 64 MiB.
#[test]
fn home_death_loses_nothing_with_default_geometry() {
    for reads in [true, false] {
        let world = World::new(85);
        let arena = Arena::new(MIB * 4);
        let disks =
            [DiskOptions::ssd(MIB * 96), DiskOptions::hdd(MIB * 96)].map(|o| Disk::new(&world, o)).to_vec();
        let rt = world.clone();
        world.block_on(async move {
            let mut how = CreateOptions::new("a mirror", braid_format::Uuid([3; 16]));
            (how.size, how.copies, how.policy) = (Some(MIB * 64), 2, "ssd-first".to_owned());
            create(&sound(&disks), &how).await.expect("it is sound");
            let volume = open(rt.clone(), sound(&disks)).await.expect("it is sound");
            for at in 0..64 {
                volume
                    .write(MIB * at, &filled(&arena, MIB, 1 + at as u8), Durability::Fua)
                    .await
                    .expect("it is sound");
            }
            let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(&rt)).collect();
            let volume = open(rt.clone(), sound(&disks)).await.expect("it is sound");
            assert_eq!(volume.status().behind, MIB * 64);
            let home = volume.explain(Bytes::ZERO).expect("it is sound").home.expect("it is sound").0.index();
            disks[home].faults().vanish();
            if reads {
                for at in (0..64).rev() {
                    let read = value_of(&volume, &arena, MIB * at).await;
                    assert_eq!(read.unwrap_or_else(|error| panic!("MiB {at}: {error}")), 1 + at as u8);
                }
            }
            volume
                .write(MIB, &filled(&arena, BLOCK, 9), Durability::Fua)
                .await
                .expect("the other device is sound");
        });
        world.halt();
    }
}

/// The first failing copy made its whole span stale, and then the volume could not do without the dying
/// device.
#[test]
fn death_of_either_device_loses_nothing() {
    for (is_home, reads) in [(true, true), (true, false), (false, true), (false, false)] {
        for how in [Death::Gone, Death::Unreadable, Death::Hangs] {
            dies(how, is_home, reads, 0);
        }
        (1..20).for_each(|i| dies(Death::Hangs, is_home, reads, 26 * i));
    }
}

/// Each copy has a bad place, in different blocks of one extent.
#[test]
fn bad_sectors_in_different_blocks_lose_nothing() {
    let bench = bench(82);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let (volume, disks) = crashed(&world, &arena, &disks, "ssd-first").await;
        let placed = volume.explain(EXTENT * 3).expect("it is sound");
        let ((home, at), (second, other, _)) =
            (placed.home.expect("it is sound"), placed.second.expect("it is sound"));
        disks[home.index()].spoil(at + KIB * 4..at + KIB * 8, Bad::UntilWritten);
        disks[second.index()].spoil(other + KIB * 64..other + KIB * 68, Bad::UntilWritten);
        assert!(holds(&volume, &arena, EXTENT * 3 + KIB * 4, KIB * 4, 4).await.expect("it is sound"));
        let read = holds(&volume, &arena, EXTENT * 3 + KIB * 64, KIB * 4, 4).await;
        assert!(read.expect("the first home has it"));
    });
}

/// One device has two bad places, in different extents of one span; the other device is sound.
#[test]
fn two_bad_sectors_of_one_device_lose_nothing() {
    let bench = bench(84);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let (volume, disks) = crashed_with(&world, &arena, &disks, made(), 32).await;
        for extent in [30, 31] {
            let (home, at) = volume.explain(EXTENT * extent).expect("it is sound").home.expect("it is sound");
            disks[home.index()].spoil(at + KIB * 4..at + KIB * 8, Bad::UntilWritten);
        }
        for extent in [31, 30] {
            let read = holds(&volume, &arena, EXTENT * extent, EXTENT, 1 + extent as u8).await;
            assert!(read.unwrap_or_else(|error| panic!("extent {extent}: {error}")));
        }
    });
}

/// After one bad place of a home, either device may still be lost.
#[test]
fn either_device_can_be_failed_after_one_bad_sector() {
    for which in 0..2 {
        let bench = bench(83);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let (volume, disks) = crashed_with(&world, &arena, &disks, made(), 32).await;
            let (home, at) = volume.explain(EXTENT * 3).expect("it is sound").home.expect("it is sound");
            disks[home.index()].spoil(at + KIB * 4..at + KIB * 8, Bad::UntilWritten);
            assert!(holds(&volume, &arena, EXTENT * 3, EXTENT, 4).await.expect("it is sound"));
            volume.fail_device(DeviceId(which)).await.unwrap_or_else(|error| panic!("d{which}: {error}"));
        });
    }
}

/// A place of the home is unreadable: the other copy is as good, and answers.
#[test]
fn bad_home_sector_before_end_of_resync_loses_nothing() {
    for bad in [Bad::UntilWritten, Bad::ForEver] {
        let bench = bench(71);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let (volume, disks) = crashed(&world, &arena, &disks, "ssd-first").await;
            let (home, at) = volume.explain(EXTENT * 3).expect("it is sound").home.expect("it is sound");
            disks[home.index()].spoil(at + KIB * 4..at + KIB * 8, bad);
            assert!(holds(&volume, &arena, EXTENT * 3, EXTENT, 4).await.expect("it is sound"));
            let bytes = filled(&arena, KIB * 4, 9);
            volume.write(EXTENT * 3 + KIB * 4, &bytes, Durability::Fua).await.expect("it is sound");
            disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
            world.sleep(Nanos::from_secs(30)).await;
            assert!(holds(&volume, &arena, EXTENT * 3 + KIB * 4, KIB * 4, 9).await.expect("it is sound"));
            for extent in 0..3 {
                assert!(
                    holds(&volume, &arena, EXTENT * extent, EXTENT, 1 + extent as u8)
                        .await
                        .expect("it is sound")
                );
            }
            volume.audit().await.expect("it is sound");
        });
    }
}

/// Reads of the home do not wait again and again for a second copy on a silent device.
#[test]
fn silent_device_delays_reads_only_once() {
    let bench = bench(72);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let (volume, disks) = crashed(&world, &arena, &disks, "ssd-first").await;
        let home = volume.explain(Bytes::ZERO).expect("it is sound").home.expect("it is sound").0;
        disks[home.index()].faults().set(FaultPlan::default());
        hang(&disks[1 - home.index()]);
        assert!(holds(&volume, &arena, EXTENT * 3, EXTENT, 4).await.expect("it is sound"));
        assert!(world.now() < Nanos::from_secs(30), "{}", world.now());
        let since = world.now();
        for extent in (0..4).rev() {
            assert!(
                holds(&volume, &arena, EXTENT * extent, EXTENT, 1 + extent as u8).await.expect("it is sound")
            );
        }
        assert!(world.now() - since < Nanos::from_secs(1), "{}", world.now() - since);
    });
}

/// No older version takes undecided spans after a shutdown for alike. The next shutdown after the resync
/// calls all spans alike.
#[test]
fn a_shutdown_before_the_end_of_a_resync_is_told_to_older_versions() {
    let bench = bench(73);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let (volume, disks) = crashed(&world, &arena, &disks, "ssd-first").await;
        volume.close().await.expect("it is sound");
        assert_eq!(volume.superblock().features.incompat & Features::UNDECIDED, Features::UNDECIDED);
        disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
        world.sleep(Nanos::from_secs(30)).await;
        assert_eq!(volume.status().behind, Bytes::ZERO);
        volume.audit().await.expect("it is sound");
        volume.close().await.expect("it is sound");
        assert_eq!(volume.superblock().features.incompat & Features::UNDECIDED, 0);
    });
}
