//! Extents of a recovered disk whose journaled bytes are not yet in place, and the choice of the next batch.
//!
//! Journaled extents are applied as a whole. Each extent has a bit in the disk's state page; if the bits do
//! not suffice, several extents share a bit. Extents may be changed only after their bit is durable: an
//! opening applies all other extents again, over the bytes in place.
//!
//! No extent with a damaged journaled range can be applied. Its bit stays clear until a guest overwrites the
//! whole extent, which replaces the journaled bytes, or until a repair gives the extent up.

use super::apply::JournaledRange;
use super::index::{Index, Lies, nowhere};
use crate::{Error, ErrorKind};
use braid_base::{Bytes, ExtentId};
use braid_format::epoch_journal::APPLIED;
use braid_runtime::Buf;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bits in a state page.
const BITS: usize = APPLIED * 8;

pub(super) struct Unapplied {
    pub index: Index,
    extent_size: Bytes,
    /// Journaled extents, in order.
    extents: Vec<ExtentId>,
    /// Extents with a damaged journaled range.
    damaged: BTreeSet<ExtentId>,
    /// Extents that a repair gave up: nothing is applied.
    given_up: BTreeSet<ExtentId>,
    /// Extents that share a bit.
    per_bit: usize,
    /// Bits whose extents are in place and flushed.
    applied: RefCell<Vec<u8>>,
    /// Bits that are also durable in the state page.
    recorded: RefCell<Vec<u8>>,
    /// Number of bits that are not recorded, and journaled bytes of their extents.
    left: Cell<(usize, Bytes)>,
    /// Bits that guests wait for.
    wanted: RefCell<BTreeSet<usize>>,
    /// Bytes that guests are about to write over whole extents.
    whole: RefCell<BTreeMap<ExtentId, Whole>>,
    /// Next bit to apply for waiting guests.
    wanted_hand: Cell<usize>,
    /// Next bit to apply if no guest waits.
    hand: Cell<usize>,
    /// Last failure to apply, cleared by the next success.
    failure: RefCell<Option<Error>>,
}

/// Bytes that a guest is about to write over a whole extent.
#[derive(Clone)]
pub(crate) enum Whole {
    Zeros,
    Bytes(Buf),
}

impl Whole {
    /// Cuts the bytes for an extent into parts of at most `longest` bytes.
    fn parts(&self, range: &Range<Bytes>, longest: Bytes) -> impl Iterator<Item = JournaledRange> {
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

/// Bytes to apply for some bits.
#[derive(Default)]
pub(super) struct Pieces {
    /// From the journal.
    pub journaled: Vec<(Range<Bytes>, Lies)>,
    /// From guests that overwrite whole extents.
    pub whole: Vec<JournaledRange>,
}

/// Approximate size of a batch.
#[derive(Clone, Copy)]
pub(super) struct Most {
    pub ranges: usize,
    pub bytes: Bytes,
}

/// State of a guest's wait for an extent.
pub(super) enum Wait {
    /// The extent is in place, durably.
    Over,
    /// The extent could not be applied.
    Failed(Error),
    /// The extent has not been tried yet.
    Pending,
}

impl Unapplied {
    /// Builds the state from an index. Bits in `recorded`, from the state page, count as applied. Nothing is
    /// applied to extents for which `is_given_up` is true.
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

    /// Journaled bytes of extents that are not recorded as applied.
    pub fn left(&self) -> Bytes {
        self.left.get().1
    }

    pub fn is_done(&self) -> bool {
        self.left.get().0 == 0
    }

    /// True if only damaged extents are left.
    pub fn is_stuck(&self) -> bool {
        !self.is_done() && self.left.get().0 == self.damaged_bits().len()
    }

    /// The last failure to apply, unless a success followed.
    pub fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// The error for damaged ranges that are left, with the remedy.
    pub fn damage(&self) -> Option<Error> {
        let (cause, ranges) = (self.index.damage()?, self.damaged_ranges());
        let bytes: Bytes = ranges.iter().map(super::len).sum();
        let text = format!(
            "{cause}: {bytes} of the volume are lost with it, the first at byte {}: write or discard all of \
             each extent ({}) to have it applied; or stop the volume, and accept the loss (braid check \
             --repair)",
            ranges.first()?.start.0,
            self.extent_size
        );
        Some(Error::new(ErrorKind::Corrupt, text))
    }

    /// Extents with damaged ranges that are not recorded as applied.
    pub fn damaged_extents(&self) -> Vec<ExtentId> {
        self.damaged.iter().copied().filter(|&extent| self.bit_of(extent).is_some()).collect()
    }

    /// Damaged ranges of these extents.
    pub fn damaged_ranges(&self) -> Vec<Range<Bytes>> {
        let within = |extent| self.index.within(self.range_of(extent), self.extent_size);
        let parts = self.damaged_extents().into_iter().flat_map(within);
        parts.filter(|(_, lies)| *lies == Lies::Damaged).map(|(range, _)| range).collect()
    }

    fn damaged_bits(&self) -> BTreeSet<usize> {
        self.damaged.iter().filter_map(|&extent| self.bit_of(extent)).collect()
    }

    /// True if a bit cannot be applied: an extent has a damaged range, and no guest is about to overwrite the
    /// whole extent.
    pub fn is_blocked(&self, bit: usize) -> bool {
        let whole = self.whole.borrow();
        let is_blocked = |extent| self.damaged.contains(extent) && !whole.contains_key(extent);
        !self.damaged.is_empty() && self.extents_of(bit).iter().any(is_blocked)
    }

    /// Returns the bit of an extent, or `None` if no journaled bytes are left to apply.
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

    /// Bytes to apply for a bit, in pieces of at most `longest` bytes.
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

    /// Bits of the next batch, up to `most`. Bits that guests wait for come first; otherwise the order of
    /// addresses counts. Bits that cannot be applied are skipped.
    pub fn next(&self, most: Most) -> Vec<usize> {
        let wanted: Vec<usize> = self.wanted.borrow().iter().copied().collect();
        let wanted = self.some(&wanted, &self.wanted_hand, most);
        if !wanted.is_empty() {
            return wanted;
        }
        let all: Vec<usize> = (0..self.extents.len().div_ceil(self.per_bit)).collect();
        self.some(&all, &self.hand, most)
    }

    /// Takes some of `bits`, from `hand` on, and advances the hand.
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

    /// Registers bytes that a guest is about to write over a whole extent. The bytes replace journaled bytes
    /// from now on, unless another guest has registered bytes before.
    pub fn write_whole(&self, extent: ExtentId, whole: &Whole) {
        self.whole.borrow_mut().entry(extent).or_insert_with(|| whole.clone());
    }

    /// Removes the registered bytes of an extent. If the extent cannot be applied without the bytes, waits of
    /// guests end with an error.
    pub fn end_whole(&self, extent: ExtentId) {
        self.whole.borrow_mut().remove(&extent);
        let blocked = self.bit_of(extent).filter(|&bit| self.is_blocked(bit));
        self.forget(blocked.as_slice());
    }

    /// Registers that a guest waits for a bit.
    pub fn want(&self, bit: usize) {
        self.wanted.borrow_mut().insert(bit);
    }

    /// Returns the state of a wait for a bit.
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
        // The failure may have been cleared by another success.
        let unknown = || Error::new(ErrorKind::Io, "the journal of epochs could not be applied");
        Wait::Failed(self.failure().unwrap_or_else(unknown))
    }

    pub fn is_anyone_waiting(&self) -> bool {
        !self.wanted.borrow().is_empty()
    }

    /// Marks bits as in place and flushed: the state page may record the bits.
    pub fn apply(&self, bits: &[usize]) {
        let mut applied = self.applied.borrow_mut();
        bits.iter().for_each(|bit| applied[bit / 8] |= 1 << (bit % 8));
    }

    /// Bits that the state page may record.
    pub fn applied(&self) -> Vec<u8> {
        self.applied.borrow().clone()
    }

    /// Marks bits as durably recorded in the state page.
    pub fn record(&self, bits: &[usize]) {
        for &bit in bits.iter().filter(|bit| !self.is_recorded(**bit)) {
            let (count, bytes) = self.left.get();
            self.left.set((count - 1, bytes - self.bytes_of(bit)));
            self.recorded.borrow_mut()[bit / 8] |= 1 << (bit % 8);
        }
        self.forget(bits);
    }

    /// Clears the last failure: the whole batch is in place.
    pub fn succeed(&self) {
        self.failure.take();
    }

    /// Marks bits as failed: waits of guests end with the error.
    pub fn fail(&self, bits: &[usize], error: Error) {
        self.failure.replace(Some(error));
        self.forget(bits);
    }

    /// Ends all waits of guests: nothing is applied any more.
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

/// Extents that some sorted ranges touch.
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
