//! Epochs while devices fail at random, with guests that tolerate errors. The remaining disk always holds an
//! earlier state of the volume, and no acknowledged write is lost.

use crate::epochs::{BLOCK, BOUND, Compared, EXTENT, SIZE, SSD, epochs, wait_for_image};
use crate::epochs_failing::{DISK, Rigged, content, epochs_of_three, three, two, wait_until_applied};
use crate::rig::{Rig, make, open};
use braid_base::{Bytes, DeviceId, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export};
use braid_format::superblock::DeviceState;
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, FaultPlan, World};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Value of a byte after a failed write: anything.
const ANY: u16 = 256;

/// Guests' changes in the order of their ends, and changes in flight.
#[derive(Clone, Default)]
pub struct History {
    ops: RefCell<Vec<(Range<usize>, u16)>>,
    under_way: RefCell<Vec<Range<usize>>>,
    /// Number of changes, from the first, made durable by a flush.
    flushed: Cell<usize>,
}

impl History {
    /// A guest has filled a range with this value.
    pub fn add(&self, at: Bytes, len: Bytes, value: u16) {
        self.ops.borrow_mut().push((at.as_usize()..(at + len).as_usize(), value));
    }

    /// Returns the latest of the first `most` instants at which the volume may have had this content, and
    /// the number of blocks changed later.
    pub fn instant_of(&self, content: &[u8], most: usize) -> Option<(usize, u64)> {
        let ops = self.ops.borrow();
        let mut compared = Compared::new(&vec![0; content.len()], content);
        let mut latest = compared.is_equal().then_some(0);
        for (i, (range, value)) in ops[..most.min(ops.len())].iter().enumerate() {
            compared.change(range, u8::try_from(*value).ok());
            latest = if compared.is_equal() { Some(i + 1) } else { latest };
        }
        latest.map(|latest| (latest, compared.differing_blocks()))
    }

    /// True if each byte has its last flushed value, or the value of a later write.
    fn has_kept(&self, content: &[u8]) -> bool {
        let (ops, under_way) = (self.ops.borrow(), self.under_way.borrow());
        let mut allowed = vec![0u16; content.len()];
        for (range, value) in &ops[..self.flushed.get()] {
            allowed[range.clone()].fill(*value);
        }
        let is_later = |at: usize, byte: u8| {
            let fits = |value: u16| value == ANY || value == u16::from(byte);
            let later =
                ops[self.flushed.get()..].iter().any(|(range, value)| range.contains(&at) && fits(*value));
            later || under_way.iter().any(|range| range.contains(&at))
        };
        let is_kept = |(at, &byte): (usize, &u8)| {
            allowed[at] == ANY || allowed[at] == u16::from(byte) || is_later(at, byte)
        };
        content.iter().enumerate().all(is_kept)
    }

    /// True if the volume may hold this content, given the changes in flight.
    fn is_now(&self, content: &[u8]) -> bool {
        let all = self.ops.borrow().len();
        self.under_way.borrow().iter().for_each(|range| self.ops.borrow_mut().push((range.clone(), ANY)));
        let instant = self.instant_of(content, self.ops.borrow().len());
        let is_now = instant.is_some_and(|(instant, _)| instant == self.ops.borrow().len());
        self.ops.borrow_mut().truncate(all);
        is_now
    }
}

/// Guests that tolerate errors.
#[derive(Clone, Default)]
struct Guests {
    history: Rc<History>,
    stop: Rc<Cell<bool>>,
    pause: Rc<Cell<bool>>,
    running: Rc<Cell<u64>>,
}

impl Guests {
    fn begin(&self, volume: &Rig, world: &World, part: Range<Bytes>) {
        self.running.set(self.running.get() + 1);
        let (guests, volume, world) = (self.clone(), volume.clone(), world.clone());
        world.clone().spawn(async move {
            let (arena, mut rng) = (Arena::new(MIB), world.fork_rng());
            while !guests.stop.get() {
                world.sleep(Nanos::from_micros(rng.below(8_000))).await;
                if !guests.pause.get() {
                    guests.change(&volume, &arena, &part, &mut rng).await;
                }
            }
            guests.running.set(guests.running.get() - 1);
        });
    }

    async fn change(&self, volume: &Rig, arena: &Arena, part: &Range<Bytes>, rng: &mut Rng) {
        let History { ops, under_way, .. } = &*self.history;
        let at = part.start + BLOCK * rng.below((part.end - part.start) / BLOCK);
        // A discard of several extents is several changes, between which an epoch may end.
        let discards = rng.chance(0.15);
        let end = if discards { at.align_down(EXTENT) + EXTENT } else { part.end };
        let len = (BLOCK * rng.between(1, 9)).min(end - at);
        let value = rng.between(1, 250) as u16;
        let range = at.as_usize()..(at + len).as_usize();
        if rng.chance(0.1) {
            let before = ops.borrow().len();
            if volume.flush().await.is_ok() {
                self.history.flushed.set(before.max(self.history.flushed.get()));
            }
            return;
        }
        under_way.borrow_mut().push(range.clone());
        let (value, done) = match discards {
            true => (0, volume.discard(at, len).await),
            false => {
                let buf = arena.alloc(len).await;
                buf.with_bytes_mut(|bytes| bytes.fill(value as u8));
                (value, volume.write(at, &buf, Durability::Volatile).await)
            }
        };
        let place = under_way.borrow().iter().position(|other| *other == range).expect("it is under way");
        under_way.borrow_mut().remove(place);
        ops.borrow_mut().push((range, if done.is_ok() { value } else { ANY }));
    }

    async fn end(&self, world: &World) {
        self.stop.set(true);
        for _ in 0..200_000 {
            if self.running.get() == 0 {
                return;
            }
            world.sleep(Nanos::from_millis(1)).await;
        }
        panic!("guests wait for ever");
    }
}

/// A fault of a device, with its duration.
struct Failure {
    device: DeviceId,
    plan: FaultPlan,
    lasts: Nanos,
}

impl Failure {
    fn draw(rng: &mut Rng) -> Failure {
        let (often, none) = ([0.01, 0.1, 1.0][rng.below(3) as usize], FaultPlan::default());
        let bad = BLOCK * rng.below(MIB * 6 / BLOCK);
        let bad = Some(bad..bad + BLOCK * rng.between(1, 20));
        let on_disk = |plan| (DISK, plan);
        let (device, plan) = match rng.below(10) {
            0 => on_disk(FaultPlan { writes: often, ..none }),
            1 => on_disk(FaultPlan { reads: often, ..none }),
            2 => on_disk(FaultPlan { flushes: often, ..none }),
            3 => on_disk(FaultPlan { vanished: true, ..none }),
            4 => on_disk(FaultPlan { bad_reads: bad, bad_until_written: true, ..none }),
            5 => (SSD, FaultPlan { reads: often, ..none }),
            6 => (SSD, FaultPlan { bad_reads: bad, bad_until_written: true, ..none }),
            7 => (SSD, FaultPlan { writes: often, ..none }),
            8 => (SSD, FaultPlan { flushes: often, ..none }),
            _ => (SSD, FaultPlan { vanished: true, ..none }),
        };
        let lasts = Nanos::from_millis([50, 1_000, 5_000][rng.below(3) as usize]);
        Failure { device, plan, lasts }
    }
}

/// Inspects the remaining devices if the SSD is lost now.
async fn look_at_disk(rigged: &Rigged, volume: &Rig, history: &History, seed: u64, cut: Option<&mut Rng>) {
    let (status, until) = (volume.status(), history.ops.borrow().len());
    // Copies of all devices at the same instant: the volume continues during the inspection.
    let left = rigged.left_of(DISK, cut);
    let others = (2..rigged.disks.len()).map(|device| rigged.left_of(DeviceId(device as u16), None));
    let others: Vec<Disk> = others.collect();
    let kept = history.clone();
    let is_there =
        |device: usize| matches!(status.devices[device].state, DeviceState::Active | DeviceState::Slow);
    let goes_on_without_ssd = !is_there(0);
    let looked = rigged.looked_at(&left).await;
    let recovered = rigged.recovered(&left.fork(&rigged.world).restart(&rigged.world)).await;
    assert_eq!(
        looked.as_ref().ok(),
        recovered.as_ref().ok(),
        "seed {seed}: readers see what a recovery gives"
    );
    match recovered {
        Ok(bytes) if !goes_on_without_ssd => {
            let instant = history.instant_of(&bytes, until);
            let (_, lost) = instant.unwrap_or_else(|| panic!("seed {seed}: the volume never was this"));
            let is_guarded = status.epoch_failure.is_none() && status.failure.is_none() && is_there(1);
            assert!(
                BLOCK * lost <= BOUND || !is_guarded,
                "seed {seed}: {lost} blocks are lost, and nobody said so"
            );
        }
        Ok(_) => {}
        Err(error) => {
            // The map of a disk during a resync may be half written.
            let returns = status.devices[1].state == DeviceState::Returning;
            let kind = error.kind();
            assert!(
                kind == ErrorKind::Degraded || returns && kind == ErrorKind::Corrupt,
                "seed {seed}: {error}"
            );
            assert!(goes_on_without_ssd || !is_there(1) || status.epoch.is_none(), "seed {seed}: {error}");
        }
    }
    if goes_on_without_ssd && is_there(1) && status.failure.is_none() {
        let without_ssd = [left].into_iter().chain(others).map(|disk| rigged.sound(&disk)).collect();
        let alone = open(rigged.world.clone(), without_ssd).await;
        let alone =
            alone.unwrap_or_else(|error| panic!("seed {seed}: it goes on with the disk alone: {error}"));
        let bytes = content(&alone).await.expect("the disk is sound");
        assert!(kept.has_kept(&bytes), "seed {seed}: what was flushed is lost");
        alone.close().await.expect("the disk is sound");
    }
}

/// Guests at work while a device fails, several times, and the SSD is lost at some instants.
pub fn fail_devices(seed: u64) {
    let world = World::new(seed);
    let has_other = seed % 3 == 2;
    let rigged = if has_other { three(&world) } else { two(&world) };
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let failure = if rng.chance(0.2) { "stop" } else { "continue" };
        let CreateOptions { policy, .. } = epochs(1);
        let policy = format!("{policy},on-disk-failure={failure}");
        let options = if has_other { epochs_of_three(1) } else { epochs(1) };
        let options = CreateOptions { policy, ..options };
        let volume = make(world.clone(), rigged.devices(), &options).await;
        wait_for_image(&world, &volume).await;
        let guests = Guests::default();
        for part in [Bytes::ZERO..MIB, MIB..SIZE] {
            guests.begin(&volume, &world, part);
        }
        for _ in 0..rng.between(1, 4) {
            world.sleep(Nanos::from_millis(rng.below(400))).await;
            let Failure { device, plan, lasts } = Failure::draw(&mut rng);
            println!("seed {seed}: {device} from {}: {plan:?} for {lasts}", world.now());
            if rng.chance(0.4) {
                guests.pause.set(true);
                world.sleep(Nanos::from_millis(rng.below(1_500))).await;
            }
            rigged.faults[device.index()].set(plan);
            guests.pause.set(false);
            let ends = world.now() + lasts;
            while world.now() < ends {
                world.sleep(Nanos::from_micros(rng.between(500, lasts.0 / 2_000))).await;
                let mut cut = rng.fork();
                let cut = rng.chance(0.3).then_some(&mut cut);
                look_at_disk(&rigged, &volume, &guests.history, seed, cut).await;
            }
            rigged.faults[device.index()].set(FaultPlan::default());
            if rng.chance(0.5) {
                // An unused device returns, or is refused.
                let back = rigged.devices().swap_remove(device.index());
                let _may_fail = volume.return_device(back, "the device").await;
                for _ in 0..rng.below(40) {
                    world.sleep(Nanos::from_micros(rng.between(500, 50_000))).await;
                    let mut cut = rng.fork();
                    let cut = rng.chance(0.3).then_some(&mut cut);
                    look_at_disk(&rigged, &volume, &guests.history, seed, cut).await;
                }
            }
        }
        guests.end(&world).await;
        let is_sound = volume.status().failure.is_none();
        if is_sound {
            let bytes = content(&volume).await.expect("the devices are sound again");
            assert!(guests.history.is_now(&bytes), "seed {seed}: what was acknowledged is lost");
            volume.close().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        let left: Vec<Disk> =
            (0..rigged.disks.len()).map(|device| rigged.left_of(DeviceId(device as u16), None)).collect();
        let again = open(world.clone(), left.iter().map(|disk| rigged.sound(disk)).collect()).await;
        let again = again.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let bytes = content(&again).await.expect("the devices are sound again");
        assert!(guests.history.has_kept(&bytes), "seed {seed}: what was flushed is lost");
        assert!(guests.history.is_now(&bytes) || !is_sound, "seed {seed}: what was acknowledged is lost");
        wait_until_applied(&world, &again).await;
        again.audit().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        again.close().await.expect("the devices are sound");
    });
}

#[test]
fn image_and_acknowledged_data_survive_random_failures() {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let first = number("BRAID_EPOCH_FIRST", 0);
    (first..first + number("BRAID_EPOCH_SEEDS", 2)).for_each(fail_devices);
}
