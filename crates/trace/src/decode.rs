//! What every format does: turn the next piece of content into records. Text formats only say what a line
//! means.

use crate::Error;
use crate::devices::Devices;
use crate::format::Format;
use crate::options::Events;
use crate::problems::{Excerpt, Problems, Reason};
use crate::reader::Tally;
use crate::source::{Line, Source};
use braid_base::Op;

/// A record as its trace has it: the trace's own clock, the device's own addresses, in nanoseconds and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Raw {
    pub at: u64,
    pub device: u16,
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    /// The number of its line, record or block, for messages.
    pub number: u64,
}

/// What one call of a decoder gives.
pub(crate) struct Batch {
    pub records: Vec<Raw>,
    pub devices: Devices,
    pub problems: Problems,
    /// Of formats that note several events of a request.
    pub events: Events,
}

/// Reads one format.
pub(crate) trait Decode: Send {
    /// Adds what the next piece of content holds. `false` at the end.
    fn decode(&mut self, source: &mut Source, batch: &mut Batch) -> Result<bool, Error>;

    /// Where the trace itself says where its devices lie: base and span of each, by number.
    fn places(&self) -> Option<&[(u64, u64)]> {
        None
    }

    /// What became of records before this decoder gave them, where it reads other traces.
    fn tally(&self) -> Tally {
        Tally::default()
    }
}

/// What a line of a text format means.
pub(crate) trait LineFormat: Send {
    /// The record on a line; `None` if the line is rightly none (a heading, an event of no interest).
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason>;

    /// The events met so far, where the format notes several of each request.
    fn events(&self) -> Events {
        Events::default()
    }
}

/// Reads text with the help of what knows its lines.
pub(crate) struct Lines {
    format: Box<dyn LineFormat>,
    number: u64,
}

/// Lines in one batch: enough to make the call of a decoder cheap, few enough to stay in the cache.
const LINES_PER_BATCH: usize = 512;

/// A request longer than this is a mistake of units, or rubbish: the kernel's own limit is far below.
const LONGEST_REQUEST: u64 = 256 << 20;
/// Where addresses end: 64 PiB on one device.
const LAST_BYTE: u64 = 1 << 56;

impl Lines {
    pub(crate) fn new(format: Box<dyn LineFormat>) -> Lines {
        Lines { format, number: 0 }
    }
}

impl Decode for Lines {
    fn decode(&mut self, source: &mut Source, batch: &mut Batch) -> Result<bool, Error> {
        for _ in 0..LINES_PER_BATCH {
            let line = source.line().map_err(|error| broken(batch.problems.format(), self.number, error))?;
            let Some(line) = line else {
                batch.events = self.format.events();
                return Ok(false);
            };
            self.number += 1;
            match line {
                Line::TooLong => {
                    batch.problems.note(self.number, || "a line of more than 64 KiB".to_owned())?;
                }
                Line::Text(text) => {
                    let read = match is_comment(text) {
                        true => Ok(None),
                        false => self.format.record(text, &mut batch.devices).and_then(check),
                    };
                    match read {
                        Ok(None) => {}
                        Ok(Some(record)) => batch.records.push(Raw { number: self.number, ..record }),
                        Err(reason) => {
                            batch.problems.note(self.number, || format!("{reason}: {}", Excerpt(text)))?;
                        }
                    }
                }
            }
        }
        batch.events = self.format.events();
        Ok(true)
    }
}

fn is_comment(line: &[u8]) -> bool {
    line.trim_ascii_start().first().is_none_or(|&first| first == b'#')
}

/// An error of the source, with the place up to which the trace was read.
pub(crate) fn broken(format: Format, number: u64, error: std::io::Error) -> Error {
    let word = format.word_for_record();
    Error::io(format!("the trace cannot be read beyond {word} {number}"), error)
}

/// Refuses what no device can be asked for, so that what measures or replays a trace need not check again.
pub(crate) fn check(record: Option<Raw>) -> Result<Option<Raw>, Reason> {
    let Some(Raw { op, offset, len, .. }) = record else { return Ok(None) };
    match op {
        Op::Flush => return Ok(record.map(|raw| Raw { offset: 0, len: 0, ..raw })),
        Op::Read | Op::Write if len > LONGEST_REQUEST => {
            return Err("a request of more than 256 MiB (a wrong unit?)");
        }
        Op::Read | Op::Write | Op::Discard if len == 0 => return Err("a request of no bytes"),
        _ => {}
    }
    match offset.checked_add(len) {
        Some(end) if end <= LAST_BYTE => Ok(record),
        _ => Err("an address beyond 64 PiB (a wrong unit?)"),
    }
}
