//! A disk in memory with the crash model of a real one.
//!
//! What it promises, and no more:
//! - A write is volatile until a flush that began after it completed has itself completed.
//! - At a power cut, each 512 B sector of each volatile write is kept, lost, or torn (part new, part old), on its own.
//!   An earlier write may survive a later one; of two overlapping ones either may be on top; writes that never
//!   completed are no different.
//! - A discarded range reads as anything: what it held, zeros, garbage, by sector.
//! - Operations take a random time, overlap, and overtake each other. When within that time a write takes effect,
//!   and when a read looks, is random too.
//!
//! A write that takes effect before it completes is caught by a flush that begins in between, as in a real disk's
//! cache; by seed it takes effect late and is not, so nobody can rely on it.

use crate::image::{Blank, Image};
use crate::{Power, World};
use braid_base::{Bytes, DeviceClass, Nanos, Rng, SECTOR};
use braid_runtime::{Buf, Device, Geometry, Runtime};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// What a disk is like.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Size, class and alignment. The size may be far beyond memory: only what is written takes room.
    pub geometry: Geometry,
    /// How long an operation takes. One in sixteen takes up to ten times as long.
    pub latency: Range<Nanos>,
    /// What it holds before anything was written to it.
    pub blank: Blank,
}

impl DiskOptions {
    /// An SSD of `size`, sectors of 512 B, 20 to 200 µs.
    pub fn ssd(size: Bytes) -> DiskOptions {
        let geometry = Geometry { size, class: DeviceClass::Ssd, alignment: SECTOR };
        DiskOptions {
            geometry,
            latency: Nanos::from_micros(20)..Nanos::from_micros(200),
            blank: Blank::Zeros,
        }
    }

    /// A hard disk of `size`, sectors of 512 B, 0.5 to 12 ms.
    pub fn hdd(size: Bytes) -> DiskOptions {
        let geometry = Geometry { size, class: DeviceClass::Hdd, alignment: SECTOR };
        DiskOptions {
            geometry,
            latency: Nanos::from_micros(500)..Nanos::from_millis(12),
            blank: Blank::Zeros,
        }
    }

    /// The same with another content before anything was written.
    pub fn with_blank(self, blank: Blank) -> DiskOptions {
        DiskOptions { blank, ..self }
    }
}

/// A disk in a world. Cheap to clone: a handle, so that a test keeps one while the engine owns another.
#[derive(Clone)]
pub struct Disk {
    world: World,
    power: Power,
    options: Rc<DiskOptions>,
    media: Rc<RefCell<Media>>,
    rng: Rc<RefCell<Rng>>,
    operations: Rc<Cell<u64>>,
}

/// What is on the disk and in its cache.
struct Media {
    /// What survives a power cut.
    durable: Image,
    /// What reads see where it differs: pages over `durable`.
    cached: Image,
    /// Changes that took effect and are not flushed, oldest first, numbered from `first_number`.
    unflushed: VecDeque<Change>,
    first_number: u64,
    /// Changes that began and have not taken effect.
    in_flight: Slab<Change>,
}

struct Change {
    offset: Bytes,
    content: Content,
}

enum Content {
    Written(Box<[u8]>),
    /// Still in the writer's buffer.
    Arriving(Buf),
    /// Reads as what [`Image::discard`] makes of this length and seed.
    Discarded(Bytes, u64),
}

/// When within its time an operation takes effect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Start,
    End,
}

impl Disk {
    /// A blank disk in `world`.
    pub fn new(world: &World, options: DiskOptions) -> Disk {
        let media = Media {
            durable: Image::new(options.blank),
            cached: Image::new(Blank::Zeros),
            unflushed: VecDeque::new(),
            first_number: 0,
            in_flight: Slab::new(),
        };
        Disk::with_media(world, Rc::new(options), Rc::new(RefCell::new(media)))
    }

    /// Decides what a power cut leaves of everything that is not flushed. The disk's world has ended then: go on with
    /// [`Disk::restart`].
    pub fn power_cut(&self, rng: &mut Rng) {
        self.media.borrow_mut().power_cut(rng);
    }

    /// This disk in the next world, with what [`Disk::power_cut`] left. Without a power cut before, nothing is lost and
    /// what was in flight takes effect: as if only the software had been killed.
    pub fn restart(&self, world: &World) -> Disk {
        self.media.borrow_mut().finish_in_flight();
        Disk::with_media(world, self.options.clone(), self.media.clone())
    }

    /// A copy of this disk and its cache in `world`, which goes its own way.
    pub fn fork(&self, world: &World) -> Disk {
        let copy = self.media.borrow().copy();
        Disk::with_media(world, self.options.clone(), Rc::new(RefCell::new(copy)))
    }

    /// What is durable at `offset`, for tests: no time passes, no cut point counts.
    pub fn peek_durable(&self, offset: Bytes, into: &mut [u8]) {
        self.media.borrow().durable.read(offset, into);
    }

    /// Changes what is durable and what is read at `offset`, for tests: bit rot, or content from elsewhere.
    pub fn poke(&self, offset: Bytes, bytes: &[u8]) {
        let mut media = self.media.borrow_mut();
        let Media { durable, cached, .. } = &mut *media;
        durable.write(offset, bytes);
        cached.write_over(offset, bytes, durable);
    }

    /// How many operations have completed in this world.
    pub fn operations(&self) -> u64 {
        self.operations.get()
    }

    fn with_media(world: &World, options: Rc<DiskOptions>, media: Rc<RefCell<Media>>) -> Disk {
        let rng = Rc::new(RefCell::new(world.fork_rng()));
        Disk { world: world.clone(), power: world.power(), options, media, rng, operations: Rc::default() }
    }

    /// Waits as long as an operation takes.
    async fn take_time(&self) {
        let time = {
            let (mut rng, latency) = (self.rng.borrow_mut(), &self.options.latency);
            let time = Nanos(rng.between(latency.start.0, latency.end.0.max(latency.start.0 + 1)));
            if rng.chance(1.0 / 16.0) { time * rng.between(1, 11) } else { time }
        };
        self.world.sleep(time).await;
    }

    async fn complete(&self) {
        self.power.pass_point().await;
        self.operations.set(self.operations.get() + 1);
    }

    /// Late in three of four cases: an early effect forgives mistakes.
    fn moment(&self) -> Moment {
        if self.rng.borrow_mut().chance(0.25) { Moment::Start } else { Moment::End }
    }

    fn check(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        let Geometry { size, alignment, .. } = self.options.geometry;
        if !offset.is_aligned(alignment) || !len.is_aligned(alignment) {
            let text = format!("{len} at offset {} is not aligned to {alignment}", offset.0);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let text =
                format!("{len} at offset {} is beyond the end of a disk of {} bytes", offset.0, size.0);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    /// Makes a change take effect at a random moment within the operation's time.
    async fn change(&self, change: Change) {
        self.power.pass_point().await;
        if self.moment() == Moment::Start {
            self.media.borrow_mut().apply(change);
            self.take_time().await;
            return self.complete().await;
        }
        let key = self.media.borrow_mut().in_flight.insert(change);
        self.take_time().await;
        self.complete().await;
        let mut media = self.media.borrow_mut();
        let change = media.in_flight.remove(key);
        media.apply(change);
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        self.options.geometry
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.check(offset, into.len())?;
        self.power.pass_point().await;
        let look = || into.with_bytes_mut(|bytes| self.media.borrow().read(offset, bytes));
        let moment = self.moment();
        if moment == Moment::Start {
            look();
        }
        self.take_time().await;
        self.complete().await;
        if moment == Moment::End {
            look();
        }
        Ok(())
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        self.check(offset, from.len())?;
        self.change(Change { offset, content: Content::Arriving(from.clone()) }).await;
        Ok(())
    }

    async fn flush(&self) -> io::Result<()> {
        self.power.pass_point().await;
        let end = self.media.borrow().next_number();
        self.take_time().await;
        self.complete().await;
        self.media.borrow_mut().flush_before(end);
        Ok(())
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.check(offset, len)?;
        let seed = self.rng.borrow_mut().next_u64();
        self.change(Change { offset, content: Content::Discarded(len, seed) }).await;
        Ok(())
    }
}

impl Media {
    fn read(&self, offset: Bytes, into: &mut [u8]) {
        self.durable.read_over(offset, into, Some(&self.cached));
    }

    fn next_number(&self) -> u64 {
        self.first_number + self.unflushed.len() as u64
    }

    /// Makes a change visible to reads.
    fn apply(&mut self, change: Change) {
        let change = change.arrived();
        change.apply(&mut self.cached, Some(&self.durable));
        self.unflushed.push_back(change);
    }

    /// Makes the changes with numbers below `end` durable.
    fn flush_before(&mut self, end: u64) {
        if end >= self.next_number() {
            self.first_number = self.next_number();
            self.unflushed.clear();
            self.durable.absorb(&mut self.cached);
            return;
        }
        while self.first_number < end {
            let Some(change) = self.unflushed.pop_front() else { return };
            change.apply(&mut self.durable, None);
            self.first_number += 1;
        }
    }

    fn finish_in_flight(&mut self) {
        let changes: Vec<Change> = self.in_flight.drain().collect();
        changes.into_iter().for_each(|change| self.apply(change));
    }

    fn power_cut(&mut self, rng: &mut Rng) {
        self.first_number = self.next_number();
        let mut changes: Vec<Change> = self.unflushed.drain(..).collect();
        changes.extend(self.in_flight.drain().map(Change::arrived));
        self.cached.clear();
        let fates = Fates::choose(changes.len(), rng);
        let mut order: Vec<usize> = (0..changes.len()).collect();
        if rng.chance(0.5) {
            rng.shuffle(&mut order);
        }
        for at in order {
            match fates.of(at, rng) {
                Fate::Lost => {}
                Fate::Kept => changes[at].apply(&mut self.durable, None),
                Fate::BySector => changes[at].apply_some_sectors(&mut self.durable, rng),
            }
        }
    }

    fn copy(&self) -> Media {
        let copy = |change: &Change| Change {
            offset: change.offset,
            content: match &change.content {
                Content::Written(bytes) => Content::Written(bytes.clone()),
                Content::Arriving(buf) => Content::Written(buf.to_vec().into()),
                Content::Discarded(len, seed) => Content::Discarded(*len, *seed),
            },
        };
        Media {
            durable: self.durable.clone(),
            cached: self.cached.clone(),
            unflushed: self.unflushed.iter().map(copy).collect(),
            first_number: self.first_number,
            in_flight: self.in_flight.iter().map(|(key, change)| (key, copy(change))).collect(),
        }
    }
}

impl Change {
    /// Takes the bytes out of the writer's buffer.
    fn arrived(self) -> Change {
        match self.content {
            Content::Arriving(buf) => {
                Change { offset: self.offset, content: Content::Written(buf.to_vec().into()) }
            }
            content => Change { offset: self.offset, content },
        }
    }

    /// Changes `image`, whose missing pages are those of `under`.
    fn apply(&self, image: &mut Image, under: Option<&Image>) {
        match (&self.content, under) {
            (Content::Written(bytes), Some(under)) => image.write_over(self.offset, bytes, under),
            (Content::Written(bytes), None) => image.write(self.offset, bytes),
            (Content::Discarded(len, seed), under) => image.discard(self.offset, *len, *seed, under),
            (Content::Arriving(_), _) => unreachable!("a change arrives before it is applied"),
        }
    }

    /// Keeps, loses or tears each sector on its own.
    fn apply_some_sectors(&self, image: &mut Image, rng: &mut Rng) {
        let Content::Written(bytes) = &self.content else {
            // A discard scrambles sectors by itself.
            return self.apply(image, None);
        };
        let kept = [0.1, 0.5, 0.9][rng.below(3) as usize];
        let mut at = 0;
        while at < bytes.len() {
            let offset = self.offset + Bytes::of_len(at);
            let next_sector = (offset + Bytes(1)).align_up(SECTOR);
            let len = (next_sector - offset).as_usize().min(bytes.len() - at);
            let sector = &bytes[at..at + len];
            if rng.chance(1.0 / 8.0) {
                let cut = rng.below(len as u64 + 1) as usize;
                let part = if rng.chance(0.5) { 0..cut } else { cut..len };
                image.write(offset + Bytes::of_len(part.start), &sector[part]);
            } else if rng.chance(kept) {
                image.write(offset, sector);
            }
            at += len;
        }
    }
}

/// What a power cut does to a change.
enum Fate {
    Lost,
    Kept,
    BySector,
}

/// How a power cut treats all changes together: extremes find other bugs than mixtures.
enum Fates {
    AllLost,
    AllKept,
    /// All kept but this one.
    OneLost(usize),
    /// All lost but this one.
    OneKept(usize),
    Mixed,
}

impl Fates {
    fn choose(changes: usize, rng: &mut Rng) -> Fates {
        let one = rng.below(changes.max(1) as u64) as usize;
        match rng.below(6) {
            0 => Fates::AllLost,
            1 => Fates::AllKept,
            2 => Fates::OneLost(one),
            3 => Fates::OneKept(one),
            _ => Fates::Mixed,
        }
    }

    fn of(&self, change: usize, rng: &mut Rng) -> Fate {
        let kept = match self {
            Fates::AllLost => false,
            Fates::AllKept => true,
            Fates::OneLost(one) => change != *one,
            Fates::OneKept(one) => change == *one,
            Fates::Mixed => match rng.below(4) {
                0 => true,
                1 => false,
                _ => return Fate::BySector,
            },
        };
        if kept { Fate::Kept } else { Fate::Lost }
    }
}
