//! The ranges in a journal of epochs that does not grow any more, and where each of them lies: for readers of the disk alone, and for a volume that goes on
//! with that disk.

use super::Place;
use super::journal::read_segments;
use super::numbered::Numbered;
use crate::Result;
use crate::copies::Member;
use crate::planted::{Bug, planted};
use braid_base::Bytes;
use braid_format::Uuid;
use braid_format::epoch_journal::{LONGEST_SEGMENT, PAGE, Run};
use braid_runtime::{Arena, Device};
use std::ops::Range;

/// Takes about 60 bytes of memory for each range.
pub(super) struct Index {
    /// Ranges of the volume, with the numbers of their entries.
    journaled: Numbered,
    entries: Vec<Entry>,
}

struct Entry {
    /// Where the range begins in the volume.
    start: Bytes,
    /// Where it lies on the disk; none for zeros.
    at: Option<Bytes>,
}

/// Where the newest bytes of a range lie on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lies {
    /// In their place.
    InPlace,
    /// In the journal, at this byte of the disk.
    InJournal(Bytes),
    /// Nowhere: the journal says that they are zeros.
    Zeros,
}

impl Index {
    /// Reads and verifies all of a run, for a volume that ends at `end`.
    pub async fn read<D: Device>(
        member: &Member<D>,
        (place, volume): (&Place, Uuid),
        mut run: Run,
        end: Bytes,
    ) -> Result<Index> {
        let mut index = Index { journaled: Numbered::default(), entries: Vec::new() };
        while run.segments > 0 {
            let arena = Arena::new(LONGEST_SEGMENT);
            let (segments, left) = read_segments(member, (place, volume), run, &arena, end).await?;
            for segment in segments {
                let mut at = place.ring_offset() + segment.at + PAGE;
                for (entry, _) in segment.parts {
                    let stored = entry.stored();
                    index.insert(entry.range, (!entry.zeros).then_some(at));
                    at += stored;
                }
            }
            run = left;
        }
        Ok(index)
    }

    fn insert(&mut self, range: Range<Bytes>, at: Option<Bytes>) {
        if planted(Bug::OldestSegmentWins) && self.journaled.intersects(&range) {
            return;
        }
        self.entries.push(Entry { start: range.start, at });
        self.journaled.insert(range, self.entries.len() as u64 - 1);
    }

    /// The ranges that the journal has, in order; neighbours are not joined.
    pub fn ranges(&self) -> impl Iterator<Item = Range<Bytes>> {
        self.journaled.ranges()
    }

    /// Where the first part of a range lies, and where that part ends.
    pub fn locate(&self, range: &Range<Bytes>) -> (Bytes, Lies) {
        let (part, number) = self.journaled.part_from(range.start).unwrap_or((range.end..range.end, 0));
        if part.start > range.start {
            return (part.start.min(range.end), Lies::InPlace);
        }
        let Entry { start, at } = &self.entries[number as usize];
        let lies = at.map_or(Lies::Zeros, |at| Lies::InJournal(at + (range.start - *start)));
        (part.end.min(range.end), lies)
    }

    /// What the journal has of a range, in pieces of at most `longest`.
    pub fn within(&self, range: Range<Bytes>, longest: Bytes) -> Vec<(Range<Bytes>, Lies)> {
        let (mut at, mut found) = (range.start, Vec::new());
        while at < range.end {
            let (end, lies) = self.locate(&(at..range.end));
            match lies {
                Lies::InPlace => at = end,
                _ => {
                    let end = end.min(at + longest);
                    found.push((at..end, lies));
                    at = end;
                }
            }
        }
        found
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn index(entries: &[(Range<u64>, Option<u64>)]) -> Index {
        let mut index = Index { journaled: Numbered::default(), entries: Vec::new() };
        for (range, at) in entries {
            index.insert(Bytes(range.start)..Bytes(range.end), at.map(Bytes));
        }
        index
    }

    #[test]
    fn each_byte_lies_where_the_newest_entry_that_has_it_says() {
        let index = index(&[(10..30, Some(100)), (20..24, None), (22..26, Some(200))]);
        let locate = |from, to| {
            let (end, lies) = index.locate(&(Bytes(from)..Bytes(to)));
            (end.0, lies)
        };
        assert_eq!(locate(0, 40), (10, Lies::InPlace));
        assert_eq!(locate(12, 40), (20, Lies::InJournal(Bytes(102))));
        assert_eq!(locate(20, 40), (22, Lies::Zeros));
        assert_eq!(locate(23, 25), (25, Lies::InJournal(Bytes(201))));
        assert_eq!(locate(26, 40), (30, Lies::InJournal(Bytes(116))));
        assert_eq!(locate(30, 40), (40, Lies::InPlace));
        let within: Vec<_> = index.within(Bytes(8)..Bytes(25), Bytes(6));
        let expected = [
            (10..16, Lies::InJournal(Bytes(100))),
            (16..20, Lies::InJournal(Bytes(106))),
            (20..22, Lies::Zeros),
            (22..25, Lies::InJournal(Bytes(200))),
        ];
        assert_eq!(within, expected.map(|(range, lies)| (Bytes(range.start)..Bytes(range.end), lies)));
    }
}
