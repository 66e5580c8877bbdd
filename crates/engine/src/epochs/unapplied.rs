//! What a disk that has become the volume still has in its journal alone, and which of that is to be applied
//! next.
//!
//! Extents of which the journal has something are applied as a whole. A bit of the disk's state page stands
//! for some of them, for one each if the bits suffice. Only once that bit is durable may anyone change these
//! extents: an opening applies all others again, over whatever lies there.
//!
//! If a part of the journal is damaged, nothing can be applied to the extents of which it had something:
//! their bits stay as they are until a guest writes all of the extent, which counts instead of what the
//! journal had, or until a repair gives them up.

use super::apply::Part;
use super::index::{Index, Lies, nowhere};
use crate::{Error, ErrorKind};
use braid_base::{Bytes, ExtentId};
use braid_format::epoch_journal::APPLIED;
use braid_runtime::Buf;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bits of a state page.
const BITS: usize = APPLIED * 8;

pub(super) struct Unapplied {
    pub index: Index,
    extent_size: Bytes,
    /// Those of which the journal has something, in order.
    extents: Vec<ExtentId>,
    /// Those of them of which something is nowhere any more.
    damaged: BTreeSet<ExtentId>,
    /// Those that were given up: nothing is applied to them.
    given_up: BTreeSet<ExtentId>,
    /// How many of them share a bit.
    per_bit: usize,
    /// Which bits are in their place and flushed, …
    applied: RefCell<Vec<u8>>,
    /// … and of which of these the disk says so, durably.
    recorded: RefCell<Vec<u8>>,
    /// How many bits are not recorded, and how many bytes the journal has of their extents.
    left: Cell<(usize, Bytes)>,
    /// Bits that guests wait for.
    wanted: RefCell<BTreeSet<usize>>,
    /// What guests are about to write over all of an extent.
    whole: RefCell<BTreeMap<ExtentId, Whole>>,
    /// Where it goes on, with what guests wait for, …
    wanted_hand: Cell<usize>,
    /// … and if no guest waits.
    hand: Cell<usize>,
    /// Why something could not be applied, until something else could.
    failure: RefCell<Option<Error>>,
}

/// What a guest is about to write over all of an extent.
#[derive(Clone)]
pub(crate) enum Whole {
    Zeros,
    Bytes(Buf),
}

impl Whole {
    /// An extent that is to hold this, in pieces of at most `longest`.
    fn parts(&self, range: &Range<Bytes>, longest: Bytes) -> impl Iterator<Item = Part> {
        let pieces = super::len(range).0.div_ceil(longest.0);
        (0..pieces).map(move |i| {
            let within = longest * i..(longest * (i + 1)).min(super::len(range));
            let part = range.start + within.start..range.start + within.end;
            match self {
                Whole::Zeros => (part, None),
                Whole::Bytes(bytes) => (part, Some(bytes.slice(within))),
            }
        })
    }
}

/// What is applied of some bits.
#[derive(Default)]
pub(super) struct Pieces {
    /// What the journal has, …
    pub journaled: Vec<(Range<Bytes>, Lies)>,
    /// … and what guests are about to write.
    pub whole: Vec<Part>,
}

/// How much is applied at once, about.
#[derive(Clone, Copy)]
pub(super) struct Most {
    pub ranges: usize,
    pub bytes: Bytes,
}

/// How a guest's wait for an extent stands.
pub(super) enum Wait {
    /// All of it is in its place, durably.
    Over,
    /// It could not be applied.
    Failed(Error),
    /// It has not been tried yet.
    Pending,
}

impl Unapplied {
    /// All that an index has, but for what the disk says has been applied, and for extents that
    /// `is_given_up`.
    pub fn new(
        index: Index,
        extent_size: Bytes,
        recorded: &[u8],
        is_given_up: impl Fn(ExtentId) -> bool,
    ) -> Unapplied {
        let extents = extents_of(index.ranges(), extent_size);
        let given_up: BTreeSet<_> = extents.iter().copied().filter(|extent| is_given_up(*extent)).collect();
        let mut damaged = BTreeSet::from_iter(extents_of(index.damaged().into_iter(), extent_size));
        damaged.retain(|extent| !given_up.contains(extent));
        let per_bit = extents.len().div_ceil(BITS).max(1);
        let bits = extents.len().div_ceil(per_bit);
        let mut known = vec![0; bits.div_ceil(8)];
        known.iter_mut().zip(recorded).for_each(|(known, recorded)| *known = *recorded);
        let unapplied = Unapplied {
            index,
            extent_size,
            extents,
            damaged,
            given_up,
            per_bit,
            applied: RefCell::new(known.clone()),
            recorded: RefCell::new(known),
            left: Cell::default(),
            wanted: RefCell::default(),
            whole: RefCell::default(),
            wanted_hand: Cell::new(0),
            hand: Cell::new(0),
            failure: RefCell::default(),
        };
        let left: Vec<usize> = (0..bits).filter(|&bit| !unapplied.is_recorded(bit)).collect();
        let bytes = left.iter().map(|&bit| unapplied.bytes_of(bit)).sum();
        unapplied.left.set((left.len(), bytes));
        unapplied
    }

    /// How many bytes the journal has of extents that are not recorded as applied.
    pub fn left(&self) -> Bytes {
        self.left.get().1
    }

    pub fn is_done(&self) -> bool {
        self.left.get().0 == 0
    }

    /// Whether all that is left is damaged.
    pub fn is_stuck(&self) -> bool {
        !self.is_done() && self.left.get().0 == self.damaged_bits().len()
    }

    /// Why something could not be applied last.
    pub fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// What cannot be applied any more, with the way out.
    pub fn damage(&self) -> Option<Error> {
        let (cause, ranges) = (self.index.damage()?, self.damaged_ranges());
        let bytes: Bytes = ranges.iter().map(super::len).sum();
        let text = format!(
            "{cause}: {bytes} of the volume are lost with it, the first at byte {}: each of their extents ({}) is applied once all of it has been written, or \
             discarded; or stop the volume, and give these up (braid check --repair)",
            ranges.first()?.start.0,
            self.extent_size
        );
        Some(Error::new(ErrorKind::Corrupt, text))
    }

    /// Extents that are not recorded as applied and of which something is nowhere any more.
    pub fn damaged_extents(&self) -> Vec<ExtentId> {
        self.damaged.iter().copied().filter(|&extent| self.bit_of(extent).is_some()).collect()
    }

    /// What of them is.
    pub fn damaged_ranges(&self) -> Vec<Range<Bytes>> {
        let within = |extent| self.index.within(self.range_of(extent), self.extent_size);
        let parts = self.damaged_extents().into_iter().flat_map(within);
        parts.filter(|(_, lies)| *lies == Lies::Damaged).map(|(range, _)| range).collect()
    }

    fn damaged_bits(&self) -> BTreeSet<usize> {
        self.damaged.iter().filter_map(|&extent| self.bit_of(extent)).collect()
    }

    /// Whether a bit cannot be applied: of one of its extents something is nowhere any more, and no guest is
    /// about to write all of that.
    pub fn is_blocked(&self, bit: usize) -> bool {
        let whole = self.whole.borrow();
        let is_blocked = |extent| self.damaged.contains(extent) && !whole.contains_key(extent);
        !self.damaged.is_empty() && self.extents_of(bit).iter().any(is_blocked)
    }

    /// The bit of an extent, if the journal may still have something of it.
    pub fn bit_of(&self, extent: ExtentId) -> Option<usize> {
        let bit = self.extents.binary_search(&extent).ok()? / self.per_bit;
        (!self.is_recorded(bit)).then_some(bit)
    }

    fn extents_of(&self, bit: usize) -> &[ExtentId] {
        self.extents.chunks(self.per_bit).nth(bit).expect("there is such a bit")
    }

    fn range_of(&self, extent: ExtentId) -> Range<Bytes> {
        let start = self.extent_size * u64::from(extent.0);
        start..start + self.extent_size
    }

    fn bytes_of(&self, bit: usize) -> Bytes {
        let extents = self.extents_of(bit).iter().filter(|extent| !self.given_up.contains(extent));
        let parts = extents.flat_map(|&extent| self.index.within(self.range_of(extent), self.extent_size));
        parts.map(|(part, _)| super::len(&part)).sum()
    }

    /// What is applied of a bit, in pieces of at most `longest`.
    pub fn pieces_of(&self, bit: usize, longest: Bytes) -> Pieces {
        let (mut pieces, whole) = (Pieces::default(), self.whole.borrow());
        for &extent in self.extents_of(bit).iter().filter(|extent| !self.given_up.contains(extent)) {
            let range = self.range_of(extent);
            match whole.get(&extent) {
                Some(whole) => pieces.whole.extend(whole.parts(&range, longest)),
                None => pieces.journaled.extend(self.index.within(range, longest)),
            }
        }
        pieces
    }

    /// What is applied next, and can be: what guests wait for, or else what comes next in the order of
    /// addresses, until there is enough.
    pub fn next(&self, most: Most) -> Vec<usize> {
        let wanted: Vec<usize> = self.wanted.borrow().iter().copied().collect();
        let wanted = self.some(&wanted, &self.wanted_hand, most);
        if !wanted.is_empty() {
            return wanted;
        }
        let all: Vec<usize> = (0..self.extents.len().div_ceil(self.per_bit)).collect();
        self.some(&all, &self.hand, most)
    }

    /// Some of these bits from a hand on, which goes on.
    fn some(&self, bits: &[usize], hand: &Cell<usize>, most: Most) -> Vec<usize> {
        let (before, behind) = bits.split_at(bits.partition_point(|&bit| bit < hand.get()));
        let (mut next, mut ranges, mut bytes) = (Vec::new(), 0, Bytes::ZERO);
        for &bit in behind.iter().chain(before) {
            if ranges >= most.ranges || bytes >= most.bytes {
                break;
            }
            if !self.is_recorded(bit) && !self.is_blocked(bit) {
                let Pieces { journaled, whole } = self.pieces_of(bit, self.extent_size);
                let all =
                    journaled.iter().map(|(range, _)| range).chain(whole.iter().map(|(range, _)| range));
                ranges += journaled.len() + whole.len();
                bytes += all.map(super::len).sum();
                next.push(bit);
                hand.set(bit + 1);
            }
        }
        next
    }

    /// A guest is about to write all of an extent: that counts from now on, instead of what the journal has
    /// of it, unless another guest's does.
    pub fn write_whole(&self, extent: ExtentId, whole: &Whole) {
        self.whole.borrow_mut().entry(extent).or_insert_with(|| whole.clone());
    }

    /// It counts no more. Guests that wait for what cannot be applied without it are told so.
    pub fn end_whole(&self, extent: ExtentId) {
        self.whole.borrow_mut().remove(&extent);
        let blocked = self.bit_of(extent).filter(|&bit| self.is_blocked(bit));
        self.forget(blocked.as_slice());
    }

    /// A guest waits for a bit.
    pub fn want(&self, bit: usize) {
        self.wanted.borrow_mut().insert(bit);
    }

    /// How its wait stands.
    pub fn wait(&self, bit: usize) -> Wait {
        if self.is_recorded(bit) {
            return Wait::Over;
        }
        if self.wanted.borrow().contains(&bit) {
            return Wait::Pending;
        }
        if self.is_blocked(bit) {
            let ranges = self.damaged_ranges().into_iter();
            let of_bit =
                |range: &Range<Bytes>| self.bit_of(ExtentId((range.start / self.extent_size) as u32));
            if let Some(range) = ranges.into_iter().find(|range| of_bit(range) == Some(bit)) {
                return Wait::Failed(nowhere(&range));
            }
        }
        // Something else may have succeeded since.
        let unknown = || Error::new(ErrorKind::Io, "what the journal of epochs has could not be applied");
        Wait::Failed(self.failure().unwrap_or_else(unknown))
    }

    pub fn is_anyone_waiting(&self) -> bool {
        !self.wanted.borrow().is_empty()
    }

    /// These are in their place, and flushed: the disk may say so.
    pub fn apply(&self, bits: &[usize]) {
        let mut applied = self.applied.borrow_mut();
        bits.iter().for_each(|bit| applied[bit / 8] |= 1 << (bit % 8));
    }

    /// All that the disk may say.
    pub fn applied(&self) -> Vec<u8> {
        self.applied.borrow().clone()
    }

    /// The disk says so of these, durably.
    pub fn record(&self, bits: &[usize]) {
        for &bit in bits.iter().filter(|bit| !self.is_recorded(**bit)) {
            let (count, bytes) = self.left.get();
            self.left.set((count - 1, bytes - self.bytes_of(bit)));
            self.recorded.borrow_mut()[bit / 8] |= 1 << (bit % 8);
        }
        self.forget(bits);
    }

    /// All that was to be applied is in its place: what failed before was something of that.
    pub fn succeed(&self) {
        self.failure.take();
    }

    /// These could not be applied: guests that wait for them are told so.
    pub fn fail(&self, bits: &[usize], error: Error) {
        self.failure.replace(Some(error));
        self.forget(bits);
    }

    /// Nothing is applied any more: guests that wait are told so.
    pub fn end(&self, error: Error) {
        self.failure.replace(Some(error));
        self.wanted.borrow_mut().clear();
    }

    fn forget(&self, bits: &[usize]) {
        let mut wanted = self.wanted.borrow_mut();
        wanted.retain(|bit| !bits.contains(bit));
    }

    fn is_recorded(&self, bit: usize) -> bool {
        self.recorded.borrow()[bit / 8] >> (bit % 8) & 1 == 1
    }
}

/// The extents of some ranges, which are in order.
fn extents_of(ranges: impl Iterator<Item = Range<Bytes>>, extent_size: Bytes) -> Vec<ExtentId> {
    let mut extents: Vec<ExtentId> = Vec::new();
    for range in ranges {
        let (first, last) = (range.start / extent_size, (range.end - Bytes(1)) / extent_size);
        let next = extents.last().map_or(0, |last| u64::from(last.0) + 1);
        extents.extend((first.max(next)..=last).map(|extent| ExtentId(extent as u32)));
    }
    extents
}

#[cfg(test)]
mod tests;
