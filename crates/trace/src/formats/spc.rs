//! SPC: the ASCII format of the Storage Performance Council, used for the Financial and WebSearch traces of
//! the UMass Trace Repository. After "SPC Trace File Format Specification", revision 1.0.1 (2002).
//!
//! ```text
//! 0,303567,3584,w,0.026214
//! | |      |    | time in seconds since the start of the trace
//! | |      |    r or R, w or W
//! | |      length in bytes
//! | address in blocks of 512 bytes, within the ASU
//! application specific unit: the device
//! ```
//! Further fields are optional in the specification, and ignored here.

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, time, whole};
use crate::problems::Reason;
use braid_base::{Bytes, Nanos, Op};

pub(crate) struct Spc {
    pub second: Nanos,
    pub block: Bytes,
}

impl LineFormat for Spc {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_comma(line);
        if fields.count() < 5 {
            return Err("fewer than the five fields ASU,LBA,size,opcode,time");
        }
        let op = match fields.get(3) {
            b"r" | b"R" => Op::Read,
            b"w" | b"W" => Op::Write,
            _ => return Err("the fourth field, the opcode, is neither r nor w"),
        };
        let at = time(fields.get(4), self.second).ok_or("the fifth field is not a time")?;
        let block = whole(fields.get(1)).ok_or("the second field is not an address")?;
        let offset = block.checked_mul(self.block.0).ok_or("the second field is not an address")?;
        let len = whole(fields.get(2)).ok_or("the third field is not a length")?;
        whole(fields.get(0)).ok_or("the first field is not an ASU")?;
        let device = devices.number(fields.get(0))?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}
