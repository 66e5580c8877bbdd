//! Disks with a lost end: shorter than before, or with their size back and zeros in place of data.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::rig::life::{addition, disk};
use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos, Rng};
use braid_engine::{
    CreateOptions, Durability, Error, ErrorKind, Export, Noted, OpenOptions, Report, check, create,
};
use braid_format::layout::superblock_offsets;
use braid_format::superblock::{DeviceState, Layout};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};

/// Remaining bytes of a disk of 8 MiB. The volume of 4 MiB reaches beyond.
const LEFT: Bytes = Bytes(3 << 20);
/// The same, if the disk stays short: a shorter disk is no device of a volume.
const SHORT: Bytes = Bytes(5 << 20);

fn mirror(layout: Layout) -> CreateOptions {
    CreateOptions { copies: 2, policy: "raid1".to_owned(), layouts: vec![layout; 2], ..options(60) }
}

fn sound(world: &World, disk: Disk) -> Faulty<Disk> {
    Faulty::new(disk, &Faults::new(FaultPlan::default(), world.fork_rng()))
}

fn mentions(error: &Error, named: &[&str]) -> bool {
    named.iter().all(|name| error.to_string().contains(name))
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

/// The devices of a volume, filled, after a clean shutdown or a kill.
async fn filled_volume(
    world: &World,
    arena: &Arena,
    disks: &[Disk],
    options: &CreateOptions,
    closes: bool,
) -> Vec<Disk> {
    let all = disks.iter().map(|disk| sound(world, disk.clone())).collect();
    let volume = make(world.clone(), all, options).await;
    for at in 0..4u64 {
        let bytes = filled(arena, MIB, 1 + at as u8);
        volume.write(MIB * at, &bytes, Durability::Volatile).await.unwrap();
    }
    volume.flush().await.unwrap();
    if closes {
        volume.close().await.unwrap();
    } else {
        world.sleep(Nanos::from_secs(60)).await;
    }
    disks.iter().map(|disk| disk.fork(world)).collect()
}

async fn holds_all(volume: &Rig, arena: &Arena) -> bool {
    for at in 0..4u64 {
        if !holds(volume, arena, MIB * at, MIB, 1 + at as u8).await.expect("each extent has a good copy") {
            return false;
        }
    }
    true
}

async fn checked(world: &World, disks: &[Disk]) -> Report {
    let devices = disks.iter().map(|disk| sound(world, disk.clone())).collect();
    let names: Vec<String> = (0..disks.len()).map(|i| format!("disk {i}")).collect();
    check(world, devices, &names, None).await.expect("the devices are of one volume")
}

/// A disk of a mirror was cut, and was enlarged again, as the message asked. The disk was read as current:
/// zeros in place of all data beyond the cut, and the check reported no loss.
pub fn a_disk_of_a_mirror_that_was_cut_gets_its_copies_anew() {
    for (cut, closes) in [(0, true), (1, true), (0, false), (1, false)] {
        let bench = bench(1);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let disks = filled_volume(&world, &arena, &disks, &mirror(Layout::Head), closes).await;
            drop(disks[cut].cut(LEFT));
            let report = checked(&world, &disks).await;
            let told = report.cut.iter().map(|(id, _)| id.index()).collect::<Vec<_>>();
            assert_eq!((told, report.not_current.len()), (vec![cut], 1), "{report:?}");
            assert!(report.repairable.is_empty() && report.fatal.is_empty(), "{report:?}");
            let both = || disks.iter().map(|disk| sound(&world, disk.clone())).collect::<Vec<_>>();
            // A repair does not hide the cut.
            let (volume, _) = open_with(world.clone(), both(), |o| o.repair = true).await.unwrap();
            volume.close().await.unwrap();
            let volume = open(world.clone(), both()).await.unwrap();
            assert!(holds_all(&volume, &arena).await, "disk {cut} was cut");
            wait_until_active(&world, &volume, cut).await;
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let alone = vec![sound(&world, disks[cut].clone())];
            let volume = open(world.clone(), alone).await.unwrap();
            assert!(holds_all(&volume, &arena).await, "disk {cut} has all again");
        });
    }
}

#[test]
fn truncated_mirror_disk_is_rebuilt_after_size_is_restored() {
    a_disk_of_a_mirror_that_was_cut_gets_its_copies_anew();
}

/// A power cut at any time of the first opening after the cut leaves a disk that still lacks all data.
#[test]
fn an_interrupted_opening_does_not_make_a_cut_disk_current() {
    for seed in 0..40 {
        let bench = bench(seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let cut = (seed % 2) as usize;
        let mut disks = bench.run(async move {
            let disks = filled_volume(&world, &arena, &disks, &mirror(Layout::Head), seed % 3 > 0).await;
            drop(disks[cut].cut(LEFT));
            disks
        });
        let mut rng = Rng::new(seed);
        for _ in 0..2 {
            let world = World::new(rng.next_u64());
            disks = disks.iter().map(|disk| disk.restart(&world)).collect();
            world.power().cut_at(1 + rng.below(200));
            let (rt, all) = (world.clone(), disks.clone());
            let _ended = world.block_on_until_cut(async move {
                let all = all.into_iter().map(|disk| sound(&rt, disk)).collect();
                let _volume = open(rt.clone(), all).await.expect("the other disk has all");
                rt.sleep(Nanos::from_secs(1)).await;
            });
            world.halt();
            disks.iter().for_each(|disk| disk.power_cut(&mut rng));
        }
        let world = World::new(rng.next_u64());
        let all: Vec<Disk> = disks.iter().map(|disk| disk.restart(&world)).collect();
        let (rt, arena) = (world.clone(), Arena::new(MIB * 4));
        world.block_on(async move {
            let all = all.into_iter().map(|disk| sound(&rt, disk)).collect();
            let volume = open(rt.clone(), all).await.unwrap();
            assert!(holds_all(&volume, &arena).await, "seed {seed}");
        });
        world.halt();
    }
}

/// A short disk prevented the serving of the whole mirror, even if the disk was excluded by name.
#[test]
fn a_short_disk_of_a_mirror_can_be_given_up() {
    for (cut, closes) in [(0, true), (1, false)] {
        let bench = bench(2);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let mut disks = filled_volume(&world, &arena, &disks, &mirror(Layout::Head), closes).await;
            let whole = disks[cut].clone();
            disks[cut] = whole.cut(SHORT);
            let both = || disks.iter().map(|disk| sound(&world, disk.clone())).collect::<Vec<_>>();
            let error = refused(open(world.clone(), both()).await);
            let named = [&*format!("disk {cut}"), &format!("--distrust d{cut}"), "device replace"];
            assert!(error.kind() == ErrorKind::Invalid && mentions(&error, &named), "{error}");
            let report = checked(&world, &disks).await;
            assert_eq!(report.not_current, [(DeviceId(cut as u16), DeviceState::Missing)]);
            assert_eq!(report.cut.len(), 1, "{report:?}");
            let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(cut as u16)];
            let (volume, _) = open_with(world.clone(), both(), give_up).await.unwrap();
            assert_eq!(volume.status().devices[cut].state, DeviceState::Missing);
            assert!(holds_all(&volume, &arena).await);
            volume.close().await.unwrap();
            // The disk need not be excluded again, short or enlarged.
            let volume = open(world.clone(), both()).await.unwrap();
            assert!(holds_all(&volume, &arena).await);
            volume.close().await.unwrap();
            disks[cut] = whole;
            let all = disks.iter().map(|disk| sound(&world, disk.clone())).collect();
            let volume = open(world.clone(), all).await.unwrap();
            assert!(holds_all(&volume, &arena).await);
            wait_until_active(&world, &volume, cut).await;
            volume.audit().await.unwrap();
        });
    }
}

/// A disk with its metadata at its end has no superblock any more, and belongs to no volume. The other disk
/// serves alone.
#[test]
fn truncated_tail_layout_disk_is_no_longer_a_member() {
    for (cut, short) in [(0, true), (1, false)] {
        let bench = bench(3);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let mut disks = filled_volume(&world, &arena, &disks, &mirror(Layout::Tail), true).await;
            let left = disks[cut].cut(LEFT);
            if short {
                disks[cut] = left;
            }
            let both = disks.iter().map(|disk| sound(&world, disk.clone())).collect();
            let error = refused(open(world.clone(), both).await);
            assert!(
                error.kind() == ErrorKind::Invalid && mentions(&error, &[&format!("disk {cut}")]),
                "{error}"
            );
            let other = vec![sound(&world, disks[1 - cut].clone())];
            let volume = open(world.clone(), other).await.unwrap();
            assert!(holds_all(&volume, &arena).await);
        });
    }
}

/// Two superblock copies remain on a disk of layout tail, behind all other bytes: nothing is lost.
#[test]
fn missing_last_superblock_copy_reveals_truncation() {
    for (layout, cut) in [(Layout::Head, 0), (Layout::Head, 1), (Layout::Tail, 0), (Layout::Tail, 1)] {
        let bench = bench(4);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let disks = filled_volume(&world, &arena, &disks, &mirror(layout), true).await;
            drop(disks[cut].cut(MIB * 8 - KIB * 16));
            let both = disks.iter().map(|disk| sound(&world, disk.clone())).collect();
            let volume = open(world.clone(), both).await.unwrap();
            let is_whole = volume.status().devices[cut].state == DeviceState::Active;
            assert_eq!(is_whole, layout == Layout::Tail, "{layout:?}");
            assert!(holds_all(&volume, &arena).await);
            wait_until_active(&world, &volume, cut).await;
            volume.audit().await.unwrap();
        });
    }
}

/// With one copy of everything nothing can be resynchronised: the volume silently served zeros.
#[test]
fn truncated_single_copy_disk_is_refused_until_repair() {
    // In the last case another daemon may have the volume open: the opening begins again after a wait.
    for (closes, noted) in [(true, None), (false, None), (false, Some(Noted::default()))] {
        let bench = bench(5);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let one = CreateOptions { policy: "hdd-only".to_owned(), ..options(61) };
            let disks = filled_volume(&world, &arena, &disks, &one, closes).await;
            drop(disks[1].cut(LEFT));
            let both = || disks.iter().map(|disk| sound(&world, disk.clone())).collect::<Vec<_>>();
            let error = refused(open(world.clone(), both()).await);
            let named = ["disk 1", "--repair", "--distrust d1"];
            assert!(error.kind() == ErrorKind::Corrupt && mentions(&error, &named), "{error}");
            let report = checked(&world, &disks).await;
            assert!(!report.fatal.is_empty() && !report.lost.is_empty(), "{report:?}");
            let (volume, recovery) =
                open_with(world.clone(), both(), |o| (o.repair, o.noted) = (true, noted)).await.unwrap();
            assert_eq!((recovery.lost.clone(), recovery.warnings.len()), (report.lost.clone(), 1));
            volume.close().await.unwrap();
            let volume = open(world.clone(), both()).await.unwrap();
            let extent = KIB * 128;
            for number in 0..32u32 {
                let value = 1 + (number / 8) as u8;
                let read = holds(&volume, &arena, extent * u64::from(number), extent, value).await;
                let is_lost = report.lost.iter().any(|lost| lost.0 == number);
                assert_eq!(read.ok(), (!is_lost).then_some(true), "extent {number}");
            }
        });
    }
}

/// Nor is a short disk accepted. Its content can be given up.
#[test]
fn short_single_copy_disk_is_refused_until_exclusion() {
    let bench = bench(6);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let one = CreateOptions { policy: "hdd-only".to_owned(), ..options(62) };
        let mut disks = filled_volume(&world, &arena, &disks, &one, true).await;
        disks[1] = disks[1].cut(SHORT);
        let both = || disks.iter().map(|disk| sound(&world, disk.clone())).collect::<Vec<_>>();
        let error = refused(open(world.clone(), both()).await);
        let named = ["disk 1", "backup", "--distrust d1"];
        assert!(error.kind() == ErrorKind::Invalid && mentions(&error, &named), "{error}");
        let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(1)];
        let (volume, recovery) = open_with(world.clone(), both(), give_up).await.unwrap();
        assert_eq!(recovery.lost.len(), 32);
        assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 1).await.is_err());
    });
}

/// An interrupted creation leaves devices without their last superblock copy: such devices were never
/// written.
#[test]
fn never_opened_volume_needs_no_last_superblock_copy() {
    for copies in [1, 2] {
        for without in 0..2 {
            let bench = bench(7);
            let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
            bench.run(async move {
                let options = CreateOptions { copies, ..options(63) };
                let all = || disks.iter().map(|disk| sound(&world, disk.clone())).collect::<Vec<_>>();
                create(&all(), &options).await.unwrap();
                let last = superblock_offsets(MIB * 8, Layout::Head)[2];
                disks[without].poke(last, &[0; 8192]);
                let report = checked(&world, &disks).await;
                assert!(report.not_current.is_empty() && report.fatal.is_empty(), "{report:?}");
                let volume = open(world.clone(), all()).await.unwrap();
                assert_eq!(volume.status().devices[without].state, DeviceState::Active);
                volume.write(Bytes::ZERO, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
                volume.close().await.unwrap();
                let volume = open(world.clone(), all()).await.unwrap();
                assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 9).await.unwrap());
            });
        }
    }
}

/// An interrupted addition leaves a device with some of its superblock copies. The device is not a member of
/// the volume yet.
#[test]
fn device_of_interrupted_addition_is_ignored() {
    let bench = bench(8);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let all = || disks.iter().map(|disk| sound(&world, disk.clone())).collect::<Vec<_>>();
        let volume = make(world.clone(), all(), &options(64)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 4), Durability::Fua).await.unwrap();
        let new = disk(&world, false);
        let stopped = |_| Err(Error::new(ErrorKind::Io, "the record is full"));
        let added = volume.add_device(sound(&world, new.clone()), &addition(Layout::Head), stopped).await;
        assert!(added.is_err());
        volume.close().await.unwrap();
        new.poke(superblock_offsets(MIB * 10, Layout::Head)[2], &[0; 8192]);
        let with_new = [all(), vec![sound(&world, new)]].concat();
        let volume = open(world.clone(), with_new).await.unwrap();
        assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 4).await.unwrap());
    });
}

/// Only the cut disk had the newest writes: the older copy was almost served in their place, without a
/// request.
#[test]
fn unique_data_on_truncated_disk_needs_explicit_exclusion() {
    let bench = bench(9);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let options = CreateOptions {
            copies: 2,
            size: Some(MIB * 2),
            policy: "pass,max-lag=4MiB,window=4MiB,idle=1h".to_owned(),
            ..options(65)
        };
        let all = disks.iter().map(|disk| sound(&world, disk.clone())).collect();
        let volume = make(world.clone(), all, &options).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        assert!(volume.status().behind > Bytes::ZERO);
        let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
        drop(disks[0].cut(MIB * 8 - KIB * 16));
        let both = || disks.iter().map(|disk| sound(&world, disk.clone())).collect::<Vec<_>>();
        let error = refused(open(world.clone(), both()).await);
        assert!(error.kind() == ErrorKind::Degraded && mentions(&error, &["--distrust d0"]), "{error}");
        assert!(!checked(&world, &disks).await.only_on_missing.is_empty());
        let give_up = |o: &mut OpenOptions| o.distrust = vec![DeviceId(0)];
        open_with(world.clone(), both(), give_up).await.unwrap();
    });
}

/// The disk was cut while the volume was served without the disk.
#[test]
fn disk_truncated_while_failed_is_rebuilt_on_return() {
    let bench = bench(10);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let all = disks.iter().map(|disk| sound(&world, disk.clone())).collect();
        let volume = make(world.clone(), all, &mirror(Layout::Head)).await;
        for at in 0..4u64 {
            let bytes = filled(&arena, MIB, 1 + at as u8);
            volume.write(MIB * at, &bytes, Durability::Fua).await.unwrap();
        }
        world.sleep(Nanos::from_secs(60)).await;
        volume.fail_device(DeviceId(1)).await.unwrap();
        let short = disks[1].cut(SHORT);
        let error = refused(volume.return_device(sound(&world, short), "it").await);
        assert!(error.kind() == ErrorKind::Invalid && mentions(&error, &["it", "cut"]), "{error}");
        volume.return_device(sound(&world, disks[1].clone()), "it").await.unwrap();
        wait_until_active(&world, &volume, 1).await;
        volume.audit().await.unwrap();
        assert!(holds_all(&volume, &arena).await);
    });
}
