//! Devices that answer late, or never: deadlines, late requests, and the effect on guests.

use crate::rig::{Bench, Rig, bench, filled, holds, is_all, make, open, options, refused};
use braid_base::{Bytes, DeviceId, KIB, MIB, Nanos};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, Result, check};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Buf, Runtime, join_all};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};
use std::pin::Pin;

pub fn mirror(identity: u8) -> CreateOptions {
    CreateOptions { copies: 2, ..options(identity) }
}

/// Everything on the second device alone.
fn single(identity: u8) -> CreateOptions {
    CreateOptions { policy: "hdd-only".to_owned(), ..options(identity) }
}

/// From now on nothing begins or ends on a disk until the plan changes.
pub fn hang(disk: &Disk) {
    disk.faults().set(FaultPlan { hangs: true, ..FaultPlan::default() });
}

/// From now on each operation of a disk takes this much longer.
fn stall(disk: &Disk, seconds: u64) {
    let stall = Nanos::from_secs(seconds)..Nanos::from_secs(seconds) + Nanos(1);
    disk.faults().set(FaultPlan { stalls: 1.0, stall, ..FaultPlan::default() });
}

pub fn recover(disk: &Disk) {
    disk.faults().set(FaultPlan::default());
}

/// As [`recover`], a second from now.
fn recover_soon(world: &World, disks: &[Disk]) {
    let (clock, disks) = (world.clone(), disks.to_vec());
    world.spawn(async move {
        clock.sleep(Nanos::from_secs(1)).await;
        disks.iter().for_each(recover);
    });
}

pub async fn write(volume: &Rig, at: Bytes, from: Buf, durability: Durability) -> Result<()> {
    volume.write(at, &from, durability).await
}

pub fn state(volume: &Rig, device: usize) -> DeviceState {
    volume.status().devices[device].state
}

/// Duration and result of `work`.
pub async fn timed<T>(world: &World, work: impl Future<Output = T>) -> (Nanos, T) {
    let start = world.now();
    let output = work.await;
    (world.now() - start, output)
}

/// The parts of a test bench.
pub fn parts(bench: &Bench) -> (World, Arena, Vec<Faulty<Disk>>, Vec<Disk>) {
    (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.disks.clone())
}

/// A device that hung while a volume was opened or checked blocked the opening or check for ever.
#[test]
fn an_opening_ends_if_a_device_does_not_answer() {
    let mut refusals = Vec::new();
    for hung in 0..2 {
        // At once, and in the middle of recovery.
        for millis in [0, 5, 10, 20, 40, 80, 160] {
            let bench = bench(millis);
            let (world, arena, all, disks) = parts(&bench);
            let refused = bench.run(async move {
                let volume = make(world.clone(), all.clone(), &mirror(1)).await;
                volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
                volume.close().await.unwrap();
                let names: Vec<String> = (0..2).map(|i| format!("disk {i}")).collect();
                if millis == 0 {
                    hang(&disks[hung]);
                    let error = refused(check(&world, all.clone(), &names, None).await);
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                } else {
                    let (clock, disk) = (world.clone(), disks[hung].clone());
                    world.spawn(async move {
                        clock.sleep(Nanos::from_millis(millis)).await;
                        hang(&disk);
                    });
                }
                let (took, opened) = timed(&world, open(world.clone(), all.clone())).await;
                assert!(took < Nanos::from_secs(300), "{took}");
                recover(&disks[hung]);
                world.sleep(Nanos::from_secs(1)).await;
                recover(&disks[hung]);
                let refused = opened.is_err();
                if let Ok(volume) = opened {
                    volume.close().await.unwrap();
                }
                let volume = open(world.clone(), all).await.unwrap();
                assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
                volume.close().await.unwrap();
                refused
            });
            refusals.push((hung, millis, refused));
        }
    }
    assert!(refusals.iter().all(|&(_, millis, refused)| refused || millis > 0), "{refusals:?}");
    assert!(refusals.iter().any(|&(_, millis, refused)| refused && millis > 0), "{refusals:?}");
}

/// A read of a hung device was never answered, though another device had the bytes.
#[test]
fn read_uses_healthy_copy_while_device_hangs() {
    for hung in 0..2 {
        for seed in 0..4 {
            let bench = bench(seed);
            let (world, arena, all, disks) = parts(&bench);
            bench.run(async move {
                let volume = make(world.clone(), all, &mirror(1)).await;
                volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
                hang(&disks[hung]);
                for i in 0..8 {
                    let (took, right) =
                        timed(&world, holds(&volume, &arena, KIB * 128 * i, KIB * 64, 1)).await;
                    assert!(right.unwrap() && took < Nanos::from_secs(7), "{took}");
                }
            });
        }
    }
}

/// The state of a failed device is on the survivor before a guest's request succeeds. Otherwise, after a
/// kill of the daemon at that moment, the next opening could read the copy without the write.
#[test]
fn writes_and_flushes_continue_without_hung_device() {
    for hung in 0..2 {
        let bench = bench(10 + hung as u64);
        let (world, arena, all, disks) = parts(&bench);
        let sound = bench.sound(disks[1 - hung].clone());
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &mirror(2)).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            hang(&disks[hung]);
            let write = write(&volume, KIB * 64, filled(&arena, KIB * 256, 2), Durability::Volatile);
            let (took, written) = timed(&world, write).await;
            assert!(written.is_ok() && took < Nanos::from_secs(7), "{took}");
            assert_eq!(state(&volume, hung), DeviceState::Failed);
            let killed: Vec<_> = disks.iter().map(|disk| disk.fork(&world)).collect();
            let (took, flushed) = timed(&world, volume.flush()).await;
            assert!(flushed.is_ok() && took < Nanos::from_secs(1), "{took}");
            // The late requests reach the disk, and change nothing that is ever read.
            recover(&disks[hung]);
            world.sleep(Nanos::from_secs(5)).await;
            assert!(holds(&volume, &arena, KIB * 64, KIB * 256, 2).await.unwrap());
            volume.close().await.unwrap();
            drop(volume);
            let killed = killed.into_iter().map(|disk| Faulty::new(disk, &no_faults(&world)));
            let volume = open(world.clone(), killed.collect()).await.unwrap();
            assert!(holds(&volume, &arena, KIB * 64, KIB * 256, 2).await.unwrap(), "after a kill");
            drop(volume);
            let volume = open(world.clone(), all).await.unwrap();
            assert_eq!(state(&volume, hung), DeviceState::Returning);
            world.sleep(Nanos::from_secs(60)).await;
            assert_eq!(state(&volume, hung), DeviceState::Active);
            volume.audit().await.unwrap();
            volume.close().await.unwrap();
            let volume = open(world, vec![sound]).await.unwrap();
            assert!(holds(&volume, &arena, KIB * 64, KIB * 256, 2).await.unwrap());
        });
    }
}

pub fn no_faults(world: &World) -> Faults {
    Faults::new(FaultPlan::default(), world.fork_rng())
}

/// A drive that retries a bad sector for ten seconds must not be failed.
#[test]
fn device_late_only_with_reads_is_not_failed() {
    let bench = bench(20);
    let (world, arena, all, disks) = parts(&bench);
    bench.run(async move {
        let volume = make(world.clone(), all, &mirror(3)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        world.sleep(Nanos::from_secs(40)).await;
        for disk in &disks {
            stall(disk, 10);
        }
        let into = filled(&arena, KIB * 64, 0);
        recover_soon(&world, &disks);
        let (took, read) = timed(&world, volume.read(Bytes::ZERO, &into)).await;
        assert!(read.is_ok() && took < Nanos::from_secs(7), "{took}");
        let late = (0..2).filter(|&device| state(&volume, device) == DeviceState::Slow).count();
        assert_eq!(late, 1);
        // The late read must not fill a buffer that is in use again.
        assert!(is_all(&into, 1));
        into.with_bytes_mut(|bytes| bytes.fill(9));
        world.sleep(Nanos::from_secs(10)).await;
        assert!(is_all(&into, 9));
        assert!((0..2).all(|device| state(&volume, device) == DeviceState::Active));
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
        volume.audit().await.unwrap();
        volume.close().await.unwrap();
    });
}

/// One extent lies on one device alone: this device cannot be failed. Data that the other device also has is
/// read from the other device.
#[test]
fn slow_device_with_only_copy_is_kept_and_recovers() {
    let bench = bench(30);
    let (world, arena, all, disks) = parts(&bench);
    let faults = bench.faults.clone();
    bench.run(async move {
        let volume = make(world.clone(), all, &mirror(4)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        let (device, at, _) = volume.explain(Bytes::ZERO).unwrap().second.unwrap();
        let bad = FaultPlan { bad_writes: Some(at..at + KIB * 64), ..FaultPlan::default() };
        faults[device.index()].set(bad);
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 2), Durability::Fua).await.unwrap();
        let only = 1 - device.index();
        stall(&disks[only], 20);
        let first = async {
            let (took, right) = timed(&world, holds(&volume, &arena, Bytes::ZERO, KIB * 4, 2)).await;
            assert!(right.unwrap() && took > Nanos::from_secs(19), "{took}");
        };
        let others = async {
            for _ in 0..2 {
                let (took, right) = timed(&world, holds(&volume, &arena, KIB * 512, KIB * 64, 1)).await;
                assert!(right.unwrap() && took < Nanos::from_secs(7), "{took}");
                world.sleep(Nanos::from_secs(4)).await;
            }
            assert_eq!(state(&volume, only), DeviceState::Slow);
        };
        let both: [Pin<Box<dyn Future<Output = ()>>>; 2] = [Box::pin(first), Box::pin(others)];
        join_all(both.into_iter()).await;
        recover(&disks[only]);
        world.sleep(Nanos::from_secs(30)).await;
        assert_eq!(state(&volume, only), DeviceState::Active);
        faults[device.index()].set(FaultPlan::default());
        world.sleep(Nanos::from_secs(30)).await;
        volume.flush().await.unwrap();
        volume.audit().await.unwrap();
    });
}

#[test]
fn ten_seconds_are_within_the_deadline_of_an_only_copy() {
    let bench = bench(40);
    let (world, arena, all, disks) = parts(&bench);
    bench.run(async move {
        let volume = make(world.clone(), all, &single(5)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        // The journal's witness is up to date by then.
        world.sleep(Nanos::from_secs(8)).await;
        stall(&disks[1], 10);
        assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 1).await.unwrap());
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 2), Durability::Volatile).await.unwrap();
        assert_eq!(state(&volume, 1), DeviceState::Slow);
        recover(&disks[1]);
        volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, 3), Durability::Fua).await.unwrap();
        world.sleep(Nanos::from_secs(3)).await;
        assert_eq!(state(&volume, 1), DeviceState::Active);
        assert_eq!(volume.status().guests.errors, 0);
    });
}

/// If both devices are late, a shared controller or cable is the likely reason: neither device is failed,
/// and no request fails.
#[test]
fn two_simultaneously_late_devices_are_kept() {
    let bench = bench(41);
    let (world, arena, all, disks) = parts(&bench);
    bench.run(async move {
        let volume = make(world.clone(), all, &mirror(41)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        disks.iter().for_each(|disk| stall(disk, 8));
        for value in 2..5 {
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 4, value), Durability::Volatile).await.unwrap();
            volume.flush().await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, value).await.unwrap());
            assert!((0..2).all(|device| state(&volume, device) != DeviceState::Failed));
        }
        world.sleep(Nanos::from_secs(120)).await;
        assert!((0..2).all(|device| state(&volume, device) != DeviceState::Failed));
        assert_eq!(volume.status().guests.errors, 0);
        volume.audit().await.unwrap();
    });
}

/// Both devices are asked, and one answers, then falls silent a moment after the other: the answer is no
/// reason to trust the device more.
#[test]
fn two_devices_hanging_in_succession_are_kept() {
    for millis in [30, 60, 200, 500] {
        let bench = bench(42);
        let (world, arena, all, disks) = parts(&bench);
        bench.run(async move {
            let volume = make(world.clone(), all, &mirror(42)).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_secs(20)).await;
            hang(&disks[1]);
            let (guest, bytes) = (volume.clone(), filled(&arena, KIB * 4, 2));
            world
                .spawn(async move { write(&guest, Bytes::ZERO, bytes, Durability::Volatile).await.unwrap() });
            world.sleep(Nanos::from_millis(millis)).await;
            hang(&disks[0]);
            world.sleep(Nanos::from_secs(10)).await;
            disks.iter().for_each(recover);
            world.sleep(Nanos::from_secs(10)).await;
            assert!((0..2).all(|device| state(&volume, device) != DeviceState::Failed), "{millis} ms");
        });
    }
}

/// A bad sector was rewritten from a device without unflushed data. No later flush proved the source device,
/// so the device could never be failed.
#[test]
fn the_source_of_a_repair_can_be_given_up() {
    let bench = bench(43);
    let (world, arena, all, disks) = parts(&bench);
    bench.run(async move {
        let made = CreateOptions { policy: "stripe".to_owned(), ..mirror(43) };
        let volume = make(world.clone(), all, &made).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        world.sleep(Nanos::from_secs(20)).await;
        let place = volume.explain(Bytes::ZERO).unwrap();
        let (bad, at) = place.home.unwrap();
        let bad_reads = Some(at + KIB * 32..at + KIB * 36);
        let plan = FaultPlan { bad_reads, bad_until_written: true, ..FaultPlan::default() };
        disks[bad.index()].faults().set(plan);
        assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 64, 1).await.unwrap());
        world.sleep(Nanos::from_secs(600)).await;
        assert_eq!(volume.status().background.repairs, 1);
        let source = place.second.unwrap().0;
        hang(&disks[source.index()]);
        let changed = async {
            write(&volume, Bytes::ZERO, filled(&arena, KIB * 4, 2), Durability::Volatile).await?;
            volume.flush().await
        };
        let (took, changed) = timed(&world, changed).await;
        changed.unwrap();
        assert!(took < Nanos::from_secs(10), "{took}");
        assert_eq!(state(&volume, source.index()), DeviceState::Failed);
        disks.iter().for_each(recover);
    });
}

/// With one copy no device can be failed, and no device is asked for a sign of life: the device may sleep.
#[test]
fn idle_device_is_not_probed_with_one_copy() {
    let bench = bench(44);
    let (world, arena, all, disks) = parts(&bench);
    bench.run(async move {
        let volume = make(world.clone(), all, &single(44)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        world.sleep(Nanos::from_secs(12)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Volatile).await.unwrap();
        stall(&disks[1], 10);
        let flushing = volume.clone();
        world.spawn(async move { flushing.flush().await.unwrap() });
        world.sleep(Nanos::from_millis(1500)).await;
        let before = disks[0].operations();
        world.sleep(Nanos::from_secs(5)).await;
        assert_eq!(disks[0].operations(), before);
    });
}

/// A write had failed for the guest, but reached the device after a newer, acknowledged write, which was
/// then lost.
#[test]
fn late_write_never_overwrites_newer_write() {
    for seed in 0..10 {
        let bench = bench(50 + seed);
        let (world, arena, all, disks) = parts(&bench);
        bench.run(async move {
            let volume = make(world.clone(), all.clone(), &single(6)).await;
            volume.write(Bytes::ZERO, &filled(&arena, KIB * 128, 1), Durability::Fua).await.unwrap();
            stall(&disks[1], 100);
            recover_soon(&world, &disks);
            let late = write(&volume, Bytes::ZERO, filled(&arena, KIB * 8, 2), Durability::Volatile);
            let (took, written) = timed(&world, late).await;
            let error = refused(written);
            assert!(Nanos::from_secs(60) <= took && took < Nanos::from_secs(62), "{took}");
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("device d1 (hdd)"), "{error}");
            assert!(error.to_string().contains("60 s"), "{error}");
            let newer = write(&volume, Bytes::ZERO, filled(&arena, KIB * 4, 3), Durability::Fua);
            let (took, written) = timed(&world, newer).await;
            assert!(written.is_ok() && took < Nanos::from_secs(45), "{took}");
            world.sleep(Nanos::from_secs(200)).await;
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 3).await.unwrap());
            volume.close().await.unwrap();
            let volume = open(world, all).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, KIB * 4, 3).await.unwrap());
        });
    }
}

/// While a device hangs for ever, every request of guests ends, with success if the device is not needed.
#[test]
fn every_request_ends_while_device_hangs() {
    let bench = bench(70);
    let (world, arena, all, disks) = parts(&bench);
    bench.run(async move {
        let policy = "stripe".to_owned();
        let volume = make(world.clone(), all, &CreateOptions { policy, ..options(7) }).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        let home = |at| volume.explain(at).unwrap().home.unwrap().0;
        let place = |device| (0..8).map(|i| KIB * 128 * i).find(|&at| home(at) == DeviceId(device)).unwrap();
        let (there, gone) = (place(0), place(1));
        hang(&disks[1]);
        for _ in 0..3 {
            let (took, read) = timed(&world, holds(&volume, &arena, gone, KIB * 4, 1)).await;
            assert_eq!(refused(read).kind(), ErrorKind::Io);
            assert!(took < Nanos::from_secs(62), "{took}");
            assert!(holds(&volume, &arena, there, KIB * 4, 1).await.unwrap());
        }
        let write = write(&volume, gone, filled(&arena, KIB * 4, 2), Durability::Volatile);
        let (took, written) = timed(&world, write).await;
        assert!(written.is_err() && took < Nanos::from_secs(62), "{took}");
        let (took, flushed) = timed(&world, volume.flush()).await;
        assert_eq!(refused(flushed).kind(), ErrorKind::Io);
        assert!(took < Nanos::from_secs(125), "{took}");
        recover(&disks[1]);
        world.sleep(Nanos::from_secs(10)).await;
        assert!(holds(&volume, &arena, gone, KIB * 4, 1).await.unwrap());
        assert!(volume.flush().await.is_err(), "a flush that is late has failed, for good");
    });
}

#[test]
fn close_ends_and_names_hung_device() {
    for copies in 1..=2 {
        let bench = bench(80);
        let (world, arena, all, disks) = parts(&bench);
        bench.run(async move {
            let made = CreateOptions { copies, policy: "stripe".to_owned(), ..options(8) };
            let volume = make(world.clone(), all.clone(), &made).await;
            volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            volume.write(MIB, &filled(&arena, MIB, 2), Durability::Volatile).await.unwrap();
            hang(&disks[1]);
            let (took, closed) = timed(&world, volume.close()).await;
            let error = refused(closed);
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("device d1 (hdd)"), "{error}");
            assert!(took < Nanos::from_secs(200), "{took}");
            recover(&disks[1]);
            world.sleep(Nanos::from_secs(10)).await;
            let volume = open(world.clone(), all).await.unwrap();
            assert!(holds(&volume, &arena, Bytes::ZERO, MIB, 1).await.unwrap());
            if copies == 2 {
                assert!(holds(&volume, &arena, MIB, MIB, 2).await.unwrap(), "the other device was flushed");
                world.sleep(Nanos::from_secs(60)).await;
                volume.audit().await.unwrap();
            }
        });
    }
}

/// Behind a thousand other requests a request waits for more than 5 s, while the device keeps answering.
#[test]
fn a_long_queue_is_not_late() {
    let bench = bench(90);
    let (world, arena, all, disks) = parts(&bench);
    bench.run(async move {
        let volume = make(world.clone(), all, &mirror(9)).await;
        volume.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
        // Each second another request begins and takes 4 s: there is always a request in flight.
        for disk in &disks {
            stall(disk, 4);
        }
        let reads = (0..30u64).map(async |i| {
            world.sleep(Nanos::from_secs(i)).await;
            holds(&volume, &arena, KIB * 8 * i, KIB * 4, 1).await.unwrap()
        });
        assert!(join_all(reads).await.into_iter().all(|right| right));
        assert!((0..2).all(|device| state(&volume, device) == DeviceState::Active));
        assert!(volume.status().devices.iter().all(|device| device.stats.errors == 0));
    });
}
