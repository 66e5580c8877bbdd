//! Faults of a device: errors, lost caches, stalls, lost and misdirected writes, by plan and by seed.
//!
//! A failed write may have changed nothing, a first part, or the whole range, as on a real device.

use braid_base::{Bytes, MIB, Nanos, Rng, SECTOR};
use braid_runtime::Event;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// The faults of one device. Shared: [`Faults::set`] changes the plan while the device is in use.
#[derive(Clone)]
pub struct Faults {
    inner: Rc<Inner>,
}

struct Inner {
    state: RefCell<State>,
    /// Notified when the plan changes.
    changed: Event,
}

struct State {
    plan: FaultPlan,
    rng: Rng,
    injected: u64,
    /// Ranges written since the plan was set, if a bad spot heals by writing.
    written: Vec<Range<Bytes>>,
}

/// Kinds and rates of faults. The default is no faults.
#[derive(Clone, Default)]
pub struct FaultPlan {
    /// Probability that a read fails.
    pub reads: f64,
    /// Probability that a write fails.
    pub writes: f64,
    /// Probability that a flush fails. The writes that the flush covers are then not certain to be durable.
    pub flushes: f64,
    /// Probability that a discard fails. A failed discard may have been carried out in part.
    pub discards: f64,
    /// No discard begins or completes until the plan changes; all other operations do.
    pub discards_hang: bool,
    /// Additional duration of a discard for each MiB.
    pub discard_time: Nanos,
    /// A failed flush loses the writes that it covers, and reads see the loss; the next flush succeeds.
    pub flushes_lose: bool,
    /// Flushes succeed and make nothing durable: a power cut may lose all writes since then. Only the faults
    /// of a disk itself ([`crate::Disk::faults`]) have this effect.
    pub lies: bool,
    /// Reads of this range always fail: a bad spot.
    pub bad_reads: Option<Range<Bytes>>,
    /// The bad spot becomes readable once all bytes of a read have been written, as a drive reallocates
    /// sectors.
    pub bad_until_written: bool,
    /// Writes to this range always fail.
    pub bad_writes: Option<Range<Bytes>>,
    /// Writes to this range fail for lack of room, as with a sparse file on a full file system.
    pub no_room: Option<Range<Bytes>>,
    /// The device is gone: every request fails.
    pub vanished: bool,
    /// Probability that an operation takes additional time, drawn from `stall`.
    pub stalls: f64,
    /// Additional duration of a stalled operation.
    pub stall: Range<Nanos>,
    /// No operation begins or completes until the plan changes.
    pub hangs: bool,
    /// Probability that a write within `metadata` succeeds and changes nothing.
    pub lost_writes: f64,
    /// Probability that a write within `metadata` goes elsewhere in `metadata`.
    pub misdirected_writes: f64,
    /// Ranges in which writes may be lost or misdirected: damage to these bytes can be detected.
    pub metadata: Rc<[Range<Bytes>]>,
    /// Called when the device loses accepted writes.
    pub on_loss: Option<Rc<dyn Fn()>>,
    /// Called when the device fails to flush.
    pub on_failed_flush: Option<Rc<dyn Fn()>>,
}

/// Destination of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    /// At this offset.
    There(Bytes),
    /// Nowhere.
    Lost,
}

/// A request to a device: offset, length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read a range.
    Read(Bytes, Bytes),
    /// Write a range.
    Write(Bytes, Bytes),
    /// Flush.
    Flush,
    /// Discard a range.
    Discard(Bytes, Bytes),
}

impl Faults {
    /// Faults by `plan`, drawn from `rng`.
    pub fn new(plan: FaultPlan, rng: Rng) -> Faults {
        let state = RefCell::new(State { plan, rng, injected: 0, written: Vec::new() });
        Faults { inner: Rc::new(Inner { state, changed: Event::default() }) }
    }

    /// Sets a new plan from now on.
    pub fn set(&self, plan: FaultPlan) {
        let mut state = self.inner.state.borrow_mut();
        (state.plan, state.written) = (plan, Vec::new());
        drop(state);
        self.inner.changed.notify();
    }

    /// Takes the device away: every request fails from now on.
    pub fn vanish(&self) {
        self.inner.state.borrow_mut().plan.vanished = true;
    }

    /// Number of requests that failed, stalled, were lost or misdirected, and of discards that hung.
    pub fn injected(&self) -> u64 {
        self.inner.state.borrow().injected
    }

    /// Decides whether a request fails, and with which error.
    pub(crate) fn draw(&self, request: Operation) -> io::Result<()> {
        let mut state = self.inner.state.borrow_mut();
        let State { plan, rng, injected, written } = &mut *state;
        if let (true, Operation::Write(offset, len)) = (plan.bad_until_written, request) {
            written.push(offset..offset + len);
        }
        let touches = |bad: &Option<Range<Bytes>>, offset: Bytes, len: Bytes| {
            bad.as_ref().is_some_and(|bad| overlaps(bad, &(offset..offset + len)))
        };
        if let Operation::Write(offset, len) = request
            && touches(&plan.no_room, offset, len)
        {
            *injected += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fails = match request {
            _ if plan.vanished => true,
            Operation::Read(offset, len) => {
                let is_bad = touches(&plan.bad_reads, offset, len) && !covers(written, offset..offset + len);
                is_bad || rng.chance(plan.reads)
            }
            Operation::Write(offset, len) => {
                touches(&plan.bad_writes, offset, len) || rng.chance(plan.writes)
            }
            Operation::Flush => rng.chance(plan.flushes),
            Operation::Discard(..) => plan.discards > 0.0 && rng.chance(plan.discards),
        };
        if !fails {
            return Ok(());
        }
        *injected += 1;
        let kind = if plan.vanished { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
        Err(io::Error::new(kind, format!("injected fault: {request:?}")))
    }

    /// An error if the device is gone.
    pub(crate) fn is_there(&self) -> io::Result<()> {
        if !self.inner.state.borrow().plan.vanished {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "injected fault: the device went away"))
    }

    /// Draws the part of a failing write that reaches the device.
    pub(crate) fn part_of(&self, len: Bytes, alignment: Bytes) -> Bytes {
        let mut state = self.inner.state.borrow_mut();
        match state.rng.below(3) {
            _ if state.plan.vanished => Bytes::ZERO,
            0 => Bytes::ZERO,
            1 => len,
            _ => Bytes(state.rng.below(len.0)).align_down(alignment.max(SECTOR)),
        }
    }

    /// Draws the additional duration of an operation.
    pub(crate) fn stall(&self) -> Nanos {
        let mut state = self.inner.state.borrow_mut();
        let State { plan, rng, injected, .. } = &mut *state;
        if plan.stalls == 0.0 || !rng.chance(plan.stalls) {
            return Nanos::ZERO;
        }
        *injected += 1;
        Nanos(rng.between(plan.stall.start.0, plan.stall.end.0))
    }

    /// Waits while the device hangs.
    pub(crate) async fn answer(&self) {
        if self.inner.state.borrow().plan.hangs {
            let answers = || (!self.inner.state.borrow().plan.hangs).then_some(());
            self.inner.changed.wait_for(answers).await;
        }
    }

    /// Waits while the device does not answer discards.
    pub(crate) async fn answer_discard(&self) {
        if self.inner.state.borrow().plan.discards_hang {
            self.inner.state.borrow_mut().injected += 1;
            let answers = || (!self.inner.state.borrow().plan.discards_hang).then_some(());
            self.inner.changed.wait_for(answers).await;
        }
    }

    /// Returns the additional duration of a discard.
    pub(crate) fn discard_time(&self, len: Bytes) -> Nanos {
        self.inner.state.borrow().plan.discard_time * (len / MIB)
    }

    /// Counts a request that met a permanently bad place, and returns the error.
    pub(crate) fn meet_bad_place(&self, request: Operation) -> io::Error {
        self.inner.state.borrow_mut().injected += 1;
        io::Error::other(format!("injected fault: {request:?} meets a bad place"))
    }

    /// Draws the destination of a write.
    pub(crate) fn course(&self, offset: Bytes, len: Bytes, alignment: Bytes) -> Course {
        let mut state = self.inner.state.borrow_mut();
        let State { plan, rng, injected, .. } = &mut *state;
        let is_within = |place: &&Range<Bytes>| place.start <= offset && offset + len <= place.end;
        if plan.metadata.is_empty() || !plan.metadata.iter().any(|place| is_within(&place)) {
            return Course::There(offset);
        }
        if rng.chance(plan.lost_writes) {
            *injected += 1;
            return Course::Lost;
        }
        if !rng.chance(plan.misdirected_writes) {
            return Course::There(offset);
        }
        *injected += 1;
        let place = &plan.metadata[rng.below(plan.metadata.len() as u64) as usize];
        let room = (place.end - place.start).saturating_sub(len);
        Course::There(place.start + Bytes(rng.below(room.0 + 1)).align_down(alignment))
    }

    /// True if a failed flush loses the writes that it covers.
    pub(crate) fn loses_on_failed_flush(&self) -> bool {
        self.inner.state.borrow().plan.flushes_lose
    }

    /// Returns the callback for a failed flush.
    pub(crate) fn told_of_failed_flush(&self) -> Option<Rc<dyn Fn()>> {
        self.inner.state.borrow().plan.on_failed_flush.clone()
    }

    /// True if flushes make nothing durable.
    pub(crate) fn lies(&self) -> bool {
        self.inner.state.borrow().plan.lies
    }

    /// Returns the callback for a loss of accepted writes.
    pub(crate) fn told_of_loss(&self) -> Option<Rc<dyn Fn()>> {
        self.inner.state.borrow().plan.on_loss.clone()
    }
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultPlan { reads, writes, flushes, vanished, hangs, stalls, .. } = self;
        write!(f, "reads {reads}, writes {writes}, flushes {flushes}, stalls {stalls}")?;
        write!(f, ", vanished {vanished}, hangs {hangs}")
    }
}

/// True if two ranges have a byte in common.
pub(crate) fn overlaps(a: &Range<Bytes>, b: &Range<Bytes>) -> bool {
    a.start < b.end && b.start < a.end
}

/// True if `ranges` together cover all of `range`.
fn covers(ranges: &[Range<Bytes>], range: Range<Bytes>) -> bool {
    let mut at = range.start;
    while at < range.end {
        let reach = ranges.iter().filter(|r| r.contains(&at)).map(|r| r.end).max();
        match reach {
            Some(end) => at = end,
            None => return false,
        }
    }
    true
}
