//! The dirty pages of a page cache: pages that a process has written and that are not yet on a device.
//!
//! A bit for each page of the process's files. Writing a dirty page again costs nothing. Writeback follows
//! the order of addresses and merges adjacent pages into one request. By these two effects, a page cache
//! makes small writes cheap for a disk. 32 KiB of memory for each GiB of files: one bit per page of 4 KiB.

use braid_base::Bytes;
use std::ops::Range;

/// Unit of a page cache.
pub(crate) const PAGE: Bytes = Bytes(4096);

/// Dirty pages of adjacent files.
pub(crate) struct DirtyPages {
    words: Vec<u64>,
    count: u64,
}

impl DirtyPages {
    /// Creates the bitmap for `files` bytes of files, all clean.
    pub fn new(files: Bytes) -> DirtyPages {
        DirtyPages { words: vec![0; (files.align_up(PAGE) / PAGE).div_ceil(64) as usize], count: 0 }
    }

    /// Returns the number of dirty bytes.
    pub fn bytes(&self) -> Bytes {
        PAGE * self.count
    }

    /// Marks pages dirty. The ends of the range must be whole pages.
    pub fn mark(&mut self, range: Range<Bytes>) {
        for page in range.start / PAGE..range.end / PAGE {
            let (word, bit) = (&mut self.words[(page / 64) as usize], 1 << (page % 64));
            self.count += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// Takes the first run of dirty pages that begins within `range`, at most `most` bytes. The run is clean
    /// afterwards.
    pub fn take(&mut self, range: Range<Bytes>, most: Bytes) -> Option<Range<Bytes>> {
        let end = range.end.align_up(PAGE) / PAGE;
        let first = self.first_dirty(range.start / PAGE).filter(|&first| first < end)?;
        let end = end.min(first + most / PAGE);
        let mut page = first;
        while page < end && self.words[(page / 64) as usize] & (1 << (page % 64)) != 0 {
            self.words[(page / 64) as usize] &= !(1 << (page % 64));
            page += 1;
        }
        self.count -= page - first;
        Some(PAGE * first..PAGE * page)
    }

    fn first_dirty(&self, from: u64) -> Option<u64> {
        let (at, bit) = ((from / 64) as usize, from % 64);
        let here = self.words.get(at)? & (u64::MAX << bit);
        if here != 0 {
            return Some(at as u64 * 64 + u64::from(here.trailing_zeros()));
        }
        let later = self.words[at + 1..].iter().position(|&word| word != 0)?;
        let word = self.words[at + 1 + later];
        Some((at + 1 + later) as u64 * 64 + u64::from(word.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB, Rng};

    #[test]
    fn adjacent_dirty_pages_leave_once_in_order() {
        let mut dirty = DirtyPages::new(MIB);
        for first in [40_u64, 10, 11, 12, 41, 11] {
            dirty.mark(PAGE * first..PAGE * (first + 1));
        }
        assert_eq!(dirty.bytes(), KIB * 20);
        let all = Bytes::ZERO..MIB;
        assert_eq!(dirty.take(all.clone(), MIB), Some(PAGE * 10..PAGE * 13));
        assert_eq!(dirty.take(all.clone(), PAGE), Some(PAGE * 40..PAGE * 41));
        assert_eq!(dirty.take(all.clone(), MIB), Some(PAGE * 41..PAGE * 42));
        assert_eq!((dirty.take(all, MIB), dirty.bytes()), (None, Bytes::ZERO));
    }

    #[test]
    fn taken_pages_are_exactly_the_marked_pages() {
        let (mut dirty, mut rng) = (DirtyPages::new(PAGE * 1000), Rng::new(3));
        let mut model = vec![false; 1000];
        for _ in 0..2000 {
            let first = rng.below(1000);
            let end = (first + 1 + rng.below(100)).min(1000);
            if rng.chance(0.6) {
                dirty.mark(PAGE * first..PAGE * end);
                model[first as usize..end as usize].fill(true);
            } else if let Some(run) = dirty.take(PAGE * first..PAGE * end, PAGE * 50) {
                let run = (run.start / PAGE) as usize..(run.end / PAGE) as usize;
                assert!(model[first as usize..run.start].iter().all(|&dirty| !dirty));
                assert!(model[run.clone()].iter().all(|&dirty| dirty) && run.len() <= 50);
                model[run].fill(false);
            } else {
                assert!(model[first as usize..end as usize].iter().all(|&dirty| !dirty));
            }
            assert_eq!(dirty.bytes(), PAGE * model.iter().filter(|&&dirty| dirty).count() as u64);
        }
    }
}
