//! Verification that every read returned the last write, or a concurrent write.
//!
//! Writes are numbered when they begin. A write stamps each sector with its number and a hash of the block's
//! address, so a misplaced sector is detected, too. For each sector the verifier remembers only the *newest*
//! write: of the completed writes, the write that began last. The write found by a read in a sector is right
//! if
//!
//! - it is the newest write at the beginning of the read;
//! - or it is newer: then it had not completed when the read began, so write and read were concurrent;
//! - or it is older, but was still running when the newest began: of two overlapping writes, either may
//!   remain.
//!
//! The last case requires remembering such pairs of writes. Pairs are rare, and are forgotten once a newer
//! write of the sector completes.

use braid_base::{Bytes, KIB, SECTOR};
use braid_runtime::Buf;
use braid_sim::SectorTags;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::fmt;

/// Expected content of every sector of the volume.
#[derive(Default)]
pub(crate) struct Verifier {
    /// Number of the last write that began; the first write is 1.
    begun: u64,
    /// By sector: the number of the newest write, with `ZEROS` if it wrote zeros.
    newest: SectorTags,
    running: Vec<Write>,
    /// Completed discards, as long as a read may have seen them half-way.
    zeroed: Vec<Write>,
    /// By block: writes that were running when a newer write began.
    overlaps: HashMap<u64, Vec<Overlap>, FixedState>,
    /// For each running read: the number of writes begun before the read.
    reads: Vec<u64>,
    /// Compared sectors.
    verified: u64,
}

/// A write or discard that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    number: u64,
    offset: Bytes,
    end: Bytes,
    zeros: bool,
}

/// A running read, with the newest writes at its beginning.
pub(crate) struct PendingRead {
    offset: Bytes,
    begun: u64,
    newest: Newest,
}

/// By sector, the newest write when a read began.
enum Newest {
    /// The same for all sectors: the usual case, without an allocation.
    One(u64),
    Each(Vec<u64>),
}

struct Overlap {
    older: u64,
    newer: u64,
    zeros: bool,
}

/// A sector with unexpected content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mismatch {
    sector: Bytes,
    found: Found,
    newest: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Found {
    Zeros,
    Write(u64),
    Elsewhere(u64),
}

/// Marks a write of zeros in `newest`.
const ZEROS: u64 = 1 << 63;
/// Bits of a tag that hold the write's number; the hash of the block's address is above.
const NUMBER_BITS: u32 = 40;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
const BLOCK: Bytes = Bytes(4 * KIB.0);

impl Verifier {
    /// Announces a request at `offset`.
    pub fn expect(&self, offset: Bytes) {
        self.newest.expect(offset);
    }

    /// Begins a write of a whole number of sectors, and stamps its data.
    pub fn begin_write(&mut self, offset: Bytes, from: &Buf) -> Write {
        let write = self.begin(offset, from.len(), false);
        from.with_bytes_mut(|bytes| {
            let mut at = offset;
            let mut stamp = tag(write.number, at);
            for sector in bytes.chunks_exact_mut(SECTOR.as_usize()) {
                if at.is_aligned(BLOCK) {
                    stamp = tag(write.number, at);
                }
                sector[..8].copy_from_slice(&stamp.to_le_bytes());
                at += SECTOR;
            }
        });
        write
    }

    /// Begins a discard: a write of zeros.
    pub fn begin_discard(&mut self, offset: Bytes, len: Bytes) -> Write {
        self.begin(offset, len, true)
    }

    fn begin(&mut self, offset: Bytes, len: Bytes, zeros: bool) -> Write {
        self.begun += 1;
        let write = Write { number: self.begun, offset, end: offset + len, zeros };
        for older in &self.running {
            let (start, end) = (older.offset.max(offset), older.end.min(write.end));
            if start >= end {
                continue;
            }
            for block in start / BLOCK..end.0.div_ceil(BLOCK.0) {
                let overlap = Overlap { older: older.number, newer: write.number, zeros: older.zeros };
                self.overlaps.entry(block).or_default().push(overlap);
            }
        }
        self.running.push(write);
        write
    }

    /// Completes a write or discard.
    pub fn end_write(&mut self, write: Write) {
        let place = self.running.iter().position(|w| w.number == write.number);
        self.running.swap_remove(place.expect("a write that ends has begun"));
        let mark = write.number | if write.zeros { ZEROS } else { 0 };
        let mut at = write.offset;
        while at < write.end {
            let end = (at.align_down(BLOCK) + BLOCK).min(write.end);
            self.complete_in_block(at, end, write.number, mark);
            at = end;
        }
        if write.zeros {
            self.zeroed.push(write);
        }
    }

    /// Marks the sectors of one block, except sectors with a newer completed write.
    fn complete_in_block(&mut self, start: Bytes, end: Bytes, number: u64, mark: u64) {
        let is_newer = |newest: u64| newest & !ZEROS > number;
        let newer = |at: Bytes| is_newer(self.newest.get(at));
        let mut sectors = (start.0..end.0).step_by(SECTOR.as_usize()).map(Bytes);
        let any_newer = match self.newest.of_all(start, end - start) {
            Some(newest) => is_newer(newest),
            None => sectors.clone().any(newer),
        };
        if any_newer {
            let older: Vec<Bytes> = sectors.by_ref().filter(|&at| !newer(at)).collect();
            older.into_iter().for_each(|at| self.newest.set(at, SECTOR, mark));
        } else {
            self.newest.set(start, end - start, mark);
        }
        if self.overlaps.is_empty() {
            return;
        }
        let block = start / BLOCK;
        let Some(overlaps) = self.overlaps.get_mut(&block) else { return };
        let (newest, running) = (&self.newest, &self.running);
        overlaps.retain(|overlap| {
            let is_newest =
                |sector: u64| newest.get(BLOCK * block + SECTOR * sector) & !ZEROS == overlap.newer;
            running.iter().any(|w| w.number == overlap.newer) || (0..BLOCK / SECTOR).any(is_newest)
        });
        if overlaps.is_empty() {
            self.overlaps.remove(&block);
        }
    }

    /// Begins a read of a whole number of sectors.
    pub fn begin_read(&mut self, offset: Bytes, len: Bytes) -> PendingRead {
        self.reads.push(self.begun);
        let newest = self.newest.of_all(offset, len).map_or_else(
            || {
                let sectors = (offset.0..(offset + len).0).step_by(SECTOR.as_usize());
                Newest::Each(sectors.map(|at| self.newest.get(Bytes(at))).collect())
            },
            Newest::One,
        );
        PendingRead { offset, begun: self.begun, newest }
    }

    /// Compares the bytes of a completed read.
    ///
    /// # Errors
    /// The first sector with content other than allowed.
    pub fn end_read(&mut self, read: &PendingRead, into: &Buf) -> Result<(), Mismatch> {
        let place = self.reads.iter().position(|&begun| begun == read.begun);
        self.reads.swap_remove(place.expect("a read that ends has begun"));
        let result = into.with_bytes(|bytes| {
            let mut at = read.offset;
            let mut right = None;
            for (place, sector) in bytes.chunks_exact(SECTOR.as_usize()).enumerate() {
                let found =
                    u64::from_le_bytes(*sector.first_chunk().expect("a sector is longer than a word"));
                let newest = match &read.newest {
                    Newest::One(newest) => *newest,
                    Newest::Each(newest) => newest[place],
                };
                // A write that is right in one sector is right in the other sectors of its block, too.
                if found == 0 || at.is_aligned(BLOCK) || right != Some((found, newest)) {
                    self.compare(at, found, newest)?;
                    right = Some((found, newest));
                }
                at += SECTOR;
            }
            Ok(())
        });
        self.verified += into.len() / SECTOR;
        let oldest = self.reads.iter().min().copied().unwrap_or(u64::MAX);
        self.zeroed.retain(|write| write.number > oldest);
        result
    }

    /// Compared bytes.
    pub fn verified(&self) -> Bytes {
        SECTOR * self.verified
    }

    fn compare(&self, at: Bytes, found: u64, newest: u64) -> Result<(), Mismatch> {
        let (number, zeros) = (newest & !ZEROS, newest & ZEROS != 0 || newest == 0);
        if found == 0 {
            let concurrent = |w: &Write| w.zeros && w.number > number && (w.offset..w.end).contains(&at);
            let right = zeros
                || self.running.iter().chain(&self.zeroed).any(concurrent)
                || self.overlapped(at, number, |overlap| overlap.zeros);
            return if right {
                Ok(())
            } else {
                Err(Mismatch { sector: at, found: Found::Zeros, newest: number })
            };
        }
        let wrote = found & NUMBER;
        if found != tag(wrote, at) || wrote == 0 || wrote > self.begun {
            return Err(Mismatch { sector: at, found: Found::Elsewhere(found), newest: number });
        }
        if wrote > number || wrote == number && !zeros {
            return Ok(());
        }
        match self.overlapped(at, number, |overlap| overlap.older == wrote) {
            true => Ok(()),
            false => Err(Mismatch { sector: at, found: Found::Write(wrote), newest: number }),
        }
    }

    /// True if a write that `fits` was running when the newest write of a sector began.
    fn overlapped(&self, at: Bytes, newest: u64, fits: impl Fn(&Overlap) -> bool) -> bool {
        let overlaps = self.overlaps.get(&(at / BLOCK));
        overlaps.is_some_and(|all| all.iter().any(|overlap| overlap.newer == newest && fits(overlap)))
    }
}

/// Stamp of a write in a sector: the same for all sectors of a block, and never zero.
fn tag(number: u64, at: Bytes) -> u64 {
    let place = (at / BLOCK).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> NUMBER_BITS;
    place << NUMBER_BITS | number
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { sector, found, newest } = self;
        write!(f, "byte {} of the volume read as ", sector.0)?;
        match found {
            Found::Zeros => write!(f, "zeros")?,
            Found::Write(number) => write!(f, "write {number}, which had been overwritten")?,
            Found::Elsewhere(tag) => write!(f, "data that was never written there ({tag:#x})")?,
        }
        match newest {
            0 => write!(f, "; nothing had been written there"),
            newest => write!(f, "; the last write there was write {newest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_runtime::Arena;

    struct Place {
        verifier: Verifier,
        arena: Arena,
    }

    impl Place {
        fn new() -> Place {
            Place { verifier: Verifier::default(), arena: Arena::new(Bytes(1 << 20)) }
        }

        /// Begins a write; returns the write and its bytes.
        fn write(&mut self, offset: Bytes, len: Bytes) -> (Write, Vec<u8>) {
            let buf = self.arena.try_alloc(len).unwrap();
            let write = self.verifier.begin_write(offset, &buf);
            (write, buf.to_vec())
        }

        fn finds(&mut self, read: &PendingRead, bytes: &[u8]) -> Result<(), Mismatch> {
            let buf = self.arena.try_alloc(Bytes::of_len(bytes.len())).unwrap();
            buf.copy_from_slice(Bytes::ZERO, bytes);
            self.verifier.end_read(read, &buf)
        }

        /// Reads these bytes in zero time.
        fn reads(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), Mismatch> {
            let read = self.verifier.begin_read(offset, Bytes::of_len(bytes.len()));
            self.finds(&read, bytes)
        }
    }

    const AT: Bytes = Bytes(8192);

    #[test]
    fn only_the_last_completed_write_is_right() {
        let mut place = Place::new();
        assert!(place.reads(AT, &[0; 4096]).is_ok(), "what was never written is zeros");
        let (first, old) = place.write(AT, BLOCK);
        place.verifier.end_write(first);
        assert!(place.reads(AT, &old).is_ok());
        assert!(place.reads(AT, &[0; 4096]).is_err());
        let (second, new) = place.write(AT + SECTOR, SECTOR);
        place.verifier.end_write(second);
        let mut both = old.clone();
        both[512..1024].copy_from_slice(&new);
        assert!(place.reads(AT, &both).is_ok());
        let error = place.reads(AT, &old).unwrap_err();
        let said = error.to_string();
        assert!(["8704", "write 1", "write 2"].iter().all(|value| said.contains(value)), "{said}");
    }

    #[test]
    fn concurrent_write_may_be_seen_or_not() {
        let mut place = Place::new();
        let (first, old) = place.write(AT, BLOCK);
        place.verifier.end_write(first);
        let read = place.verifier.begin_read(AT, BLOCK);
        let (second, new) = place.write(AT, BLOCK);
        assert!(place.reads(AT, &new).is_ok() && place.reads(AT, &old).is_ok());
        place.verifier.end_write(second);
        assert!(place.finds(&read, &old).is_ok(), "the read began before the write completed");
        assert!(place.reads(AT, &old).is_err(), "this one did not");
    }

    #[test]
    fn either_of_two_overlapping_writes_may_stay() {
        let mut place = Place::new();
        let (first, a) = place.write(AT, BLOCK);
        let (second, b) = place.write(AT, BLOCK);
        place.verifier.end_write(second);
        place.verifier.end_write(first);
        assert!(place.reads(AT, &a).is_ok() && place.reads(AT, &b).is_ok());
        let (third, c) = place.write(AT, BLOCK);
        place.verifier.end_write(third);
        assert!(place.reads(AT, &c).is_ok() && place.reads(AT, &a).is_err() && place.reads(AT, &b).is_err());
        assert!(place.verifier.overlaps.is_empty());
    }

    #[test]
    fn sector_from_a_different_place_is_detected() {
        let mut place = Place::new();
        let (first, _) = place.write(AT, BLOCK);
        let (second, elsewhere) = place.write(AT + BLOCK, BLOCK);
        place.verifier.end_write(first);
        place.verifier.end_write(second);
        let error = place.reads(AT, &elsewhere).unwrap_err().to_string();
        assert!(error.contains("8192") && error.contains("write 1"), "{error}");
    }

    #[test]
    fn a_discard_is_a_write_of_zeros() {
        let mut place = Place::new();
        let (first, old) = place.write(AT, BLOCK);
        place.verifier.end_write(first);
        let read = place.verifier.begin_read(AT, BLOCK);
        let discard = place.verifier.begin_discard(AT, BLOCK);
        assert!(place.reads(AT, &[0; 4096]).is_ok() && place.reads(AT, &old).is_ok());
        place.verifier.end_write(discard);
        assert!(place.reads(AT, &[0; 4096]).is_ok() && place.reads(AT, &old).is_err());
        assert!(place.finds(&read, &[0; 4096]).is_ok());
        assert!(place.verifier.zeroed.is_empty());
    }
}
