//! CloudPhysics: requests to virtual SCSI disks of VMware guests (Waldspurger, Park, Garthwaite, Ahmad,
//! "Efficient MRC Construction with SHARDS", FAST 2015), as CSV distributed with mimircache and libCacheSim.
//!
//! ```text
//! version,time,op,size,lbn
//! 1,5633898368802,2a,512,42932745
//! | |             |  |   address in sectors of 512 bytes
//! | |             |  length in bytes
//! | |             SCSI operation code, in hexadecimal
//! | time in microseconds
//! version of the record, 1 or 2
//! ```
//! Commands that touch no blocks (for example, an inquiry) are skipped.

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, hexadecimal, time, whole};
use crate::problems::Reason;
use braid_base::{Bytes, Nanos, Op};

pub(crate) struct CloudPhysics {
    pub microsecond: Nanos,
    pub block: Bytes,
}

impl LineFormat for CloudPhysics {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_comma(line);
        if fields.count() < 5 {
            return Err("fewer than the five fields version,time,op,size,lbn");
        }
        if fields.get(0) == b"version" {
            return Ok(None);
        }
        if !matches!(whole(fields.get(0)), Some(1 | 2)) {
            return Err("the first field, the version, is neither 1 nor 2");
        }
        let code = hexadecimal(fields.get(2)).ok_or("the third field is not a SCSI operation code")?;
        let at = time(fields.get(1), self.microsecond).ok_or("the second field is not a time")?;
        let len = whole(fields.get(3)).ok_or("the fourth field is not a length")?;
        let block = whole(fields.get(4)).ok_or("the fifth field is not an address")?;
        let offset = block.checked_mul(self.block.0).ok_or("the fifth field is not an address")?;
        let Some(op) = operation(code) else { return Ok(None) };
        let device = devices.number(b"0")?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}

/// READ, WRITE, WRITE AND VERIFY of 6, 10, 12 and 16 bytes, WRITE SAME, SYNCHRONIZE CACHE, UNMAP (SBC-3,
/// table 33).
pub(super) fn operation(code: u64) -> Option<Op> {
    Some(match code {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x41 | 0x93 => Op::Write,
        0x35 | 0x91 => Op::Flush,
        0x42 => Op::Discard,
        _ => return None,
    })
}
