//! Common interface of all formats: decode the next piece of content into records. Text formats only
//! interpret single lines.

use crate::Error;
use crate::devices::Devices;
use crate::format::Format;
use crate::options::Events;
use crate::problems::{Excerpt, Problems, Reason};
use crate::reader::Tally;
use crate::source::{Line, Source};
use braid_base::Op;

/// A record as in the trace: the trace's clock, the device's addresses, in nanoseconds and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Raw {
    pub at: u64,
    pub device: u16,
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    /// Number of the line, record or block, for messages.
    pub number: u64,
}

/// Results of a decoder.
pub(crate) struct Batch {
    pub records: Vec<Raw>,
    pub devices: Devices,
    pub problems: Problems,
    /// Only for formats with several events per request.
    pub events: Events,
}

/// Decoder of a format.
pub(crate) trait Decode: Send {
    /// Adds the records of the next piece of content. Returns `false` at the end.
    fn decode(&mut self, source: &mut Source, batch: &mut Batch) -> Result<bool, Error>;

    /// Returns base and span of each device by number, if the trace contains the layout of its devices.
    fn places(&self) -> Option<&[(u64, u64)]> {
        None
    }

    /// Returns the counts of records by the readers of the parts, if the decoder merges other traces.
    fn tally(&self) -> Tally {
        Tally::default()
    }
}

/// Interpreter of the lines of a text format.
pub(crate) trait LineFormat: Send {
    /// Returns the record on a line. `None` if the line is valid but holds no record (a heading, an ignored
    /// event).
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason>;

    /// Returns the events met so far, for formats with several events per request.
    fn events(&self) -> Events {
        Events::default()
    }
}

/// Decoder of text formats.
pub(crate) struct Lines {
    format: Box<dyn LineFormat>,
    number: u64,
}

/// Lines per batch: enough to make the call of a decoder cheap, few enough to stay in the processor's cache.
const LINES_PER_BATCH: usize = 512;

/// Limit of a request. A longer request is a wrong unit or garbage: the kernel's own limit is far lower.
const LONGEST_REQUEST: u64 = 256 << 20;
/// End of addresses: 64 PiB on each device.
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

/// Returns an error of the source, with the place up to which the trace was read.
pub(crate) fn broken(format: Format, number: u64, error: std::io::Error) -> Error {
    let word = format.word_for_record();
    Error::io(format!("the trace cannot be read beyond {word} {number}"), error)
}

/// Rejects requests that no device can serve, so that measuring and replaying need no further checks.
pub(crate) fn check(record: Option<Raw>) -> Result<Option<Raw>, Reason> {
    let Some(Raw { op, offset, len, .. }) = record else { return Ok(None) };
    match op {
        Op::Flush => return Ok(record.map(|raw| Raw { offset: 0, len: 0, ..raw })),
        Op::Read | Op::Write if len > LONGEST_REQUEST => {
            return Err("a request of more than 256 MiB (a wrong unit?)");
        }
        Op::Read | Op::Write | Op::Discard if len == 0 => return Err("a request of 0 bytes"),
        _ => {}
    }
    match offset.checked_add(len) {
        Some(end) if end <= LAST_BYTE => Ok(record),
        _ => Err("an address beyond 64 PiB (a wrong unit?)"),
    }
}
