//! A volume that has lost its SSD continues on the disk at once, with guests at work. After any number of
//! power cuts, each sector holds its last flushed value, a later written value, or, if unwritten since the
//! loss, the value of the disk alone. If places of the journal are unreadable, a sector named in such a
//! segment may be an error instead, until its whole extent has been written. No other content is legal.

use crate::epochs::{
    BLOCK, EXTENT, Guests, History, SIZE, SSD, check, disks, epochs, recovered, sound, wait_for_image,
};
use crate::recovery_damage::{Bad, Damage, go_bad, journal_of};
use crate::rig::{Rig, filled, make, open, open_with};
use braid_base::{Bytes, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, ErrorKind, Export, OpenOptions, Result};
use braid_format::epoch_journal::State;
use braid_format::superblock::{DeviceState, Features, Layout, Superblock};
use braid_runtime::{Arena, Runtime};
use braid_sim::{Disk, DiskOptions, FaultPlan, Faults, Faulty, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

pub const SECTOR: Bytes = Bytes(512);

/// Legal contents of a sector after a power cut.
#[derive(Clone)]
struct Sector {
    /// The flushed value and all later written values, the newest last.
    allowed: Vec<u8>,
    /// True if a power cut has left parts of several writes, and no write followed.
    is_torn: bool,
}

/// All sectors of a volume.
#[derive(Clone)]
pub struct Sectors(Vec<Sector>);

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

    /// A change of a range has failed: any part of the range may have changed.
    pub fn doubt(&mut self, range: &Range<Bytes>) {
        self.within(range).iter_mut().for_each(|sector| sector.is_torn = true);
    }

    /// Makes the writes to a range durable.
    fn flush(&mut self, range: &Range<Bytes>) {
        for Sector { allowed, .. } in self.within(range).iter_mut().filter(|sector| !sector.is_torn) {
            drop(allowed.drain(..allowed.len() - 1));
        }
    }

    /// Returns a block with illegal content; unreadable blocks are legal if `may_fail` allows.
    fn wrong(&self, content: &[Option<Vec<u8>>], may_fail: impl Fn(Bytes) -> bool) -> Option<Bytes> {
        let blocks = (0..).map(|i| BLOCK * i).zip(content).zip(self.0.chunks((BLOCK / SECTOR) as usize));
        let is_wrong = |((at, block), sectors): &((Bytes, &Option<Vec<u8>>), &[Sector])| match block {
            None => !may_fail(*at),
            Some(block) => block
                .chunks(SECTOR.as_usize())
                .zip(*sectors)
                .any(|(bytes, sector)| bytes.iter().any(|byte| !sector.allowed.contains(byte))),
        };
        blocks.into_iter().find(is_wrong).map(|((at, _), _)| at)
    }

    /// Returns the sectors after an opening that found this content; unreadable sectors keep their state.
    fn after(mut self, content: &[Option<Vec<u8>>]) -> Sectors {
        for (i, block) in content.iter().enumerate() {
            let start = BLOCK * i as u64;
            match block {
                Some(block) => self.within(&(start..start + BLOCK)).clone_from_slice(&Sectors::of(block).0),
                None => self.doubt(&(start..start + BLOCK)),
            }
        }
        self
    }

    /// True if the bytes are the latest written values.
    fn is_now(&self, range: &Range<Bytes>, content: &[u8]) -> bool {
        let sectors = &self.0[(range.start / SECTOR) as usize..(range.end / SECTOR) as usize];
        let mut sectors = content.chunks(SECTOR.as_usize()).zip(sectors);
        let is_last = |sector: &Sector, byte: &u8| sector.is_torn || sector.allowed.last() == Some(byte);
        sectors.all(|(bytes, sector)| bytes.iter().all(|byte| is_last(sector, byte)))
    }
}

/// A guest of a recovered volume, with a part of its own.
struct Guest {
    volume: Rig,
    part: Range<Bytes>,
    sectors: Rc<RefCell<Sectors>>,
    damage: Rc<RefCell<Damage>>,
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
                let discarded = self.volume.discard(range.start, range.end - range.start).await;
                self.note(&range, discarded);
            }
            3..=9 => {
                let range = self.some(200);
                let buf = self.arena.alloc(range.end - range.start).await;
                match self.volume.read(range.start, &buf).await {
                    Ok(()) => {
                        let is_now = buf.with_bytes(|bytes| self.sectors.borrow().is_now(&range, bytes));
                        assert!(is_now, "{range:?} does not read as it was written last");
                    }
                    Err(error) => assert!(self.damage.borrow().is_in(&range), "{range:?} is sound: {error}"),
                }
            }
            kind => {
                let longest = if self.rng.chance(0.2) { 160 } else { 16 };
                let mut range = self.some(longest);
                if self.rng.chance(0.1) {
                    let start = range.start.align_down(EXTENT);
                    range = start..(start + EXTENT).min(part.end);
                }
                let value = self.rng.between(1, 250) as u8;
                let buf = filled(&self.arena, range.end - range.start, value);
                self.sectors.borrow_mut().write(&range, value);
                let durability = if kind < 12 { Durability::Fua } else { Durability::Volatile };
                let written = self.volume.write(range.start, &buf, durability).await;
                let is_durable = written.is_ok() && durability == Durability::Fua;
                self.note(&range, written);
                if is_durable {
                    self.sectors.borrow_mut().flush(&range);
                }
            }
        }
    }

    fn note(&self, range: &Range<Bytes>, changed: Result<()>) {
        self.damage.borrow_mut().note(&mut self.sectors.borrow_mut(), range, changed);
    }
}

/// Guests at work, each on a part of its own, until `stop`.
fn begin_guests(
    volume: &Rig,
    world: &World,
    (sectors, damage): (&Rc<RefCell<Sectors>>, &Rc<RefCell<Damage>>),
    stop: &Rc<Cell<bool>>,
    guests: u64,
) -> Rc<Cell<u64>> {
    let running = Rc::new(Cell::new(guests));
    for guest in 0..guests {
        let len = (SIZE / guests).align_down(EXTENT);
        let part = len * guest..len * (guest + 1);
        let (arena, rng) = (Arena::new(MIB), world.fork_rng());
        let (sectors, damage) = (sectors.clone(), damage.clone());
        let mut guest = Guest { volume: volume.clone(), part, sectors, damage, arena, rng };
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

pub fn alone(options: &mut OpenOptions) {
    (options.distrust, options.recover) = (vec![SSD], true);
}

/// Opens a volume that was recovered before: with another request for recovery, or as an ordinary volume.
async fn open_again(world: &World, left: &Left, faults: &Faults, asked: bool) -> Rig {
    let devices = || left.devices(world, faults);
    if asked && let Ok((volume, _)) = open_with(world.clone(), devices(), alone).await {
        return volume;
    }
    // The whole journal has been applied.
    open(world.clone(), devices()).await.expect("the disk has all")
}

/// Reads all blocks of a volume; `None` for unreadable blocks.
pub async fn readable(volume: &Rig) -> Vec<Option<Vec<u8>>> {
    let (arena, mut blocks) = (Arena::new(MIB), Vec::new());
    for i in 0..SIZE / BLOCK {
        let buf = arena.alloc(BLOCK).await;
        let read = volume.read(BLOCK * i, &buf).await;
        blocks.push(read.ok().map(|()| buf.with_bytes(<[u8]>::to_vec)));
    }
    blocks
}

/// The remainder of a volume without its SSD.
#[derive(Clone)]
struct Left {
    disk: Disk,
    /// Another disk, without extents.
    other: Option<Disk>,
}

impl Left {
    /// A copy at this instant; the originals continue.
    fn fork(&self, world: &World) -> Left {
        Left { disk: self.disk.fork(world), other: self.other.as_ref().map(|other| other.fork(world)) }
    }

    fn power_cut(&self, rng: &mut Rng) {
        self.disk.power_cut(rng);
        self.other.iter().for_each(|other| other.power_cut(rng));
    }

    fn restart(&self, world: &World) -> Left {
        Left { disk: self.disk.restart(world), other: self.other.as_ref().map(|other| other.restart(world)) }
    }

    fn devices(&self, world: &World, faults: &Faults) -> Vec<Faulty<Disk>> {
        let others = self.other.iter().map(|other| sound(other, world));
        [Faulty::new(self.disk.clone(), faults)].into_iter().chain(others).collect()
    }
}

/// A disk after the loss of its SSD.
pub struct Lost {
    pub disk: Disk,
    /// Content of the volume once the disk's journal has been applied.
    pub base: Vec<u8>,
    pub superblock: Superblock,
}

/// Loses the SSD of two devices while the journal of epochs is in use.
pub async fn lose_ssd_at_work(world: &World, seed: u64, rng: &mut Rng) -> Lost {
    lose_ssd_of(world, None, seed, rng).await.0
}

/// Loses the SSD of a volume, with or without another disk.
async fn lose_ssd_of(world: &World, other: Option<Disk>, seed: u64, rng: &mut Rng) -> (Lost, Left) {
    let [ssd, disk] = disks(world);
    let left = Left { disk, other };
    let mut devices = vec![sound(&ssd, world)];
    devices.extend(left.devices(world, &Faults::new(FaultPlan::default(), world.fork_rng())));
    let layouts = [Layout::Head, Layout::Tail, Layout::Head][..devices.len()].to_vec();
    let options = CreateOptions { layouts, ..epochs(seed as u8) };
    let volume = make(world.clone(), devices, &options).await;
    wait_for_image(world, &volume).await;
    let history = History::from(vec![0; SIZE.as_usize()]);
    let guests = Guests::begin(&volume, world, &history, rng.between(1, 4));
    world.sleep(Nanos::from_micros(rng.between(100_000, 900_000))).await;
    let (lost, until) = loop {
        world.sleep(Nanos::from_millis(1)).await;
        let (lost, until) = (left.fork(world), history.ops.borrow().len());
        if rng.chance(0.5) {
            lost.power_cut(rng);
        }
        let lost = lost.restart(world);
        let (state, segments) = journal_of(&lost.disk, &volume.superblock()).await;
        if state.state == State::Image && !segments.is_empty() {
            break (lost, until);
        }
    };
    guests.end(world).await;
    volume.close().await.expect("the devices are sound");
    let bytes = recovered(world, &lost.disk, None).await;
    check(&history, &bytes, until, seed);
    (Lost { disk: lost.disk.clone(), base: bytes, superblock: volume.superblock() }, lost)
}

/// The SSD is lost, and guests continue on the disk at once, with or without another disk, through a few
/// power cuts.
pub fn recover_at_work(seed: u64) {
    recover(seed, 0.0);
}

/// As [`recover_at_work`], with a bad place in the journal of some openings.
pub fn recover_with_bad_places(seed: u64) {
    recover(seed, 0.7);
}

fn recover(seed: u64, often: f64) {
    let world = World::new(seed);
    world.clone().block_on(async move {
        let mut rng = world.fork_rng();
        let other = (seed % 3 == 2).then(|| Disk::new(&world, DiskOptions::hdd(MIB * 40)));
        let (Lost { base, superblock, .. }, mut here) = lose_ssd_of(&world, other, seed, &mut rng).await;
        let mut sectors = Sectors::of(&base);
        let mut bad = Bad::draw(&world, (&here.disk, &superblock), BTreeSet::new(), (often, &mut rng)).await;
        let devices = here.devices(&world, &bad.faults);
        let (mut volume, _) = open_with(world.clone(), devices, alone).await.expect("it is an image");
        for life in 0..rng.between(2, 6) {
            let (now, stop) = (Rc::new(RefCell::new(sectors)), Rc::new(Cell::new(false)));
            let (damage, faults) = (Rc::new(RefCell::new(bad.damage.clone())), bad.faults.clone());
            let running = begin_guests(&volume, &world, (&now, &damage), &stop, rng.between(1, 4));
            let longest = [1_000, 10_000, 100_000][rng.below(3) as usize];
            let mut next = None;
            for _ in 0..rng.between(1, 6) {
                world.sleep(Nanos::from_micros(rng.below(longest))).await;
                let left = here.fork(&world);
                if rng.chance(0.8) {
                    left.power_cut(&mut rng);
                }
                // Guests continue while the remainder is inspected.
                let (at_cut, changed) = (now.borrow().clone(), damage.borrow().changed.clone());
                let left = left.restart(&world);
                let asked = rng.chance(0.3);
                let bad = Bad::draw(&world, (&left.disk, &superblock), changed, (often, &mut rng)).await;
                let opened = open_again(&world, &left, &bad.faults, asked).await;
                let blocks = readable(&opened).await;
                let wrong = at_cut.wrong(&blocks, |block| bad.damage.may_fail(block));
                assert_eq!(wrong, None, "seed {seed}, life {life}: it is older than what was flushed");
                let sectors = at_cut.after(&blocks);
                if let Some((_, opened, ..)) = next.replace((left, opened, sectors, bad)) {
                    let opened: Rig = opened;
                    opened.close().await.expect("the disk is sound");
                }
                if rng.chance(often / 4.0) {
                    // While guests work. Bad places may be good again.
                    let mut known = damage.borrow().clone();
                    go_bad(&faults, &mut known, (&here.disk, &superblock), &mut rng).await;
                    damage.borrow_mut().blocks = known.blocks;
                }
            }
            stop.set(true);
            while running.get() > 0 {
                world.sleep(Nanos::from_millis(1)).await;
            }
            volume.close().await.expect("the disk is sound");
            (here, volume, sectors, bad) = next.expect("it was cut once");
        }
        end_recovery(&volume, &bad.damage, seed).await;
        if here.other.is_some() {
            go_on_with_other(&world, &volume, &here, &mut rng).await;
        }
        volume.close().await.expect("the disk is sound");
    });
}

/// Waits for the end of a recovery, after guests have written all damaged extents.
async fn end_recovery(volume: &Rig, damage: &Damage, seed: u64) {
    let before = readable(volume).await;
    let ended = volume.complete_recovery().await;
    let lost: BTreeSet<Bytes> = damage
        .blocks
        .iter()
        .filter(|block| damage.may_fail(**block))
        .map(|block| block.align_down(EXTENT))
        .collect();
    assert!(ended.is_ok() || !lost.is_empty(), "seed {seed}: {ended:?}");
    assert!(before == readable(volume).await, "seed {seed}: applying the journal has changed something");
    if ended.is_err() {
        let arena = Arena::new(MIB);
        for (i, &extent) in lost.iter().enumerate() {
            match i % 2 {
                0 => volume.discard(extent, EXTENT).await,
                _ => volume.write(extent, &filled(&arena, EXTENT, 7), Durability::Volatile).await,
            }
            .expect("all of it is new");
        }
        volume.complete_recovery().await.expect("nothing of the journal is needed any more");
    }
    assert_eq!(volume.status().unapplied, None);
    assert_eq!(volume.superblock().features.incompat & Features::UNAPPLIED, 0);
}

/// Another disk is an ordinary disk once the recovery has ended. From then on the volume needs the other
/// disk if data lies there alone.
async fn go_on_with_other(world: &World, volume: &Rig, here: &Left, rng: &mut Rng) {
    for _ in 0..100_000 {
        if volume.status().devices[2].state != DeviceState::Active {
            world.sleep(Nanos::from_millis(10)).await;
        }
    }
    assert_eq!(volume.status().devices[2].state, DeviceState::Active);
    let arena = Arena::new(MIB);
    for value in 0..20 {
        let extent = EXTENT * rng.below(SIZE / EXTENT);
        volume.discard(extent, EXTENT).await.expect("the disks are sound");
        volume.write(extent, &filled(&arena, BLOCK, value), Durability::Fua).await.expect("there is room");
    }
    let (expected, left) = (readable(volume).await, here.fork(world).restart(world));
    let again = open(world.clone(), vec![sound(&left.disk, world)]).await;
    match again {
        Ok(volume) => assert!(readable(&volume).await == expected, "the disk has all of it"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Degraded, "{error}"),
    }
    let faults = Faults::new(FaultPlan::default(), world.fork_rng());
    let left = here.fork(world).restart(world);
    let both = open(world.clone(), left.devices(world, &faults)).await.expect("both are there");
    assert!(readable(&both).await == expected);
    both.close().await.expect("the disks are sound");
}

fn seeds(usual: u64) -> Range<u64> {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let first = number("BRAID_EPOCH_FIRST", 0);
    first..first + number("BRAID_EPOCH_SEEDS", usual)
}

#[test]
fn writes_during_journal_replay_survive_power_cuts() {
    seeds(6).for_each(recover_at_work);
}

#[test]
fn bad_places_in_journal_lose_only_named_sectors() {
    seeds(5).for_each(recover_with_bad_places);
}
