//! Facts that identify an adopted disk after an unclean stop: sums of samples that guests have not written
//! since, and marks of its file systems.
//!
//! Before a write to a sample reaches the disk, the table on the record says durably that the sample may have
//! been written. The first write to each of 256 samples therefore costs one write and flush of the record.
//! Later writes to the sample cost nothing until its sum is noted again. Likewise the table knows the next
//! mark before a guest's write brings the mark to the disk. If the table cannot be written, guests continue:
//! at worst the disk looks changed after a crash.

use crate::planted::{Bug, planted};
use braid_base::{Bytes, DeviceId, SECTOR};
use braid_format::fingerprint::{Mark, mark_in};
use braid_format::sums::{Noted, SAMPLE, Sample, Sums};
use braid_runtime::{Buf, Semaphore};
use std::cell::RefCell;
use std::ops::Range;

/// Minimum of known samples. With fewer samples nothing proves that the disk is the same: a mount elsewhere
/// shows in the marks alone.
pub(super) const FEW: usize = 8;

/// Samples and marks of an adopted disk, in the durable table and in the next table.
pub(crate) struct DiskSums {
    pub disk: DeviceId,
    /// Location of the table.
    pub(super) place: (DeviceId, Bytes),
    pub(super) table: RefCell<SumTable>,
    /// One task writes the table at a time.
    pub(super) writer: Semaphore,
}

#[derive(Default)]
pub(super) struct SumTable {
    /// Sequence of the half that was written last, or tried.
    pub sequence: u64,
    pub samples: Vec<SampleState>,
    pub sectors: Vec<Sector>,
    /// Writes to samples and sectors in flight.
    pub under_way: Vec<(u64, Range<Bytes>)>,
    pub begun: u64,
    /// True if the table could not be written.
    pub has_failed: bool,
    /// True if the warning about few known samples was given.
    pub told_few: bool,
}

pub(super) struct SampleState {
    /// Entry in the next table.
    pub sample: Sample,
    /// True if the table says durably that the sample may have been written.
    pub is_noted: bool,
    /// Number of writes to the sample that have begun.
    pub writes: u32,
    /// Value of `writes` at the last check for new writes.
    pub writes_before: u32,
}

/// A sector that may hold a mark.
pub(super) struct Sector {
    pub at: Bytes,
    /// Entry in the next table; `None` if there is no entry.
    pub wanted: Option<Noted>,
    /// Entry in the durable table.
    pub noted: Option<Noted>,
    pub writes: u32,
    pub writes_before: u32,
    /// Value of `writes` when the sector was last read.
    pub looked: Option<u32>,
}

impl Sector {
    /// True if both the durable table and the next table, perhaps being written, allow this mark in the
    /// sector.
    pub fn allows(&self, mark: Option<Mark>) -> bool {
        [&self.wanted, &self.noted].into_iter().flatten().all(|noted| allows(noted, mark))
    }

    /// A sector without an entry in the table.
    pub fn new(at: Bytes) -> Sector {
        Sector { at, wanted: None, noted: None, writes: 0, writes_before: 0, looked: None }
    }

    /// True if the sector is to be read and noted again.
    fn is_to_note(&self) -> bool {
        self.wanted.is_none_or(|noted| noted.is_unknown) && self.looked != Some(self.writes)
    }
}

/// Samples and sectors, each with its number of writes; and true if any sector was written.
type Picked = (Vec<(Bytes, u32)>, Vec<(Bytes, u32)>, bool);

/// True if an entry of the table allows this mark.
pub(super) fn allows(noted: &Noted, mark: Option<Mark>) -> bool {
    let is_one = |mark: Mark| {
        mark.identity == noted.mark.identity
            && (mark.change == noted.mark.change || mark.change == noted.next)
    };
    noted.is_unknown || mark.is_some_and(is_one)
}

/// Next step before a write may reach the disk.
pub(super) enum Begun {
    /// None: the write has begun. Number of the write, if a sample or a sector is touched.
    Ready(Option<u64>),
    /// Write the table with its wanted entries.
    Note,
    /// Write the table with this mark of a sector.
    Mark(Bytes, Option<Mark>),
}

/// A write to samples or sectors of the disk. While the write is in flight, none of these is noted again.
pub(crate) struct DiskWrite<'a> {
    pub(super) sums: &'a DiskSums,
    pub(super) number: u64,
}

impl Drop for DiskWrite<'_> {
    fn drop(&mut self) {
        let mut table = self.sums.table.borrow_mut();
        table.under_way.retain(|(number, _)| *number != self.number);
    }
}

impl DiskSums {
    /// Begins a write of `from`, or a discard if `from` is `None`.
    pub(super) fn begin(&self, range: Range<Bytes>, from: Option<&Buf>) -> Begun {
        let mut table = self.table.borrow_mut();
        let (samples, sectors) = (table.samples_in(&range), table.sectors_in(&range));
        if samples.is_empty() && sectors.is_empty() {
            return Begun::Ready(None);
        }
        let must_wait = !table.has_failed && !planted(Bug::SumsNotNoted);
        let mut are_noted = true;
        for state in &mut table.samples[samples.clone()] {
            state.sample.is_written = true;
            are_noted &= state.is_noted;
        }
        for sector in &table.sectors[sectors.clone()] {
            let mark = from.and_then(|from| mark_written(from, sector.at, range.start));
            if must_wait && !sector.allows(mark) {
                return Begun::Mark(sector.at, mark);
            }
        }
        if must_wait && !are_noted {
            return Begun::Note;
        }
        for state in &mut table.samples[samples] {
            state.writes = state.writes.wrapping_add(1);
        }
        for sector in &mut table.sectors[sectors] {
            sector.writes = sector.writes.wrapping_add(1);
        }
        table.begun += 1;
        let number = table.begun;
        table.under_way.push((number, range));
        Begun::Ready(Some(number))
    }
}

/// Returns the mark that a write brings to a sector. The sector lies inside the write, for a device takes
/// whole sectors.
fn mark_written(from: &Buf, sector: Bytes, start: Bytes) -> Option<Mark> {
    let first = sector.0.checked_sub(start.0)? as usize;
    from.with_bytes(|bytes| mark_in(bytes.get(first..first + SECTOR.as_usize())?))
}

impl SumTable {
    /// Returns the table to be written next.
    pub fn next(&mut self) -> Sums {
        self.sequence += 1;
        Sums {
            sequence: self.sequence,
            samples: self.samples.iter().map(|state| state.sample).collect(),
            marks: self.sectors.iter().filter_map(|sector| sector.wanted).collect(),
        }
    }

    /// Makes the next table allow two marks of a sector, of the same file system: a mark, and the same mark
    /// with the following change. With `None`, the sector may hold anything.
    pub fn want(&mut self, at: Bytes, marks: Option<(Mark, u32)>) {
        let sector = self.sectors.iter_mut().find(|sector| sector.at == at);
        let Some(wanted) = sector.and_then(|sector| sector.wanted.as_mut()) else { return };
        match marks {
            Some((mark, next)) => *wanted = Noted { at, mark, next, is_unknown: false },
            None => wanted.is_unknown = true,
        }
    }

    /// Registers a durable table.
    pub fn note(&mut self, sums: &Sums) {
        for (state, sample) in self.samples.iter_mut().zip(&sums.samples) {
            state.is_noted = sample.is_written;
        }
        for sector in &mut self.sectors {
            sector.noted = sums.marks.iter().find(|noted| noted.at == sector.at).copied();
        }
    }

    /// Number of samples with a known sum.
    pub fn known(&self) -> usize {
        self.samples.iter().filter(|state| !state.sample.is_written).count()
    }

    /// True if the table on the record lacks an entry that a write waits for.
    pub fn is_behind(&self) -> bool {
        let lacks = |state: &SampleState| state.sample.is_written && !state.is_noted;
        self.samples.iter().any(lacks) || self.sectors.iter().any(|sector| sector.wanted != sector.noted)
    }

    /// Picks samples, at most `most`, and sectors to be noted again, each with its number of writes. The flag
    /// is true if guests have written to any sector. Samples written since the last call wait, unless `all`
    /// is set.
    pub fn pick(&mut self, all: bool, most: usize) -> Picked {
        let (mut samples, mut sectors, mut is_touched) = (Vec::new(), Vec::new(), false);
        for i in 0..self.samples.len() {
            let SampleState { sample, writes, writes_before, .. } = self.samples[i];
            let is_quiet = writes == writes_before;
            let is_open = sample.is_written && !self.is_under_way(&(sample.at..sample.at + SAMPLE));
            if is_open && (all || is_quiet) && samples.len() < most {
                samples.push((sample.at, writes));
            }
            self.samples[i].writes_before = writes;
        }
        for i in 0..self.sectors.len() {
            let Sector { at, writes, writes_before, .. } = self.sectors[i];
            is_touched |= writes != writes_before;
            if self.sectors[i].is_to_note() && !self.is_under_way(&(at..at + SECTOR)) {
                sectors.push((at, writes));
            }
            self.sectors[i].writes_before = writes;
        }
        (samples, sectors, is_touched)
    }

    /// Takes over sums and marks that were read, unless a write has touched the sample or sector since.
    /// `places`, if given, are the sectors to be read from now on. Returns true if the next table differs. A
    /// new sector is noted in the next round: a write that was not counted may be in flight.
    pub fn take(
        &mut self,
        samples: &[(Bytes, u32, u32)],
        marks: &[(Bytes, u32, Option<Mark>)],
        places: Option<Vec<Bytes>>,
    ) -> bool {
        let mut differs = false;
        for &(at, writes, sum) in samples {
            let state = self.samples.iter_mut().find(|state| state.sample.at == at && state.writes == writes);
            if let Some(state) = state {
                state.sample = Sample { at, sum, is_written: false };
                state.is_noted = false;
                differs = true;
            }
        }
        for &(at, writes, mark) in marks {
            let sector = self.sectors.iter_mut().find(|sector| sector.at == at && sector.writes == writes);
            if let Some(sector) = sector {
                sector.looked = Some(writes);
                sector.wanted = mark.map(|mark| Noted { at, mark, next: mark.change, is_unknown: false });
                differs |= sector.wanted != sector.noted;
            }
        }
        if let Some(places) = places {
            differs |= self.sectors.iter().any(|s| s.noted.is_some() && !places.contains(&s.at));
            self.sectors.retain(|sector| places.contains(&sector.at));
            let is_new = |at: &Bytes| self.sectors.iter().all(|sector| sector.at != *at);
            let new: Vec<Bytes> = places.into_iter().filter(is_new).collect();
            self.sectors.extend(new.into_iter().map(Sector::new));
            self.sectors.sort_by_key(|sector| sector.at);
        }
        differs
    }

    pub fn is_under_way(&self, range: &Range<Bytes>) -> bool {
        self.under_way.iter().any(|(_, other)| other.start < range.end && range.start < other.end)
    }

    fn samples_in(&self, range: &Range<Bytes>) -> Range<usize> {
        let first = self.samples.partition_point(|state| state.sample.at + SAMPLE <= range.start);
        first..first + self.samples[first..].partition_point(|state| state.sample.at < range.end)
    }

    fn sectors_in(&self, range: &Range<Bytes>) -> Range<usize> {
        let first = self.sectors.partition_point(|sector| sector.at + SECTOR <= range.start);
        first..first + self.sectors[first..].partition_point(|sector| sector.at < range.end)
    }
}
