//! A disk in memory with the crash model of a real disk.
//!
//! Promises, and no more:
//! - A write is volatile until a flush that began after the write's completion has completed.
//! - At a power cut, each 512 B sector of each volatile write is kept, lost, or torn (part new, part old),
//!   independently of the others. An earlier write may survive a later write. Of two overlapping writes,
//!   either may win. Writes in flight are treated alike.
//! - A discarded range reads as anything: the old content, zeros, or garbage, by sector.
//! - Operations take a random time, overlap, and overtake each other. The moment within that time at which a
//!   write takes effect, or a read looks, is random too.
//!
//! As in the cache of a real disk, a flush may cover a write in flight that has already taken effect. By
//! seed, the write takes effect late and is not covered, so no test can rely on early effects.
//!
//! Further faults follow [`Faults`]. [`Disk::store`] takes a snapshot while the disk is in use.

use crate::bad_places::Bad;
use crate::faults::{Course, FaultPlan, Faults, Operation};
use crate::image::Blank;
use crate::media::{Change, Content, Media};
use crate::{Power, World};
use braid_base::{Bytes, DeviceClass, Nanos, Rng, SECTOR};
use braid_runtime::{Buf, Device, Geometry, Runtime};
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// Properties of a disk.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Size, class and alignment, also of addresses in memory; violations are refused. The size may be far
    /// beyond memory: only written pages take room.
    pub geometry: Geometry,
    /// Duration of an operation. Of 16 operations, one takes up to ten times as long.
    pub latency: Range<Nanos>,
    /// Content before the first write.
    pub blank: Blank,
}

impl DiskOptions {
    /// An SSD of `size`, sectors of 512 B, 20 to 200 µs.
    pub fn ssd(size: Bytes) -> DiskOptions {
        let geometry =
            Geometry { size, class: DeviceClass::Ssd, alignment: SECTOR, memory_alignment: SECTOR };
        DiskOptions {
            geometry,
            latency: Nanos::from_micros(20)..Nanos::from_micros(200),
            blank: Blank::Zeros,
        }
    }

    /// A hard disk of `size`, sectors of 512 B, 0.5 to 12 ms.
    pub fn hdd(size: Bytes) -> DiskOptions {
        let geometry =
            Geometry { size, class: DeviceClass::Hdd, alignment: SECTOR, memory_alignment: SECTOR };
        DiskOptions {
            geometry,
            latency: Nanos::from_micros(500)..Nanos::from_millis(12),
            blank: Blank::Zeros,
        }
    }

    /// The same options with a realistic alignment of addresses in memory: one of a few, by `rng`.
    pub fn with_memory_alignment(mut self, rng: &mut Rng) -> DiskOptions {
        self.geometry.memory_alignment = [1, 4, 512, 4096].map(Bytes)[rng.below(4) as usize];
        self
    }

    /// The same options with another initial content.
    pub fn with_blank(self, blank: Blank) -> DiskOptions {
        DiskOptions { blank, ..self }
    }
}

/// A disk in a world. A cheap clone is a handle: a test keeps a handle while the engine owns another.
#[derive(Clone)]
pub struct Disk {
    world: World,
    power: Power,
    options: Rc<DiskOptions>,
    media: Rc<RefCell<Media>>,
    rng: Rc<RefCell<Rng>>,
    operations: Rc<Cell<u64>>,
    faults: Faults,
}

/// The content of a disk between two worlds, durable or not. Cheap to clone: bytes are shared until they
/// change.
pub struct StoredDisk {
    options: Rc<DiskOptions>,
    media: Media,
}

/// Moment within its duration at which an operation takes effect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EffectMoment {
    Start,
    End,
}

impl Disk {
    /// A blank disk in `world`.
    pub fn new(world: &World, options: DiskOptions) -> Disk {
        let media = Media::new(options.blank);
        Disk::with_media(world, Rc::new(options), Rc::new(RefCell::new(media)))
    }

    /// Decides the fate of everything unflushed at a power cut. The world of the disk has ended then:
    /// continue with [`Disk::restart`].
    pub fn power_cut(&self, rng: &mut Rng) {
        self.media.borrow_mut().power_cut(rng);
    }

    /// Returns this disk in the next world, with the content that [`Disk::power_cut`] left. Without a power
    /// cut nothing is lost and all changes in flight take effect, as if only the software had been killed.
    pub fn restart(&self, world: &World) -> Disk {
        self.media.borrow_mut().finish_in_flight();
        Disk::with_media(world, self.options.clone(), self.media.clone())
    }

    /// Returns an independent copy of this disk and its cache in `world`.
    pub fn fork(&self, world: &World) -> Disk {
        self.store().attach(world)
    }

    /// Returns a copy of the content at this moment: durable, unflushed and in flight.
    pub fn store(&self) -> StoredDisk {
        StoredDisk { options: self.options.clone(), media: self.media.borrow().copy() }
    }

    /// Returns the faults of this disk; none by default.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The disk alone loses power for a moment: unflushed writes are kept, lost or torn.
    pub fn lose_cache(&self) {
        let mut rng = self.rng.borrow_mut().fork();
        self.media.borrow_mut().power_cut(&mut rng);
        self.tell_of_loss();
    }

    /// Reads the durable bytes at `offset`, for tests: no time passes, no cut point counts.
    pub fn peek_durable(&self, offset: Bytes, into: &mut [u8]) {
        self.media.borrow().read_durable(offset, into);
    }

    /// Changes the durable and the visible bytes at `offset`, for tests: bit rot, or content from elsewhere.
    pub fn poke(&self, offset: Bytes, bytes: &[u8]) {
        self.media.borrow_mut().poke(offset, bytes);
    }

    /// Makes a range bad for good, also in copies of this disk and in later worlds.
    pub fn spoil(&self, range: Range<Bytes>, bad: Bad) {
        self.media.borrow_mut().bad.add(range, bad);
    }

    /// Cuts the disk to `size`, for tests, and returns a handle of the shorter disk. The bytes beyond `size`
    /// become zeros for all handles. A handle of the whole disk then stands for a disk that was cut and
    /// enlarged again.
    pub fn cut(&self, size: Bytes) -> Disk {
        let (mut at, zeros) = (size, [0; 4096]);
        while at < self.options.geometry.size {
            let len = (self.options.geometry.size - at).0.min(zeros.len() as u64);
            self.poke(at, &zeros[..len as usize]);
            at += Bytes(len);
        }
        let mut options = DiskOptions::clone(&self.options);
        options.geometry.size = size;
        Disk { options: Rc::new(options), ..self.clone() }
    }

    /// Number of operations completed in this world.
    pub fn operations(&self) -> u64 {
        self.operations.get()
    }

    fn with_media(world: &World, options: Rc<DiskOptions>, media: Rc<RefCell<Media>>) -> Disk {
        let mut rng = world.fork_rng();
        let faults = Faults::new(FaultPlan::default(), rng.fork());
        let (world, power, rng) = (world.clone(), world.power(), Rc::new(RefCell::new(rng)));
        Disk { world, power, options, media, rng, operations: Rc::default(), faults }
    }

    /// Waits for the duration of an operation.
    async fn take_time(&self) {
        let time = {
            let (mut rng, latency) = (self.rng.borrow_mut(), &self.options.latency);
            let time = Nanos(rng.between(latency.start.0, latency.end.0.max(latency.start.0 + 1)));
            if rng.chance(1.0 / 16.0) { time * rng.between(1, 11) } else { time }
        };
        self.world.sleep(time + self.faults.stall()).await;
    }

    async fn start(&self) {
        self.faults.answer().await;
        self.power.pass_point().await;
    }

    /// Completes an operation; an error if the device went away meanwhile.
    async fn complete(&self) -> io::Result<()> {
        self.faults.answer().await;
        self.power.pass_point().await;
        self.operations.set(self.operations.get() + 1);
        self.faults.is_there()
    }

    /// Fails with `error` after the usual duration of an operation.
    async fn fail(&self, error: io::Error) -> io::Result<()> {
        self.take_time().await;
        self.complete().await?;
        Err(error)
    }

    /// Reports a loss of the cache. A death of the software before the software learns of the loss would
    /// hide the loss for good, so no such death is tried.
    fn tell_of_loss(&self) {
        self.power.hold_watch();
        if let Some(tell) = self.faults.told_of_loss() {
            tell();
        }
    }

    fn tell_of_failed_flush(&self) {
        if let Some(tell) = self.faults.told_of_failed_flush() {
            tell();
        }
    }

    /// Chooses the moment of an effect. Late in three of four cases: an early effect forgives mistakes.
    fn moment(&self) -> EffectMoment {
        if self.rng.borrow_mut().chance(0.25) { EffectMoment::Start } else { EffectMoment::End }
    }

    /// Makes a change take effect at a random moment within the operation's time.
    async fn change(&self, change: Change) -> io::Result<()> {
        if self.moment() == EffectMoment::Start {
            self.media.borrow_mut().apply(change);
            self.take_time().await;
            return self.complete().await;
        }
        let key = self.media.borrow_mut().begin(change);
        self.take_time().await;
        let result = self.complete().await;
        self.media.borrow_mut().apply_begun(key);
        result
    }

    /// Performs a write that fails and reaches the disk in part.
    async fn write_part(&self, offset: Bytes, from: &Buf, error: io::Error) -> io::Result<()> {
        let part = self.faults.part_of(from.len(), self.options.geometry.alignment);
        if part == Bytes::ZERO {
            return self.fail(error).await;
        }
        let content = Content::Arriving(from.slice(Bytes::ZERO..part));
        self.change(Change { offset, content }).await?;
        Err(error)
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        self.options.geometry
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.options.geometry.check_buffer(offset, into)?;
        self.start().await;
        let request = Operation::Read(offset, into.len());
        if let Err(error) = self.faults.draw(request) {
            return self.fail(error).await;
        }
        if self.media.borrow().bad.hide(&(offset..offset + into.len())) {
            return self.fail(self.faults.meet_bad_place(request)).await;
        }
        let look = || into.with_bytes_mut(|bytes| self.media.borrow().read(offset, bytes));
        let moment = self.moment();
        if moment == EffectMoment::Start {
            look();
        }
        self.take_time().await;
        self.complete().await?;
        if moment == EffectMoment::End {
            look();
        }
        Ok(())
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        self.options.geometry.check_buffer(offset, from)?;
        self.start().await;
        let request = Operation::Write(offset, from.len());
        if let Err(error) = self.faults.draw(request) {
            return self.write_part(offset, from, error).await;
        }
        if self.media.borrow().bad.refuse(&(offset..offset + from.len())) {
            return self.fail(self.faults.meet_bad_place(request)).await;
        }
        match self.faults.course(offset, from.len(), self.options.geometry.alignment) {
            Course::There(offset) => {
                self.change(Change { offset, content: Content::Arriving(from.clone()) }).await
            }
            Course::Lost => {
                self.take_time().await;
                self.complete().await
            }
        }
    }

    async fn flush(&self) -> io::Result<()> {
        self.start().await;
        if let Err(error) = self.faults.draw(Operation::Flush) {
            let result = self.fail(error).await;
            self.tell_of_failed_flush();
            // Lose data only now: the error is the first possible sign of the loss.
            if self.faults.loses_on_failed_flush() {
                let mut rng = self.rng.borrow_mut().fork();
                self.media.borrow_mut().lose_unflushed(&mut rng);
                self.tell_of_loss();
            }
            return result;
        }
        let (end, losses) = (self.media.borrow().next_number(), self.media.borrow().losses());
        self.take_time().await;
        self.complete().await?;
        if self.faults.lies() {
            return Ok(());
        }
        if self.media.borrow().losses() > losses {
            return Err(io::Error::other("injected fault: the device lost what it had accepted"));
        }
        self.media.borrow_mut().flush_before(end);
        Ok(())
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.options.geometry.check(offset, len)?;
        self.start().await;
        self.faults.answer_discard().await;
        let time = self.faults.discard_time(len);
        if time > Nanos::ZERO {
            self.world.sleep(time).await;
        }
        let discarded = async |len| {
            let seed = self.rng.borrow_mut().next_u64();
            self.change(Change { offset, content: Content::Discarded(len, seed) }).await
        };
        let Err(error) = self.faults.draw(Operation::Discard(offset, len)) else {
            return discarded(len).await;
        };
        if self.faults.is_there().is_err() {
            return self.fail(error).await;
        }
        match self.faults.part_of(len, self.options.geometry.alignment) {
            Bytes::ZERO => self.fail(error).await,
            part => discarded(part).await.and(Err(error)),
        }
    }
}

impl StoredDisk {
    /// Decides the fate of everything unflushed at a power cut.
    pub fn power_cut(&mut self, rng: &mut Rng) {
        self.media.power_cut(rng);
    }

    /// The software is killed: nothing is lost, and changes in flight take effect.
    pub fn kill(&mut self) {
        self.media.finish_in_flight();
    }

    /// Number of bad places.
    pub fn count_bad_places(&self) -> usize {
        self.media.bad.count()
    }

    /// The software dies: changes in flight take effect, in part or not at all, and nothing else is lost.
    pub fn end_in_flight(&mut self, rng: &mut Rng) {
        self.media.end_in_flight(rng);
    }

    /// Returns the disk in a world.
    pub fn attach(&self, world: &World) -> Disk {
        Disk::with_media(world, self.options.clone(), Rc::new(RefCell::new(self.media.copy())))
    }
}

impl Clone for StoredDisk {
    fn clone(&self) -> StoredDisk {
        StoredDisk { options: self.options.clone(), media: self.media.copy() }
    }
}
