//! What goes wrong with a device: errors, lost caches, stalls, writes that go nowhere or elsewhere, by plan
//! and by seed.
//!
//! A write that fails may have changed what it should: nothing, a first part, or all of it, as on a real
//! device.

use braid_base::{Bytes, MIB, Nanos, Rng, SECTOR};
use braid_runtime::Event;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// The faults of one device. Shared: change the plan through [`Faults::set`] while the device is in use.
#[derive(Clone)]
pub struct Faults {
    inner: Rc<Inner>,
}

struct Inner {
    state: RefCell<State>,
    /// Another plan holds.
    changed: Event,
}

struct State {
    plan: FaultPlan,
    rng: Rng,
    injected: u64,
    /// What was written since the plan was set.
    written: Vec<Range<Bytes>>,
}

/// What fails, and how often. The default is nothing.
#[derive(Clone, Default)]
pub struct FaultPlan {
    /// Probability that a read fails.
    pub reads: f64,
    /// Probability that a write fails.
    pub writes: f64,
    /// Probability that a flush fails. Nothing that it would have made durable is then certain to be.
    pub flushes: f64,
    /// Probability that a discard fails. It may have been carried out in part.
    pub discards: f64,
    /// No discard begins or completes until another plan holds; all else does.
    pub discards_hang: bool,
    /// How much longer a discard takes for each MiB.
    pub discard_time: Nanos,
    /// A flush that fails loses what it should have made durable, and reads see that; the next one succeeds.
    pub flushes_lose: bool,
    /// Flushes succeed and make nothing durable: a power cut may lose all that was written since. A device of
    /// its own ([`crate::Disk::faults`]) tells this lie.
    pub lies: bool,
    /// Reads that touch this range always fail: a bad spot.
    pub bad_reads: Option<Range<Bytes>>,
    /// A bad spot is good again once all of a read has been written, as a drive reallocates sectors.
    pub bad_until_written: bool,
    /// Writes that touch this range always fail.
    pub bad_writes: Option<Range<Bytes>>,
    /// Writes there fail for lack of room, as those to a sparse file on a full file system.
    pub no_room: Option<Range<Bytes>>,
    /// The device is gone: every request fails.
    pub vanished: bool,
    /// Probability that an operation takes as long as `stall` says, beyond its time.
    pub stalls: f64,
    /// How long a stall takes.
    pub stall: Range<Nanos>,
    /// No operation begins or completes until another plan holds.
    pub hangs: bool,
    /// Probability that a write within `metadata` succeeds and changes nothing.
    pub lost_writes: f64,
    /// Probability that a write within `metadata` goes elsewhere in it.
    pub misdirected_writes: f64,
    /// Where writes may be lost or misdirected: bytes whose damage can be noticed.
    pub metadata: Rc<[Range<Bytes>]>,
    /// Called when the device loses what it had accepted.
    pub on_loss: Option<Rc<dyn Fn()>>,
    /// Called when the device fails to flush.
    pub on_failed_flush: Option<Rc<dyn Fn()>>,
}

/// Where a write really goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    /// Where it should.
    There(Bytes),
    /// Nowhere.
    Lost,
}

/// What a device was asked to do: offset, length.
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

    /// Faults by another plan from now on.
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

    /// How many requests failed, stalled, or changed what they should not.
    pub fn injected(&self) -> u64 {
        self.inner.state.borrow().injected
    }

    /// Decides whether a request fails, and with what.
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

    /// How much of a failing write reaches the device.
    pub(crate) fn part_of(&self, len: Bytes, alignment: Bytes) -> Bytes {
        let mut state = self.inner.state.borrow_mut();
        match state.rng.below(3) {
            _ if state.plan.vanished => Bytes::ZERO,
            0 => Bytes::ZERO,
            1 => len,
            _ => Bytes(state.rng.below(len.0)).align_down(alignment.max(SECTOR)),
        }
    }

    /// How much longer an operation takes.
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

    /// How much longer a discard takes.
    pub(crate) fn discard_time(&self, len: Bytes) -> Nanos {
        self.inner.state.borrow().plan.discard_time * (len / MIB)
    }

    /// A request met a place that stays bad.
    pub(crate) fn meet_bad_place(&self, request: Operation) -> io::Error {
        self.inner.state.borrow_mut().injected += 1;
        io::Error::other(format!("injected fault: {request:?} meets a bad place"))
    }

    /// Where a write goes.
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

    /// Whether a failed flush loses what it should have made durable.
    pub(crate) fn loses_on_failed_flush(&self) -> bool {
        self.inner.state.borrow().plan.flushes_lose
    }

    /// What is to be told when the device fails to flush.
    pub(crate) fn told_of_failed_flush(&self) -> Option<Rc<dyn Fn()>> {
        self.inner.state.borrow().plan.on_failed_flush.clone()
    }

    /// Whether flushes make nothing durable.
    pub(crate) fn lies(&self) -> bool {
        self.inner.state.borrow().plan.lies
    }

    /// What is to be told when the device loses what it had accepted.
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

/// Whether two ranges have a byte in common.
pub(crate) fn overlaps(a: &Range<Bytes>, b: &Range<Bytes>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Whether all of a range lies in some of these.
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
