//! Lists of block numbers, as used in studies of caches: text with a number on each line (`blocks`), or
//! binary little-endian numbers of four or eight bytes (`blocks-u32`, `blocks-u64`).
//!
//! The format has no time: numbers are one unit of time apart (1 ms by default). The format has no operation:
//! all requests are reads of one block, of 4 KiB by default. The binary formats cannot be detected from the
//! content, and must be named.

use super::fixed::{FixedFormat, little};
use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, whole};
use crate::problems::Reason;
use braid_base::{Bytes, KIB, Nanos, Op};

/// Default block size.
pub(crate) const BLOCK: Bytes = Bytes(4 * KIB.0);

pub(crate) struct Blocks {
    pub between: Nanos,
    pub block: Bytes,
    /// Bytes of a number; 0 for text.
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
