//! Index of a journal of epochs that does not grow any more: each journaled range with its place. Used by
//! readers of the disk alone, and by a recovered volume.

use super::EpochRegion;
use super::journal::read_segments;
use super::numbered::Numbered;
use crate::devices::Member;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::epoch_journal::{LONGEST_SEGMENT, PAGE, Run};
use braid_runtime::{Arena, Device};
use std::ops::Range;

/// Index of a run of segments. Takes about 60 bytes of memory for each range.
#[derive(Default)]
pub(crate) struct Index {
    /// Ranges of the volume, each with an index into `entries`.
    journaled: Numbered,
    entries: Vec<Entry>,
    /// The first damage of a segment's bytes, if any.
    damage: Option<Error>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// Start of the range in the volume.
    start: Bytes,
    /// Place of the range's first byte.
    lies: Lies,
}

/// Place of the newest bytes of a range on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lies {
    /// In place.
    InPlace,
    /// In the journal, at this byte of the disk.
    InJournal(Bytes),
    /// Nowhere: the journal says zeros.
    Zeros,
    /// Lost: the journaled bytes are damaged, and the bytes in place are older.
    Damaged,
}

impl Index {
    /// Reads and verifies a whole run, for a volume that ends at `end`. If the bytes of a segment are
    /// damaged, all ranges with bytes in the segment are damaged.
    ///
    /// # Errors
    /// For an index page that is unreadable or damaged.
    pub async fn read<D: Device>(
        member: &Member<D>,
        place: &EpochRegion,
        mut run: Run,
        end: Bytes,
    ) -> Result<Index> {
        let mut index = Index::default();
        while run.segments > 0 {
            let arena = Arena::new(LONGEST_SEGMENT);
            let (segments, left) = read_segments(member, place, run, &arena, end).await?;
            for segment in segments {
                let mut at = place.ring_offset() + segment.at + PAGE;
                for entry in segment.entries {
                    let stored = entry.stored();
                    let lies = match &segment.content {
                        _ if entry.zeros => Lies::Zeros,
                        Ok(_) => Lies::InJournal(at),
                        Err(_) if planted(Bug::DamagedReadInPlace) => Lies::InPlace,
                        Err(_) => Lies::Damaged,
                    };
                    index.insert(entry.range, lies);
                    at += stored;
                }
                if let Err(error) = segment.content {
                    tracing::error!(
                        %error,
                        "ranges of the volume are lost with a part of the journal of epochs"
                    );
                    index.damage.get_or_insert(error);
                }
            }
            run = left;
        }
        Ok(index)
    }

    fn insert(&mut self, range: Range<Bytes>, lies: Lies) {
        if planted(Bug::OldestSegmentWins) && self.journaled.intersects(&range) {
            return;
        }
        self.entries.push(Entry { start: range.start, lies });
        self.journaled.insert(range, self.entries.len() as u64 - 1);
    }

    /// Journaled ranges, in order; neighbours are not joined.
    pub fn ranges(&self) -> impl Iterator<Item = Range<Bytes>> {
        self.journaled.ranges()
    }

    /// Returns the end and the place of the first part of a range.
    pub fn locate(&self, range: &Range<Bytes>) -> (Bytes, Lies) {
        let (part, number) = self.journaled.part_from(range.start).unwrap_or((range.end..range.end, 0));
        if part.start > range.start {
            return (part.start.min(range.end), Lies::InPlace);
        }
        let Entry { start, lies } = self.entries[number as usize];
        let lies = match lies {
            Lies::InJournal(at) => Lies::InJournal(at + (range.start - start)),
            other => other,
        };
        (part.end.min(range.end), lies)
    }

    /// Journaled parts of a range, in pieces of at most `longest` bytes.
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

    /// The first damage of a segment's bytes, if any.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Damaged ranges, in order. The cost is linear in the number of ranges if there is any damage, and
    /// nothing otherwise.
    pub fn damaged(&self) -> Vec<Range<Bytes>> {
        let is_damaged = |range: &Range<Bytes>| self.locate(range).1 == Lies::Damaged;
        let all = self.damage.iter().flat_map(|_| self.ranges());
        all.filter(is_damaged).collect()
    }
}

/// The error for a read of a damaged range.
pub(crate) fn nowhere(range: &Range<Bytes>) -> Error {
    let text = format!(
        "{} from byte {} of the volume were in a damaged part of the journal of epochs: write all of the \
         extent, or discard the extent, and restore its content from a backup",
        range.end - range.start,
        range.start.0
    );
    Error::new(ErrorKind::Corrupt, text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn index(entries: &[(Range<u64>, Option<u64>)]) -> Index {
        let mut index = Index::default();
        for (range, at) in entries {
            let lies = at.map_or(Lies::Zeros, |at| Lies::InJournal(Bytes(at)));
            index.insert(Bytes(range.start)..Bytes(range.end), lies);
        }
        index
    }

    /// Adds damaged ranges, as in a later segment.
    pub fn damaged(mut index: Index, ranges: &[Range<u64>]) -> Index {
        for range in ranges {
            index.insert(Bytes(range.start)..Bytes(range.end), Lies::Damaged);
            index.damage.get_or_insert(Error::new(ErrorKind::Corrupt, "a bad place"));
        }
        index
    }

    #[test]
    fn later_segment_repairs_damaged_range() {
        let mut index = damaged(index(&[(0..8, Some(100))]), &[4..20, 30..40]);
        assert_eq!(index.locate(&(Bytes(6)..Bytes(50))), (Bytes(20), Lies::Damaged));
        index.insert(Bytes(10)..Bytes(12), Lies::InJournal(Bytes(900)));
        index.insert(Bytes(30)..Bytes(40), Lies::Zeros);
        assert_eq!(index.damaged(), [Bytes(4)..Bytes(10), Bytes(12)..Bytes(20)]);
    }

    #[test]
    fn newest_entry_locates_each_byte() {
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
