//! What a disk that has become the volume still has in its journal alone, and which of that is to be applied next.
//!
//! Extents of which the journal has something are applied as a whole. A bit of the disk's state page stands for some of them, for one each if the bits
//! suffice. Only once that bit is durable may anyone change these extents: an opening applies all others again, over whatever lies there.

use super::index::Index;
use crate::{Error, ErrorKind};
use braid_base::{Bytes, ExtentId};
use braid_format::epoch_journal::APPLIED;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bits of a state page.
const BITS: usize = APPLIED * 8;

pub(super) struct Unapplied {
    pub index: Index,
    extent_size: Bytes,
    /// Those of which the journal has something, in order.
    extents: Vec<ExtentId>,
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
    /// Where it goes on if no guest waits.
    hand: Cell<usize>,
    /// Why something could not be applied, until something else could.
    failure: RefCell<Option<Error>>,
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
    /// All that an index has, but for what the disk says has been applied.
    pub fn new(index: Index, extent_size: Bytes, recorded: &[u8]) -> Unapplied {
        let extents = extents_of(&index, extent_size);
        let per_bit = extents.len().div_ceil(BITS).max(1);
        let bits = extents.len().div_ceil(per_bit);
        let mut known = vec![0; bits.div_ceil(8)];
        known.iter_mut().zip(recorded).for_each(|(known, recorded)| *known = *recorded);
        let unapplied = Unapplied {
            index,
            extent_size,
            extents,
            per_bit,
            applied: RefCell::new(known.clone()),
            recorded: RefCell::new(known),
            left: Cell::default(),
            wanted: RefCell::default(),
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

    pub fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// The bit of an extent, if the journal may still have something of it.
    pub fn bit_of(&self, extent: ExtentId) -> Option<usize> {
        let bit = self.extents.binary_search(&extent).ok()? / self.per_bit;
        (!self.is_recorded(bit)).then_some(bit)
    }

    /// The ranges of the extents of a bit.
    pub fn ranges_of(&self, bit: usize) -> impl Iterator<Item = Range<Bytes>> {
        let extents = self.extents.chunks(self.per_bit).nth(bit).expect("there is such a bit");
        let start = |extent: &ExtentId| self.extent_size * u64::from(extent.0);
        extents.iter().map(move |extent| start(extent)..start(extent) + self.extent_size)
    }

    fn bytes_of(&self, bit: usize) -> Bytes {
        let parts = self.ranges_of(bit).flat_map(|range| self.index.within(range, self.extent_size));
        parts.map(|(part, _)| part.end - part.start).sum()
    }

    /// What is applied next: all that guests wait for, or else what comes next in the order of addresses, about `most` ranges.
    pub fn next(&self, most: usize) -> Vec<usize> {
        let wanted: Vec<usize> = self.wanted.borrow().iter().copied().collect();
        if !wanted.is_empty() {
            return wanted;
        }
        let (bits, hand) = (self.extents.len().div_ceil(self.per_bit), self.hand.get());
        let (mut next, mut ranges) = (Vec::new(), 0);
        for bit in (hand..bits).chain(0..hand) {
            if ranges >= most {
                break;
            }
            if !self.is_recorded(bit) {
                let parts = self.ranges_of(bit).map(|range| self.index.within(range, self.extent_size).len());
                ranges += parts.sum::<usize>();
                next.push(bit);
                self.hand.set(bit + 1);
            }
        }
        next
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

fn extents_of(index: &Index, extent_size: Bytes) -> Vec<ExtentId> {
    let mut extents: Vec<ExtentId> = Vec::new();
    for range in index.ranges() {
        let (first, last) = (range.start / extent_size, (range.end - Bytes(1)) / extent_size);
        let next = extents.last().map_or(0, |last| u64::from(last.0) + 1);
        extents.extend((first.max(next)..=last).map(|extent| ExtentId(extent as u32)));
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::super::index::tests::index;
    use super::*;

    const EXTENT: Bytes = Bytes(16);

    fn unapplied(recorded: &[u8]) -> Unapplied {
        // Extents 0, 1, 4 and 9, of which 8, 16, 4 and 2 bytes are in the journal.
        let index = index(&[(8..32, Some(0)), (66..70, None), (70..71, Some(64)), (144..146, Some(90))]);
        Unapplied::new(index, EXTENT, recorded)
    }

    #[test]
    fn only_extents_that_the_journal_has_and_nobody_recorded_are_left() {
        let all = unapplied(&[]);
        assert_eq!((all.left(), all.is_done()), (Bytes(8 + 16 + 5 + 2), false));
        assert_eq!(
            [0, 1, 2, 4, 9].map(|e| all.bit_of(ExtentId(e))),
            [Some(0), Some(1), None, Some(2), Some(3)]
        );
        let some = unapplied(&[0b1_0101]);
        assert_eq!(
            (some.left(), some.bit_of(ExtentId(0)), some.bit_of(ExtentId(9))),
            (Bytes(18), None, Some(3))
        );
        assert_eq!(some.next(100), [1, 3]);
        some.apply(&[3]);
        assert_eq!(some.applied(), [0b1_1101]);
        assert_eq!(some.bit_of(ExtentId(9)), Some(3), "it is not recorded yet");
        some.record(&[3]);
        assert_eq!((some.left(), some.bit_of(ExtentId(9))), (Bytes(16), None));
        some.record(&[1, 3]);
        assert!(some.is_done() && some.left() == Bytes::ZERO && some.next(100).is_empty());
    }

    #[test]
    fn what_guests_wait_for_comes_first_and_what_fails_is_passed_over() {
        let all = unapplied(&[]);
        assert_eq!(all.next(1), [0]);
        all.want(3);
        assert_eq!(all.next(1), [3]);
        assert!(matches!(all.wait(3), Wait::Pending));
        all.fail(&[0], Error::new(ErrorKind::Io, "one"));
        assert!(matches!(all.wait(3), Wait::Pending), "another one has failed");
        all.fail(&[3], Error::new(ErrorKind::Io, "this"));
        assert!(matches!(all.wait(3), Wait::Failed(_)));
        assert_eq!(all.next(1), [1], "it goes on behind what it did last");
        assert_eq!(all.next(2), [2]);
        assert_eq!(all.next(100), [3, 0, 1, 2]);
        all.record(&[3]);
        assert!(matches!(all.wait(3), Wait::Over));
    }

    /// A journal may have something of more extents than a page has bits.
    #[test]
    fn extents_share_bits_if_these_do_not_suffice() {
        let extents = BITS as u64 + 1;
        let unapplied = Unapplied::new(index(&[(0..extents * 16, Some(0))]), EXTENT, &[]);
        assert_eq!(unapplied.bit_of(ExtentId(1)), Some(0));
        assert_eq!(unapplied.bit_of(ExtentId(2)), Some(1));
        assert_eq!(unapplied.bit_of(ExtentId(BITS as u32)), Some(BITS / 2));
        let last: Vec<_> = unapplied.ranges_of(BITS / 2).collect();
        assert_eq!(last, [Bytes((extents - 1) * 16)..Bytes(extents * 16)]);
        unapplied.apply(&[BITS / 2]);
        assert!(unapplied.applied().len() <= APPLIED);
    }
}
