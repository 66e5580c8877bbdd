//! Attacks on undecided spans after a crash: copies that are chosen twice, unreadable places despite a sound
//! copy, and a resync that does not end.

use crate::deadlines::hang;
use crate::rig::{Rig, filled, open, options, sound};
use crate::undecided_faults::{BLOCK, value_of};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, create};
use braid_policy::{DeviceView, Home, Move, Occasion, Placement, Plan, Policy, Second, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, World};
use std::cell::RefCell;
use std::rc::Rc;

/// A policy with homes on device 0, or on device 1 for every second extent, and the second copies on the
/// other device.
#[derive(Clone, Default)]
struct Told {
    alternates: bool,
    moves: Rc<RefCell<Vec<Move>>>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        let Occasion::New { extent, .. } = occasion else { return Placement::KEEP };
        let home = u16::from(self.alternates && extent.0 % 2 == 1);
        let second = Second::Sync(DeviceId(1 - home));
        Placement { home: Home::On(DeviceId(home)), second, extra: None }
    }

    fn extra_slots(&self, _: &DeviceView) -> u32 {
        0
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.moves = self.moves.take();
        view.now + Nanos::from_millis(10)
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "it was told so".to_owned()
    }
}

/// A mirror after a crash of its daemon: everything is undecided.
pub struct Crashed {
    pub volume: Rig,
    pub disks: Vec<Disk>,
    told: Told,
    pub arena: Arena,
    world: World,
    /// Start of the last extent, and the places of its copies.
    pub last: Bytes,
    pub home: Bytes,
    pub second: Bytes,
}

const SIZE: Bytes = Bytes(64 << 20);

/// Content of block `i` of the last extent.
pub fn value(i: u64) -> u8 {
    1 + (i % 200) as u8
}

pub fn slowly(millis: u64) -> FaultPlan {
    let stall = Nanos::from_millis(millis)..Nanos::from_millis(millis + 1);
    FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() }
}

pub async fn crashed(
    world: &World,
    extent_size: Bytes,
    alternates: bool,
    torn: impl FnOnce(&Disk, Bytes),
) -> Crashed {
    let kinds = [DiskOptions::ssd(MIB * 160), DiskOptions::hdd(MIB * 160), DiskOptions::hdd(MIB * 160)];
    let disks = kinds.map(|kind| Disk::new(world, kind)).to_vec();
    let arena = Arena::new(MIB * 4);
    let how = CreateOptions {
        copies: 2,
        extent_size,
        span_size: MIB * 4,
        size: Some(SIZE),
        policy: "raid1".to_owned(),
        ..options(7)
    };
    create(&sound(&disks), &how).await.expect("the disks are fit");
    let volume = open(world.clone(), sound(&disks)).await.expect("it is new");
    let told = Told { alternates, ..Told::default() };
    volume.replace_policy(Box::new(told.clone()));
    let last = SIZE - extent_size;
    for at in (0..SIZE.0).step_by(MIB.0 as usize).map(Bytes) {
        let bytes = filled(&arena, MIB, 0);
        bytes.with_bytes_mut(|bytes| {
            bytes.chunks_mut(4096).enumerate().for_each(|(i, block)| {
                let in_extent = (at + BLOCK * i as u64) % extent_size;
                block.fill(value(in_extent / BLOCK));
            });
        });
        volume.write(at, &bytes, Durability::Fua).await.expect("the disks are sound");
    }
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(world)).collect();
    let placed = volume.explain(last).expect("it is sound");
    let ((_, home), (_, second, _)) =
        (placed.home.expect("it is sound"), placed.second.expect("it is sound"));
    torn(&disks[0], home);
    let volume = open(world.clone(), sound(&disks)).await.expect("the disks are sound");
    volume.replace_policy(Box::new(told.clone()));
    assert_eq!(volume.status().behind, SIZE);
    Crashed { volume, disks, told, arena, world: world.clone(), last, home, second }
}

impl Crashed {
    pub async fn read(&self, block: u64) -> Result<u8, String> {
        let read = value_of(&self.volume, &self.arena, self.last + BLOCK * block).await;
        read.map_err(|error| error.to_string())
    }

    pub async fn write(&self, at: Bytes, value: u8, durability: Durability) {
        let bytes = filled(&self.arena, BLOCK, value);
        self.volume.write(at, &bytes, durability).await.expect("one copy is sound");
    }

    pub fn be_sound(&self) {
        self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
    }

    pub async fn sleep(&self, millis: u64) {
        self.world.sleep(Nanos::from_millis(millis)).await;
    }
}

pub fn run<T: 'static>(seed: u64, test: impl AsyncFnOnce(World) -> T + 'static) -> T {
    let world = World::new(seed);
    let rt = world.clone();
    let result = world.block_on(async move { test(rt).await });
    world.halt();
    result
}

/// An extent moves while a guest reads a block that is unreadable in the home: the guest receives the second
/// copy, and flushes. The move has copied the content of the home.
#[test]
fn data_read_during_migration_does_not_change() {
    let (read, after) = run(1, async |world| {
        let torn = |disk: &Disk, home: Bytes| disk.poke(home + BLOCK * 5, &[222; 4096]);
        let it = crashed(&world, KIB * 128, false, torn).await;
        // The resync does not reach the last extent yet, and the move takes its time.
        it.disks[1].faults().set(slowly(4000));
        it.disks[2].faults().set(slowly(2000));
        let extent = ExtentId((it.last / (KIB * 128)) as u32);
        it.told.moves.borrow_mut().push(Move::Migrate { extent, target: DeviceId(2) });
        it.sleep(500).await;
        it.disks[1].faults().set(FaultPlan::default());
        it.disks[0].spoil(it.home + BLOCK * 5..it.home + BLOCK * 6, Bad::UntilWritten);
        let read = it.read(5).await;
        it.volume.flush().await.expect("it is sound");
        it.sleep(20_000).await;
        (read, it.read(5).await)
    });
    assert!(read == Ok(222) || read == Ok(value(5)), "{read:?}");
    assert_eq!(after, read, "nobody wrote there");
}

/// One bad place on each device, in different blocks of one extent: each block is readable on some device.
fn two_bad_places(
    (home, how_home): (u64, Bad),
    (second, how_second): (u64, Bad),
    guest: u64,
) -> Vec<(u64, String)> {
    run(2, async move |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        it.disks[1].faults().set(slowly(1000));
        it.disks[0].spoil(it.home + BLOCK * home..it.home + BLOCK * (home + 1), how_home);
        it.disks[1].spoil(it.second + BLOCK * second..it.second + BLOCK * (second + 1), how_second);
        let _first = it.read(guest).await;
        it.be_sound();
        it.sleep(60_000).await;
        let mut lost = Vec::new();
        for block in 0..32 {
            match it.read(block).await {
                Ok(read) => assert_eq!(read, value(block)),
                Err(error) => lost.push((block, error)),
            }
        }
        lost
    })
}

#[test]
fn unwritable_block_of_second_copy_leaves_all_blocks_readable() {
    assert_eq!(two_bad_places((20, Bad::UntilWritten), (10, Bad::ForEver), 20), []);
}

#[test]
fn unwritable_block_of_home_leaves_all_blocks_readable() {
    assert_eq!(two_bad_places((10, Bad::ForEver), (20, Bad::UntilWritten), 10), []);
}

/// The second device is silent for some seconds, while a guest reads a sound block of an extent. The home
/// has a bad place elsewhere in the extent.
#[test]
fn silent_device_does_not_make_blocks_unreadable() {
    let mut lost = Vec::new();
    for asked in [20, 3] {
        let (read, given_up) = run(3, async move |world| {
            let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
            it.disks[1].faults().set(slowly(1000));
            it.disks[0].spoil(it.home + BLOCK * 20..it.home + BLOCK * 21, Bad::UntilWritten);
            // The volume cannot do without the device.
            let (_, first) = it.volume.explain(Bytes::ZERO).expect("it is sound").home.expect("it is sound");
            let bad = FaultPlan { bad_writes: Some(first..first + BLOCK), ..FaultPlan::default() };
            it.disks[0].faults().set(bad);
            it.write(Bytes::ZERO, 222, Durability::Fua).await;
            hang(&it.disks[1]);
            it.sleep(12_000).await;
            let _first = it.read(asked).await;
            let given_up = it.volume.outdated_devices();
            it.be_sound();
            it.sleep(120_000).await;
            (it.read(20).await, given_up)
        });
        lost.extend((read != Ok(value(20))).then_some((asked, read, given_up)));
    }
    assert!(lost.is_empty(), "{lost:?}");
}

/// A block that the second copy missed lies beside undecided blocks, and the home has a bad place there.
#[test]
fn resync_ends_beside_bad_place_in_undecided_blocks() {
    let (behind, read) = run(4, async |world| {
        let it = crashed(&world, MIB * 2, false, |_, _| ()).await;
        let tail = MIB - BLOCK;
        it.disks[1].faults().set(slowly(1000));
        assert_eq!(it.read(0).await, Ok(value(0)));
        let failing = FaultPlan { bad_writes: Some(it.second + tail..it.second + MIB), ..slowly(1000) };
        it.disks[1].faults().set(failing);
        it.write(it.last + tail, 222, Durability::Fua).await;
        it.disks[0].spoil(it.home + MIB + KIB * 64..it.home + MIB + KIB * 68, Bad::UntilWritten);
        it.be_sound();
        it.sleep(600_000).await;
        let behind = it.volume.status().behind;
        (behind, it.read(256 + 16).await)
    });
    assert_eq!((behind, read), (Bytes::ZERO, Ok(value(256 + 16))));
}

/// Ways in which a volume loses a device and continues.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Live,
    AfterStop,
}

/// The device that missed a write is lost; the other device has everything. In the same span, homes lie on
/// both devices.
#[test]
fn device_with_missed_write_can_be_lost() {
    let mut refused = Vec::new();
    for loss in [Loss::Live, Loss::AfterStop] {
        let failed = run(5, async move |world| {
            let it = crashed(&world, KIB * 128, true, |_, _| ()).await;
            // An extent with its home on device 0, in the last span.
            let at = it.last - KIB * 128;
            let placed = it.volume.explain(at).expect("it is sound");
            let (home, second) = (placed.home.expect("it is sound"), placed.second.expect("it is sound"));
            assert_eq!((home.0, second.0), (DeviceId(0), DeviceId(1)));
            let failing = FaultPlan { bad_writes: Some(second.1..second.1 + BLOCK), ..slowly(1000) };
            it.disks[1].faults().set(failing);
            it.write(at, 222, Durability::Fua).await;
            match loss {
                Loss::Live => {
                    return it.volume.fail_device(DeviceId(1)).await.map_err(|error| error.to_string());
                }
                Loss::AfterStop => it.volume.close().await.expect("it is sound"),
            }
            let left = [0, 2].map(|disk: usize| it.disks[disk].fork(&world));
            let volume = open(world.clone(), sound(&left)).await.map_err(|error| error.to_string())?;
            assert_eq!(value_of(&volume, &it.arena, at).await, Ok(222));
            assert_eq!(value_of(&volume, &it.arena, it.last).await, Ok(value(0)));
            Ok(())
        });
        refused.extend(failed.err().map(|error| (loss, error)));
    }
    assert!(refused.is_empty(), "{refused:?}");
}

/// A guest's write without FUA that one copy missed, and then a flush. Returns the value that another
/// opening reads, without the home or with a home that has a bad place there.
fn missed(flushes: bool, has_power: bool, alone: bool) -> Result<u8, ErrorKind> {
    run(6, async move |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        it.sleep(120_000).await;
        assert_eq!(it.volume.status().behind, Bytes::ZERO);
        let failing = FaultPlan { bad_writes: Some(it.second..it.second + BLOCK), ..FaultPlan::default() };
        it.disks[1].faults().set(failing);
        it.write(it.last, 222, Durability::Volatile).await;
        if flushes {
            it.volume.flush().await.expect("both devices flush");
        }
        it.disks[0].spoil(it.home..it.home + BLOCK, Bad::UntilWritten);
        let (mut rng, first) = (Rng::new(6), usize::from(alone));
        let stored: Vec<Disk> = it.disks[first..]
            .iter()
            .map(|disk| {
                let mut stored = disk.store();
                if has_power {
                    stored.kill()
                } else {
                    stored.power_cut(&mut rng)
                }
                stored.attach(&world)
            })
            .collect();
        let volume = open(world.clone(), sound(&stored)).await.map_err(|error| error.kind())?;
        value_of(&volume, &it.arena, it.last).await.map_err(|error| error.kind())
    })
}

/// The flush does not record the stale copy: the write did so before its end. Without the record the span is
/// dirty, and so undecided after the crash, and the older copy passes for the flushed copy.
#[test]
fn flushed_write_missed_by_one_copy_is_not_reverted() {
    is_not_taken_back(&[(true, false), (true, true)]);
}

/// As above without a flush: acknowledged writes outlive the daemon while the machine has power.
#[test]
fn unflushed_write_missed_by_one_copy_survives_daemon_death() {
    is_not_taken_back(&[(false, true)]);
}

fn is_not_taken_back(cases: &[(bool, bool)]) {
    let mut wrong = Vec::new();
    for &(flushes, has_power) in cases {
        for alone in [true, false] {
            let read = missed(flushes, has_power, alone);
            let is_told = matches!(read, Ok(222) | Err(ErrorKind::Degraded | ErrorKind::Io));
            wrong.extend((!is_told).then_some((flushes, has_power, alone, read)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// No copies are made while a volume closes, so a guest's read of an undecided block is refused: the next
/// opening, on either device, could find other content.
#[test]
fn undecided_data_is_not_read_during_close() {
    let (refused, read, after) = run(8, async |world| {
        let it = crashed(&world, KIB * 128, false, |disk, home| disk.poke(home, &[222; 4096])).await;
        it.disks[1].faults().set(slowly(1000));
        let read = it.read(1).await;
        let (closing, closed) = (it.volume.clone(), Rc::new(RefCell::new(false)));
        let done = closed.clone();
        world.spawn(async move {
            closing.close().await.expect("it is sound");
            *done.borrow_mut() = true;
        });
        it.sleep(100).await;
        let refused =
            value_of(&it.volume, &it.arena, it.last - KIB * 128).await.map_err(|error| error.kind());
        assert!(!*closed.borrow());
        it.sleep(60_000).await;
        assert!(*closed.borrow());
        let left: Vec<Disk> = it.disks[1..].iter().map(|disk| disk.fork(&world)).collect();
        let volume = open(world.clone(), sound(&left)).await.expect("it has everything");
        let after = value_of(&volume, &it.arena, it.last + BLOCK).await.map_err(|error| error.to_string());
        (refused, read, after)
    });
    assert_eq!((refused, after), (Err(ErrorKind::Io), read));
}

/// A write fails on both copies, on the home in part, and a guest's read waits for the write. Then come a
/// flush, and the loss of the home. Returns the values read before and after the loss.
fn read_beside_a_write_that_fails(seed: u64, waits: bool) -> Option<(u8, u8)> {
    run(seed, async move |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        it.sleep(120_000).await;
        assert_eq!(it.volume.status().behind, Bytes::ZERO);
        let bad = |at: Bytes| Some(at + BLOCK * 7..at + BLOCK * 8);
        it.disks[0].faults().set(FaultPlan { bad_writes: bad(it.home), ..slowly(1000) });
        it.disks[1].faults().set(FaultPlan { bad_writes: bad(it.second), ..slowly(1000) });
        let (volume, arena, at) = (it.volume.clone(), it.arena.clone(), it.last);
        world.spawn(async move {
            let bytes = filled(&arena, BLOCK * 8, 222);
            volume.write(at, &bytes, Durability::Volatile).await.expect_err("no device takes it");
        });
        // The write takes 6 s, because the journal first records the beginning of the write.
        it.sleep(if waits { 4500 } else { 20_000 }).await;
        let read = it.read(0).await.expect("it is sound");
        it.be_sound();
        it.volume.flush().await.expect("both devices flush");
        let mut rng = Rng::new(seed);
        let left: Vec<Disk> = it.disks[1..]
            .iter()
            .map(|disk| {
                let mut stored = disk.store();
                stored.power_cut(&mut rng);
                stored.attach(&world)
            })
            .collect();
        let volume = open(world.clone(), sound(&left)).await.ok()?;
        Some((read, value_of(&volume, &it.arena, it.last).await.ok()?))
    })
}

#[test]
fn data_read_beside_failing_write_is_stable_after_flush() {
    for (waits, seeds) in [(false, 1..4), (true, 0..5)] {
        let read = seeds.filter_map(|seed| Some((seed, read_beside_a_write_that_fails(seed, waits)?)));
        let changed: Vec<_> = read.filter(|(_, (before, after))| before != after).collect();
        assert!(changed.is_empty(), "waits {waits}: {changed:?}");
    }
}

/// A device is lost at any time at which guests decide the content of a block; the other device then loses
/// power.
#[test]
fn data_read_during_device_loss_does_not_change() {
    let mut changed = Vec::new();
    for (lost, step) in (0..2).flat_map(|lost| (0..16).map(move |step| (lost, step))) {
        let (reads, after) = run(step, async move |world| {
            let torn = |disk: &Disk, home: Bytes| disk.poke(home, &[222; 4096]);
            let it = Rc::new(crashed(&world, KIB * 128, false, torn).await);
            it.disks[1].faults().set(slowly(1000));
            let reads = Rc::new(RefCell::new(Vec::new()));
            for guest in 0..3 {
                let (it, reads) = (it.clone(), reads.clone());
                world.spawn(async move {
                    it.sleep(guest * 300).await;
                    let read = it.read(0).await;
                    reads.borrow_mut().push(read);
                });
            }
            it.sleep(step * 150).await;
            let _refused = it.volume.fail_device(DeviceId(lost)).await;
            let read = it.read(0).await;
            reads.borrow_mut().push(read);
            it.volume.flush().await.expect("it is sound");
            let mut rng = Rng::new(step);
            let is_left = |(i, disk): (usize, &Disk)| {
                let mut stored = disk.store();
                stored.power_cut(&mut rng);
                (i != usize::from(lost)).then(|| stored.attach(&world))
            };
            let left: Vec<Disk> = it.disks.iter().enumerate().filter_map(is_left).collect();
            let after = match open(world.clone(), sound(&left)).await {
                Ok(volume) => value_of(&volume, &it.arena, it.last).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            it.sleep(20_000).await;
            (reads.take(), after)
        });
        let all: Vec<_> = reads.iter().chain([&after]).collect();
        changed.extend(all.windows(2).any(|pair| pair[0] != pair[1]).then_some((lost, step, reads, after)));
    }
    assert!(changed.is_empty(), "{changed:#?}");
}
