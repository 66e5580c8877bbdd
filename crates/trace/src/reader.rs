//! Reads a trace as a stream of arrivals.

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

/// Reads a trace from any source, in memory that does not depend on the length of the trace.
///
/// An iterator over records in order of time. The first record is at time zero. An error ends the iteration.
/// A bad record is skipped, but is an error if reading is strict.
pub struct Reader<'a> {
    name: Option<String>,
    source: Source<'a>,
    decoder: Box<dyn Decode>,
    format: Format,
    compression: Compression,
    batch: Batch,
    /// Index of the next record of the batch.
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
    /// True if the reader has returned the error of [`Reader::nothing_read`].
    is_told: bool,
}

/// A record of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The request in the common address space of all devices, with its time since the first request.
    pub arrival: Arrival,
    /// Device number, in order of first appearance ([`Reader::devices`]).
    pub device: u16,
    /// Start of the request on its device.
    pub within: Bytes,
}

/// Counts of the records of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Tally {
    /// Records returned.
    pub records: u64,
    /// Bad records, skipped.
    pub bad_records: u64,
    /// Records of devices that are not selected. Also counts records beyond the room of their device, in
    /// addition to `bad_records`.
    pub other_devices_records: u64,
    /// Records sorted within the window.
    pub reordered_records: u64,
    /// Records too late for the window, moved to the time of the record before.
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
    /// Opens a trace. Detects the compression, and the format unless named in `options`.
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
            // A header with many devices is longer than the bytes for detection.
            beginning = source.peek(LONGEST_PIECE / 2).map_err(opening)?.into();
        }
        let decoder = formats::decoder(format, options, &beginning)?;
        // A compact trace is in order and needs no window. Any record out of order is late.
        let window = if format == Format::Compact { 0 } else { options.window };
        Ok(Reader::new(source, decoder, format, compression, window, options))
    }

    /// Merges the parts of a trace by time. The parts must have been opened with a speed of 1.
    pub(crate) fn merge(parts: Vec<Reader<'static>>, options: &Options) -> Result<Reader<'static>, Error> {
        options.check()?;
        let merged = Merged::new(parts);
        let ((format, compression), nothing) = (merged.kind(), Source::new(Box::new(std::io::empty())));
        // Each part has already sorted its own records.
        Ok(Reader::new(nothing, Box::new(merged), format, compression, 0, options))
    }

    fn new(
        source: Source<'a>,
        decoder: Box<dyn Decode>,
        format: Format,
        compression: Compression,
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

    /// Names the trace. Errors then begin with the name.
    pub fn named(self, name: String) -> Reader<'a> {
        Reader { name: Some(name), ..self }
    }

    /// Returns the name of the trace, if set.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the format of the trace, or of the first of several parts.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the compression of the trace, or of the first of several parts.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the bad records met so far.
    pub fn problems(&self) -> &Problems {
        &self.batch.problems
    }

    /// Returns the counts of records so far.
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

    /// Returns the events met so far, for formats with several events per request.
    pub fn events(&self) -> Events {
        self.batch.events
    }

    /// Returns the time of the first record, on the trace's own clock.
    pub(crate) fn origin(&self) -> Option<u64> {
        self.origin
    }

    /// Returns the selected devices met so far, in order of first appearance.
    pub fn devices(&self) -> Vec<Seen> {
        self.placer.seen(&self.batch.devices)
    }

    /// Returns the label of a record's device.
    pub fn device_label(&self, device: u16) -> &str {
        self.batch.devices.labels().get(usize::from(device)).map_or("", String::as_str)
    }

    /// Returns the labels of all devices, by number.
    pub(crate) fn labels(&self) -> &[String] {
        self.batch.devices.labels()
    }

    /// Returns an iterator over the arrivals alone.
    pub fn arrivals(self) -> impl Iterator<Item = Result<Arrival, Error>> + use<'a> {
        self.map(|record| record.map(|record| record.arrival))
    }

    /// Returns the next record, in order of time, but still on the trace's clock.
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

    /// Ends the trace with an error, after the remaining records of the batch.
    fn end_after_batch(&mut self, error: Error) {
        self.more = false;
        self.error.get_or_insert(error);
    }

    fn end(&mut self, error: Error) {
        self.batch.records.clear();
        self.next = 0;
        self.end_after_batch(error);
    }

    /// Returns an error if all lines or records were bad: once, at the end. A compact trace has a magic
    /// number and is never another format. A compact trace without a whole block is an interrupted recording,
    /// and no error.
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

    /// Returns the time since the first record, at the chosen speed.
    #[inline]
    fn clock(&mut self, at: u64) -> Nanos {
        let since = at - *self.origin.get_or_insert(at);
        if self.speed == 1.0 { Nanos(since) } else { Nanos((since as f64 / self.speed).round() as u64) }
    }
}

/// Byte order mark, written by some programs before text.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

fn ends_lines_by_return(beginning: &[u8]) -> bool {
    memchr(b'\r', beginning).is_some() && memchr(b'\n', beginning).is_none()
}

fn late(format: Format, number: u64) -> Error {
    let place = format!("{} {number}", format.word_for_record());
    let reason = "its time is before the time of earlier records, beyond the window (--window)";
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
