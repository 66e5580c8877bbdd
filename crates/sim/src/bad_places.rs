//! Places of a disk that stay bad: over openings, and in copies of the disk.

use crate::faults::overlaps;
use braid_base::Bytes;
use std::ops::Range;

/// Kind of a bad place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    /// Unreadable until rewritten, as a sector that the drive reallocates.
    UntilWritten,
    /// Neither readable nor writable: the drive has no spare sector left.
    ForEver,
}

/// The bad places of one disk.
#[derive(Clone, Default)]
pub(crate) struct BadPlaces {
    until_written: Vec<Range<Bytes>>,
    for_ever: Vec<Range<Bytes>>,
}

impl BadPlaces {
    pub(crate) fn add(&mut self, range: Range<Bytes>, bad: Bad) {
        match bad {
            Bad::UntilWritten => self.until_written.push(range),
            Bad::ForEver => self.for_ever.push(range),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.until_written.len() + self.for_ever.len()
    }

    /// True if a read of a range fails.
    pub(crate) fn hide(&self, range: &Range<Bytes>) -> bool {
        self.refuse(range) || self.until_written.iter().any(|bad| overlaps(bad, range))
    }

    /// True if a write of a range fails.
    pub(crate) fn refuse(&self, range: &Range<Bytes>) -> bool {
        self.for_ever.iter().any(|bad| overlaps(bad, range))
    }

    /// Makes the written part of bad places readable again.
    pub(crate) fn heal(&mut self, range: &Range<Bytes>) {
        if !self.until_written.iter().any(|bad| overlaps(bad, range)) {
            return;
        }
        let rests = std::mem::take(&mut self.until_written).into_iter().flat_map(|bad| {
            let before = bad.start..bad.end.min(range.start).max(bad.start);
            let after = bad.start.max(range.end).min(bad.end)..bad.end;
            [before, after]
        });
        self.until_written = rests.filter(|rest| !rest.is_empty()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_part_of_a_bad_place_can_be_read_again() {
        let mut bad = BadPlaces::default();
        bad.add(Bytes(10)..Bytes(20), Bad::UntilWritten);
        bad.heal(&(Bytes(12)..Bytes(14)));
        assert!(!bad.hide(&(Bytes(12)..Bytes(14))) && !bad.refuse(&(Bytes(0)..Bytes(99))));
        assert!(bad.hide(&(Bytes(11)..Bytes(12))) && bad.hide(&(Bytes(14)..Bytes(15))));
        bad.heal(&(Bytes(0)..Bytes(30)));
        assert!(bad.count() == 0);
        bad.add(Bytes(10)..Bytes(20), Bad::ForEver);
        bad.heal(&(Bytes(0)..Bytes(30)));
        assert!(bad.hide(&(Bytes(19)..Bytes(20))) && bad.refuse(&(Bytes(19)..Bytes(20))));
    }
}
