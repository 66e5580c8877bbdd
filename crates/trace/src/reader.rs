//! A trace as a stream of arrivals.

use crate::Error;
use crate::compression::{Compression, decompress};
use crate::decode::{Batch, Decode, Raw};
use crate::detect::{self, VIEW};
use crate::devices::Devices;
use crate::format::Format;
use crate::formats;
use crate::merge::Merged;
use crate::options::{Events, Options};
use crate::order::Order;
use crate::place::{Placer, Seen};
use crate::problems::Problems;
use crate::source::{LONGEST_PIECE, Source};
use braid_base::{Arrival, Bytes, Nanos, Op, Request};
use memchr::memchr;
use std::io::Read;

/// Reads a trace from any source, in memory that does not depend on its length.
///
/// An iterator over records in order of time. The first one comes at time zero. An error ends it; a bad
/// record does not, but where reading is strict.
pub struct Reader<'a> {
    name: Option<String>,
    source: Source<'a>,
    decoder: Box<dyn Decode>,
    format: Format,
    compression: Compression,
    batch: Batch,
    /// The next record of the batch.
    next: usize,
    more: bool,
    error: Option<Error>,
    placer: Placer,
    order: Order,
    origin: Option<u64>,
    speed: f64,
    strict: bool,
    given: u64,
    other_devices: u64,
    /// Whether the reader has told that nothing could be read.
    is_told: bool,
}

/// A record of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The request in the address space in which all devices lie, and its time since the first one.
    pub arrival: Arrival,
    /// The number of its device, in order of first appearance ([`Reader::devices`]).
    pub device: u16,
    /// Where it begins on that device.
    pub within: Bytes,
}

/// What became of the records of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Tally {
    /// Records given.
    pub records: u64,
    /// Records skipped because they are bad.
    pub bad_records: u64,
    /// Records of devices that were not asked for.
    pub other_devices_records: u64,
    /// Records that were put into order of time.
    pub reordered_records: u64,
    /// Records that came too late for that, and have the time of the one before.
    pub late_records: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.records += other.records;
        self.bad_records += other.bad_records;
        self.other_devices_records += other.other_devices_records;
        self.reordered_records += other.reordered_records;
        self.late_records += other.late_records;
    }
}

impl<'a> Reader<'a> {
    /// Opens a trace: tells compression and format, unless the latter is named.
    pub fn open(source: impl Read + Send + 'a, options: &Options) -> Result<Reader<'a>, Error> {
        options.check()?;
        let opening = |error| Error::io("the trace cannot be read", error);
        let (compression, content) = decompress(source).map_err(opening)?;
        let mut source = Source::new(content);
        if source.peek(UTF8_MARK.len()).map_err(opening)? == UTF8_MARK {
            source.skip(UTF8_MARK.len());
        }
        if ends_lines_by_return(source.peek(VIEW).map_err(opening)?) {
            source.end_lines_by_return();
        }
        let mut beginning = source.lines_ahead(VIEW).map_err(opening)?;
        let format = match options.format {
            Some(format) => format,
            None => detect::detect(&beginning, options)?,
        };
        if format == Format::Compact {
            // A header with many devices is longer than what detection looks at.
            beginning = source.peek(LONGEST_PIECE / 2).map_err(opening)?.into();
        }
        let decoder = formats::decoder(format, options, &beginning)?;
        // What has its own order needs no window; what has gaps in its order is late at once.
        let window = if format == Format::Compact { 0 } else { options.window };
        Ok(Reader::new(source, decoder, (format, compression), window, options))
    }

    /// Reads traces that are parts of one, merged by time: they must have been opened at the speed of the
    /// trace.
    pub(crate) fn merge(parts: Vec<Reader<'static>>, options: &Options) -> Result<Reader<'static>, Error> {
        options.check()?;
        let merged = Merged::new(parts);
        let (kind, nothing) = (merged.kind(), Source::new(Box::new(std::io::empty())));
        // Each part has put its own records in order.
        Ok(Reader::new(nothing, Box::new(merged), kind, 0, options))
    }

    fn new(
        source: Source<'a>,
        decoder: Box<dyn Decode>,
        (format, compression): (Format, Compression),
        window: usize,
        options: &Options,
    ) -> Reader<'a> {
        let problems = Problems::new(format, options.strict);
        Reader {
            name: None,
            source,
            decoder,
            format,
            compression,
            batch: Batch {
                records: Vec::new(),
                devices: Devices::default(),
                problems,
                events: Events::default(),
            },
            next: 0,
            more: true,
            error: None,
            placer: Placer::new(options),
            order: Order::new(window),
            origin: None,
            speed: options.speed,
            strict: options.strict,
            given: 0,
            other_devices: 0,
            is_told: false,
        }
    }

    /// The same reader; its errors begin with the name of the trace.
    pub fn named(self, name: String) -> Reader<'a> {
        Reader { name: Some(name), ..self }
    }

    /// The name of the trace, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The format of the trace; of several parts, that of the first.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How the trace is compressed; of several parts, the first.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The bad records met so far.
    pub fn problems(&self) -> &Problems {
        &self.batch.problems
    }

    /// What became of the records so far.
    pub fn tally(&self) -> Tally {
        let mut tally = self.decoder.tally();
        tally.add(Tally {
            records: self.given,
            bad_records: self.batch.problems.count(),
            other_devices_records: self.other_devices,
            reordered_records: self.order.reordered(),
            late_records: self.order.late(),
        });
        tally
    }

    /// The events met so far, of formats that note several of each request.
    pub fn events(&self) -> Events {
        self.batch.events
    }

    /// The time of the first record, on the trace's own clock.
    pub(crate) fn origin(&self) -> Option<u64> {
        self.origin
    }

    /// The devices met so far, but for those that were not asked for, in order of first appearance.
    pub fn devices(&self) -> Vec<Seen> {
        self.placer.seen(&self.batch.devices)
    }

    /// The label of a record's device.
    pub fn device_label(&self, device: u16) -> &str {
        self.batch.devices.labels().get(usize::from(device)).map_or("", String::as_str)
    }

    /// The labels of all devices, by number.
    pub(crate) fn labels(&self) -> &[String] {
        self.batch.devices.labels()
    }

    /// The arrivals alone.
    pub fn arrivals(self) -> impl Iterator<Item = Result<Arrival, Error>> + use<'a> {
        self.map(|record| record.map(|record| record.arrival))
    }

    /// The next record, in order of time but still on the trace's clock.
    #[inline]
    fn ordered(&mut self) -> Option<Raw> {
        loop {
            let Some(raw) = self.batch.records.get(self.next) else {
                if !self.more {
                    return self.order.pop();
                }
                self.refill();
                continue;
            };
            self.next += 1;
            match self.placer.place(raw, &mut self.batch.problems) {
                Ok(Some(placed)) => {
                    let oldest = self.order.push(placed);
                    if self.strict && self.order.late() > 0 {
                        self.end(late(self.format, placed.number));
                    }
                    if oldest.is_some() {
                        return oldest;
                    }
                }
                Ok(None) => self.other_devices += 1,
                Err(error) => self.end(error),
            }
        }
    }

    fn refill(&mut self) {
        self.batch.records.clear();
        self.next = 0;
        match self.decoder.decode(&mut self.source, &mut self.batch) {
            Ok(more) => self.more = more,
            Err(error) => self.end_after_batch(error),
        }
        if let Err(error) = self.batch.devices.check() {
            self.end_after_batch(error);
        }
        if let Err(error) = self.placer.meet(&self.batch.devices, self.decoder.places()) {
            self.end(error);
        }
    }

    /// The records that are there are given before the error.
    fn end_after_batch(&mut self, error: Error) {
        self.more = false;
        self.error.get_or_insert(error);
    }

    fn end(&mut self, error: Error) {
        self.batch.records.clear();
        self.next = 0;
        self.end_after_batch(error);
    }

    /// An error if all lines or records were bad: said once, at the end. A compact trace has its mark, and is
    /// not taken for another format: without a whole block, its recording was interrupted.
    fn nothing_read(&mut self) -> Option<Error> {
        if self.format == Format::Compact {
            return None;
        }
        let Tally { records, bad_records, other_devices_records, .. } = self.tally();
        if self.is_told || bad_records == 0 || records + other_devices_records > 0 {
            return None;
        }
        self.is_told = true;
        let first = self.problems().kept().first();
        let first = first.map(|problem| self.problems().describe(problem)).unwrap_or_default();
        let (format, word) = (self.format, self.format.word_for_record());
        Some(Error::Unrecognised(format!(
            "not one of {bad_records} {word}s could be read as {format}; {first}; name the right --format"
        )))
    }

    /// Since the first record, at the speed that was asked for.
    #[inline]
    fn clock(&mut self, at: u64) -> Nanos {
        let since = at - *self.origin.get_or_insert(at);
        if self.speed == 1.0 { Nanos(since) } else { Nanos((since as f64 / self.speed).round() as u64) }
    }
}

/// What some programs write before text.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

fn ends_lines_by_return(beginning: &[u8]) -> bool {
    memchr(b'\r', beginning).is_some() && memchr(b'\n', beginning).is_none()
}

fn late(format: Format, number: u64) -> Error {
    let place = format!("{} {number}", format.word_for_record());
    let reason =
        "its time is before that of records already given, further than the window reaches (--window)";
    Error::Strict { place, reason: reason.to_owned() }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, Error>;

    #[inline]
    fn next(&mut self) -> Option<Result<Record, Error>> {
        let Some(raw) = self.ordered() else {
            let error = self.error.take().or_else(|| self.nothing_read())?;
            return Some(Err(match &self.name {
                Some(name) => error.within(name),
                None => error,
            }));
        };
        self.given += 1;
        let Raw { at, device, op, offset, len, .. } = raw;
        let (offset, within) = match op {
            Op::Flush => (0, 0),
            _ => (offset, offset - self.placer.base(device)),
        };
        let request = Request { op, offset: Bytes(offset), len: Bytes(len) };
        let arrival = Arrival { at: self.clock(at), request };
        Some(Ok(Record { arrival, device, within: Bytes(within) }))
    }
}
