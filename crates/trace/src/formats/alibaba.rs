//! Alibaba's block traces of virtual disks (Li, Wang, Lee, Li et al., "An In-Depth Analysis of Cloud Block
//! Storage Workloads in Large-Scale Production", IISWC 2020), after the readme at
//! github.com/alibaba/block-traces.
//!
//! ```text
//! 419,W,8792731648,16384,1577808144360767
//! |   | |          |     time in microseconds
//! |   | |          length in bytes
//! |   | address in bytes
//! |   R or W
//! virtual disk: the device
//! ```

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, time, whole};
use crate::problems::Reason;
use braid_base::{Nanos, Op};

pub(crate) struct Alibaba {
    pub microsecond: Nanos,
}

impl LineFormat for Alibaba {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_comma(line);
        if fields.count() < 5 {
            return Err("fewer than the five fields device_id,opcode,offset,length,timestamp");
        }
        if fields.get(0) == b"device_id" {
            return Ok(None);
        }
        let op = match fields.get(1) {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err("the second field, the opcode, is neither R nor W"),
        };
        whole(fields.get(0)).ok_or("the first field is not a disk number")?;
        let offset = whole(fields.get(2)).ok_or("the third field is not an address")?;
        let len = whole(fields.get(3)).ok_or("the fourth field is not a length")?;
        let at = time(fields.get(4), self.microsecond).ok_or("the fifth field is not a time")?;
        let device = devices.number(fields.get(0))?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}
