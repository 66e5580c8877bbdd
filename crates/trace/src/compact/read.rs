//! Reader: block after block. Damaged blocks are reported and skipped.

use super::block::{BLOCK, BlockHead, END, End, HEAD, LONGEST};
use super::header::{Header, MAGIC};
use super::record::DeltaBase;
use crate::Error;
use crate::decode::{Batch, Decode, Raw, broken, check};
use crate::format::Format;
use crate::source::Source;
use braid_base::{Bytes, Nanos};

pub(crate) struct CompactReader {
    header: Header,
    /// Length of the header; 0 once the header is read.
    ahead: usize,
    bases: Vec<(u64, u64)>,
    /// Devices by base, to find the device of an address.
    by_base: Vec<(u64, u16)>,
    payload: Vec<u8>,
    number: u64,
    records: u64,
    /// Time of the last record read. A block must not begin earlier.
    last: u64,
    ended: bool,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl CompactReader {
    /// Creates a reader. `beginning` must hold the header.
    pub(crate) fn new(beginning: &[u8]) -> Result<CompactReader, Error> {
        let ahead = Header::len(beginning)?;
        let header = Header::decode(&beginning[..ahead.min(beginning.len())])?;
        let bases: Vec<(u64, u64)> = header.places.iter().map(|p| (p.base.0, p.span.0)).collect();
        // Without a table, the trace has a single device with base 0.
        let bases = if bases.is_empty() { vec![(0, 1 << 62)] } else { bases };
        let mut by_base: Vec<(u64, u16)> =
            bases.iter().enumerate().map(|(number, &(base, _))| (base, number as u16)).collect();
        by_base.sort_unstable();
        let decompressor = zstd::bulk::Decompressor::new()
            .map_err(|error| Error::io("zstd cannot be initialised", error))?;
        Ok(CompactReader {
            header,
            ahead,
            bases,
            by_base,
            payload: Vec::new(),
            number: 0,
            records: 0,
            last: 0,
            ended: false,
            decompressor,
        })
    }

    fn begin(&mut self, source: &mut Source, batch: &mut Batch) -> Result<(), Error> {
        let len = std::mem::take(&mut self.ahead);
        source.peek(len).map_err(|e| broken(Format::Compact, 0, e))?;
        source.skip(len);
        let invalid = |reason| Error::Unrecognised(format!("the header of the compact trace: {reason}"));
        for (number, place) in self.header.places.iter().enumerate() {
            let known = batch.devices.number(place.device.as_bytes()).map_err(invalid)?;
            if usize::from(known) != number {
                return Err(invalid("two devices have the same name"));
            }
        }
        if self.header.places.is_empty() {
            batch.devices.number(b"0").map_err(invalid)?;
        }
        Ok(())
    }

    /// Adds the records of a block, or returns the reason for rejecting the block.
    fn block(&mut self, head: &BlockHead, stored: &[u8], batch: &mut Batch) -> Result<(), &'static str> {
        if crc32c::crc32c(stored) != head.payload_crc {
            return Err("its records are damaged (checksum mismatch)");
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        let content = match head.zstd {
            false => Ok(stored),
            true => {
                payload.reserve(LONGEST);
                let len = self.decompressor.decompress_to_buffer(stored, &mut payload);
                match len {
                    Ok(len) if len == head.len as usize => Ok(&payload[..]),
                    _ => Err("its records cannot be decompressed"),
                }
            }
        };
        let read = content.and_then(|content| self.records(head, content, batch));
        self.payload = payload;
        read
    }

    fn records(
        &mut self,
        head: &BlockHead,
        mut content: &[u8],
        batch: &mut Batch,
    ) -> Result<(), &'static str> {
        let begin = batch.records.len();
        if head.first < self.last {
            return Err("its first record is before the last record of the block before");
        }
        let mut before = DeltaBase::new(head.first);
        batch.records.reserve(head.records as usize);
        let number = self.number;
        for _ in 0..head.records {
            let arrival = before.decode(&mut content);
            let raw = arrival.and_then(|arrival| {
                let request = arrival.request;
                let (device, offset) = self.locate(request.offset.0);
                let (at, op, len) = (arrival.at.0, request.op, request.len.0);
                check(Some(Raw { at, device, op, offset, len, number })).ok().flatten()
            });
            let Some(raw) = raw else {
                batch.records.truncate(begin);
                return Err("a record is invalid");
            };
            batch.records.push(raw);
        }
        if !content.is_empty() {
            batch.records.truncate(begin);
            return Err("it has more bytes than records");
        }
        self.last = batch.records.last().map_or(self.last, |raw| raw.at);
        Ok(())
    }

    /// Returns the device of an address, and the address within the device.
    #[inline]
    fn locate(&self, address: u64) -> (u16, u64) {
        if self.by_base.len() < 2 {
            return (0, address.saturating_sub(self.bases[0].0));
        }
        let place = self.by_base.partition_point(|&(base, _)| base <= address);
        let (base, device) = self.by_base[place.saturating_sub(1)];
        (device, address.saturating_sub(base))
    }

    /// Skips and reports bytes after the end.
    fn finish(&mut self, source: &mut Source, batch: &mut Batch) -> Result<(), Error> {
        let mut surplus = 0;
        loop {
            let seen = source.peek(HEAD).map_err(|e| broken(Format::Compact, self.number, e))?.len();
            if seen == 0 {
                break;
            }
            source.skip(seen);
            surplus += seen;
        }
        if surplus > 0 {
            batch.problems.note(self.number, || format!("{surplus} bytes after the end of the trace"))?;
        }
        Ok(())
    }

    /// Skips to the head of the next block or the end. Returns the number of skipped bytes, and true if a
    /// head was found.
    fn resynchronise(&mut self, source: &mut Source) -> Result<(u64, bool), Error> {
        const VIEW: usize = 4096;
        let mut skipped = 0;
        loop {
            let seen = source.peek(VIEW).map_err(|e| broken(Format::Compact, self.number, e))?;
            let here = usize::from(skipped == 0);
            let next = (here..seen.len()).find(|&place| is_head(&seen[place..]));
            let last = seen.len() < VIEW;
            // A head may begin in the last bytes of the view and end beyond the view.
            let len = next.unwrap_or(if last { seen.len() } else { VIEW - HEAD + 1 });
            source.skip(len);
            skipped += len as u64;
            if next.is_some() || last {
                return Ok((skipped, next.is_some()));
            }
        }
    }
}

fn is_head(bytes: &[u8]) -> bool {
    (bytes.starts_with(BLOCK) || bytes.starts_with(END))
        && bytes
            .first_chunk::<HEAD>()
            .is_some_and(|head| BlockHead::decode(head).is_some() || End::decode(head).is_some())
}

impl Decode for CompactReader {
    fn decode(&mut self, source: &mut Source, batch: &mut Batch) -> Result<bool, Error> {
        if self.ahead > 0 {
            self.begin(source, batch)?;
        }
        if self.ended {
            return Ok(false);
        }
        let number = self.number;
        let seen = source.peek(HEAD).map_err(|e| broken(Format::Compact, number, e))?;
        if seen.is_empty() {
            self.ended = true;
            batch.problems.note(number, || {
                "the block is missing, and so is the end: the writer of the trace was interrupted; all \
                 earlier blocks were read"
                    .to_owned()
            })?;
            return Ok(false);
        }
        let head = seen.first_chunk::<HEAD>().copied();
        if let Some(end) = head.as_ref().and_then(End::decode) {
            source.skip(HEAD);
            self.ended = true;
            if end.records != self.records {
                let (found, told) = (self.records, end.records);
                batch.problems.note(number, || {
                    format!("the end says {told} records, and {found} were found in blocks")
                })?;
            }
            if end.dropped > 0 {
                let dropped = end.dropped;
                batch.problems.note(number, || {
                    format!("{dropped} requests are missing in the trace: the recorder's buffer was full")
                })?;
            }
            self.finish(source, batch)?;
            return Ok(false);
        }
        let Some(head) = head.as_ref().and_then(BlockHead::decode) else {
            let (skipped, found) = self.resynchronise(source)?;
            self.ended = !found;
            let what = if found {
                "that are not a block"
            } else {
                "of a torn block: the writer of the trace was interrupted"
            };
            batch.problems.note(number, || format!("{skipped} bytes {what}"))?;
            self.number += 1;
            return Ok(found);
        };
        let whole = HEAD + head.stored as usize;
        let seen = source.peek(whole).map_err(|e| broken(Format::Compact, number, e))?;
        if seen.len() < whole {
            let there = seen.len();
            source.skip(there);
            self.ended = true;
            batch.problems.note(number, || {
                format!(
                    "{there} of its {whole} bytes are present: the writer of the trace was interrupted; all \
                     earlier blocks were read"
                )
            })?;
            return Ok(false);
        }
        let lost = head.before.saturating_sub(self.records);
        if lost > 0 {
            batch.problems.note(number, || format!("{lost} records are missing before it"))?;
        }
        self.records = head.before.saturating_add(head.records.into());
        let read = self.block(&head, &seen[HEAD..], batch);
        source.skip(whole);
        if let Err(reason) = read {
            let records = head.records;
            batch.problems.note(number, || format!("{reason}; its {records} records are skipped"))?;
        }
        self.number += 1;
        Ok(true)
    }

    fn places(&self) -> Option<&[(u64, u64)]> {
        Some(&self.bases)
    }
}

/// Content of the end of a complete compact trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tail {
    pub records: u64,
    pub duration: Nanos,
    /// Largest end address of all records.
    pub end: Bytes,
}

/// Decodes the end from the last bytes of a compact trace. `None` if the end is missing: the recording was
/// interrupted.
pub fn compact_end(ending: &[u8]) -> Option<CompactEnd> {
    let End { records, dropped, .. } = End::decode(ending.last_chunk::<HEAD>()?)?;
    Some(CompactEnd { records, dropped })
}

/// Length of the end of a compact trace.
pub const COMPACT_END_LEN: usize = HEAD;

/// Content of the end of a compact trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactEnd {
    /// Number of all records.
    pub records: u64,
    /// Requests dropped because the recorder had no room.
    pub dropped: u64,
}

/// Decodes header and end of a compact trace. `beginning` holds the first bytes of the file, `ending` the
/// last bytes. `None` if the file is not a compact trace, or is incomplete.
pub(crate) fn tail(beginning: &[u8], ending: &[u8]) -> Option<(Header, Tail)> {
    if !beginning.starts_with(MAGIC) {
        return None;
    }
    let header = Header::decode(beginning.get(..Header::len(beginning).ok()?)?).ok()?;
    let End { records, first, last, end, .. } = End::decode(ending.last_chunk::<HEAD>()?)?;
    Some((header, Tail { records, duration: Nanos(last.checked_sub(first)?), end: Bytes(end) }))
}
