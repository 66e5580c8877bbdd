//! A byte-exact model of a volume: every legal value of every byte.
//!
//! A write has a beginning and an acknowledgement (none while in flight). A write is durable if sent with
//! FUA, or if a flush began after the acknowledgement and succeeded. Write A *comes before* write B if A was
//! acknowledged before B began. Otherwise the two writes overlap in time and either may win. A byte may hold
//! - after a crash: the value of any write that does not come before a durable write; the earlier content,
//!   if no write is durable. So: the last flushed value, or the value of any later write, acknowledged or
//!   not.
//! - without a crash: the value of any write that does not come before a write acknowledged before the read
//!   began; the earlier content, if there is no such write.
//!
//! Discards and zeroing are writes of zeros. A failed write may or may not have happened: its value becomes
//! legal and displaces no other value. A value once read stays. If several values were legal and nothing was
//! in flight, the value found counts as written. After a crash, the bytes found become the truth, piece by
//! piece.
//!
//! If a device loses accepted writes ([`Oracle::doubt`]), no engine can know at that instant. From then on
//! reads prove nothing until a later flush ends. Success of a flush that began afterwards promises all
//! writes acknowledged before the flush, whatever the devices lost. After a failed flush, each write that is
//! not durable may or may not have happened, and no other value is legal.
//!
//! A clone shares all bytes with its original. Its cost is a list of the writes that still matter.

mod after_crash;
mod check;
mod flushes;
mod history;
mod settle;

pub use check::Mismatch;

use crate::stamp::stamp;
use braid_base::Bytes;
use braid_engine::Durability;
use flushes::FlushStates;
use history::{EventKind, History};
use std::ops::Range;
use std::rc::Rc;

/// All knowledge about the bytes of a volume.
#[derive(Clone)]
pub struct Oracle {
    /// Content beneath all `writes`.
    base: Rc<Vec<u8>>,
    /// Writes that still decide the value of some byte, in the order in which they began.
    writes: Vec<Write>,
    flushes: Vec<(FlushId, Moment)>,
    reads: Vec<(ReadId, Moment)>,
    /// Number of events so far: a clock.
    now: Moment,
    next_write: u64,
    /// True after a crash until all readable bytes have been read.
    is_crashed: bool,
    /// Time at which a device lost accepted writes, if no later flush has succeeded.
    doubted: Option<Moment>,
    /// Time of the latest loss of accepted writes, failed flush of a device, or failed flush of the engine,
    /// if no later flush has succeeded. Until then only durable writes outlive the software.
    lost: Option<Moment>,
    /// Time at which the engine last learned of a loss: reads that began earlier prove nothing.
    known: Moment,
    history: History,
    /// States at earlier flushes, if kept.
    flush_states: Option<FlushStates>,
}

/// Number of a write that has begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// Number of a flush that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushId(Moment);

/// Number of a read that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadId(Moment);

type Moment = u64;

#[derive(Clone)]
struct Write {
    id: WriteId,
    range: Range<usize>,
    content: WriteContent,
    begun: Moment,
    acknowledged: Option<Moment>,
    is_durable: bool,
    outcome: WriteOutcome,
    /// The parts of `range` for which this write still matters, in order.
    parts: Vec<Range<usize>>,
}

#[derive(Clone)]
enum WriteContent {
    Bytes(Rc<[u8]>),
    Zeros,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteOutcome {
    /// Happens, or has happened.
    Certain,
    /// Failed: may have happened.
    Failed,
    /// Not a write: the value that a read found among several legal values.
    Observed,
}

/// Number of writes from which forgetting irrelevant writes pays.
const SETTLE_FROM: usize = 48;

impl Oracle {
    /// Creates a volume of `size` full of zeros.
    pub fn new(size: Bytes) -> Oracle {
        Oracle {
            base: Rc::new(vec![0; size.as_usize()]),
            writes: Vec::new(),
            flushes: Vec::new(),
            reads: Vec::new(),
            now: 0,
            next_write: 0,
            is_crashed: false,
            doubted: None,
            lost: None,
            known: 0,
            history: History::default(),
            flush_states: None,
        }
    }

    /// The volume's size.
    pub fn size(&self) -> Bytes {
        Bytes::of_len(self.base.len())
    }

    /// Fills `bytes` with a stamp of the next write at `offset`, so that a [`Mismatch`] can name the write.
    pub fn stamp_next(&self, offset: Bytes, bytes: &mut [u8]) {
        stamp(self.next_write, offset, bytes);
    }

    /// A write of `bytes` begins.
    pub fn begin_write(&mut self, offset: Bytes, bytes: &[u8]) -> WriteId {
        self.begin(offset, bytes.len(), WriteContent::Bytes(bytes.into()))
    }

    /// A discard, or a write of zeros, begins.
    pub fn begin_zero(&mut self, offset: Bytes, len: Bytes) -> WriteId {
        self.begin(offset, len.as_usize(), WriteContent::Zeros)
    }

    /// A write, discard or zeroing was acknowledged.
    pub fn end_write(&mut self, id: WriteId, durability: Durability) {
        self.end(id, WriteOutcome::Certain, durability);
        if durability == Durability::Fua {
            self.settle_if_many();
        }
    }

    /// A write, discard or zeroing ended with an error.
    pub fn fail_write(&mut self, id: WriteId) {
        self.end(id, WriteOutcome::Failed, Durability::Volatile);
    }

    /// A flush begins: success covers all writes acknowledged until now.
    pub fn begin_flush(&mut self) -> FlushId {
        let now = self.tick();
        self.flushes.push((FlushId(now), now));
        FlushId(now)
    }

    /// A flush was acknowledged.
    pub fn end_flush(&mut self, id: FlushId) {
        let begun = take_open(&mut self.flushes, id);
        let now = self.tick();
        self.history.add(now, None, EventKind::FlushEnds(begun));
        self.writes
            .iter_mut()
            .filter(|write| write.is_before(begun))
            .for_each(|write| write.is_durable = true);
        self.doubted = self.doubted.filter(|doubted| begun < *doubted);
        self.lost = self.lost.filter(|lost| begun < *lost);
        self.keep_flush_state();
        self.settle_if_many();
    }

    /// A flush ended with an error and makes nothing durable. If a device had lost accepted writes, the
    /// engine knows now. From now on, each write that is not durable may or may not have happened.
    pub fn fail_flush(&mut self, id: FlushId) {
        take_open(&mut self.flushes, id);
        let now = self.tick();
        self.lost = self.lost.max(Some(now));
        if self.doubted.take().is_some() {
            self.known = now;
            let volatile = self.writes.iter_mut().filter(|write| !write.is_durable);
            volatile.for_each(|write| write.outcome = WriteOutcome::Failed);
        }
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> ReadId {
        let now = self.tick();
        self.reads.push((ReadId(now), now));
        ReadId(now)
    }

    /// A read ended and returned `found`.
    ///
    /// # Errors
    /// If some byte has no legal value.
    pub fn end_read(&mut self, id: ReadId, offset: Bytes, found: &[u8]) -> Result<(), Mismatch> {
        let begun = take_open(&mut self.reads, id);
        self.check_read(offset.as_usize(), found, begun)
    }

    /// A read ended with an error.
    pub fn fail_read(&mut self, id: ReadId) {
        take_open(&mut self.reads, id);
    }

    /// Checks `found`, the result of a read that nothing overlapped.
    ///
    /// # Errors
    /// If some byte has no legal value.
    pub fn expect_read(&mut self, offset: Bytes, found: &[u8]) -> Result<(), Mismatch> {
        let id = self.begin_read();
        self.end_read(id, offset, found)
    }

    fn begin(&mut self, offset: Bytes, len: usize, content: WriteContent) -> WriteId {
        assert!(!self.is_crashed, "verify the volume before it is written again");
        let range = offset.as_usize()..offset.as_usize() + len;
        assert!(range.end <= self.base.len(), "a write of {range:?} beyond {}", self.base.len());
        let kind = if matches!(content, WriteContent::Zeros) {
            EventKind::ZeroBegins
        } else {
            EventKind::WriteBegins
        };
        let id = self.push(range.clone(), content).id;
        self.history.add(self.now, Some(range), kind(id));
        id
    }

    /// Adds a write that begins now.
    fn push(&mut self, range: Range<usize>, content: WriteContent) -> &mut Write {
        let id = WriteId(self.next_write);
        self.next_write += 1;
        let begun = self.tick();
        self.writes.push(Write {
            id,
            parts: vec![range.clone()],
            range,
            content,
            begun,
            acknowledged: None,
            is_durable: false,
            outcome: WriteOutcome::Certain,
        });
        self.writes.last_mut().expect("it was pushed just now")
    }

    fn end(&mut self, id: WriteId, outcome: WriteOutcome, durability: Durability) {
        let now = self.tick();
        let at = self.writes.binary_search_by_key(&id, |write| write.id);
        let write =
            &mut self.writes[at.expect("a write that ends has begun in this life, and has not ended")];
        assert_eq!(write.acknowledged.replace(now), None, "write {} ended twice", id.0);
        write.is_durable = durability == Durability::Fua;
        // A write in flight at the time of a loss may be among the lost writes.
        if write.is_durable || write.outcome != WriteOutcome::Failed {
            write.outcome = outcome;
        }
        let kind = match outcome {
            WriteOutcome::Failed => EventKind::Failed(id),
            _ => EventKind::Acknowledged(id, durability),
        };
        self.history.add(now, Some(write.range.clone()), kind);
    }

    fn settle_if_many(&mut self) {
        if self.writes.len() >= SETTLE_FROM {
            self.settle();
        }
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }
}

impl Write {
    /// True if this write hides earlier writes.
    fn displaces(&self) -> bool {
        self.outcome != WriteOutcome::Failed
    }

    /// True if the write was acknowledged before `moment`.
    fn is_before(&self, moment: Moment) -> bool {
        self.acknowledged.is_some_and(|acknowledged| acknowledged < moment)
    }

    /// Returns the bytes written to a part of the range; `None` means zeros.
    fn bytes(&self, part: &Range<usize>) -> Option<&[u8]> {
        match &self.content {
            WriteContent::Bytes(bytes) => {
                Some(&bytes[part.start - self.range.start..part.end - self.range.start])
            }
            WriteContent::Zeros => None,
        }
    }
}

fn take_open<Id: PartialEq>(open: &mut Vec<(Id, Moment)>, id: Id) -> Moment {
    let at = open.iter().position(|(other, _)| *other == id);
    open.swap_remove(at.expect("what ends has begun in this life, and has not ended")).1
}

#[cfg(test)]
mod tests;
