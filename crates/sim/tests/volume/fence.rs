//! Two openings of one volume with the same disks, as with a file and a loop device over the file.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use crate::bad_regions::views;
use crate::rig::{Rig, bench, filled, holds, make, open, open_with, options};
use braid_base::{Bytes, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, Noted, OpenOptions, Recovery, Result};
use braid_runtime::{Arena, Runtime, join_all};
use braid_sim::{Disk, FaultPlan, Faults, Faulty, World};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

const BLOCK: Bytes = Bytes(4 << 10);
const SECOND: Nanos = Nanos::from_secs(1);

/// Handles that share nothing with other handles except the disks.
pub fn handles(world: &World, disks: &[Disk]) -> Vec<Faulty<Disk>> {
    let handle =
        |disk: &Disk| Faulty::new(disk.clone(), &Faults::new(FaultPlan::default(), world.fork_rng()));
    disks.iter().map(handle).collect()
}

/// Times and numbers of acknowledged flushes.
pub type Told = Rc<RefCell<Vec<(Nanos, u64)>>>;

/// The block of a guest's write, in a half of the volume.
fn place_of(number: u64) -> usize {
    (number * 37 % HALF) as usize
}

fn value_of(number: u64) -> u8 {
    1 + (number % 250) as u8
}

/// Starts a guest that writes a block and flushes, again and again, in the half of the volume that begins
/// with a block, until the volume promises nothing any more.
pub fn busy_in(world: &World, volume: &Rig, (start, pause): (u64, Nanos), stop: &Rc<Cell<bool>>) -> Told {
    let (rt, volume, stop, told) = (world.clone(), volume.clone(), stop.clone(), Told::default());
    let acknowledged = told.clone();
    world.spawn(async move {
        let arena = Arena::new(MIB);
        for number in 0u64.. {
            if stop.get() {
                break;
            }
            let value = filled(&arena, BLOCK, value_of(number));
            let at = BLOCK * (start + place_of(number) as u64);
            let is_written = volume.write(at, &value, Durability::Volatile).await.is_ok();
            if !is_written || volume.flush().await.is_err() || stop.get() {
                break;
            }
            acknowledged.borrow_mut().push((rt.now(), number));
            rt.sleep(pause).await;
        }
    });
    told
}

/// Guests of a volume that write a block and flush, again and again.
fn busy(world: &World, volume: &Rig, pause: Nanos, stop: &Rc<Cell<bool>>) -> Told {
    let (rt, volume, stop, told) = (world.clone(), volume.clone(), stop.clone(), Told::default());
    let acknowledged = told.clone();
    world.spawn(async move {
        let arena = Arena::new(MIB);
        for number in 0u64.. {
            if stop.get() {
                break;
            }
            let value = filled(&arena, BLOCK, 1 + (number % 250) as u8);
            let at = BLOCK * (number * 37 % 1024);
            if volume.write(at, &value, Durability::Volatile).await.is_ok() && volume.flush().await.is_ok() {
                acknowledged.borrow_mut().push((rt.now(), number));
            }
            rt.sleep(pause).await;
        }
    });
    told
}

/// Two daemons wrote one volume. Flushes of both succeeded, and one daemon lost all: no daemon learned of
/// the other. From one second after the second opening, the first daemon must promise nothing, and must not
/// touch the writes of the second.
pub fn no_flush_succeeds_once_another_opening_has_been_noticed() {
    for seed in 0..12 {
        let bench = bench(100 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let made = CreateOptions { copies: 1 + (seed % 2) as u8, ..options(70) };
            let first = make(world.clone(), handles(&world, &disks), &made).await;
            let stop = Rc::new(Cell::new(false));
            // Steady flushes, and pauses longer than the fence's check stays valid.
            let pause = [Nanos::from_millis(20), Nanos::from_millis(700), SECOND * 3][seed as usize % 3];
            let told = busy(&world, &first, pause, &stop);
            world.sleep(SECOND * 5).await;
            let second = loop {
                // Reads of a journal that is being written may be inconsistent: try again.
                if let Ok(volume) = open(world.clone(), handles(&world, &disks)).await {
                    break volume;
                }
            };
            let opened = world.now();
            world.sleep(SECOND * 2).await;
            second.write(Bytes::ZERO, &filled(&arena, MIB, 9), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 8).await;
            let (last, _) = told.borrow().last().copied().expect("flushes succeeded before");
            assert!(last < opened + SECOND + SECOND, "seed {seed}: a flush at {last}, opened at {opened}");
            let error = first.flush().await.expect_err("another daemon has the volume");
            assert!(error.kind() == ErrorKind::Io && error.to_string().contains("another daemon"), "{error}");
            assert!(first.write(MIB, &filled(&arena, BLOCK, 3), Durability::Volatile).await.is_err());
            assert!(first.close().await.is_err());
            stop.set(true);
            // The second daemon continues, and its writes are intact.
            second.flush().await.unwrap();
            assert!(holds(&second, &arena, Bytes::ZERO, MIB, 9).await.unwrap());
            world.sleep(SECOND * 40).await;
            second.audit().await.unwrap();
            second.close().await.unwrap();
            let again = open(world.clone(), handles(&world, &disks)).await.unwrap();
            assert!(holds(&again, &arena, Bytes::ZERO, MIB, 9).await.unwrap());
            again.audit().await.unwrap();
        });
    }
}

/// An idle volume checked nothing while another opening took the devices. Hours later the first writes of
/// its guest were acknowledged, and overwrote flushed data of the other opening.
pub fn no_write_after_a_pause_reaches_devices_that_another_opening_has() {
    for seed in 0..12 {
        let bench = bench(500 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let made = CreateOptions { copies: 1 + (seed % 2) as u8, ..options(76) };
            let first = make(world.clone(), handles(&world, &disks), &made).await;
            first.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            world.sleep(SECOND * 75).await;
            let second = open(world.clone(), handles(&world, &disks)).await.unwrap();
            second.write(Bytes::ZERO, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_millis(1_100) + SECOND * (seed % 4)).await;
            let over = first.write(BLOCK, &filled(&arena, BLOCK * 3, 3), Durability::Volatile).await;
            let error = over.expect_err("another daemon has the volume");
            assert!(error.to_string().contains("another daemon"), "{error}");
            assert!(holds(&second, &arena, Bytes::ZERO, MIB, 2).await.unwrap(), "seed {seed}");
            second.close().await.unwrap();
        });
    }
}

#[test]
fn paused_guest_cannot_write_after_takeover() {
    no_write_after_a_pause_reaches_devices_that_another_opening_has();
}

/// Discards are slow, and a volume had many pending when another opening took the devices. The remaining
/// discards, in slots reused by the other opening, erased the flushed data of the other opening.
#[test]
fn pending_discards_do_not_erase_writes_of_newer_opening() {
    for seed in 0..4 {
        let bench = bench(600 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let made = CreateOptions { policy: "stripe".to_owned(), ..options(77) };
            disks[0].faults().set(FaultPlan { discard_time: SECOND * 8, ..FaultPlan::default() });
            let first = make(world.clone(), handles(&world, &disks), &made).await;
            for at in 0..4 {
                first.write(MIB * at, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            }
            first.discard(Bytes::ZERO, MIB * 4).await.unwrap();
            first.flush().await.unwrap();
            // Slots on devices without the journal are not reused before this.
            first.checkpoint().await.unwrap();
            world.sleep(SECOND * 4).await;
            // The first discard is in flight, on the first device, and is carried out in any case.
            let second = open(world.clone(), handles(&world, &disks)).await.unwrap();
            second.replace_policy(braid_policy::parse("hdd-only", &views(&second)).unwrap());
            for at in 0..2 {
                second.write(MIB * at, &filled(&arena, MIB, 2), Durability::Fua).await.unwrap();
            }
            world.sleep(SECOND * 60).await;
            for at in 0..2 {
                assert!(holds(&second, &arena, MIB * at, MIB, 2).await.unwrap(), "seed {seed}: {at}");
            }
            second.close().await.unwrap();
        });
    }
}

#[test]
fn no_flush_succeeds_after_takeover_is_noticed() {
    no_flush_succeeds_once_another_opening_has_been_noticed();
}

/// An opening without proof that the previous opening has ended waits until the other daemon has noticed the
/// new opening: no promised data is lost.
#[test]
pub fn an_opening_that_waits_for_the_other_one_loses_nothing_that_was_promised() {
    let mut refusals = 0;
    for seed in 0..12 {
        let bench = bench(200 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        refusals += bench.run(async move {
            let first = make(world.clone(), handles(&world, &disks), &options(71)).await;
            let stop = Rc::new(Cell::new(false));
            let pause = [Nanos::from_millis(20), Nanos::from_millis(400)][seed as usize % 2];
            let told = busy(&world, &first, pause, &stop);
            world.sleep(SECOND * 5 + Nanos::from_millis(seed * 77)).await;
            let strange = Some(Noted { epoch: 1, owner: 5, batch: 0 });
            let how = |o: &mut OpenOptions| (o.noted, o.owner) = (strange, 8);
            let opened = open_with(world.clone(), handles(&world, &disks), how).await;
            let refused = opened.is_err();
            let second = match opened {
                Ok((volume, _)) => volume,
                Err(error) => {
                    assert!(error.kind() == ErrorKind::Busy, "{error}");
                    open_with(world.clone(), handles(&world, &disks), how).await.unwrap().0
                }
            };
            stop.set(true);
            world.sleep(SECOND).await;
            let mut newest = [0u8; 1024];
            for &(_, number) in told.borrow().iter() {
                newest[(number * 37 % 1024) as usize] = 1 + (number % 250) as u8;
            }
            assert!(told.borrow().len() > 10);
            for (block, value) in newest.into_iter().enumerate().filter(|(_, value)| *value > 0) {
                let at = BLOCK * block as u64;
                assert!(
                    holds(&second, &arena, at, BLOCK, value).await.unwrap(),
                    "seed {seed}: block {block}"
                );
            }
            second.close().await.unwrap();
            usize::from(refused)
        });
    }
    assert!(refusals > 0, "the first volume wrote batches while the second one was opened");
}

/// Number of blocks in each half of a volume.
pub const HALF: u64 = 512;

/// Another daemon opens the volume while disks answer late now and then. All promised data of both daemons
/// is there after a crash.
pub fn two_openings_on_slow_disks(seed: u64) {
    let bench = bench(300 + seed);
    let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
    bench.run(async move {
        let mut rng = Rng::new(seed);
        let made = CreateOptions { copies: 1 + (seed % 2) as u8, ..options(75) };
        let first = make(world.clone(), handles(&world, &disks), &made).await;
        let stop = Rc::new(Cell::new(false));
        let told = busy_in(&world, &first, (0, Nanos::from_millis(20)), &stop);
        world.sleep(SECOND + Nanos::from_millis(rng.below(2000))).await;
        let slow = FaultPlan {
            stalls: 0.05,
            stall: Nanos::from_millis(10)..Nanos::from_millis(900),
            ..FaultPlan::default()
        };
        disks.iter().for_each(|disk| disk.faults().set(slow.clone()));
        world.sleep(Nanos::from_millis(rng.below(1000))).await;
        let how =
            |o: &mut OpenOptions| (o.noted, o.owner) = (Some(Noted { epoch: 1, owner: 5, batch: 0 }), 8);
        let second = loop {
            match open_with(world.clone(), handles(&world, &disks), how).await {
                Ok((volume, _)) => break volume,
                // The other daemon has written meanwhile, and is stopped now.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "seed {seed}: {error}"),
            }
        };
        let later = busy_in(&world, &second, (HALF, Nanos::from_millis(20)), &stop);
        world.sleep(Nanos::from_millis(rng.below(6000))).await;
        stop.set(true);
        let disks: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
        let expected = [(0, told.borrow().clone()), (HALF, later.borrow().clone())];
        let again = open(world.clone(), handles(&world, &disks)).await;
        let again = again.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for (start, told) in expected {
            let mut newest = [0u8; HALF as usize];
            told.iter().for_each(|&(_, number)| newest[place_of(number)] = value_of(number));
            for (block, value) in (start..).zip(newest).filter(|(_, value)| *value > 0) {
                let is_there = holds(&again, &arena, BLOCK * block, BLOCK, value).await.unwrap();
                assert!(is_there, "seed {seed}: block {block} does not hold {value}");
            }
        }
        again.audit().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    });
}

/// Promised data of one daemon was lost while another daemon opened the volume on disks that answer late.
/// The other daemon's reads of a journal in use were inconsistent: a sound volume was called damaged, and
/// the advice was a repair.
#[test]
fn two_daemons_on_slow_disks_lose_no_flushed_writes() {
    // In the last case, a checkpoint of the first daemon falls between two reads of the second daemon.
    (0..30).chain([554]).for_each(two_openings_on_slow_disks);
}

/// Two hosts take over a volume of a dead daemon, and the second host begins while the first waits. After
/// its wait, the first host continued beside the second.
#[test]
fn overlapping_takeovers_lose_no_flushed_writes() {
    let mut served = 0;
    for seed in 0..40 {
        let bench = bench(600 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        served += bench.run(async move {
            let mut rng = Rng::new(seed);
            let made = CreateOptions { copies: 1 + (seed % 2) as u8, ..options(75) };
            let first = make(world.clone(), handles(&world, &disks), &made).await;
            first.write(Bytes::ZERO, &filled(&arena, MIB, 1), Durability::Fua).await.unwrap();
            let killed: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
            let stop = Rc::new(Cell::new(false));
            let host = async |number: u64, delay: Nanos| {
                world.sleep(delay).await;
                let strange = Some(Noted { epoch: 1, owner: 5, batch: 0 });
                let how = |o: &mut OpenOptions| (o.noted, o.owner) = (strange, 8 + number);
                match open_with(world.clone(), handles(&world, &killed), how).await {
                    Ok((volume, _)) => {
                        Some(busy_in(&world, &volume, (HALF * number, Nanos::from_millis(20)), &stop))
                    }
                    Err(error) => {
                        // The other host has come first, or comes while this opening begins.
                        let expected = [ErrorKind::Busy, ErrorKind::Io];
                        assert!(expected.contains(&error.kind()), "seed {seed}: {error}");
                        None
                    }
                }
            };
            let delay = Nanos::from_millis(rng.below(2500));
            let told = join_all([host(0, Nanos(0)), host(1, delay)].into_iter()).await;
            world.sleep(SECOND * 3).await;
            stop.set(true);
            let disks: Vec<Disk> = killed.iter().map(|disk| disk.fork(&world)).collect();
            let again = open(world.clone(), handles(&world, &disks)).await.unwrap();
            for (start, told) in [0, HALF].into_iter().zip(&told) {
                for &(_, number) in
                    told.iter().flat_map(|told| told.borrow().clone()).collect::<Vec<_>>().iter()
                {
                    let at = BLOCK * (start + place_of(number) as u64);
                    let is_there = holds(&again, &arena, at, BLOCK, value_of(number)).await.unwrap();
                    assert!(is_there, "seed {seed}, {delay:?}: {number} of the host at {start}");
                }
            }
            told.iter().flatten().count()
        });
    }
    assert!(served >= 20, "{served}");
}

/// Neither the host of the last opening waits, nor an opening after a clean shutdown.
#[test]
fn opening_on_new_host_waits_unless_shutdown_was_clean() {
    for (strange, closes, waits) in [(true, false, true), (false, false, false), (true, true, false)] {
        let bench = bench(3);
        let (world, disks) = (bench.world.clone(), bench.disks.clone());
        bench.run(async move {
            let first = make(world.clone(), handles(&world, &disks), &options(72)).await;
            let noted = if strange { Noted::default() } else { first.noted() };
            if closes {
                first.close().await.unwrap();
            }
            let killed: Vec<Disk> = disks.iter().map(|disk| disk.fork(&world)).collect();
            let start = world.now();
            let how = |o: &mut OpenOptions| (o.noted, o.owner) = (Some(noted), 8);
            let (volume, _) = open_with(world.clone(), handles(&world, &killed), how).await.unwrap();
            assert_eq!(world.now() - start >= SECOND * 2, waits);
            assert_eq!(volume.noted().owner, 8);
        });
    }
}

/// Two hosts begin at the same moment: both openings have the same number, and their random numbers differ.
#[test]
fn at_most_one_of_two_simultaneous_openings_can_flush() {
    for seed in 0..10 {
        let bench = bench(300 + seed);
        let (world, arena, disks) = (bench.world.clone(), bench.arena.clone(), bench.disks.clone());
        bench.run(async move {
            let first = make(world.clone(), handles(&world, &disks), &options(73)).await;
            first.close().await.unwrap();
            let begin = |owner: u64| {
                let devices = handles(&world, &disks);
                let how = move |o: &mut OpenOptions| (o.noted, o.owner) = (Some(Noted::default()), owner);
                open_with(world.clone(), devices, how)
            };
            let delay = world.sleep(Nanos::from_millis(seed * 3));
            let late = async {
                delay.await;
                begin(2).await
            };
            let both = join_all([boxed(begin(1)), boxed(late)].into_iter()).await;
            world.sleep(SECOND * 2).await;
            let mut flushed = 0;
            for volume in both.iter().flatten() {
                let wrote = volume.write(Bytes::ZERO, &filled(&arena, KIB * 64, 7), Durability::Fua).await;
                flushed += usize::from(wrote.is_ok());
            }
            world.sleep(SECOND * 2).await;
            assert!(flushed <= 1, "seed {seed}");
        });
    }
}

type Opening<'a> = Pin<Box<dyn Future<Output = Option<Rig>> + 'a>>;

fn boxed<'a>(opening: impl Future<Output = Result<(Rig, Recovery)>> + 'a) -> Opening<'a> {
    Box::pin(async move { opening.await.ok().map(|(volume, _)| volume) })
}

/// A bad place under the first superblock copies, or a device that hangs for a moment, does not count as
/// another daemon.
#[test]
fn unreadable_superblocks_do_not_stop_volume() {
    let bench = bench(4);
    let (world, arena, all, faults) =
        (bench.world.clone(), bench.arena.clone(), bench.devices(), bench.faults.clone());
    bench.run(async move {
        let volume = make(world.clone(), all, &options(74)).await;
        faults[0].set(FaultPlan { bad_reads: Some(Bytes::ZERO..KIB * 32), ..FaultPlan::default() });
        for second in 0..20 {
            volume.write(Bytes::ZERO, &filled(&arena, MIB, second), Durability::Fua).await.unwrap();
            world.sleep(Nanos::from_millis(600 + u64::from(second) * 50)).await;
        }
        faults[0].set(FaultPlan::default());
        volume.close().await.unwrap();
    });
}
