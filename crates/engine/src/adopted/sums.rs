//! What an adopted disk is known by after an unclean stop: sums of samples that guests have not written
//! since, and marks of its file systems.
//!
//! Before a write to a sample reaches the disk, the table on the record says durably that the sample may have
//! been written. That costs the first write to each of 256 samples one write and flush of the record, and no
//! later one. Likewise the table knows the next mark before a guest's write brings it to the disk. If the
//! table cannot be written, guests go on: the worst is a disk that looks changed after a crash.

use crate::planted::{Bug, planted};
use braid_base::{Bytes, DeviceId, SECTOR};
use braid_format::fingerprint::{Mark, mark_in};
use braid_format::sums::{Noted, SAMPLE, Sample, Sums};
use braid_runtime::{Buf, Semaphore};
use std::cell::RefCell;
use std::ops::Range;

/// With fewer samples known than this nothing proves that the disk is the same: one that is mounted elsewhere
/// is told by its marks alone.
pub(super) const FEW: usize = 8;

/// The samples and marks of an adopted disk, as the table has them and as the next table has them.
pub(crate) struct DiskSums {
    pub disk: DeviceId,
    /// Where the table lies.
    pub(super) place: (DeviceId, Bytes),
    pub(super) table: RefCell<Table>,
    /// One task writes the table at a time.
    pub(super) writer: Semaphore,
}

#[derive(Default)]
pub(super) struct Table {
    /// Of the half that was written last, or tried.
    pub sequence: u64,
    pub samples: Vec<SampleState>,
    pub sectors: Vec<Sector>,
    /// Writes to samples and sectors that have begun and not ended.
    pub under_way: Vec<(u64, Range<Bytes>)>,
    pub begun: u64,
    /// The table could not be written.
    pub has_failed: bool,
    /// Whether it was told that few samples are known.
    pub told_few: bool,
}

pub(super) struct SampleState {
    /// As the next table has it.
    pub sample: Sample,
    /// Whether the table says durably that the sample may have been written.
    pub is_noted: bool,
    /// How many writes there have begun.
    pub writes: u32,
    /// The same when it was last looked at whether any come.
    pub writes_before: u32,
}

/// A sector that may hold a mark.
pub(super) struct Sector {
    pub at: Bytes,
    /// As the next table has it; none if the table says nothing of it.
    pub wanted: Option<Noted>,
    /// As the table has it durably.
    pub noted: Option<Noted>,
    pub writes: u32,
    pub writes_before: u32,
    /// How many writes had begun when its bytes were looked at last.
    pub looked: Option<u32>,
}

impl Sector {
    /// Whether the table allows that the disk holds this mark there, before and after the table that may be
    /// being written.
    pub fn allows(&self, mark: Option<Mark>) -> bool {
        [&self.wanted, &self.noted].into_iter().flatten().all(|noted| allows(noted, mark))
    }

    /// A sector of which the table says nothing yet.
    pub fn new(at: Bytes) -> Sector {
        Sector { at, wanted: None, noted: None, writes: 0, writes_before: 0, looked: None }
    }

    /// Whether the sector is to be looked at and noted again.
    fn is_to_note(&self) -> bool {
        self.wanted.is_none_or(|noted| noted.is_unknown) && self.looked != Some(self.writes)
    }
}

/// Samples and sectors, each with the number of writes there; and whether any sector was written.
type Picked = (Vec<(Bytes, u32)>, Vec<(Bytes, u32)>, bool);

/// Whether a sector of the table may hold this mark.
pub(super) fn allows(noted: &Noted, mark: Option<Mark>) -> bool {
    let is_one = |mark: Mark| {
        mark.identity == noted.mark.identity
            && (mark.change == noted.mark.change || mark.change == noted.next)
    };
    noted.is_unknown || mark.is_some_and(is_one)
}

/// What has to be durable before a write reaches the disk.
pub(super) enum Begun {
    /// Nothing more. With the number of the write, if it touches a sample or a sector.
    Ready(Option<u64>),
    /// The table with what is wanted in it.
    Note,
    /// The table with this mark of a sector.
    Mark(Bytes, Option<Mark>),
}

/// A write to the disk that touches samples or sectors. While it is under way none of them is noted again.
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
    /// Begins a write of `from`, or a discard.
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

/// The mark that a write brings to a sector: the sector lies inside the write, for a device takes whole
/// sectors.
fn mark_written(from: &Buf, sector: Bytes, start: Bytes) -> Option<Mark> {
    let first = sector.0.checked_sub(start.0)? as usize;
    from.with_bytes(|bytes| mark_in(bytes.get(first..first + SECTOR.as_usize())?))
}

impl Table {
    /// As it is to be written.
    pub fn next(&mut self) -> Sums {
        self.sequence += 1;
        Sums {
            sequence: self.sequence,
            samples: self.samples.iter().map(|state| state.sample).collect(),
            marks: self.sectors.iter().filter_map(|sector| sector.wanted).collect(),
        }
    }

    /// The next table is to allow two marks of a sector, of the same file system: one, and one with the
    /// change that follows. None if the sector may
    /// hold anything.
    pub fn want(&mut self, at: Bytes, marks: Option<(Mark, u32)>) {
        let sector = self.sectors.iter_mut().find(|sector| sector.at == at);
        let Some(wanted) = sector.and_then(|sector| sector.wanted.as_mut()) else { return };
        match marks {
            Some((mark, next)) => *wanted = Noted { at, mark, next, is_unknown: false },
            None => wanted.is_unknown = true,
        }
    }

    /// A table is durable.
    pub fn note(&mut self, sums: &Sums) {
        for (state, sample) in self.samples.iter_mut().zip(&sums.samples) {
            state.is_noted = sample.is_written;
        }
        for sector in &mut self.sectors {
            sector.noted = sums.marks.iter().find(|noted| noted.at == sector.at).copied();
        }
    }

    /// How many samples still tell which disk it is.
    pub fn known(&self) -> usize {
        self.samples.iter().filter(|state| !state.sample.is_written).count()
    }

    /// Whether the table on the record lacks something that a write waits for.
    pub fn is_behind(&self) -> bool {
        let lacks = |state: &SampleState| state.sample.is_written && !state.is_noted;
        self.samples.iter().any(lacks) || self.sectors.iter().any(|sector| sector.wanted != sector.noted)
    }

    /// The samples and sectors that are to be noted again, each with the number of writes there; and whether
    /// guests have written to any sector. Samples that were written since the last time wait, unless `all`
    /// are wanted.
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

    /// Takes what was read of samples and sectors, of those that no write has touched since; and where
    /// sectors are to be looked at from now on, if that may have changed. Whether the next table differs. A
    /// sector that is new is noted the next time: a write that nobody counted may be under way.
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
