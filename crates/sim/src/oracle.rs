//! What a volume may answer: a byte-exact model of every legal value of every byte.
//!
//! Each write has a beginning, an acknowledgement (none while in flight) and may be durable: by a flush that
//! began after the acknowledgement and has ended, or by FUA. Write A *comes before* write B where A was
//! acknowledged before B began; otherwise they overlap in time and either's byte may be on top. Then a byte
//! may hold
//! - after a crash: the value of any write that does not come before a durable one; what was there before all
//!   of them, if none is durable. So: the last flushed value, or any later write's, acknowledged or not.
//! - without a crash: the value of any write that does not come before one acknowledged before the read
//!   began; what was there before, if there is none.
//!
//! Discards and zeroing are writes of zeros. A failed write may or may not have happened: it makes its value
//! legal and displaces no other. What was read once stays: if several values were legal and nothing was in
//! flight, the value found counts as written; and after a crash what was found becomes the truth, piece by
//! piece.
//!
//! When a device loses what it had accepted ([`Oracle::doubt`]), no engine can know at that instant, and
//! reads prove nothing until a flush succeeds that began afterwards: it promises all that was acknowledged
//! before, whatever the devices lost. Or until one fails: then what is not durable may have happened or not,
//! and is nothing else.
//!
//! A clone shares all bytes with its original: it costs a list of the writes that still matter.

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
use history::{History, Kind};
use std::ops::Range;
use std::rc::Rc;

/// All that is known about a volume's bytes.
#[derive(Clone)]
pub struct Oracle {
    /// What lies beneath all `writes`.
    base: Rc<Vec<u8>>,
    /// Writes that still decide what some byte may be, in the order in which they began.
    writes: Vec<Write>,
    flushes: Vec<(FlushId, Moment)>,
    reads: Vec<(ReadId, Moment)>,
    /// The number of events so far: a clock.
    now: Moment,
    next_write: u64,
    /// A crash happened, and not all that can be read has been looked at.
    is_crashed: bool,
    /// When a device lost what it had accepted, if no flush that began later has succeeded.
    doubted: Option<Moment>,
    /// When a device last lost what it had accepted, or failed to flush, and when an engine got to know of a
    /// loss; if no flush that began later has succeeded. Until then nothing but what is durable outlives the
    /// software.
    lost: Option<Moment>,
    /// When the engine last got to know of such a loss: reads that began before prove nothing.
    known: Moment,
    history: History,
    /// States at earlier flushes, if they are kept.
    flush_states: Option<FlushStates>,
}

/// A write that was begun, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// A flush that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushId(Moment);

/// A read that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadId(Moment);

type Moment = u64;

#[derive(Clone)]
struct Write {
    id: WriteId,
    range: Range<usize>,
    content: Content,
    begun: Moment,
    acknowledged: Option<Moment>,
    is_durable: bool,
    outcome: Outcome,
    /// The parts of `range` for which this write still matters, in order.
    parts: Vec<Range<usize>>,
}

#[derive(Clone)]
enum Content {
    Bytes(Rc<[u8]>),
    Zeros,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Happens, or has happened.
    Certain,
    /// Failed: may have happened.
    Failed,
    /// Not a write: what a read found where several values were legal.
    Observed,
}

/// The number of writes from which on it pays to forget those that no longer matter.
const SETTLE_FROM: usize = 48;

impl Oracle {
    /// A volume of `size` that reads as zeros.
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

    /// Fills `bytes` with what the next write should write at `offset`, so that a [`Mismatch`] can name it.
    pub fn stamp_next(&self, offset: Bytes, bytes: &mut [u8]) {
        stamp(self.next_write, offset, bytes);
    }

    /// A write of `bytes` begins.
    pub fn begin_write(&mut self, offset: Bytes, bytes: &[u8]) -> WriteId {
        self.begin(offset, bytes.len(), Content::Bytes(bytes.into()))
    }

    /// A discard, or a write of zeros, begins.
    pub fn begin_zero(&mut self, offset: Bytes, len: Bytes) -> WriteId {
        self.begin(offset, len.as_usize(), Content::Zeros)
    }

    /// A write, discard or zeroing was acknowledged.
    pub fn end_write(&mut self, id: WriteId, durability: Durability) {
        self.end(id, Outcome::Certain, durability);
        if durability == Durability::Fua {
            self.settle_if_many();
        }
    }

    /// A write, discard or zeroing ended with an error.
    pub fn fail_write(&mut self, id: WriteId) {
        self.end(id, Outcome::Failed, Durability::Volatile);
    }

    /// A flush begins: it will cover what was acknowledged until now.
    pub fn begin_flush(&mut self) -> FlushId {
        let now = self.tick();
        self.flushes.push((FlushId(now), now));
        FlushId(now)
    }

    /// A flush was acknowledged.
    pub fn end_flush(&mut self, id: FlushId) {
        let begun = take_open(&mut self.flushes, id);
        let now = self.tick();
        self.history.add(now, None, Kind::FlushEnds(begun));
        self.writes
            .iter_mut()
            .filter(|write| write.is_before(begun))
            .for_each(|write| write.is_durable = true);
        self.doubted = self.doubted.filter(|doubted| begun < *doubted);
        self.lost = self.lost.filter(|lost| begun < *lost);
        self.keep_flush_state();
        self.settle_if_many();
    }

    /// A flush ended with an error: it makes nothing durable. If a device had lost what it had accepted, the
    /// engine knows that now: what is not durable may have happened or not, and what is read from now on is
    /// one of that.
    pub fn fail_flush(&mut self, id: FlushId) {
        take_open(&mut self.flushes, id);
        let now = self.tick();
        self.lost = self.lost.max(Some(now));
        if self.doubted.take().is_some() {
            self.known = now;
            let volatile = self.writes.iter_mut().filter(|write| !write.is_durable);
            volatile.for_each(|write| write.outcome = Outcome::Failed);
        }
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> ReadId {
        let now = self.tick();
        self.reads.push((ReadId(now), now));
        ReadId(now)
    }

    /// A read ended and gave `found`.
    ///
    /// # Errors
    /// If some byte is not what it may be.
    pub fn end_read(&mut self, id: ReadId, offset: Bytes, found: &[u8]) -> Result<(), Mismatch> {
        let begun = take_open(&mut self.reads, id);
        self.check_read(offset.as_usize(), found, begun)
    }

    /// A read ended with an error.
    pub fn fail_read(&mut self, id: ReadId) {
        take_open(&mut self.reads, id);
    }

    /// A read that nothing overlapped gave `found`.
    ///
    /// # Errors
    /// If some byte is not what it may be.
    pub fn expect_read(&mut self, offset: Bytes, found: &[u8]) -> Result<(), Mismatch> {
        let id = self.begin_read();
        self.end_read(id, offset, found)
    }

    fn begin(&mut self, offset: Bytes, len: usize, content: Content) -> WriteId {
        assert!(!self.is_crashed, "verify the volume before it is written again");
        let range = offset.as_usize()..offset.as_usize() + len;
        assert!(range.end <= self.base.len(), "a write of {range:?} beyond {}", self.base.len());
        let kind = if matches!(content, Content::Zeros) { Kind::ZeroBegins } else { Kind::WriteBegins };
        let id = self.push(range.clone(), content).id;
        self.history.add(self.now, Some(range), kind(id));
        id
    }

    /// Adds a write that begins now.
    fn push(&mut self, range: Range<usize>, content: Content) -> &mut Write {
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
            outcome: Outcome::Certain,
        });
        self.writes.last_mut().expect("it was pushed just now")
    }

    fn end(&mut self, id: WriteId, outcome: Outcome, durability: Durability) {
        let now = self.tick();
        let at = self.writes.binary_search_by_key(&id, |write| write.id);
        let write =
            &mut self.writes[at.expect("a write that ends has begun in this life, and has not ended")];
        assert_eq!(write.acknowledged.replace(now), None, "write {} ended twice", id.0);
        write.is_durable = durability == Durability::Fua;
        // What was under way when a device lost something may be among that.
        if write.is_durable || write.outcome != Outcome::Failed {
            write.outcome = outcome;
        }
        let kind = match outcome {
            Outcome::Failed => Kind::Failed(id),
            _ => Kind::Acknowledged(id, durability),
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
    /// Whether this write, where it counts, hides what came before it.
    fn displaces(&self) -> bool {
        self.outcome != Outcome::Failed
    }

    /// Whether it was acknowledged before `moment`.
    fn is_before(&self, moment: Moment) -> bool {
        self.acknowledged.is_some_and(|acknowledged| acknowledged < moment)
    }

    /// What it wrote to a part of its range; `None` stands for zeros.
    fn bytes(&self, part: &Range<usize>) -> Option<&[u8]> {
        match &self.content {
            Content::Bytes(bytes) => Some(&bytes[part.start - self.range.start..part.end - self.range.start]),
            Content::Zeros => None,
        }
    }
}

fn take_open<Id: PartialEq>(open: &mut Vec<(Id, Moment)>, id: Id) -> Moment {
    let at = open.iter().position(|(other, _)| *other == id);
    open.swap_remove(at.expect("what ends has begun in this life, and has not ended")).1
}

#[cfg(test)]
mod tests;
