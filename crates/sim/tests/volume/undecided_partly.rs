//! Partly undecided extents, longer than the unit of decisions, and homes with bad places.

use crate::deadlines::hang;
use crate::rig::{Rig, bench, filled, open, options, sound};
use crate::undecided_faults::{BLOCK, value_of};
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, create};
use braid_policy::{DeviceView, Home, Occasion, Placement, Plan, Policy, Second, View};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, World};

/// The last extent, of 2 MiB, and the last in a resync.
const LAST: Bytes = Bytes(62 << 20);

/// A policy with homes on one device, and second copies on the other. Second copies are written at once, or
/// later, with a lag of at most `behind`.
struct Fixed {
    home: u16,
    behind: Option<Bytes>,
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        match (occasion, self.behind) {
            (Occasion::New { .. }, _) => {
                let second = Second::Sync(DeviceId(1 - self.home));
                Placement { home: Home::On(DeviceId(self.home)), second, extra: None }
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

fn disks(world: &World) -> Vec<Disk> {
    [DiskOptions::hdd(MIB * 160), DiskOptions::hdd(MIB * 160)].map(|o| Disk::new(world, o)).to_vec()
}

fn slow(disk: &Disk, millis: u64) {
    disk.faults().set(slowly(millis));
}

fn slowly(millis: u64) -> FaultPlan {
    FaultPlan {
        stalls: 1.0,
        stall: Nanos::from_millis(millis)..Nanos::from_millis(millis + 1),
        ..FaultPlan::default()
    }
}

/// Content of block `i` of the last MiB.
fn value(i: usize) -> u8 {
    64 + (i % 150) as u8
}

/// A mirror with extents of 2 MiB, after a crash of its daemon; MiB n is full of n + 1. Returns the places
/// of the copies of the last extent.
async fn crashed(rt: &World, arena: &Arena, policy: Fixed) -> (Rig, Vec<Disk>, (Bytes, Bytes)) {
    let how = CreateOptions {
        copies: 2,
        extent_size: MIB * 2,
        span_size: MIB * 4,
        size: Some(MIB * 64),
        policy: "raid1".to_owned(),
        ..options(7)
    };
    let disks = disks(rt);
    create(&sound(&disks), &how).await.expect("the disks are fit");
    let volume = open(rt.clone(), sound(&disks)).await.expect("it is new");
    for at in 0..64 {
        // The homes of the first span are on the other device.
        volume.replace_policy(Box::new(Fixed { home: u16::from(at < 4), behind: None }));
        let bytes = filled(arena, MIB, 1 + at as u8);
        if at == 63 {
            bytes.with_bytes_mut(|bytes| {
                bytes.chunks_mut(4096).enumerate().for_each(|(i, block)| block.fill(value(i)))
            });
        }
        volume.write(MIB * at, &bytes, Durability::Fua).await.expect("the disks are sound");
    }
    let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(rt)).collect();
    let volume = open(rt.clone(), sound(&disks)).await.expect("it is sound");
    volume.replace_policy(Box::new(policy));
    let placed = volume.explain(LAST).expect("it is sound");
    let ((home, at), (second, other, _)) =
        (placed.home.expect("it is sound"), placed.second.expect("it is sound"));
    assert_eq!((home, second), (DeviceId(0), DeviceId(1)));
    (volume, disks, (at, other))
}

/// A flushed block whose second copy missed a write, in an extent that is undecided elsewhere. The home is
/// unreadable or slow elsewhere.
fn a_home_gives_way(is_late: bool) -> u8 {
    let bench = bench(801);
    let (world, arena) = (bench.world.clone(), bench.arena.clone());
    bench.run(async move {
        let (volume, disks, (home, second)) = crashed(&world, &arena, Fixed { home: 0, behind: None }).await;
        let failing = FaultPlan { bad_writes: Some(second..second + KIB * 4), ..slowly(1000) };
        disks[1].faults().set(failing);
        let bytes = filled(&arena, BLOCK, 200);
        volume.write(LAST, &bytes, Durability::Fua).await.expect("the home is sound");
        assert_eq!(value_of(&volume, &arena, LAST).await.expect("the home is sound"), 200);
        if is_late {
            slow(&disks[0], 7000);
        } else {
            disks[0].spoil(home + MIB..home + MIB + KIB * 4, Bad::ForEver);
        }
        let read = value_of(&volume, &arena, LAST + MIB).await;
        assert!(read.is_err() || read == Ok(64), "{read:?}");
        disks[0].faults().set(FaultPlan::default());
        world.sleep(Nanos::from_secs(10)).await;
        value_of(&volume, &arena, LAST).await.unwrap_or(200)
    })
}

#[test]
fn bad_home_is_not_exchanged_for_stale_copy() {
    assert_eq!(a_home_gives_way(false), 200);
}

#[test]
fn late_home_is_not_exchanged_for_stale_copy() {
    assert_eq!(a_home_gives_way(true), 200);
}

/// A write that the second copy may receive later, and that fails on the home, in an extent that is
/// undecided elsewhere.
#[test]
fn deferred_write_rejected_by_home_goes_to_second_copy() {
    for (extent, behind) in [(0, MIB * 256), (0, Bytes(0))] {
        let bench = bench(802);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        bench.run(async move {
            let (volume, disks, (home, _)) =
                crashed(&world, &arena, Fixed { home: 0, behind: Some(behind) }).await;
            slow(&disks[1], 300);
            disks[0]
                .faults()
                .set(FaultPlan { bad_writes: Some(home..home + KIB * 4), ..FaultPlan::default() });
            let bytes = filled(&arena, BLOCK, 200);
            let written = volume.write(LAST + MIB * extent, &bytes, Durability::Fua).await;
            written.unwrap_or_else(|error| panic!("at most {behind} behind: {error}"));
            assert_eq!(value_of(&volume, &arena, LAST).await.expect("a copy is sound"), 200);
        });
    }
}

/// A home has one bad place, and the other device hangs: good sectors of the home are read without a wait
/// for each sector.
#[test]
fn bad_sector_beside_hung_device_does_not_stall_reads() {
    for hangs in [0, 200, 1000] {
        let bench = bench(803);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let took = bench.run(async move {
            let (volume, disks, (home, _)) = crashed(&world, &arena, Fixed { home: 0, behind: None }).await;
            slow(&disks[1], 20);
            disks[0].spoil(home + MIB..home + MIB + KIB * 4, Bad::UntilWritten);
            let other = disks[1].clone();
            let rt = world.clone();
            world.spawn(async move {
                rt.sleep(Nanos::from_millis(hangs)).await;
                hang(&other);
            });
            let since = world.now();
            let read = value_of(&volume, &arena, LAST + MIB + KIB * 64).await;
            assert!(read.is_err() || read == Ok(value(16)), "{read:?}");
            world.now() - since
        });
        assert!(took < Nanos::from_secs(60), "hangs after {hangs} ms: {took}");
    }
}

/// A home has one permanently bad place, a request meets the place, and a crash follows at any time. The
/// other device is sound. Returns the crashes after which the place is unreadable.
fn lost_by_a_crash(is_write: bool, waits: bool) -> Vec<(u64, String)> {
    let mut lost = Vec::new();
    for step in 0..25 {
        let bench = bench(804);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let read = bench.run(async move {
            let (volume, disks, (home, _)) = crashed(&world, &arena, Fixed { home: 0, behind: None }).await;
            if waits {
                // Nothing is undecided any more.
                world.sleep(Nanos::from_secs(60)).await;
                assert_eq!(volume.status().behind, Bytes::ZERO);
            }
            slow(&disks[1], 20);
            disks[0].spoil(home + MIB..home + MIB + KIB * 4, Bad::ForEver);
            let guest = (volume.clone(), arena.clone());
            world.spawn(async move {
                let _done = match is_write {
                    true => {
                        let bytes = filled(&guest.1, BLOCK, 200);
                        guest.0.write(LAST + MIB, &bytes, Durability::Volatile).await.map(|()| 0)
                    }
                    false => value_of(&guest.0, &guest.1, LAST + MIB).await,
                };
            });
            world.sleep(Nanos::from_millis(step * 10)).await;
            let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
            let volume = open(world.clone(), sound(&disks)).await.expect("it is sound");
            value_of(&volume, &arena, LAST + MIB).await.map_err(|error| error.to_string())
        });
        match read {
            Ok(read) => assert!(read == value(0) || is_write && read == 200, "{read}"),
            Err(error) => lost.push((step * 10, error)),
        }
    }
    lost
}

#[test]
fn crash_in_home_exchange_loses_nothing() {
    assert_eq!(lost_by_a_crash(false, false), []);
}

#[test]
fn crash_in_home_exchange_for_write_loses_nothing() {
    assert_eq!(lost_by_a_crash(true, false), []);
}

#[test]
fn crash_in_home_exchange_after_resync_loses_nothing() {
    assert_eq!(lost_by_a_crash(false, true), []);
}

#[test]
fn crash_in_home_exchange_for_later_write_loses_nothing() {
    assert_eq!(lost_by_a_crash(true, true), []);
}

/// Undecided spans are not stale: one bad place of a second copy must not make its device fail.
#[test]
fn undecided_blocks_do_not_count_toward_lag_bound() {
    let bench = bench(805);
    let (world, arena) = (bench.world.clone(), bench.arena.clone());
    bench.run(async move {
        let (volume, disks, (_, second)) =
            crashed(&world, &arena, Fixed { home: 0, behind: Some(MIB * 4) }).await;
        disks[1].faults().set(FaultPlan { bad_writes: Some(second..second + KIB * 4), ..slowly(100) });
        let bytes = filled(&arena, BLOCK, 200);
        volume.write(LAST, &bytes, Durability::Fua).await.expect("the home is sound");
        assert_eq!(volume.outdated_devices(), []);
    });
}

/// The copy of one sector is late: bytes read for the next sector must not land in its place. The
/// indispensable device answers again, the daemon dies, and the other device, which has a bad place, is
/// lost.
#[test]
fn late_sector_copy_does_not_land_on_wrong_sector() {
    let mut wrong = Vec::new();
    for seed in 0..4 {
        let bench = bench(820 + seed);
        let (world, arena) = (bench.world.clone(), bench.arena.clone());
        let result = bench.run(async move {
            let (volume, disks, (home, _)) = crashed(&world, &arena, Fixed { home: 0, behind: None }).await;
            let (_, first, _) =
                volume.explain(Bytes::ZERO).expect("it is sound").second.expect("it is sound");
            let bad = FaultPlan { bad_writes: Some(first..first + KIB * 4), ..FaultPlan::default() };
            disks[0].faults().set(bad);
            volume
                .write(Bytes::ZERO, &filled(&arena, BLOCK, 9), Durability::Fua)
                .await
                .expect("a copy has it");
            disks[0].spoil(home + MIB..home + MIB + KIB * 4, Bad::UntilWritten);
            let guest = (volume.clone(), arena.clone());
            world.spawn(async move {
                let _read = value_of(&guest.0, &guest.1, LAST + MIB + KIB * 64).await;
            });
            world.sleep(Nanos::from_millis(300 + 50 * seed)).await;
            hang(&disks[1]);
            world.sleep(Nanos::from_millis(8500)).await;
            disks[1].faults().set(FaultPlan::default());
            world.sleep(Nanos::from_millis(30)).await;
            let left = disks[1].fork(&world);
            // Late copies are recorded as behind, and the volume may be refused without the home.
            let volume = match open(world.clone(), sound(&[left])).await {
                Ok(volume) => volume,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Degraded, "{error}");
                    return Vec::new();
                }
            };
            let mut wrong = Vec::new();
            for i in 0..256 {
                let read =
                    value_of(&volume, &arena, LAST + MIB + BLOCK * i as u64).await.expect("it is sound");
                wrong.extend((read != value(i)).then_some((i, read, value(i))));
            }
            wrong
        });
        wrong.extend((!result.is_empty()).then_some((seed, result)));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A read by a handle that outlives the stop of its volume: another daemon may have opened the devices.
#[test]
fn read_after_stop_writes_nothing() {
    let bench = bench(806);
    let (world, arena) = (bench.world.clone(), bench.arena.clone());
    bench.run(async move {
        let (volume, disks, (home, _)) = crashed(&world, &arena, Fixed { home: 0, behind: None }).await;
        disks[0].poke(home, &[99; 4096]);
        slow(&disks[1], 1000);
        volume.close().await.expect("it is sound");
        disks[1].faults().set(FaultPlan::default());
        let before = alone(&world, &arena, &disks[1]).await;
        let _read = value_of(&volume, &arena, LAST).await;
        assert_eq!(alone(&world, &arena, &disks[1]).await, before);
    });
}

/// Value of the last extent without the other device.
async fn alone(rt: &World, arena: &Arena, disk: &Disk) -> u8 {
    let volume = open(rt.clone(), sound(&[disk.fork(rt)])).await.expect("it has everything");
    value_of(&volume, arena, LAST).await.expect("it is sound")
}
