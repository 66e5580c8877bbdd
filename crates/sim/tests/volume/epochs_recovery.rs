//! A volume that has lost its SSD goes on with the disk at once, with guests at work: whenever the power fails, and however often, each sector is as it was
//! flushed last, or as it was written later, or as the disk alone was if nobody has written it since.

use crate::epochs::{
    BLOCK, EXTENT, Guests, History, SIZE, SSD, check, content, disks, epochs, recovered, sound,
    wait_for_image,
};
use crate::rig::{Rig, filled, holds, make, open, open_with, refused};
use braid_base::{Bytes, MIB, Nanos, Rng};
use braid_engine::{Addition, Durability, ErrorKind, Export, OpenOptions, Past, Replacement, replace};
use braid_format::Uuid;
use braid_format::superblock::{DeviceState, Features, Layout};
use braid_runtime::{Arena, Device, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

const SECTOR: Bytes = Bytes(512);

/// What a sector may be after a power cut.
#[derive(Clone)]
struct Sector {
    /// What it was flushed as, and all that was written since, the newest last.
    allowed: Vec<u8>,
    /// A power cut has left parts of several writes, and nobody has written it since.
    is_torn: bool,
}

/// All sectors of a volume.
#[derive(Clone)]
struct Sectors(Vec<Sector>);

impl Sectors {
    fn of(content: &[u8]) -> Sectors {
        let sector = |bytes: &[u8]| {
            let mut allowed = bytes.to_vec();
            allowed.sort_unstable();
            allowed.dedup();
            Sector { is_torn: allowed.len() > 1, allowed }
        };
        Sectors(content.chunks(SECTOR.as_usize()).map(sector).collect())
    }

    fn within(&mut self, range: &Range<Bytes>) -> &mut [Sector] {
        &mut self.0[(range.start / SECTOR) as usize..(range.end / SECTOR) as usize]
    }

    fn write(&mut self, range: &Range<Bytes>, value: u8) {
        for Sector { allowed, is_torn } in self.within(range) {
            allowed.push(value);
            *is_torn = false;
        }
    }

    /// What was written to a range is durable.
    fn flush(&mut self, range: &Range<Bytes>) {
        for Sector { allowed, .. } in self.within(range).iter_mut().filter(|sector| !sector.is_torn) {
            drop(allowed.drain(..allowed.len() - 1));
        }
    }

    /// Where bytes are not what they may be.
    fn wrong(&self, content: &[u8]) -> Option<usize> {
        let sectors = content.chunks(SECTOR.as_usize()).zip(&self.0);
        let is_wrong =
            |(bytes, sector): (&[u8], &Sector)| bytes.iter().any(|byte| !sector.allowed.contains(byte));
        sectors.map(is_wrong).position(|is_wrong| is_wrong)
    }

    /// Whether bytes are what was written last.
    fn is_now(&self, range: &Range<Bytes>, content: &[u8]) -> bool {
        let sectors = &self.0[(range.start / SECTOR) as usize..(range.end / SECTOR) as usize];
        let mut sectors = content.chunks(SECTOR.as_usize()).zip(sectors);
        let is_last = |sector: &Sector, byte: &u8| sector.is_torn || sector.allowed.last() == Some(byte);
        sectors.all(|(bytes, sector)| bytes.iter().all(|byte| is_last(sector, byte)))
    }
}

/// A guest of a volume that has just been recovered, with a part of its own.
struct Guest {
    volume: Rig,
    part: Range<Bytes>,
    sectors: Rc<RefCell<Sectors>>,
    arena: Arena,
    rng: Rng,
}

impl Guest {
    fn some(&mut self, longest: u64) -> Range<Bytes> {
        let sectors = (self.part.end - self.part.start) / SECTOR;
        let start = self.rng.below(sectors);
        let len = self.rng.between(1, longest.min(sectors - start) + 1);
        self.part.start + SECTOR * start..self.part.start + SECTOR * (start + len)
    }

    async fn act(&mut self) {
        let part = self.part.clone();
        match self.rng.below(20) {
            0 | 1 => {
                self.volume.flush().await.expect("the disk is sound");
                self.sectors.borrow_mut().flush(&part);
            }
            2 => {
                let range = self.some(100);
                let range = range.start.align_down(BLOCK)..range.end.align_up(BLOCK).min(part.end);
                self.sectors.borrow_mut().write(&range, 0);
                self.volume.discard(range.start, range.end - range.start).await.expect("the disk is sound");
            }
            3..=9 => {
                let range = self.some(200);
                let buf = self.arena.alloc(range.end - range.start).await;
                self.volume.read(range.start, &buf).await.expect("the disk is sound");
                let is_now = buf.with_bytes(|bytes| self.sectors.borrow().is_now(&range, bytes));
                assert!(is_now, "{range:?} does not read as it was written last");
            }
            kind => {
                let longest = if self.rng.chance(0.2) { 160 } else { 16 };
                let range = self.some(longest);
                let value = self.rng.between(1, 250) as u8;
                let buf = filled(&self.arena, range.end - range.start, value);
                self.sectors.borrow_mut().write(&range, value);
                let durability = if kind < 12 { Durability::Fua } else { Durability::Volatile };
                self.volume.write(range.start, &buf, durability).await.expect("the disk is sound");
                if durability == Durability::Fua {
                    self.sectors.borrow_mut().flush(&range);
                }
            }
        }
    }
}

/// Guests at work, each on a part of its own, until `stop`.
fn begin_guests(
    volume: &Rig,
    world: &World,
    sectors: &Rc<RefCell<Sectors>>,
    stop: &Rc<Cell<bool>>,
    guests: u64,
) -> Rc<Cell<u64>> {
    let running = Rc::new(Cell::new(guests));
    for guest in 0..guests {
        let len = (SIZE / guests).align_down(EXTENT);
        let part = len * guest..len * (guest + 1);
        let (arena, rng) = (Arena::new(MIB), world.fork_rng());
        let mut guest = Guest { volume: volume.clone(), part, sectors: sectors.clone(), arena, rng };
        let (stop, running) = (stop.clone(), running.clone());
        world.spawn(async move {
            while !stop.get() {
                guest.act().await;
            }
            running.set(running.get() - 1);
        });
    }
    running
}

fn alone(options: &mut OpenOptions) {
    (options.distrust, options.recover) = (vec![SSD], true);
}

/// A volume that has been recovered before: asked for again, or served like any other.
async fn open_again(world: &World, disk: &Disk, asked: bool) -> Rig {
    let devices = || vec![sound(disk, world)];
    if asked && let Ok((volume, _)) = open_with(world.clone(), devices(), alone).await {
        return volume;
    }
    // All of the journal has been applied.
    open(world.clone(), devices()).await.expect("the disk has all")
}

/// What a disk with a journal of epochs in use is, and all of it as it will be once that has been applied.
async fn lose_ssd_at_work(world: &World, seed: u64, rng: &mut Rng) -> (Disk, Vec<u8>) {
    let [ssd, disk] = disks(world);
    let volume =
        make(world.clone(), vec![sound(&ssd, world), sound(&disk, world)], &epochs(seed as u8)).await;
    wait_for_image(world, &volume).await;
    let history = History::from(vec![0; SIZE.as_usize()]);
    let guests = Guests::begin(&volume, world, &history, rng.between(1, 4));
    world.sleep(Nanos::from_micros(rng.between(100_000, 900_000))).await;
    while volume.status().journaled == Bytes::ZERO {
        world.sleep(Nanos::from_millis(1)).await;
    }
    let lost = disk.fork(world);
    if rng.chance(0.5) {
        lost.power_cut(rng);
    }
    let until = history.ops.borrow().len();
    guests.end(world).await;
    volume.close().await.expect("the devices are sound");
    let lost = lost.restart(world);
    let bytes = recovered(world, &lost, None).await;
    check(&history, &bytes, until, seed);
    (lost, bytes)
}

/// The SSD is lost, and guests go on with the disk at once, through a few power cuts.
pub fn recover_at_work(seed: u64) {
    let world = World::new(seed);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let (mut disk, base) = lose_ssd_at_work(&world, seed, &mut rng).await;
        let mut sectors = Sectors::of(&base);
        let (mut volume, _) =
            open_with(world.clone(), vec![sound(&disk, &world)], alone).await.expect("it is an image");
        for life in 0..rng.between(2, 6) {
            let (now, stop) = (Rc::new(RefCell::new(sectors)), Rc::new(Cell::new(false)));
            let running = begin_guests(&volume, &world, &now, &stop, rng.between(1, 4));
            let longest = [1_000, 10_000, 100_000][rng.below(3) as usize];
            let mut next = None;
            for _ in 0..rng.between(1, 6) {
                world.sleep(Nanos::from_micros(rng.below(longest))).await;
                let left = disk.fork(&world);
                if rng.chance(0.8) {
                    left.power_cut(&mut rng);
                }
                // Guests go on while what is left is looked at.
                let at_cut = now.borrow().clone();
                let left = left.restart(&world);
                let asked = rng.chance(0.3);
                let opened = open_again(&world, &left, asked).await;
                let bytes = content(&opened).await;
                let wrong = at_cut.wrong(&bytes);
                assert_eq!(wrong, None, "seed {seed}, life {life}: a sector is older than what was flushed");
                if let Some((_, opened, _)) = next.replace((left, opened, bytes)) {
                    let opened: Rig = opened;
                    opened.close().await.expect("the disk is sound");
                }
            }
            stop.set(true);
            while running.get() > 0 {
                world.sleep(Nanos::from_millis(1)).await;
            }
            volume.close().await.expect("the disk is sound");
            let (left, opened, bytes) = next.expect("it was cut once");
            (disk, volume, sectors) = (left, opened, Sectors::of(&bytes));
        }
        let before = content(&volume).await;
        volume.complete_recovery().await.expect("the disk is sound");
        assert_eq!(volume.status().unapplied, None);
        assert!(content(&volume).await == before, "seed {seed}: applying the journal has changed something");
        assert_eq!(volume.superblock().features.incompat & Features::UNAPPLIED, 0);
        volume.close().await.expect("the disk is sound");
    });
}

#[test]
#[cfg_attr(feature = "planted", ignore)]
fn what_guests_write_while_a_journal_is_applied_survives_power_cuts() {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let first = number("BRAID_EPOCH_FIRST", 0);
    (first..first + number("BRAID_EPOCH_SEEDS", 60)).for_each(recover_at_work);
}

/// A recovered volume, as it was opened first, with what it is.
async fn just_recovered(world: &World, disk: &Disk, faults: &Faults) -> Rig {
    let devices = vec![Faulty::new(disk.clone(), faults)];
    let (volume, recovery) = open_with(world.clone(), devices, alone).await.expect("it is an image");
    assert!(recovery.adopted.is_some());
    volume
}

#[test]
#[cfg_attr(feature = "planted", ignore)]
fn a_recovery_begins_at_once_and_ends_with_all_in_its_place() {
    let world = World::new(5);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let (disk, base) = lose_ssd_at_work(&world, 5, &mut rng).await;
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let volume = just_recovered(&world, &disk, &faults).await;
        let status = volume.status();
        assert!(status.unapplied.is_some_and(|left| left > Bytes::ZERO));
        assert_eq!((status.epoch, status.unapplied_failure), (None, None));
        let left = disk.fork(&world).restart(&world);
        let looked = Past::open(&world, vec![sound(&left, &world)], &["disk".to_owned()]).await;
        assert_eq!(refused(looked).kind(), ErrorKind::Degraded, "guests may have changed it");
        // Whatever the disk can read alone.
        let arena = Arena::new(MIB);
        for _ in 0..100 {
            let start = rng.below(SIZE.0 - 1);
            let len = rng.between(1, (SIZE.0 - start).min(9_000) + 1);
            let buf = arena.alloc(Bytes(len)).await;
            volume.read(Bytes(start), &buf).await.expect("the disk is sound");
            assert!(buf.with_bytes(|bytes| bytes == &base[start as usize..(start + len) as usize]));
        }
        volume.complete_recovery().await.expect("the disk is sound");
        assert_eq!(volume.status().unapplied, None);
        volume.close().await.expect("the disk is sound");
        let raw = arena.alloc(EXTENT).await;
        for (i, expected) in (0..).zip(base.chunks(EXTENT.as_usize())) {
            disk.read(EXTENT * i, &raw).await.expect("the disk is sound");
            assert!(raw.with_bytes(|bytes| bytes == expected), "extent {i} lies in its place");
        }
        let again = open_with(world.clone(), vec![sound(&disk, &world)], alone).await;
        assert_eq!(refused(again).kind(), ErrorKind::Degraded, "it is a volume like any other");
    });
}

/// A place of the journal that cannot be read any more costs what lies there, and nothing else: neither the volume nor other guests' writes.
#[test]
#[cfg_attr(feature = "planted", ignore)]
fn a_bad_place_in_the_journal_costs_no_other_extent() {
    let world = World::new(6);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let (disk, base) = lose_ssd_at_work(&world, 6, &mut rng).await;
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let volume = just_recovered(&world, &disk, &faults).await;
        // Its slots, which alone are read then.
        let slots = Bytes::ZERO..EXTENT * u64::from(volume.status().devices[1].slots);
        let all = FaultPlan { bad_reads: Some(slots.end..disk.geometry().size), ..FaultPlan::default() };
        faults.set(all);
        let arena = Arena::new(MIB);
        let buf = arena.alloc(EXTENT).await;
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        for (i, expected) in (0..).zip(base.chunks(EXTENT.as_usize())) {
            let at = EXTENT * i;
            match volume.read(at, &buf).await {
                Ok(()) => {
                    assert!(buf.with_bytes(|bytes| bytes == expected));
                    kept.push(at);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    lost.push(at);
                }
            }
        }
        assert!(!lost.is_empty() && !kept.is_empty());
        for at in kept {
            volume.write(at, &filled(&arena, BLOCK, 7), Durability::Fua).await.expect("it is not there");
        }
        let written = volume.write(lost[0], &filled(&arena, EXTENT, 7), Durability::Volatile).await;
        assert_eq!(refused(written).kind(), ErrorKind::Io, "older bytes would come over it");
        assert!(volume.status().unapplied_failure.is_some());
        assert!(volume.complete_recovery().await.is_err());
        // The disk can read it again.
        faults.set(FaultPlan::default());
        volume.write(lost[0], &filled(&arena, EXTENT, 8), Durability::Fua).await.expect("the disk is sound");
        while volume.status().unapplied.is_some() {
            world.sleep(Nanos::from_millis(10)).await;
        }
        for &at in &lost[1..] {
            volume.read(at, &buf).await.expect("the disk is sound");
            let expected = &base[at.as_usize()..(at + EXTENT).as_usize()];
            assert!(buf.with_bytes(|bytes| bytes == expected));
        }
        assert!(holds(&volume, &arena, lost[0], EXTENT, 8).await.expect("the disk is sound"));
        volume.close().await.expect("the disk is sound");
    });
}

/// A new SSD comes while the disk is being recovered: it is brought up to date once the recovery has ended.
#[test]
#[cfg_attr(feature = "planted", ignore)]
fn a_new_ssd_is_brought_up_to_date_after_the_recovery() {
    let world = World::new(7);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let (disk, base) = lose_ssd_at_work(&world, 7, &mut rng).await;
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let first = just_recovered(&world, &disk, &faults).await;
        let left = disk.fork(&world).restart(&world);
        first.close().await.expect("the disk is sound");
        let replaced = Disk::new(&world, DiskOptions::ssd(MIB * 12));
        let new = Replacement {
            device: SSD,
            name: "the new one".to_owned(),
            identity: Uuid([8; 16]),
            model: String::new(),
            overwrite: false,
        };
        let (rest, names) = (vec![sound(&left, &world)], ["disk".to_owned()]);
        replace(&world, rest, &names, &sound(&replaced, &world), &new).await.expect("it is large enough");
        let devices = vec![sound(&replaced, &world), sound(&left, &world)];
        let volume = open(world.clone(), devices).await.expect("both are there");
        let arena = Arena::new(MIB);
        volume
            .write(EXTENT, &filled(&arena, BLOCK, 9), Durability::Fua)
            .await
            .expect("the devices are sound");
        wait_for_image(&world, &volume).await;
        assert_eq!(volume.status().unapplied, None);
        assert!(volume.status().devices.iter().all(|device| device.state == DeviceState::Active));
        let mut expected = base;
        expected[EXTENT.as_usize()..(EXTENT + BLOCK).as_usize()].fill(9);
        assert!(content(&volume).await == expected);
        volume.close().await.expect("the devices are sound");
        assert!(recovered(&world, &left, None).await == expected, "the disk alone is the volume again");
    });
}

/// What guests flush to the new SSD was given up by a second recovery, since that believed the disk alone.
#[test]
#[cfg_attr(feature = "planted", ignore)]
fn a_second_recovery_is_refused_once_the_volume_has_gone_on_with_another_device() {
    let under_way = (0..12).filter(|&seed| go_on_with_another_device(seed)).count();
    assert!(under_way > 0, "each recovery had ended before the device was there");
}

/// Whether the recovery was under way when the volume had gone on.
fn go_on_with_another_device(seed: u64) -> bool {
    let world = World::new(seed);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let (disk, _) = lose_ssd_at_work(&world, seed, &mut rng).await;
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let volume = just_recovered(&world, &disk, &faults).await;
        let new = Disk::new(&world, DiskOptions::ssd(MIB * 12));
        let addition = Addition {
            name: "the new one".to_owned(),
            identity: Uuid([8; 16]),
            model: String::new(),
            layout: Layout::Head,
            overwrite: false,
        };
        volume.add_device(sound(&new, &world), &addition, |_| Ok(())).await.expect("it is large enough");
        let (arena, extent) = (Arena::new(MIB), EXTENT * 2);
        volume.discard(extent, EXTENT).await.expect("the devices are sound");
        volume.write(extent, &filled(&arena, BLOCK, 9), Durability::Fua).await.expect("there is room");
        if volume.status().unapplied.is_none() {
            return false;
        }
        let [left, new] = [&disk, &new].map(|disk| sound(&disk.fork(&world).restart(&world), &world));
        for devices in [vec![left.clone()], vec![left.clone(), new.clone()]] {
            let again = open_with(world.clone(), devices, alone).await;
            assert_eq!(refused(again).kind(), ErrorKind::Degraded);
        }
        let volume = open(world.clone(), vec![left, new]).await.expect("both are there");
        assert!(holds(&volume, &arena, extent, BLOCK, 9).await.expect("the devices are sound"));
        true
    })
}
