//! A device of the volume: timed, counted, flushed only when there is a reason, and never believed again
//! after a failed flush.

use super::requests::{Answer, Deadline, Request, Requests};
use super::speed::Speed;
use crate::stats::DeviceStats;
use braid_base::{Bytes, DeviceId, Nanos, NodeId};
use braid_format::superblock::{DeviceEntry, DeviceState, Layout, Superblock};
use braid_policy::{Completion, Direction};
use braid_runtime::{Buf, Device, Runtime, Semaphore};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// A device of the volume.
pub(crate) struct Member<D> {
    pub id: DeviceId,
    pub entry: DeviceEntry,
    /// None while it is missing. One that is back takes the place of what was there before.
    device: RefCell<Option<Rc<D>>>,
    pub requests: Rc<Requests>,
    pub speed: Speed,
    pub alignment: Bytes,
    memory_alignment: Cell<Bytes>,
    state: Cell<DeviceState>,
    /// Nothing that it holds is trusted: the administrator gave it up, or it is an old copy of itself.
    lacks_all: Cell<bool>,
    /// Whether no record says yet what it lacks: until one does, no superblock may say that it is in step.
    is_unrecorded: Cell<bool>,
    /// Writes that completed, and how many of them a flush has covered.
    written: Cell<u64>,
    flushed: Cell<u64>,
    /// How often another copy was made like its own, and how many of these times a flush has covered.
    copied: Cell<u64>,
    proved: Cell<u64>,
    /// A flush failed: what was written since the one before may be lost, whatever later flushes say.
    lost_writes: Cell<bool>,
    /// Another opening has taken the devices over: nothing is asked of it any more.
    is_shut: Cell<bool>,
    /// Its turn to read ahead: one run at a time.
    pub ahead: Semaphore,
    /// Until when the device gets no new extents: the file system beneath it was full.
    pub full_until: Cell<Option<Nanos>>,
    /// When the last request of a guest began; zero before the first one.
    pub last_guest: Cell<Nanos>,
    pub stats: RefCell<DeviceStats>,
    /// Bytes that it was asked to write, metadata included: what wears an SSD.
    pub written_bytes: Cell<u64>,
}

/// How long a device took.
pub(crate) struct Timed {
    pub latency: Nanos,
}

/// The alignment that counts for a device that is missing: every device can be asked for so much.
pub(super) const LARGEST_ALIGNMENT: Bytes = Bytes(4096);

impl<D: Device> Member<D> {
    /// A device of the volume in the state that its entry says.
    pub fn new(id: DeviceId, entry: DeviceEntry, device: Option<Rc<D>>, lacks_all: bool) -> Member<D> {
        let alignment = device.as_ref().map_or(LARGEST_ALIGNMENT, |d| d.geometry().alignment);
        let memory_alignment = device.as_ref().map_or(Buf::ALIGNMENT, |d| d.geometry().memory_alignment);
        Member {
            id,
            state: Cell::new(entry.state),
            entry,
            lacks_all: Cell::new(lacks_all),
            is_unrecorded: Cell::new(lacks_all),
            device: RefCell::new(device),
            requests: Rc::default(),
            speed: Speed::default(),
            alignment,
            memory_alignment: Cell::new(memory_alignment),
            // What an earlier run wrote may not be flushed: the first flush is never skipped.
            written: Cell::new(1),
            flushed: Cell::new(0),
            copied: Cell::new(0),
            proved: Cell::new(0),
            lost_writes: Cell::new(false),
            is_shut: Cell::new(false),
            ahead: Semaphore::new(1),
            full_until: Cell::new(None),
            last_guest: Cell::new(Nanos::ZERO),
            stats: RefCell::default(),
            written_bytes: Cell::new(0),
        }
    }

    /// All devices of a volume, by id; those in `anew` hold nothing that is trusted.
    pub fn all(superblock: &Superblock, devices: Vec<Option<Rc<D>>>, anew: &[DeviceId]) -> Vec<Member<D>> {
        let entries = superblock.devices.iter().cloned();
        let placed = (0..).map(DeviceId).zip(devices).zip(entries);
        placed.map(|((id, device), entry)| Member::new(id, entry, device, anew.contains(&id))).collect()
    }

    /// Where a slot of this device lies.
    #[inline]
    pub fn slot_offset(&self, index: u32, extent_size: Bytes) -> Bytes {
        self.entry.slots_offset + extent_size * u64::from(index)
    }

    /// Whether the device can read into a buffer, or write from it, where it lies in memory. Another one
    /// takes its bytes if not.
    #[inline]
    pub fn can_use(&self, buf: &Buf) -> bool {
        buf.is_aligned(self.memory_alignment.get())
    }

    pub fn state(&self) -> DeviceState {
        self.state.get()
    }

    pub fn set_state(&self, state: DeviceState) {
        self.state.set(state);
    }

    /// Whether its copies are as new as any, but for those in spans that are behind.
    #[inline]
    pub fn is_current(&self) -> bool {
        matches!(self.state.get(), DeviceState::Active | DeviceState::Slow | DeviceState::Draining)
    }

    /// Whether copies that count are missing with it: it is one of the volume's, and not current.
    pub fn is_lacking(&self) -> bool {
        !self.is_current() && self.state.get() != DeviceState::Removed
    }

    /// Whether superblocks lie on it: on all but an adopted disk.
    pub fn has_superblock(&self) -> bool {
        self.entry.layout != Layout::Adopted
    }

    /// From now on nothing is asked of the device.
    pub fn shut(&self) {
        self.is_shut.set(true);
    }

    /// Whether there is a device in this place.
    pub fn is_there(&self) -> bool {
        self.device.borrow().is_some()
    }

    /// Lets go of a device that is not in use, and has answered all that it was asked.
    pub fn release(&self) {
        assert!(!self.is_written() && self.requests.is_idle(), "a device goes once nothing is asked of it");
        self.requests.renew();
        self.device.replace(None);
    }

    /// A device that failed or was missing is back: what is known of its writes begins anew. `lacks_all` says
    /// whether all of its copies must be made again.
    pub fn renew(&self, device: Rc<D>, lacks_all: bool) {
        self.release();
        self.memory_alignment.set(device.geometry().memory_alignment);
        self.device.replace(Some(device));
        self.lacks_all.set(lacks_all);
        // The first flush is not skipped, and nothing was copied from it.
        self.flushed.set(self.written.get());
        self.note_write();
        self.proved.set(self.copied.get());
        self.lost_writes.set(false);
    }

    /// Whether it gets new copies: not while all that lies on it is moved away.
    pub fn is_filled(&self) -> bool {
        self.is_current() && self.state.get() != DeviceState::Draining
    }

    /// Whether it is written to: also while it is brought up to date.
    pub fn is_written(&self) -> bool {
        self.is_current() || self.state.get() == DeviceState::Returning
    }

    /// Whether a flush failed: what was written before it may be gone.
    pub fn has_lost_writes(&self) -> bool {
        self.lost_writes.get()
    }

    /// Another copy, which lacked a write, is made like the one on this device. If all that it holds is
    /// flushed, nothing is in doubt.
    pub fn note_source(&self) {
        if self.flushed.get() < self.written.get() {
            self.copied.set(self.copied.get() + 1);
        }
    }

    /// Whether no flush has succeeded since: what was copied may be what it held after it had lost that
    /// write.
    pub fn is_unproved_source(&self) -> bool {
        self.copied.get() > self.proved.get()
    }

    /// Whether all of its copies must be made again.
    pub fn lacks_all(&self) -> bool {
        self.lacks_all.get()
    }

    /// Whether the superblocks may say that it is in step: what it lacks is durable, if it does not lack all
    /// without a record of it.
    pub fn is_in_step(&self) -> bool {
        self.is_written() && !self.is_unrecorded.get()
    }

    /// What it lacks is durable.
    pub fn note_recorded(&self) {
        self.is_unrecorded.set(false);
    }

    /// Whether it has requests that are past their deadline, and gets no others until it has answered them.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.requests.late() > 0
    }

    /// Whether the device owes an answer: the kernel may still read or write memory of this process.
    pub fn owes_answer(&self) -> bool {
        !self.requests.is_idle()
    }

    /// Whether it makes those wait who ask it: it is late, or has become far slower than it was.
    #[inline]
    pub fn is_slow(&self) -> bool {
        self.state.get() == DeviceState::Slow
    }

    /// Whether it owes an answer since 5 s at least, as far as is known.
    pub fn is_stuck(&self) -> bool {
        self.is_late() || self.requests.is_stuck()
    }

    /// Whether it is late or slow: guests must not wait for it if another device has what they ask for, or
    /// nothing needs what it is asked for.
    #[inline]
    pub fn holds_up(&self) -> bool {
        self.is_late() || self.is_slow()
    }

    /// It is slow from now on, if it is active; false if it is not, or was slow before.
    pub fn set_slow(&self) -> bool {
        let is_new = self.state.get() == DeviceState::Active;
        if is_new {
            self.state.set(DeviceState::Slow);
        }
        is_new
    }

    /// The machine that it is on; none while it is missing, or if it is the host's own.
    pub fn node(&self) -> Option<NodeId> {
        self.device.borrow().as_ref().and_then(|device| device.node())
    }

    /// Reads. Past the deadline `into` may be filled at any time.
    #[inline]
    pub async fn read(&self, at: Bytes, into: &Buf, deadline: Deadline) -> io::Result<()> {
        match self.unwatched() {
            Some(device) => device.read(at, into).await,
            None => self.ask(Request::Read(at, into.clone()), deadline).await,
        }
    }

    /// Writes. Past the deadline `from` may be read, and its bytes written, at any time.
    #[inline]
    pub async fn write(&self, at: Bytes, from: &Buf, deadline: Deadline) -> io::Result<()> {
        self.count_written(from);
        match self.unwatched() {
            Some(device) => device.write(at, from).await,
            None => self.ask(Request::Write(at, from.clone()), deadline).await,
        }
    }

    /// As [`Member::read`], for a move: the bytes stay on the device's node.
    pub async fn read_to_move(&self, at: Bytes, into: &Buf) -> io::Result<()> {
        match self.unwatched() {
            Some(device) => device.read_to_move(at, into).await,
            None => self.ask(Request::ReadToMove(at, into.clone()), Deadline::Only).await,
        }
    }

    /// As [`Member::write`], of what a move has read on `node`.
    pub async fn write_moved(&self, at: Bytes, from: &Buf, node: Option<NodeId>) -> io::Result<()> {
        self.count_written(from);
        match self.unwatched() {
            Some(device) => device.write_moved(at, from, node).await,
            None => self.ask(Request::WriteMoved(at, from.clone(), node), Deadline::Only).await,
        }
    }

    #[inline]
    fn count_written(&self, from: &Buf) {
        self.written_bytes.set(self.written_bytes.get() + from.len().0);
    }

    /// The device itself if it always answers.
    #[inline(always)]
    fn unwatched(&self) -> Option<Rc<D>> {
        if D::ALWAYS_ANSWERS { self.device.borrow().clone() } else { None }
    }

    pub fn discard(&self, at: Bytes, len: Bytes) -> Answer<'_> {
        self.ask(Request::Discard(at, len), Deadline::Only)
    }

    /// Has the device do something.
    ///
    /// # Errors
    /// `NotFound` while it is missing; `TimedOut` after the deadline, or at once if it still owes answers and
    /// was given up, or was late for a minute.
    #[inline(always)]
    fn ask(&self, request: Request, deadline: Deadline) -> Answer<'_> {
        match &*self.device.borrow() {
            Some(device) if (!self.is_late() || self.may_be_asked()) && !self.is_shut.get() => {
                self.requests.ask(device, request, deadline)
            }
            _ => self.refuse(),
        }
    }

    /// Whether a device that is late gets requests when it has answered.
    #[cold]
    fn may_be_asked(&self) -> bool {
        self.is_written() && !self.requests.is_silent()
    }

    #[cold]
    fn refuse(&self) -> Answer<'_> {
        self.requests.refuse(match *self.device.borrow() {
            None => missing(self.id),
            Some(_) if self.is_shut.get() => io::Error::other("another daemon has opened the volume"),
            Some(_) => {
                let text = "it has not answered earlier requests: not asked until it has";
                io::Error::new(io::ErrorKind::TimedOut, text)
            }
        })
    }

    /// Makes all completed writes durable, and says how long that took; does nothing where none completed
    /// since the last flush began.
    ///
    /// # Errors
    /// Once a flush has failed, all later ones do.
    pub async fn flush<R: Runtime>(&self, rt: &R) -> io::Result<Option<Timed>> {
        if self.lost_writes.get() {
            return Err(lost());
        }
        let (written, copied) = (self.written.get(), self.copied.get());
        if self.flushed.get() >= written {
            self.proved.set(copied);
            return Ok(None);
        }
        let start = rt.now();
        let result = self.ask(Request::Flush, Deadline::Only).await;
        let latency = rt.now().saturating_sub(start);
        let mut stats = self.stats.borrow_mut();
        stats.flushes += 1;
        match &result {
            // Another one that ran at the same time may have been told of the loss.
            Ok(()) if self.lost_writes.get() => return Err(lost()),
            Ok(()) => {
                stats.flush_time += latency;
                self.flushed.set(self.flushed.get().max(written));
                self.proved.set(self.proved.get().max(copied));
            }
            Err(error) => {
                stats.errors += 1;
                stats.last_error = Some(error.to_string());
                self.lost_writes.set(true);
            }
        }
        result.map(|()| Some(Timed { latency }))
    }

    /// A flush for what nothing depends on, of a device that was given up.
    pub async fn flush_mark(&self) -> io::Result<()> {
        self.ask(Request::Flush, Deadline::Brief).await
    }

    /// Whether writes have completed that no flush covers.
    pub fn has_unflushed(&self) -> bool {
        self.flushed.get() < self.written.get()
    }

    /// A write completed past [`Member::record`]: the next flush is not skipped.
    pub fn note_write(&self) {
        self.written.set(self.written.get() + 1);
    }

    /// Counts a read or write that has ended.
    #[inline]
    pub fn record(&self, completion: &Completion, result: &io::Result<()>) {
        if completion.direction == Direction::Write {
            // Counted even where it failed: some of it may have been written.
            self.note_write();
        }
        let mut stats = self.stats.borrow_mut();
        match result {
            Ok(()) => stats.record(completion),
            Err(error) => {
                stats.errors += 1;
                stats.last_error = Some(error.to_string());
            }
        }
    }
}

#[cold]
fn lost() -> io::Error {
    io::Error::other("an earlier flush failed, and what it lost is not known")
}

#[cold]
fn missing(device: DeviceId) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("device {device} is missing"))
}
