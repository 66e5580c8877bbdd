//! A trace as the requests of a load.

use crate::{Error, ErrorKind, Result};
use braid_base::Arrival;
use braid_trace::{Compaction, Reader, Record, TraceFile};

/// The requests of a trace, each at its time, and in the compacted address space where there is one.
pub(crate) fn replay(file: &TraceFile, compaction: Option<Compaction>) -> Result<Replay> {
    Ok(Replay { reader: file.reader()?, compaction })
}

/// What is replayed.
pub(crate) struct Replay {
    reader: Reader<'static>,
    compaction: Option<Compaction>,
}

impl Replay {
    fn arrival(&self, record: &Record) -> Result<Arrival> {
        let Some(compaction) = &self.compaction else { return Ok(record.arrival) };
        let changed = || {
            let what =
                "the trace has changed since its first pass: it asks for an extent that it did not touch";
            Error::new(ErrorKind::Trace, what)
        };
        let request = compaction.place(record).ok_or_else(changed)?;
        Ok(Arrival { request, ..record.arrival })
    }
}

impl Iterator for Replay {
    type Item = Result<Arrival>;

    #[inline]
    fn next(&mut self) -> Option<Result<Arrival>> {
        match self.reader.next()? {
            Ok(record) => Some(self.arrival(&record)),
            Err(error) => Some(Err(error.into())),
        }
    }
}
