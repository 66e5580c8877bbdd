//! A device of the volume: measures and counts requests, skips flushes without a reason, and never trusts the
//! device again after a failed flush.

use super::busy::Busy;
use super::requests::{Answer, Request, Requests};
use super::speed::Speed;
use super::{Deadline, TICK};
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
    /// None while the device is missing. A returned device takes the place of the former one.
    device: RefCell<Option<Rc<D>>>,
    pub requests: Rc<Requests>,
    pub speed: Speed,
    pub busy: Busy,
    pub alignment: Bytes,
    memory_alignment: Cell<Bytes>,
    state: Cell<DeviceState>,
    /// Set if the device's content is not trusted: `--distrust` discarded its data, or the device is an old
    /// copy of itself.
    lacks_all: Cell<bool>,
    /// Set while no record says what the device lacks: no superblock may call the device in step yet.
    is_unrecorded: Cell<bool>,
    /// Number of completed writes; `flushed` counts the writes covered by a flush.
    written: Cell<u64>,
    flushed: Cell<u64>,
    /// Number of times that another copy was made from the device; `proved` counts the times covered by a
    /// flush.
    copied: Cell<u64>,
    proved: Cell<u64>,
    /// Set after a failed flush: writes since the previous good flush may be lost, whatever later flushes
    /// report.
    lost_writes: Cell<bool>,
    /// Set once another opening owns the devices: no more requests are sent.
    is_shut: Cell<bool>,
    /// Permit for writing the superblock copies: one task at a time.
    pub superblocks: Semaphore,
    /// The last superblock written, if its number leaves room for renewals of the lease.
    renewable: RefCell<Option<Rc<Superblock>>>,
    /// True while a task renews the lease on the device.
    pub has_lease: Cell<bool>,
    /// Permit for reading ahead: one run at a time.
    pub ahead: Semaphore,
    /// Time until the device gets no new extents, after the file system beneath was full.
    pub full_until: Cell<Option<Nanos>>,
    /// Start of the last guest request; zero before the first.
    pub last_guest: Cell<Nanos>,
    pub stats: RefCell<DeviceStats>,
    /// Bytes of all writes requested from the device, metadata included: the cause of an SSD's wear.
    pub written_bytes: Cell<u64>,
}

/// Duration of a request to a device.
pub(crate) struct Timed {
    pub latency: Nanos,
}

/// Alignment assumed for a missing device: every device accepts requests with 4 KiB alignment.
pub(crate) const LARGEST_ALIGNMENT: Bytes = Bytes(4096);

impl<D: Device> Member<D> {
    /// Creates a member in the state given by its superblock entry.
    pub fn new(id: DeviceId, entry: DeviceEntry, device: Option<Rc<D>>, lacks_all: bool) -> Member<D> {
        let alignment = device.as_ref().map_or(LARGEST_ALIGNMENT, |d| d.geometry().alignment);
        let repair = device.as_ref().map_or(Nanos::ZERO, |d| d.repair_time());
        let memory_alignment = device.as_ref().map_or(Buf::ALIGNMENT, |d| d.geometry().memory_alignment);
        Member {
            id,
            state: Cell::new(entry.state),
            entry,
            lacks_all: Cell::new(lacks_all),
            is_unrecorded: Cell::new(lacks_all),
            device: RefCell::new(device),
            requests: Rc::new(Requests::new(repair)),
            speed: Speed::default(),
            busy: Busy::default(),
            alignment,
            memory_alignment: Cell::new(memory_alignment),
            // An earlier run may have left unflushed writes: the first flush is never skipped.
            written: Cell::new(1),
            flushed: Cell::new(0),
            copied: Cell::new(0),
            proved: Cell::new(0),
            lost_writes: Cell::new(false),
            is_shut: Cell::new(false),
            superblocks: Semaphore::new(1),
            renewable: RefCell::default(),
            has_lease: Cell::new(false),
            ahead: Semaphore::new(1),
            full_until: Cell::new(None),
            last_guest: Cell::new(Nanos::ZERO),
            stats: RefCell::default(),
            written_bytes: Cell::new(0),
        }
    }

    /// Creates all members of a volume by id. Devices in `anew` hold no trusted data.
    pub fn all(superblock: &Superblock, devices: Vec<Option<Rc<D>>>, anew: &[DeviceId]) -> Vec<Member<D>> {
        let entries = superblock.devices.iter().cloned();
        let placed = (0..).map(DeviceId).zip(devices).zip(entries);
        placed.map(|((id, device), entry)| Member::new(id, entry, device, anew.contains(&id))).collect()
    }

    /// Offset of a slot on the device.
    #[inline]
    pub fn slot_offset(&self, index: u32, extent_size: Bytes) -> Bytes {
        self.entry.slots_offset + extent_size * u64::from(index)
    }

    /// True if the device can use a buffer at its address in memory. If not, a bounce buffer is needed.
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

    /// True if all copies on the device are current, except in spans that are behind.
    #[inline]
    pub fn is_current(&self) -> bool {
        matches!(self.state.get(), DeviceState::Active | DeviceState::Slow | DeviceState::Draining)
    }

    /// True if the volume lacks the device's copies: the device belongs to the volume, but is not current.
    pub fn is_lacking(&self) -> bool {
        !self.is_current() && self.state.get() != DeviceState::Removed
    }

    /// True if superblocks lie on the device: on every device except an adopted disk.
    pub fn has_superblock(&self) -> bool {
        self.entry.layout != Layout::Adopted
    }

    /// Stops all requests to the device from now on.
    pub fn shut(&self) {
        self.is_shut.set(true);
    }

    /// True if the device is present.
    pub fn is_there(&self) -> bool {
        self.device.borrow().is_some()
    }

    /// Handle of the device, unless the device is missing.
    pub fn handle(&self) -> Option<Rc<D>> {
        self.device.borrow().clone()
    }

    /// Closes a device without use and without requests in flight.
    ///
    /// # Panics
    /// Panics if the device is written to, or owes an answer.
    pub fn release(&self) {
        assert!(!self.is_written() && self.requests.is_idle(), "a device goes once nothing is asked of it");
        self.requests.renew(Nanos::ZERO);
        self.device.replace(None);
    }

    /// Puts a failed or missing device back in its place. The records of its writes and flushes begin anew.
    /// `lacks_all` is set if all copies must be rebuilt. Panics like [`Member::release`].
    pub fn renew(&self, device: Rc<D>, lacks_all: bool) {
        self.release();
        self.requests.renew(device.repair_time());
        self.memory_alignment.set(device.geometry().memory_alignment);
        self.device.replace(Some(device));
        self.lacks_all.set(lacks_all);
        // The first flush is not skipped, and no copy was made from the device.
        self.flushed.set(self.written.get());
        self.note_write();
        self.proved.set(self.copied.get());
        self.lost_writes.set(false);
    }

    /// True if the device gets new copies: current, and not draining.
    pub fn is_filled(&self) -> bool {
        self.is_current() && self.state.get() != DeviceState::Draining
    }

    /// True if the device is written to: current, or being resynchronised after a return.
    pub fn is_written(&self) -> bool {
        self.is_current() || self.state.get() == DeviceState::Returning
    }

    /// True if a flush failed: writes before the failure may be lost.
    pub fn has_lost_writes(&self) -> bool {
        self.lost_writes.get()
    }

    /// Notes the device as the source of a copy that lacked a write. Nothing is in doubt if all completed
    /// writes are flushed.
    pub fn note_source(&self) {
        if self.flushed.get() < self.written.get() {
            self.copied.set(self.copied.get() + 1);
        }
    }

    /// True if no flush has succeeded since the device was a source: the device may have lost a write before
    /// the read, so the copied bytes may be stale.
    pub fn is_unproved_source(&self) -> bool {
        self.copied.get() > self.proved.get()
    }

    /// True if all copies on the device must be rebuilt.
    pub fn lacks_all(&self) -> bool {
        self.lacks_all.get()
    }

    /// True if the superblocks may call the device in step: the device is written to, and a durable record
    /// says what the device lacks.
    pub fn is_in_step(&self) -> bool {
        self.is_written() && !self.is_unrecorded.get()
    }

    /// Notes that a durable record says what the device lacks.
    pub fn note_recorded(&self) {
        self.is_unrecorded.set(false);
    }

    /// True if the device has requests past their deadline. No new request is sent before the device has
    /// answered.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.requests.late() > 0
    }

    /// True if a request is in flight: the kernel may still read or write this process's memory.
    pub fn owes_answer(&self) -> bool {
        !self.requests.is_idle()
    }

    /// True if the device delays its callers: late, or far slower than its own past.
    #[inline]
    pub fn is_slow(&self) -> bool {
        self.state.get() == DeviceState::Slow
    }

    /// True if a request has waited for at least 5 s, as far as is known.
    pub fn is_stuck(&self) -> bool {
        self.is_late() || self.requests.is_stuck()
    }

    /// True if the device is late or slow. Guests must not wait for the device if another device has the
    /// bytes, or if nothing depends on the request.
    #[inline]
    pub fn holds_up(&self) -> bool {
        self.is_late() || self.is_slow()
    }

    /// Marks an active device as slow. Returns false if the device was not active, or was slow before.
    pub fn set_slow(&self) -> bool {
        let is_new = self.state.get() == DeviceState::Active;
        if is_new {
            self.state.set(DeviceState::Slow);
        }
        is_new
    }

    /// True if other hosts reach the device and its superblocks.
    pub fn is_shared(&self) -> bool {
        self.has_superblock() && self.device.borrow().as_ref().is_some_and(|device| device.is_shared())
    }

    /// The last superblock written, if its number leaves room for renewals of the lease.
    pub fn renewable(&self) -> Option<Rc<Superblock>> {
        self.renewable.borrow().clone()
    }

    /// Notes the superblock just written, if its number leaves room for renewals of the lease.
    pub fn note_renewable(&self, superblock: Option<Rc<Superblock>>) {
        self.renewable.replace(superblock);
    }

    /// Time for which the device may hang and then answer by itself.
    pub fn repair_time(&self) -> Nanos {
        TICK * u64::from(self.requests.repair_seconds())
    }

    /// Node of the device; none for a missing device or a device of the host.
    pub fn node(&self) -> Option<NodeId> {
        self.device.borrow().as_ref().and_then(|device| device.node())
    }

    /// Reads from the device. After `TimedOut` the device may still fill `into` at any time.
    #[inline]
    pub async fn read(&self, at: Bytes, into: &Buf, deadline: Deadline) -> io::Result<()> {
        match self.unwatched() {
            Some(device) => device.read(at, into).await,
            None => self.ask(Request::Read(at, into.clone()), deadline).await,
        }
    }

    /// Writes to the device. After `TimedOut` the device may still read `from` and write its bytes at any
    /// time.
    #[inline]
    pub async fn write(&self, at: Bytes, from: &Buf, deadline: Deadline) -> io::Result<()> {
        self.count_written(from);
        match self.unwatched() {
            Some(device) => device.write(at, from).await,
            None => self.ask(Request::Write(at, from.clone()), deadline).await,
        }
    }

    /// Like [`Member::read`], for a move: the bytes stay on the device's node.
    pub async fn read_to_move(&self, at: Bytes, into: &Buf) -> io::Result<()> {
        match self.unwatched() {
            Some(device) => device.read_to_move(at, into).await,
            None => self.ask(Request::ReadToMove(at, into.clone()), Deadline::Only).await,
        }
    }

    /// Like [`Member::write`], for bytes that a move has read on `node`.
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

    /// Returns the device for direct use if devices of its type always answer.
    #[inline(always)]
    fn unwatched(&self) -> Option<Rc<D>> {
        if D::ALWAYS_ANSWERS { self.device.borrow().clone() } else { None }
    }

    pub fn discard(&self, at: Bytes, len: Bytes) -> Answer<'_> {
        self.ask(Request::Discard(at, len), Deadline::Only)
    }

    /// Sends a request to the device.
    ///
    /// # Errors
    /// `NotFound` while the device is missing. `TimedOut` after the deadline. `TimedOut` at once if the
    /// device owes late answers and was excluded, or has been late for a minute.
    #[inline(always)]
    fn ask(&self, request: Request, deadline: Deadline) -> Answer<'_> {
        match &*self.device.borrow() {
            Some(device) if (!self.is_late() || self.may_be_asked()) && !self.is_shut.get() => {
                self.requests.ask(device, request, deadline)
            }
            _ => self.refuse(),
        }
    }

    /// True if a late device may be sent requests later, once the late ones are answered.
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
                let text =
                    "the device has not answered earlier requests: no new request until they are answered";
                io::Error::new(io::ErrorKind::TimedOut, text)
            }
        })
    }

    /// Makes all completed writes durable and returns the duration. Does nothing if no write has completed
    /// since the start of the last successful flush.
    ///
    /// # Errors
    /// After a failed flush, all later flushes fail.
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
        self.busy.begin(start);
        let result = self.ask(Request::Flush, Deadline::Only).await;
        let end = rt.now();
        self.busy.end(end);
        let latency = end.saturating_sub(start);
        let mut stats = self.stats.borrow_mut();
        stats.flushes += 1;
        match &result {
            // A concurrent flush may have received the report of the loss.
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

    /// Flushes a failed device after its mark. Nothing depends on the flush.
    pub async fn flush_mark(&self) -> io::Result<()> {
        self.ask(Request::Flush, Deadline::Brief).await
    }

    /// True if a completed write is not covered by a flush.
    pub fn has_unflushed(&self) -> bool {
        self.flushed.get() < self.written.get()
    }

    /// Counts a write completed outside of [`Member::record`]: the next flush is not skipped.
    pub fn note_write(&self) {
        self.written.set(self.written.get() + 1);
    }

    /// Counts a completed read or write.
    #[inline]
    pub fn record(&self, completion: &Completion, result: &io::Result<()>) {
        if completion.direction == Direction::Write {
            // Failed writes count, too: some bytes may have been written.
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
    io::Error::other("an earlier flush failed, and the extent of its loss is unknown")
}

#[cold]
fn missing(device: DeviceId) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("device {device} is missing"))
}
