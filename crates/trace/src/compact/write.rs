//! Writer: records in, blocks out. Holds at most one block.

use super::block::{BlockHead, End, LONGEST};
use super::header::{Header, LONGEST_HEADER};
use super::record::{self, DeltaBase};
use crate::decode::{Raw, check};
use braid_base::{Arrival, Op, Request};
use std::io::{self, Write};

/// Compression of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockCompression {
    /// Uncompressed: the fastest to read and write.
    None,
    /// zstd at the given level: about half the size.
    Zstd(i32),
}

/// Writes a trace in the compact format.
pub struct CompactWriter<W> {
    out: W,
    compression: BlockCompression,
    payload: Vec<u8>,
    stored: Vec<u8>,
    before: DeltaBase,
    first: u64,
    in_block: u32,
    /// The end of the trace, updated with each record. Its `records` counts written blocks only.
    end: End,
}

/// Payload length at which a block ends: large enough for zstd to find repetitions, small enough for the
/// processor's cache.
const USUAL: usize = 64 << 10;

impl<W: Write> CompactWriter<W> {
    /// Writes the header. The writer is then ready for the first record.
    pub fn open(mut out: W, header: &Header, compression: BlockCompression) -> io::Result<CompactWriter<W>> {
        let bytes = header.encode();
        if bytes.len() > LONGEST_HEADER {
            let devices = header.places.len();
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{devices} devices: their names take more than the 1 MiB of a header: convert one at a time (--device)"
                ),
            ));
        }
        out.write_all(&bytes)?;
        Ok(CompactWriter {
            out,
            compression,
            payload: Vec::with_capacity(USUAL + record::LONGEST),
            stored: Vec::new(),
            before: DeltaBase::new(0),
            first: 0,
            in_block: 0,
            end: End { records: 0, last: 0, end: 0, dropped: 0, first: 0 },
        })
    }

    /// Adds a record. A record that a reader would reject is an error: a time before the last record, a read
    /// or write of no bytes or of more than 256 MiB, a discard of no bytes, an address beyond 64 PiB.
    pub fn push(&mut self, arrival: &Arrival) -> io::Result<()> {
        let Request { op, offset, len } = arrival.request;
        let refused = |reason| io::Error::new(io::ErrorKind::InvalidInput, format!("{arrival:?}: {reason}"));
        if arrival.at.0 < self.end.last {
            return Err(refused("the record's time is before the time of the record before"));
        }
        let raw = Raw { at: 0, device: 0, op, offset: offset.0, len: len.0, number: 0 };
        check(Some(raw)).map_err(refused)?;
        let end = if op == Op::Flush { 0 } else { offset.0 + len.0 };
        if self.in_block == 0 {
            self.first = arrival.at.0;
            self.before = DeltaBase::new(self.first);
            if self.end.records == 0 {
                self.end.first = self.first;
            }
        }
        self.before.encode(arrival, &mut self.payload);
        self.in_block += 1;
        self.end.last = arrival.at.0;
        self.end.end = self.end.end.max(end);
        if self.payload.len() >= USUAL { self.end_block() } else { Ok(()) }
    }

    /// Ends the block and writes all records added so far to `out`. Many small blocks make a large trace.
    pub fn end_block(&mut self) -> io::Result<()> {
        if self.in_block == 0 {
            return Ok(());
        }
        assert!(self.payload.len() <= LONGEST, "a block ends long before its limit");
        let (stored, zstd) = match self.compression {
            BlockCompression::None => (&self.payload, false),
            BlockCompression::Zstd(level) => {
                self.stored = zstd::bulk::compress(&self.payload, level)?;
                (&self.stored, true)
            }
        };
        let head = BlockHead {
            payload_crc: crc32c::crc32c(stored),
            stored: stored.len() as u32,
            len: self.payload.len() as u32,
            records: self.in_block,
            zstd,
            first: self.first,
            before: self.end.records,
        };
        self.out.write_all(&head.encode())?;
        self.out.write_all(stored)?;
        self.end.records += u64::from(self.in_block);
        self.in_block = 0;
        self.payload.clear();
        Ok(())
    }

    /// Returns the number of records added so far.
    pub fn records(&self) -> u64 {
        self.end.records + u64::from(self.in_block)
    }

    /// Returns the destination, to be flushed or synced.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Ends the trace. `dropped` is the number of requests missing from the trace. Returns the flushed
    /// destination.
    pub fn finish(mut self, dropped: u64) -> io::Result<W> {
        self.end_block()?;
        self.end.dropped = dropped;
        self.out.write_all(&self.end.encode())?;
        self.out.flush()?;
        Ok(self.out)
    }
}
