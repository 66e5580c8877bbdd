//! blktrace's binary format: `struct blk_io_trace` of the kernel's `linux/blktrace_api.h`, version 7, in
//! either byte order.
//!
//! ```text
//! offset  bytes
//!  0      4      magic 0x65617400 and, in its lowest byte, the version
//!  4      4      sequence
//!  8      8      time in nanoseconds
//! 16      8      first sector of 512 bytes
//! 24      4      length in bytes
//! 28      4      what: event in the lower 16 bits, kind of request in the upper
//! 32      4      process
//! 36      4      device: major << 20 | minor
//! 40      4      processor
//! 44      2      error
//! 46      2      length of what follows this record
//! ```
//! blktrace writes a file for each processor, without a common order. `blkparse -i NAME -d FILE` merges the
//! files. Reading a mere concatenation gives late records, which are counted. If a record does not begin with
//! the magic number, reading continues at the next magic number.

use crate::Error;
use crate::decode::{Batch, Decode, Raw, broken, check};
use crate::format::Format;
use crate::options::Event;
use crate::source::Source;
use braid_base::{Op, SECTOR};

const MAGIC: u32 = 0x6561_7407;
const LEN: usize = 48;
const RECORDS_PER_BATCH: usize = 512;

pub(crate) struct Blktrace {
    event: Event,
    order: ByteOrder,
    number: u64,
    /// Device of the last record: the kernel's number, and the number in this crate.
    device: Option<(u32, u16)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Detects the byte order from the first bytes. `None` if the bytes are not from blktrace.
    pub(crate) fn tell(beginning: &[u8]) -> Option<ByteOrder> {
        let magic = *beginning.first_chunk::<4>()?;
        match MAGIC {
            known if u32::from_le_bytes(magic) == known => Some(ByteOrder::Little),
            known if u32::from_be_bytes(magic) == known => Some(ByteOrder::Big),
            _ => None,
        }
    }

    fn number(self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            ByteOrder::Little => bytes.iter().rev().fold(0, add),
            ByteOrder::Big => bytes.iter().fold(0, add),
        }
    }
}

impl Blktrace {
    pub(crate) fn new(event: Event, order: ByteOrder) -> Blktrace {
        Blktrace { event, order, number: 0, device: None }
    }
}

impl Decode for Blktrace {
    fn decode(&mut self, source: &mut Source, batch: &mut Batch) -> Result<bool, Error> {
        for _ in 0..RECORDS_PER_BATCH {
            let seen = source.peek(LEN).map_err(|e| broken(Format::Blktrace, self.number, e))?;
            if seen.is_empty() {
                return Ok(false);
            }
            let Some(&record) = seen.first_chunk::<LEN>() else {
                let len = seen.len();
                source.skip(len);
                batch.problems.note(self.number, || format!("{len} bytes at the end, less than a record"))?;
                return Ok(false);
            };
            if ByteOrder::tell(&record) != Some(self.order) {
                let begins = |bytes: &[u8]| ByteOrder::tell(bytes) == Some(self.order);
                let skipped =
                    source.skip_until(4, begins).map_err(|e| broken(Format::Blktrace, self.number, e))?;
                batch
                    .problems
                    .note(self.number, || format!("{skipped} bytes that are not a record of version 7"))?;
                continue;
            }
            source.skip(LEN);
            match self.record(&record, batch) {
                Ok(Some(raw)) => batch.records.push(Raw { number: self.number, ..raw }),
                Ok(None) => {}
                Err(reason) => batch.problems.note(self.number, || reason.to_owned())?,
            }
            self.skip(source, self.order.number(&record[46..48]) as usize)?;
            self.number += 1;
        }
        Ok(true)
    }
}

impl Blktrace {
    fn record(&mut self, record: &[u8; LEN], batch: &mut Batch) -> Result<Option<Raw>, &'static str> {
        let number = |from: usize, len: usize| self.order.number(&record[from..from + len]);
        let (what, len) = (number(28, 4), number(24, 4));
        // Bit 8 means that the number of a control group follows.
        let event = match what & 0xfeff {
            1 => Event::Queue,
            7 => Event::Issue,
            8 => Event::Complete,
            _ => return Ok(None),
        };
        let kind = |bit: u32| what >> 16 & 1 << bit != 0;
        let (read, write, flush, notice, passed, discard) =
            (kind(0), kind(1), kind(2), kind(10), kind(9), kind(13));
        if notice || passed {
            return Ok(None);
        }
        batch.events.count(event);
        if event != self.event {
            return Ok(None);
        }
        let op = match len {
            0 if flush => Op::Flush,
            0 => return Ok(None),
            _ if discard => Op::Discard,
            _ if write => Op::Write,
            _ if read => Op::Read,
            _ => return Ok(None),
        };
        let offset = number(16, 8).checked_mul(SECTOR.0).ok_or("an address beyond 64 bits")?;
        let (at, device) = (number(8, 8), number(36, 4) as u32);
        let device = self.device(device, batch)?;
        check(Some(Raw { at, device, op, offset, len, number: 0 }))
    }

    fn device(&mut self, device: u32, batch: &mut Batch) -> Result<u16, &'static str> {
        if let Some((last, number)) = self.device
            && last == device
        {
            return Ok(number);
        }
        let label = format!("{},{}", device >> 20, device & 0xf_ffff);
        let number = batch.devices.number(label.as_bytes())?;
        self.device = Some((device, number));
        Ok(number)
    }

    fn skip(&mut self, source: &mut Source, mut len: usize) -> Result<(), Error> {
        while len > 0 {
            let seen = source.peek(len).map_err(|e| broken(Format::Blktrace, self.number, e))?.len();
            source.skip(seen);
            if seen == 0 {
                return Ok(());
            }
            len -= seen;
        }
        Ok(())
    }
}
