//! SYSTOR '17: block traces of virtual desktops (Lee, Kumano, Matsuki, Endo, Fukumoto, Sugawara,
//! "Understanding Storage Traffic Characteristics on Enterprise Virtual Desktop Infrastructure", SYSTOR
//! 2017), as distributed by SNIA IOTTA. The readme of the traces defines the format.
//!
//! ```text
//! Timestamp,Response,IOType,LUN,Offset,Size
//! 1456095145.133076000,0.000806000,R,0,899056122368,131072
//! |                    |           | | |            length in bytes
//! |                    |           | | address in bytes
//! |                    |           | logical unit: the device
//! |                    |           R or W; empty if there was no response
//! |                    response time in seconds; ignored
//! seconds since 1970
//! ```
//! A request without a type is skipped, because its operation is unknown.

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, time, whole};
use crate::problems::Reason;
use braid_base::{Nanos, Op};

pub(crate) struct Systor {
    pub second: Nanos,
}

impl LineFormat for Systor {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_comma(line);
        if fields.count() < 6 {
            return Err("fewer than the six fields Timestamp,Response,IOType,LUN,Offset,Size");
        }
        if fields.get(0).eq_ignore_ascii_case(b"timestamp") {
            return Ok(None);
        }
        let op = match fields.get(2) {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"" => return Ok(None),
            _ => return Err("the third field, the type, is neither R nor W nor empty"),
        };
        let at = time(fields.get(0), self.second).ok_or("the first field is not a time")?;
        whole(fields.get(3)).ok_or("the fourth field is not a logical unit")?;
        let offset = whole(fields.get(4)).ok_or("the fifth field is not an address")?;
        let len = whole(fields.get(5)).ok_or("the sixth field is not a length")?;
        let device = devices.number(fields.get(3))?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}
