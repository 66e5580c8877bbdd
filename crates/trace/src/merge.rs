//! Merges the files of one trace by time. blktrace writes a file for each processor. Other traces are split
//! by device or by hour.
//!
//! All parts are read in parallel. Each step returns the earliest next record of all parts. So each part must
//! be in order, except for disorder within its window of held-back records, and all parts must use the same
//! clock. At equal times, the record of the part named first comes first. Devices with the same label are the
//! same device.

use crate::Error;
use crate::compression::Compression;
use crate::decode::{Batch, Decode, Raw};
use crate::devices::Devices;
use crate::format::Format;
use crate::options::Events;
use crate::reader::{Reader, Tally};
use crate::source::Source;
use braid_base::{Bytes, Op};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Records of a batch: as many as text formats decode at a time.
const BATCH: usize = 512;

/// The parts of a trace.
pub(crate) struct Merged {
    parts: Vec<Part>,
    /// Time and part of each next record.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    is_begun: bool,
}

/// A part, with its own clock.
struct Part {
    reader: Reader<'static>,
    /// Device numbers in the merged trace, by the part's device number.
    numbers: Vec<u16>,
    next: Option<Raw>,
    /// Problems already copied to the merged trace.
    taken: u64,
}

impl Merged {
    /// Merges traces. Their readers must use the layout `Apart` and the speed of the trace.
    pub fn new(parts: Vec<Reader<'static>>) -> Merged {
        let part = |reader| Part { reader, numbers: Vec::new(), next: None, taken: 0 };
        Merged { parts: parts.into_iter().map(part).collect(), waiting: BinaryHeap::new(), is_begun: false }
    }

    /// Returns the format and compression of the first part.
    pub fn kind(&self) -> (Format, Compression) {
        let first = self.parts.first().map(|part| (part.reader.format(), part.reader.compression()));
        first.unwrap_or((Format::Blocks, Compression::Plain))
    }

    /// Reads the next record of a part.
    fn fetch(&mut self, place: usize, devices: &mut Devices) -> Result<(), Error> {
        let part = &mut self.parts[place];
        part.next = part.read(devices)?;
        if let Some(raw) = part.next {
            self.waiting.push(Reverse((raw.at, place)));
        }
        Ok(())
    }

    /// Copies events and problems of the parts to the merged trace.
    fn describe(&mut self, batch: &mut Batch) {
        let mut events = Events::default();
        for part in &mut self.parts {
            events.add(part.reader.events());
            let name = part.reader.name().unwrap_or("");
            batch.problems.take_over(name, part.reader.problems(), &mut part.taken);
        }
        batch.events = events;
    }
}

impl Part {
    /// Returns the next record, with the device number of the merged trace and the time on the trace's own
    /// clock.
    fn read(&mut self, devices: &mut Devices) -> Result<Option<Raw>, Error> {
        let Some(record) = self.reader.next().transpose()? else { return Ok(None) };
        while self.numbers.len() <= usize::from(record.device) {
            let label = self.reader.device_label(self.numbers.len() as u16);
            let number = devices.number(label.as_bytes());
            self.numbers.push(number.map_err(|why| Error::Options(format!("device '{label}': {why}")))?);
        }
        let at = self.reader.origin().unwrap_or(0).saturating_add(record.arrival.at.0);
        let request = record.arrival.request;
        let offset = if request.op == Op::Flush { Bytes::ZERO } else { record.within };
        let device = self.numbers[usize::from(record.device)];
        Ok(Some(Raw { at, device, op: request.op, offset: offset.0, len: request.len.0, number: 0 }))
    }
}

impl Decode for Merged {
    fn decode(&mut self, _source: &mut Source, batch: &mut Batch) -> Result<bool, Error> {
        if !self.is_begun {
            self.is_begun = true;
            for place in 0..self.parts.len() {
                self.fetch(place, &mut batch.devices)?;
            }
        }
        while batch.records.len() < BATCH
            && let Some(Reverse((_, place))) = self.waiting.pop()
        {
            batch.records.extend(self.parts[place].next.take());
            self.fetch(place, &mut batch.devices)?;
        }
        self.describe(batch);
        Ok(!self.waiting.is_empty())
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for part in &self.parts {
            // The merged trace counts returned records and problems itself.
            tally.add(Tally { records: 0, bad_records: 0, ..part.reader.tally() });
        }
        tally
    }
}
