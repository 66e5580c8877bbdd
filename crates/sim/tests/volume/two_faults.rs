//! Data flushed to two copies, one with a single fault, while another device is lost, slow or silent.

use crate::deadlines::hang;
use crate::rig::{Rig, filled, open, options, sound};
use crate::told::Told;
use crate::undecided_attacks::{Crashed, crashed, run, slowly, value};
use crate::undecided_faults::{BLOCK, value_of};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, create};
use braid_format::superblock::{DeviceState, RegionKind};
use braid_policy::{DeviceView, Home, Occasion, Placement, Plan, Policy, Second, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, StoredDisk, World};
use std::cell::Cell;
use std::rc::Rc;

/// A policy with homes on device 0 and second copies on device 1; second copies of the first extents are on
/// device 2.
#[derive(Clone, Default)]
struct Placed {
    /// Number of extents with second copies on device 2.
    on_third: u32,
    /// Maximum lag of the second copies.
    behind: Option<Bytes>,
}

impl Policy for Placed {
    fn name(&self) -> &'static str {
        "placed"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match (occasion, self.behind) {
            (Occasion::New { extent, .. }, _) => {
                let second = Second::Sync(DeviceId(if extent.0 < self.on_third { 2 } else { 1 }));
                Placement { home: Home::On(DeviceId(0)), second, extra: None }
            }
            (_, Some(most)) => {
                Placement { second: Second::Behind { device: DeviceId(1), most }, ..Placement::KEEP }
            }
            (_, None) => Placement::KEEP,
        }
    }

    fn extra_slots(&self, _: &DeviceView) -> u32 {
        0
    }

    fn plan(&mut self, view: &View, _: &mut Plan) -> Nanos {
        view.now + Nanos::from_millis(10)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

/// Time of the loss of the third device, which holds no copy.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Goes {
    /// Never.
    No,
    /// After a crash, before the resync has ended.
    BesideUndecided,
    /// Long after the resync, a second after a write.
    LongAfter,
    /// With the crash.
    AtOpening,
}

/// A home has one bad place; its second copy is sound, and was flushed. A third device is lost. Returns a
/// guest's reads at once, and after ten minutes.
fn a_third_device(goes: Goes) -> [Result<u8, String>; 2] {
    run(1, async move |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        let bad = it.home + BLOCK * 5..it.home + BLOCK * 6;
        if goes == Goes::AtOpening {
            let left = [0, 1].map(|disk: usize| it.disks[disk].fork(&world));
            left[0].spoil(bad, Bad::UntilWritten);
            let volume = open(world.clone(), sound(&left)).await.expect("it has a copy of everything");
            let read = async || {
                let read = value_of(&volume, &it.arena, it.last + BLOCK * 5).await;
                read.map_err(|error| error.to_string())
            };
            let first = read().await;
            it.sleep(600_000).await;
            return [first, read().await];
        }
        if goes == Goes::LongAfter {
            it.sleep(120_000).await;
            assert_eq!(it.volume.status().behind, Bytes::ZERO);
            it.write(it.last, value(0), Durability::Fua).await;
        } else {
            it.disks[1].faults().set(slowly(1000));
        }
        it.disks[0].spoil(bad, Bad::UntilWritten);
        if goes != Goes::No {
            it.volume.fail_device(DeviceId(2)).await.expect("nothing lies there");
        }
        let first = it.read(5).await;
        it.be_sound();
        it.sleep(600_000).await;
        [first, it.read(5).await]
    })
}

#[test]
fn bad_home_block_stays_readable_beside_third_device() {
    let all = [Goes::No, Goes::BesideUndecided, Goes::LongAfter, Goes::AtOpening];
    let read = all.map(|goes| (goes, a_third_device(goes)));
    let wrong: Vec<_> = read.into_iter().filter(|(_, read)| *read != [Ok(value(5)), Ok(value(5))]).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// As [`a_third_device`], but then the device of the homes is lost, with sound, flushed second copies
/// elsewhere. Returns a guest's read afterwards.
fn a_third_device_and_then_a_home(goes: Goes, stops: bool) -> Result<u8, String> {
    run(6, async move |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        let mut volume = it.volume.clone();
        let mut disks = it.disks.clone();
        match goes {
            Goes::No => it.disks[1].faults().set(slowly(1000)),
            Goes::BesideUndecided => {
                it.disks[1].faults().set(slowly(1000));
                volume.fail_device(DeviceId(2)).await.expect("nothing lies there");
            }
            Goes::LongAfter => {
                it.sleep(120_000).await;
                assert_eq!(volume.status().behind, Bytes::ZERO);
                it.write(it.last, value(0), Durability::Fua).await;
                it.disks[1].faults().set(slowly(1000));
                volume.fail_device(DeviceId(2)).await.expect("nothing lies there");
            }
            Goes::AtOpening => {
                disks = [0, 1].map(|disk: usize| it.disks[disk].fork(&world)).to_vec();
                volume = open(world.clone(), sound(&disks)).await.expect("it has a copy of everything");
                disks[1].faults().set(slowly(1000));
            }
        }
        let volume = match stops {
            false => {
                let failed = volume.fail_device(DeviceId(0)).await;
                failed.map(|()| volume).map_err(|error| error.to_string())?
            }
            true => {
                let left = disks[1].fork(&world);
                open(world.clone(), sound(&[left])).await.map_err(|error| error.to_string())?
            }
        };
        value_of(&volume, &it.arena, it.last + BLOCK * 5).await.map_err(|error| error.to_string())
    })
}

#[test]
fn home_device_can_be_lost_despite_uninvolved_third_device() {
    let mut wrong = Vec::new();
    for goes in [Goes::No, Goes::BesideUndecided, Goes::LongAfter, Goes::AtOpening] {
        // A volume of three devices is not served from one device if all devices served before.
        for stops in [false, true].into_iter().filter(|stops| !(*stops && goes == Goes::No)) {
            let read = a_third_device_and_then_a_home(goes, stops);
            wrong.extend((read != Ok(value(5))).then_some((goes, stops, read)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A bad place of a home, in a span in which the second copy of another extent missed a write. A guest can
/// read the place; then the volume is stopped, and served again.
#[test]
fn block_with_bad_home_stays_readable_after_stop() {
    let mut read = Vec::new();
    for stops in [false, true] {
        read.push(run(7, async move |world| {
            let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
            let beside = it.last - KIB * 128;
            let second = it.volume.explain(beside).expect("it is sound").second.expect("it is sound").1;
            let missed = Some(second..second + BLOCK);
            it.disks[1].faults().set(FaultPlan { bad_writes: missed, ..slowly(500) });
            it.write(beside, 222, Durability::Fua).await;
            it.disks[1].faults().set(slowly(500));
            it.disks[0].spoil(it.home + BLOCK * 5..it.home + BLOCK * 6, Bad::UntilWritten);
            if !stops {
                return it.read(5).await;
            }
            it.volume.close().await.expect("it is sound");
            it.be_sound();
            let volume = open(world.clone(), sound(&it.disks)).await.expect("it is sound");
            value_of(&volume, &it.arena, it.last + BLOCK * 5).await.map_err(|error| error.to_string())
        }));
    }
    assert_eq!(read, [Ok(value(5)), Ok(value(5))]);
}

/// A mirror after a crash of its daemon: everything is undecided, or stale if recorded as stale. Block `i`
/// of an extent holds `value(i)`.
async fn made(
    world: &World,
    arena: &Arena,
    (how, policy): (CreateOptions, impl Policy + Clone + 'static),
    before: impl AsyncFnOnce(&Rig, &[Disk]),
) -> (Rig, Vec<Disk>) {
    let kinds = [DiskOptions::hdd(MIB * 160), DiskOptions::hdd(MIB * 160), DiskOptions::hdd(MIB * 160)];
    let disks = kinds.map(|kind| Disk::new(world, kind)).to_vec();
    let how = CreateOptions { copies: 2, policy: "raid1".to_owned(), span_size: MIB * 4, ..how };
    create(&sound(&disks), &how).await.expect("the disks are fit");
    let volume = open(world.clone(), sound(&disks)).await.expect("it is new");
    volume.replace_policy(Box::new(policy.clone()));
    for at in (0..volume.size().0).step_by(MIB.0 as usize).map(Bytes) {
        let bytes = filled(arena, MIB, 0);
        bytes.with_bytes_mut(|bytes| {
            bytes.chunks_mut(4096).enumerate().for_each(|(i, block)| {
                block.fill(value((at + BLOCK * i as u64) % how.extent_size / BLOCK));
            });
        });
        volume.write(at, &bytes, Durability::Fua).await.expect("the disks are sound");
    }
    before(&volume, &disks).await;
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(world)).collect();
    let volume = open(world.clone(), sound(&disks)).await.expect("the disks are sound");
    volume.replace_policy(Box::new(policy));
    (volume, disks)
}

/// As [`block_with_bad_home_stays_readable_after_stop`], but the second copy of the extent becomes the
/// home at the stop, since the device of the home lacks a write in the span. The bad place is in the second
/// copy.
#[test]
fn block_with_bad_second_copy_stays_readable_after_stop() {
    let mut read = Vec::new();
    for stops in [false, true] {
        read.push(run(9, async move |world| {
            let arena = Arena::new(MIB * 4);
            let how = CreateOptions { extent_size: KIB * 128, size: Some(MIB * 64), ..options(7) };
            let (volume, disks) = made(&world, &arena, (how, Told::default()), async |_, _| ()).await;
            let places = |extent: u64| {
                let placed = volume.explain(KIB * 128 * extent).expect("it is sound");
                (placed.home.expect("it has one"), placed.second.expect("it has one"))
            };
            // Both extents lie in the last span.
            let (missing, crossed) = (480, 484);
            let (home, second) = (places(missing), places(crossed));
            assert_eq!([home.0.0, home.1.0], [DeviceId(0), DeviceId(1)]);
            assert_eq!([second.0.0, second.1.0], [DeviceId(1), DeviceId(0)]);
            let missed = Some(home.1.1..home.1.1 + BLOCK);
            disks[1].faults().set(FaultPlan { bad_writes: missed, ..slowly(500) });
            let bytes = filled(&arena, BLOCK, 222);
            volume.write(KIB * 128 * missing, &bytes, Durability::Fua).await.expect("the home is sound");
            disks[0].spoil(second.1.1 + BLOCK * 5..second.1.1 + BLOCK * 6, Bad::UntilWritten);
            let at = KIB * 128 * crossed + BLOCK * 5;
            if !stops {
                return value_of(&volume, &arena, at).await.map_err(|error| error.to_string());
            }
            volume.close().await.expect("it is sound");
            disks[1].faults().set(FaultPlan::default());
            let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
            value_of(&volume, &arena, at).await.map_err(|error| error.to_string())
        }));
    }
    assert_eq!(read, [Ok(value(5)), Ok(value(5))]);
}

/// Blocks of 64 KiB. A home has a bad place in one sector, and a guest writes another sector of the same
/// block. The second copy has nothing of the block yet.
fn beside_a_bad_place(block_size: Bytes, behind: Option<Bytes>) -> Result<u8, String> {
    run(2, async move |world| {
        let arena = Arena::new(MIB * 4);
        let how = CreateOptions { block_size, extent_size: KIB * 128, size: Some(MIB * 32), ..options(7) };
        let policy = Placed { on_third: 0, behind };
        let (volume, disks) = made(&world, &arena, (how, policy), async |_, _| ()).await;
        let last = MIB * 32 - KIB * 128;
        let placed = volume.explain(last).expect("it is sound");
        let (home, second) = (placed.home.expect("it is sound").1, placed.second.expect("it is sound").1);
        let missed = behind.is_none().then(|| second + BLOCK..second + BLOCK * 2);
        disks[1].faults().set(FaultPlan { bad_writes: missed, ..slowly(200) });
        disks[0].spoil(home + BLOCK * 3..home + BLOCK * 4, Bad::UntilWritten);
        let bytes = filled(&arena, BLOCK, 222);
        volume.write(last + BLOCK, &bytes, Durability::Fua).await.expect("the home is sound there");
        disks[1].faults().set(FaultPlan::default());
        let first = value_of(&volume, &arena, last + BLOCK * 3).await;
        world.sleep(Nanos::from_secs(300)).await;
        let then = value_of(&volume, &arena, last + BLOCK * 3).await;
        first.and(then).map_err(|error| error.to_string())
    })
}

#[test]
fn sector_write_keeps_neighbour_readable_from_second_copy() {
    let mut wrong = Vec::new();
    for block_size in [KIB * 4, KIB * 16, KIB * 64] {
        for behind in [Some(MIB * 32), None] {
            let read = beside_a_bad_place(block_size, behind);
            wrong.extend((read != Ok(value(3))).then_some((block_size, behind, read)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The first MiB of an extent is decided, and both copies are alike there; then the home falls silent.
#[test]
fn silent_home_block_is_read_from_second_copy() {
    let read = run(3, async |world| {
        let it = crashed(&world, MIB * 2, false, |_, _| ()).await;
        it.disks[1].faults().set(slowly(500));
        let first = it.read(3).await;
        hang(&it.disks[0]);
        [first, it.read(3).await, it.read(4).await]
    });
    assert_eq!(read, [Ok(value(3)), Ok(value(3)), Ok(value(4))]);
}

/// The second device is slow. A guest writes a whole block that is unreadable in the home, and the power
/// fails before the acknowledgement. The block's flushed content is in the second copy.
#[test]
fn write_in_flight_keeps_flushed_data_on_slow_device() {
    let mut lost = Vec::new();
    for step in 0..30 {
        let read = run(4, async move |world| {
            let it = with_a_slow_second(&world).await;
            it.disks[0].spoil(it.home + BLOCK * 5..it.home + BLOCK * 6, Bad::ForEver);
            let (volume, arena, at) = (it.volume.clone(), it.arena.clone(), it.last + BLOCK * 5);
            world.spawn(async move {
                let bytes = filled(&arena, BLOCK, 222);
                let _untold = volume.write(at, &bytes, Durability::Volatile).await;
            });
            it.sleep(400 * step).await;
            let mut rng = Rng::new(step);
            let disks: Vec<Disk> = cut(&it.disks, &mut rng).iter().map(|disk| disk.attach(&world)).collect();
            let volume = open(world.clone(), sound(&disks)).await.expect("the disks are there");
            let read = value_of(&volume, &it.arena, at).await;
            read.map_err(|error| error.to_string())
        });
        lost.extend((read != Ok(222) && read != Ok(value(5))).then_some((400 * step, read)));
    }
    assert!(lost.is_empty(), "after power cuts at ms: {lost:#?}");
}

async fn with_a_slow_second(world: &World) -> Crashed {
    let it = crashed(world, KIB * 128, false, |_, _| ()).await;
    while it.volume.status().behind > MIB * 52 {
        it.sleep(5).await;
    }
    it.disks[1].faults().set(slowly(2000));
    while it.volume.status().devices[1].state != DeviceState::Slow {
        it.sleep(100).await;
    }
    assert!(it.volume.status().behind > MIB * 8, "the resync has not come to the last extent");
    it
}

fn cut(disks: &[Disk], rng: &mut Rng) -> Vec<StoredDisk> {
    disks
        .iter()
        .map(|disk| {
            let mut stored = disk.store();
            stored.power_cut(rng);
            stored
        })
        .collect()
}

/// Number of extents whose second copies miss writes.
const MISSED: u32 = 8;

/// The second copies of some extents, on this disk, missed flushed writes. The resync copies the writes, and
/// the home's device is failed before this disk was flushed. Then the power fails. Returns the number of
/// power cuts, and the cuts after which an extent was older.
fn given_up_before_the_target_is_flushed(on: usize, seed: u64) -> (usize, Vec<(u64, u32, u8)>) {
    run(seed, async move |world| {
        let arena = Arena::new(MIB * 4);
        let how = CreateOptions { extent_size: KIB * 128, size: Some(MIB * 64), ..options(7) };
        let policy = Placed { on_third: if on == 2 { MISSED } else { 0 }, behind: None };
        let missed = async |volume: &Rig, disks: &[Disk]| {
            let places = (0..MISSED).map(|extent| {
                let second = volume.explain(KIB * 128 * u64::from(extent)).expect("it is sound").second;
                let (device, at, _) = second.expect("it is sound");
                assert_eq!(device.index(), on);
                at
            });
            let places: Vec<Bytes> = places.collect();
            let (first, last) = (places.iter().min().expect("some"), places.iter().max().expect("some"));
            let bad = Some(*first..*last + KIB * 128);
            disks[on].faults().set(FaultPlan { bad_writes: bad, ..FaultPlan::default() });
            let bytes = filled(&arena, MIB, 222);
            volume.write(Bytes::ZERO, &bytes, Durability::Fua).await.expect("the homes are sound");
            assert_eq!(volume.outdated_devices(), []);
        };
        let (volume, disks) = made(&world, &arena, (how, policy), missed).await;
        // The resync of the first span has to wait for a flush of all devices.
        disks[on].faults().set(slowly(900));
        let last = MIB * 64 - KIB * 128;
        volume.write(last, &filled(&arena, BLOCK, 9), Durability::Fua).await.expect("the disks are sound");
        disks[1].faults().set(slowly(if on == 1 { 300 } else { 1500 }));
        disks[2].faults().set(FaultPlan::default());
        // The first span has been copied, and the copy of another span is in progress.
        while volume.status().behind > MIB * 58 {
            world.sleep(Nanos::from_millis(50)).await;
        }
        hang(&disks[0]);
        disks[1].faults().set(FaultPlan::default());
        disks[on].faults().set(slowly(1400));
        let done = Rc::new(Cell::new(false));
        let (guest, told, bytes) = (volume.clone(), done.clone(), filled(&arena, BLOCK, 10));
        world.spawn(async move {
            guest.write(last, &bytes, Durability::Volatile).await.expect("one copy is sound");
            told.set(true);
        });
        let mut tried = Vec::new();
        let begun = world.now();
        while !done.get() && world.now() < begun + Nanos::from_secs(60) {
            world.sleep(Nanos::from_millis(20)).await;
            if volume.status().devices[0].state == DeviceState::Failed {
                tried.push((world.now() - begun, disks.iter().map(Disk::store).collect::<Vec<_>>()));
            }
        }
        let (count, mut older) = (tried.len(), Vec::new());
        for (i, (at, stored)) in tried.into_iter().enumerate().step_by(10) {
            let mut rng = Rng::new(seed ^ i as u64);
            let disks: Vec<Disk> = stored
                .into_iter()
                .map(|mut disk| {
                    disk.power_cut(&mut rng);
                    disk.attach(&world)
                })
                .collect();
            let volume = open(world.clone(), sound(&disks)).await.expect("all disks are there");
            for extent in 0..MISSED {
                let read = value_of(&volume, &arena, KIB * 128 * u64::from(extent)).await;
                let read = read.expect("all disks are sound");
                older.extend((read != 222).then_some((at.0 / 1_000_000, extent, read)));
            }
        }
        (count, older)
    })
}

#[test]
fn resynced_data_is_durable_before_source_device_is_failed() {
    for on in [1, 2] {
        let (tried, older) = given_up_before_the_target_is_flushed(on, 5);
        assert!(tried > 0, "the device was not given up");
        assert!(older.is_empty(), "on {on}, after power cuts at ms, extents, bytes: {older:?}");
    }
}

/// The journal of one device is unwritable for a moment, and the other device, with the other journal, is
/// silent for a while. Nothing is lost. Both devices recover, and the volume is opened again.
fn journals_of_both(fails: bool, hangs: bool, rest: u64) -> Result<u8, String> {
    run(8, async move |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        it.sleep(120_000).await;
        assert_eq!(it.volume.status().behind, Bytes::ZERO);
        let superblock = it.volume.superblock();
        let journal = superblock
            .regions
            .iter()
            .find(|region| region.kind == RegionKind::Journal && region.device == DeviceId(0));
        let journal = journal.expect("the first device has one");
        let bad = Some(journal.offset..journal.offset + journal.len);
        // The volume cannot do without the first device.
        it.disks[1].spoil(it.second..it.second + BLOCK, Bad::ForEver);
        it.write(it.last, 220, Durability::Fua).await;
        // A batch of the journal.
        let change = async |extent: u64| {
            it.volume.discard(KIB * 128 * extent, KIB * 128).await.map_err(|error| error.kind())?;
            it.volume.flush().await.map_err(|error| error.kind())
        };
        if hangs {
            hang(&it.disks[1]);
        }
        it.sleep(rest).await;
        if fails {
            it.disks[0].faults().set(FaultPlan { bad_writes: bad, ..FaultPlan::default() });
        }
        let _told = change(1).await;
        it.be_sound();
        it.sleep(1000).await;
        let disks: Vec<Disk> = it.disks.iter().map(|disk| disk.fork(&world)).collect();
        let volume = open(world.clone(), sound(&disks)).await.map_err(|error| error.to_string())?;
        value_of(&volume, &it.arena, it.last + BLOCK * 5).await.map_err(|error| error.to_string())
    })
}

#[test]
fn volume_reopens_after_journal_failure_beside_silent_device() {
    let mut wrong = Vec::new();
    for (fails, hangs) in [(true, false), (false, true), (true, true)] {
        for rest in [0, 1000, 3000] {
            let read = journals_of_both(fails, hangs, rest);
            wrong.extend((read != Ok(value(5))).then_some((fails, hangs, rest, read)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
