//! Replay of a trace as a load: played once or several times in a row, with long gaps cut, in the trace's
//! addresses or compacted to the touched extents.

use crate::{Error, ErrorKind, Result, Trace};
use braid_base::{Arrival, Nanos};
use braid_trace::{Compaction, Reader, Record, TraceFile};

/// Requests of a trace, each at its time.
pub(crate) struct Replay {
    file: TraceFile,
    reader: Reader<'static>,
    compaction: Option<Compaction>,
    /// Passes after the current pass.
    left: u32,
    longest_gap: Nanos,
    /// Time of the last request, in the trace and in the load.
    in_trace: Nanos,
    in_load: Nanos,
}

impl Replay {
    /// Starts at the beginning of the trace, in the compacted address space if there is one.
    pub fn new(trace: &Trace, file: TraceFile, compaction: Option<Compaction>) -> Result<Replay> {
        // An empty trace has nothing to repeat.
        let left = if file.survey().tally.records == 0 { 0 } else { trace.repeat - 1 };
        Ok(Replay {
            reader: file.reader()?,
            file,
            compaction,
            left,
            longest_gap: trace.max_gap.unwrap_or(Nanos::MAX),
            in_trace: Nanos::ZERO,
            in_load: Nanos::ZERO,
        })
    }

    fn arrival(&mut self, record: &Record) -> Result<Arrival> {
        let gap = record.arrival.at.saturating_sub(self.in_trace);
        self.in_trace = record.arrival.at;
        self.in_load += gap.min(self.longest_gap);
        let at = self.in_load;
        let Some(compaction) = &self.compaction else { return Ok(Arrival { at, ..record.arrival }) };
        let changed = || {
            let what = "the trace has changed since its first pass: it has a request for a new extent";
            Error::new(ErrorKind::Trace, what)
        };
        Ok(Arrival { at, request: compaction.place(record).ok_or_else(changed)? })
    }
}

impl Iterator for Replay {
    type Item = Result<Arrival>;

    #[inline]
    fn next(&mut self) -> Option<Result<Arrival>> {
        loop {
            match self.reader.next() {
                Some(Ok(record)) => return Some(self.arrival(&record)),
                Some(Err(error)) => return Some(Err(error.into())),
                None if self.left == 0 => return None,
                None => {
                    self.left -= 1;
                    self.in_trace = Nanos::ZERO;
                    match self.file.reader() {
                        Ok(reader) => self.reader = reader,
                        Err(error) => return Some(Err(error.into())),
                    }
                }
            }
        }
    }
}
