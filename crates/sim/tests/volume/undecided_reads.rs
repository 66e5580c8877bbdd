//! Reads of guests before the end of the resync after a crash: the content read does not change, whatever
//! moves, begins or is lost meanwhile.

use crate::rig::{Rig, bench, filled, open, options, sound};
use crate::undecided_faults::{BLOCK, EXTENT, made, value_of};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, create};
use braid_policy::{ByteRange, DeviceView, Home, Move, Occasion, Placement, Plan, Policy, Second, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, World};
use std::cell::RefCell;
use std::rc::Rc;

/// Two disks after a crash of the machine in the middle of a write. In one block of an extent, the disk with
/// the homes has newer bytes, never flushed, than the other disk. Returns the disks, and the index of the
/// disk with the homes.
async fn torn(
    rt: &World,
    arena: &Arena,
    disks: &[Disk],
    how: CreateOptions,
    extent: u64,
) -> (Vec<Disk>, usize) {
    let extents = 32;
    create(&sound(disks), &CreateOptions { copies: 2, ..how }).await.expect("the disks are fit");
    let volume = open(rt.clone(), sound(disks)).await.expect("it is new");
    volume.set_policy("ssd-first").await.expect("it is sound");
    rt.sleep(Nanos::from_secs(3)).await;
    for extent in 0..extents {
        let bytes = filled(arena, EXTENT, 1 + extent as u8);
        volume.write(EXTENT * extent, &bytes, Durability::Fua).await.expect("the disks are sound");
    }
    let (home, at) = volume.explain(EXTENT * extent).expect("it is sound").home.expect("it is sound");
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(rt)).collect();
    disks[home.index()].poke(at, &[99; 4096]);
    (disks, home.index())
}

fn slow(disk: &Disk, millis: u64) {
    let stall = Nanos::from_millis(millis)..Nanos::from_millis(millis + 1);
    disk.faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
}

/// The value of extent 31 after a power cut, on a volume with this disk alone. `None` if the volume is
/// refused, or the extent is unreadable.
async fn value_on(world: &World, arena: &Arena, disk: &Disk, seed: u64) -> Option<u8> {
    let mut stored = disk.store();
    stored.power_cut(&mut Rng::new(seed));
    let volume = open(world.clone(), sound(&[stored.attach(world)])).await.ok()?;
    value_of(&volume, arena, EXTENT * 31).await.ok()
}

/// A request cannot copy, and asks the journal to record the span as behind. Before the record is durable,
/// another request reads bytes without a second copy, and a flush promises these bytes.
#[test]
fn data_read_while_span_becomes_stale_survives_home_loss() {
    let mut changed = Vec::new();
    for seed in 0..24 {
        let bench = bench(100 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        let (read, after) = bench.run(async move {
            let (disks, home) = torn(&world, &arena, &disks, made(), 31).await;
            let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
            let second = &disks[1 - home];
            let (_, at, _) = volume.explain(EXTENT * 30).expect("it is sound").second.expect("it is sound");
            second.spoil(at..at + KIB * 4, Bad::ForEver);
            slow(second, 500);
            let first = (volume.clone(), arena.clone());
            world.spawn(async move {
                let _read = value_of(&first.0, &first.1, EXTENT * 30).await;
            });
            // The copy has failed by then, and the journal write is in progress.
            world.sleep(Nanos::from_millis(600 + seed * 20)).await;
            let read = value_of(&volume, &arena, EXTENT * 31).await.expect("it is sound");
            volume.flush().await.expect("it is sound");
            let after = value_on(&world, &arena, second, seed).await;
            (read, after)
        });
        if after.is_some_and(|after| after != read) {
            changed.push((seed, read, after));
        }
    }
    assert!(changed.is_empty(), "{changed:?}");
}

/// Epochs begin while spans are undecided.
#[test]
fn data_read_with_epochs_survives_home_loss() {
    epochs_begin(false);
}

#[test]
fn data_read_with_epochs_survives_stop_and_home_loss() {
    epochs_begin(true);
}

fn epochs_begin(stops: bool) {
    use braid_format::superblock::Layout;
    let mut changed = Vec::new();
    for seed in 0..8 {
        let bench = bench(200 + seed);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let disks =
            [DiskOptions::ssd(MIB * 32), DiskOptions::hdd(MIB * 48)].map(|o| Disk::new(&world, o)).to_vec();
        let (read, after, behind) = bench.run(async move {
            let by_epochs = format!("pass,order=epoch,window={},max-lag={},idle=1h", KIB * 128, KIB * 512);
            let how = CreateOptions {
                policy: by_epochs.clone(),
                layouts: vec![Layout::Head, Layout::Tail],
                ..made()
            };
            let (disks, home) = torn(&world, &arena, &disks, how, 31).await;
            let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
            slow(&disks[1 - home], 300);
            volume.set_policy(&by_epochs).await.expect("it is sound");
            world.sleep(Nanos::from_millis(500 + 500 * seed)).await;
            let behind = volume.status().behind;
            let read = value_of(&volume, &arena, EXTENT * 31).await.expect("it is sound");
            volume.flush().await.expect("it is sound");
            if stops {
                disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
                volume.close().await.expect("it is sound");
            }
            let after = value_on(&world, &arena, &disks[1 - home], seed).await;
            (read, after, behind)
        });
        if after.is_some_and(|after| after != read) {
            changed.push((seed, read, after, behind));
        }
    }
    assert!(changed.is_empty(), "{changed:?}");
}

/// The opening begins epochs while spans are undecided.
#[test]
fn data_read_after_opening_starts_epochs_survives_home_loss() {
    use braid_format::superblock::Layout;
    let mut changed = Vec::new();
    for seed in 0..8 {
        let bench = bench(200 + seed);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let disks =
            [DiskOptions::ssd(MIB * 32), DiskOptions::hdd(MIB * 48)].map(|o| Disk::new(&world, o)).to_vec();
        let (read, after, behind) = bench.run(async move {
            let by_epochs = format!("pass,order=epoch,window={},max-lag={},idle=1h", KIB * 128, KIB * 512);
            let how = CreateOptions {
                policy: by_epochs.clone(),
                layouts: vec![Layout::Head, Layout::Tail],
                ..made()
            };
            let (disks, home) = torn(&world, &arena, &disks, how, 31).await;
            {
                // The daemon dies right after the request to keep epochs.
                let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
                disks.iter().for_each(|disk| slow(disk, 300));
                volume.set_policy(&by_epochs).await.expect("it is sound");
            }
            let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
            let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
            assert!(volume.policy().starts_with("pass,order=epoch"));
            slow(&disks[1 - home], 300);
            world.sleep(Nanos::from_millis(500 + 500 * seed)).await;
            let behind = volume.status().behind;
            let read = value_of(&volume, &arena, EXTENT * 31).await.expect("it is sound");
            volume.flush().await.expect("it is sound");
            let after = value_on(&world, &arena, &disks[1 - home], seed).await;
            (read, after, behind)
        });
        if after.is_some_and(|after| after != read) {
            changed.push((seed, read, after, behind));
        }
    }
    assert!(changed.is_empty(), "{changed:?}");
}

/// Three disks; the second half of the volume's homes moves to the last disk at the test's request.
#[derive(Clone, Default)]
struct Told {
    moves: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match occasion {
            Occasion::New { .. } => {
                Placement { home: Home::On(DeviceId(0)), second: Second::Sync(DeviceId(1)), extra: None }
            }
            _ => Placement::KEEP,
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == DeviceId(2) { device.slots / 2 } else { 0 }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(10)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

/// The home of an undecided extent has moved, and its new device loses its writes while a guest's read
/// copies the home.
#[test]
fn undecided_copy_gets_no_lost_writes_of_moved_home() {
    let mut wrong = Vec::new();
    for seed in 0..8 {
        let bench = bench(300 + seed);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let kinds = [DiskOptions::ssd(MIB * 16), DiskOptions::hdd(MIB * 16), DiskOptions::hdd(MIB * 16)];
        let disks = kinds.map(|o| Disk::new(&world, o)).to_vec();
        let result = bench.run(async move {
            let how = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..made() };
            create(&sound(&disks), &how).await.expect("the disks are fit");
            let volume = open(world.clone(), sound(&disks)).await.expect("it is new");
            volume.replace_policy(Box::new(Told::default()));
            for extent in 0..32 {
                let bytes = filled(&arena, EXTENT, 1 + extent as u8);
                volume.write(EXTENT * extent, &bytes, Durability::Fua).await.expect("the disks are sound");
            }
            let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
            let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
            let told = Told::default();
            volume.replace_policy(Box::new(told.clone()));
            slow(&disks[1], 2000);
            let extent = ExtentId((EXTENT * 31 / (KIB * 16)) as u32);
            told.moves.borrow_mut().push(Move::Migrate { extent, target: DeviceId(2) });
            let is_moved = || {
                volume.explain(EXTENT * 31).expect("it is sound").home.expect("it is sound").0 == DeviceId(2)
            };
            for _ in 0..10000 {
                if is_moved() {
                    break;
                }
                world.sleep(Nanos::from_millis(1)).await;
            }
            disks[2].lose_cache();
            slow(&disks[2], 300);
            let (first, second) = (volume.clone(), arena.clone());
            world.spawn(async move {
                let _read = value_of(&first, &second, EXTENT * 31).await;
            });
            world.sleep(Nanos::from_millis(50)).await;
            disks[2].faults().set(FaultPlan { flushes: 1.0, ..FaultPlan::default() });
            let flushed = volume.flush().await;
            world.sleep(Nanos::from_secs(10)).await;
            let now = value_of(&volume, &arena, EXTENT * 31).await;
            (flushed.is_ok(), now.map_err(|error| error.to_string()))
        });
        // A refusal would lose nothing.
        if matches!(result.1, Ok(value) if value != 32) {
            wrong.push((seed, result));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Three sound disks after a crash that tore a write to extent 31: the first disk has the homes, the second
/// the other copies.
async fn crashed_of_three(rt: &World, arena: &Arena) -> (Rig, Vec<Disk>, Told) {
    let kinds = [DiskOptions::ssd(MIB * 16), DiskOptions::hdd(MIB * 16), DiskOptions::hdd(MIB * 16)];
    let disks = kinds.map(|o| Disk::new(rt, o)).to_vec();
    let how = CreateOptions { copies: 2, policy: "raid1".to_owned(), ..made() };
    create(&sound(&disks), &how).await.expect("the disks are fit");
    let volume = open(rt.clone(), sound(&disks)).await.expect("it is new");
    volume.replace_policy(Box::new(Told::default()));
    for extent in 0..32 {
        let bytes = filled(arena, EXTENT, 1 + extent as u8);
        volume.write(EXTENT * extent, &bytes, Durability::Fua).await.expect("the disks are sound");
    }
    let (home, at) = volume.explain(EXTENT * 31).expect("it is sound").home.expect("it is sound");
    assert_eq!(home, DeviceId(0));
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(rt)).collect();
    disks[0].poke(at, &[99; 4096]);
    let volume = open(rt.clone(), sound(&disks)).await.expect("it is sound");
    let told = Told::default();
    volume.replace_policy(Box::new(told.clone()));
    (volume, disks, told)
}

/// A guest reads an extent that has just moved, while all devices are sound: the other extents of its span
/// are still undecided.
#[test]
fn device_can_be_failed_after_read_of_moved_extent() {
    a_read_keeps_no_device_from_being_lost(true);
}

#[test]
fn device_can_be_failed_after_read_of_unmoved_extent() {
    a_read_keeps_no_device_from_being_lost(false);
}

fn a_read_keeps_no_device_from_being_lost(moves: bool) {
    let mut failed = Vec::new();
    for seed in 0..8 {
        let bench = bench(500 + seed);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let lost = bench.run(async move {
            let (volume, disks, told) = crashed_of_three(&world, &arena).await;
            slow(&disks[1], 2000);
            let extent = ExtentId((EXTENT * 31 / (KIB * 16)) as u32);
            if moves {
                told.moves.borrow_mut().push(Move::Migrate { extent, target: DeviceId(2) });
            }
            let is_moved = || {
                volume.explain(EXTENT * 31).expect("it is sound").home.expect("it is sound").0 == DeviceId(2)
            };
            for _ in 0..if moves { 10000 } else { 2500 } {
                if is_moved() {
                    break;
                }
                world.sleep(Nanos::from_millis(1)).await;
            }
            value_of(&volume, &arena, EXTENT * 31).await.expect("it is sound");
            let behind = volume.status().behind;
            (is_moved(), behind, volume.fail_device(DeviceId(0)).await.map_err(|error| error.to_string()))
        });
        failed.extend(lost.2.is_err().then_some((seed, lost)));
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// A device without a copy of an extent is lost, and a guest reads the extent. The journal still calls the
/// extent dirty.
#[test]
fn data_read_after_third_device_loss_does_not_change() {
    let mut changed = Vec::new();
    for seed in 0..8 {
        let bench = bench(600 + seed);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let (read, after) = bench.run(async move {
            let (volume, disks, _) = crashed_of_three(&world, &arena).await;
            slow(&disks[1], 2000);
            volume.fail_device(DeviceId(2)).await.expect("it is sound");
            let read = value_of(&volume, &arena, EXTENT * 31).await.expect("it is sound");
            volume.flush().await.expect("it is sound");
            let after = value_on(&world, &arena, &disks[1], seed).await;
            (read, after)
        });
        if after.is_some_and(|after| after != read) {
            changed.push((seed, read, after));
        }
    }
    assert!(changed.is_empty(), "{changed:?}");
}

/// An extra copy was made of an undecided block. Then the home cannot take a write elsewhere, and gives way
/// to the other copy.
#[test]
fn cached_data_of_exchanged_home_does_not_change() {
    const LAST: Bytes = Bytes(62 << 20);
    let place = LAST + MIB + KIB * 512;
    let bench = bench(400);
    let (world, arena) = (bench.world.clone(), bench.arena.clone());
    let kinds = [DiskOptions::hdd(MIB * 160), DiskOptions::hdd(MIB * 160), DiskOptions::ssd(MIB * 32)];
    let disks = kinds.map(|o| Disk::new(&world, o)).to_vec();
    bench.run(async move {
        let how = CreateOptions {
            copies: 2,
            extent_size: MIB * 2,
            span_size: MIB * 4,
            size: Some(MIB * 64),
            policy: "ssd-first,cache=60%".to_owned(),
            ..options(7)
        };
        create(&sound(&disks), &how).await.expect("the disks are fit");
        let volume = open(world.clone(), sound(&disks)).await.expect("it is new");
        volume.replace_policy(Box::new(Told::default()));
        for at in 0..64 {
            let bytes = filled(&arena, MIB, 1 + at as u8);
            volume.write(MIB * at, &bytes, Durability::Fua).await.expect("the disks are sound");
        }
        let (home, at) = volume.explain(LAST).expect("it is sound").home.expect("it is sound");
        assert_eq!(home, DeviceId(0));
        let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
        disks[home.index()].poke(at + MIB + KIB * 512, &[99; 4096]);
        let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
        let told = Told::default();
        volume.replace_policy(Box::new(told.clone()));
        // No resync yet.
        slow(&disks[1], 1000);
        let range = ByteRange::new(place, BLOCK);
        told.moves.borrow_mut().push(Move::Promote { range, target: DeviceId(2) });
        world.sleep(Nanos::from_millis(500)).await;
        disks[0].faults().set(FaultPlan { bad_writes: Some(at..at + KIB * 4), ..FaultPlan::default() });
        let bytes = filled(&arena, BLOCK, 9);
        volume.write(LAST, &bytes, Durability::Volatile).await.expect("it is sound");
        let first = value_of(&volume, &arena, place).await.expect("it is sound");
        told.moves.borrow_mut().push(Move::Demote { range });
        world.sleep(Nanos::from_secs(10)).await;
        let then = value_of(&volume, &arena, place).await.expect("it is sound");
        assert_eq!(first, then, "nobody wrote there");
    });
}

/// A late copy to a second copy must not overwrite newer writes.
#[test]
fn late_copy_does_not_overwrite_newer_write() {
    for seed in 0..40 {
        let bench = bench(700 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let (disks, home) = torn(&world, &arena, &disks, made(), 31).await;
            let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
            slow(&disks[1 - home], 4000 + 200 * seed);
            let others = (volume.clone(), arena.clone(), world.clone());
            let done = Rc::new(RefCell::new(false));
            let told = done.clone();
            world.spawn(async move {
                let (volume, arena, world) = others;
                let read = value_of(&volume, &arena, EXTENT * 31).await.expect("it is sound");
                assert!([99, 32].contains(&read));
                for value in 100..130 {
                    let bytes = filled(&arena, BLOCK, value);
                    volume.write(EXTENT * 31, &bytes, Durability::Volatile).await.expect("it is sound");
                    world.sleep(Nanos::from_millis(20 * (seed + 1))).await;
                }
                *told.borrow_mut() = true;
            });
            world.sleep(Nanos::from_millis(3000 + 150 * seed)).await;
            disks[1 - home].faults().set(FaultPlan::default());
            world.sleep(Nanos::from_secs(120)).await;
            assert!(*done.borrow());
            volume.flush().await.expect("it is sound");
            if volume.status().behind > Bytes::ZERO {
                // The device was failed.
                assert_eq!(volume.outdated_devices().len(), 1);
                return;
            }
            volume.audit().await.expect("it is sound");
            assert_eq!(value_of(&volume, &arena, EXTENT * 31).await.expect("it is sound"), 129);
            let _lost = volume.fail_device(DeviceId(home as u16)).await;
            assert_eq!(
                value_of(&volume, &arena, EXTENT * 31).await.expect("it is sound"),
                129,
                "seed {seed}"
            );
        });
    }
}
