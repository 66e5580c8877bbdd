//! libCacheSim's oracleGeneral: accesses to objects, each with the next access to the same object, for
//! policies that know the future. After `oracleGeneralBin.h` of libCacheSim (github.com/1a1a11a/libCacheSim).
//!
//! ```text
//! offset  bytes   little-endian
//!  0      4       time in seconds
//!  4      8       object
//! 12      4       its size in bytes
//! 16      8       number of the next access to it; -1 or 2^63 - 1 where there is none; ignored
//! ```
//! The format has no operation: all requests are reads. In block traces, the object is the first block: its
//! address is the number times the block size (512 bytes by default). Traces of web caches have hashes as
//! objects. Most hashes are not valid addresses and are reported as bad records.
//!
//! The format has no magic number. `detect.rs` detects binary content if the first records have
//! non-decreasing times, sizes of 1 byte to 1 GiB, and next accesses in the future.

use crate::Error;
use crate::decode::{Batch, Decode, Raw, broken, check};
use crate::format::Format;
use crate::source::Source;
use braid_base::{Bytes, Nanos, Op};

const LEN: usize = 24;
const RECORDS_PER_BATCH: usize = 512;

pub(crate) struct OracleGeneral {
    pub second: Nanos,
    pub block: Bytes,
    pub number: u64,
}

impl Decode for OracleGeneral {
    fn decode(&mut self, source: &mut Source, batch: &mut Batch) -> Result<bool, Error> {
        for _ in 0..RECORDS_PER_BATCH {
            let seen = source.peek(LEN).map_err(|e| broken(Format::OracleGeneral, self.number, e))?;
            let Some(&record) = seen.first_chunk::<LEN>() else {
                let len = seen.len();
                source.skip(len);
                if len > 0 {
                    batch
                        .problems
                        .note(self.number, || format!("{len} bytes at the end, less than a record"))?;
                }
                return Ok(false);
            };
            source.skip(LEN);
            match self.record(&record, batch) {
                Ok(Some(raw)) => batch.records.push(raw),
                Ok(None) => {}
                Err(reason) => batch.problems.note(self.number, || reason.to_owned())?,
            }
            self.number += 1;
        }
        Ok(true)
    }
}

impl OracleGeneral {
    fn record(&self, record: &[u8; LEN], batch: &mut Batch) -> Result<Option<Raw>, &'static str> {
        let Access { seconds, object, size, .. } = Access::of(record);
        let at = u64::from(seconds).saturating_mul(self.second.0);
        let offset = object.checked_mul(self.block.0).ok_or("an object whose number is not an address")?;
        let device = batch.devices.number(b"0")?;
        let (op, len) = (Op::Read, u64::from(size));
        check(Some(Raw { at, device, op, offset, len, number: self.number }))
    }
}

struct Access {
    seconds: u32,
    object: u64,
    size: u32,
    next: i64,
}

impl Access {
    fn of(record: &[u8; LEN]) -> Access {
        let four = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let eight = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        Access { seconds: four(0), object: eight(4), size: four(12), next: eight(16) as i64 }
    }
}

/// Returns true if a trace with this beginning may have this format.
pub(crate) fn plausible(beginning: &[u8]) -> bool {
    let (records, _) = beginning.as_chunks::<LEN>();
    let mut before = 0;
    let fits = |(number, record): (usize, &[u8; LEN])| {
        let Access { seconds, size, next, .. } = Access::of(record);
        let in_order = std::mem::replace(&mut before, seconds) <= seconds;
        let ahead = next == -1 || next > number as i64;
        in_order && ahead && (1..=1 << 30).contains(&size)
    };
    !records.is_empty() && records.iter().enumerate().all(fits)
}
