//! Binary formats with records of a fixed length.

use crate::Error;
use crate::decode::{Batch, Decode, Raw, broken, check};
use crate::devices::Devices;
use crate::problems::Reason;
use crate::source::Source;

/// Interpreter of the records of a binary format.
pub(crate) trait FixedFormat: Send {
    /// Returns the bytes of a record.
    fn len(&self) -> usize;

    /// Returns the record in `bytes`, of length [`FixedFormat::len`]. `None` if the bytes are valid but hold
    /// no request.
    fn record(&mut self, bytes: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason>;
}

/// Decoder of formats with fixed records.
pub(crate) struct FixedRecords<F> {
    pub format: F,
    pub number: u64,
}

const RECORDS_PER_BATCH: usize = 512;

impl<F: FixedFormat> Decode for FixedRecords<F> {
    fn decode(&mut self, source: &mut Source, batch: &mut Batch) -> Result<bool, Error> {
        let len = self.format.len();
        for _ in 0..RECORDS_PER_BATCH {
            let seen = source.peek(len).map_err(|e| broken(batch.problems.format(), self.number, e))?;
            let found = seen.len();
            if found < len {
                source.skip(found);
                if found > 0 {
                    batch
                        .problems
                        .note(self.number, || format!("{found} bytes at the end, less than a record"))?;
                }
                return Ok(false);
            }
            match self.format.record(seen, &mut batch.devices).and_then(check) {
                Ok(Some(raw)) => batch.records.push(Raw { number: self.number, ..raw }),
                Ok(None) => {}
                Err(reason) => batch.problems.note(self.number, || reason.to_owned())?,
            }
            source.skip(len);
            self.number += 1;
        }
        Ok(true)
    }
}

/// Returns the big-endian number in at most eight bytes.
pub(crate) fn big(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Returns the little-endian number in at most eight bytes.
pub(crate) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
