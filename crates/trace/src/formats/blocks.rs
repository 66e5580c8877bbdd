//! Lists of block numbers, as studies of caches use them: text with one number on a line (`blocks`), or
//! binary numbers of four or eight bytes, little-endian, one after another (`blocks-u32`, `blocks-u64`).
//!
//! There is no time: each number is a unit of time (1 ms unless told otherwise) after the one before. There
//! is no operation: all are reads, of one block each, of 4 KiB unless told otherwise. The binary ones cannot
//! be told by their content, and have to be named.

use super::fixed::{FixedFormat, little};
use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, whole};
use crate::problems::Reason;
use braid_base::{Bytes, KIB, Nanos, Op};

/// The usual block.
pub(crate) const BLOCK: Bytes = Bytes(4 * KIB.0);

pub(crate) struct Blocks {
    pub between: Nanos,
    pub block: Bytes,
    /// Bytes of a number; of text, none.
    pub width: usize,
    pub given: u64,
}

impl Blocks {
    fn read(&mut self, block: u64, devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let offset = block.checked_mul(self.block.0).ok_or("a block beyond 64 bits of bytes")?;
        let at = self.given.saturating_mul(self.between.0);
        self.given += 1;
        let (device, len) = (devices.number(b"0")?, self.block.0);
        Ok(Some(Raw { at, device, op: Op::Read, offset, len, number: 0 }))
    }
}

impl LineFormat for Blocks {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_space(line);
        match (fields.count(), whole(fields.get(0))) {
            (1, Some(block)) => self.read(block, devices),
            _ => Err("not one number of a block"),
        }
    }
}

impl FixedFormat for Blocks {
    fn len(&self) -> usize {
        self.width
    }

    fn record(&mut self, bytes: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        self.read(little(bytes), devices)
    }
}
