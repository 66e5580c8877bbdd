//! MSR Cambridge: block traces of enterprise servers (Narayanan, Donnelly, Rowstron, "Write Off-Loading",
//! FAST 2008), as distributed by SNIA IOTTA. The readme of the traces defines the format.
//!
//! ```text
//! 128166372003061629,usr,0,Read,7014609920,24576,41286
//! |                  |   | |    |          |     response time, in 100 ns; ignored
//! |                  |   | |    |          length in bytes
//! |                  |   | |    address in bytes
//! |                  |   | Read or Write
//! |                  |   disk number
//! |                  host: with the disk number, the device
//! arrival, in 100 ns since 1601 (a Windows file time)
//! ```

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, time, whole};
use crate::problems::Reason;
use braid_base::{Nanos, Op};

pub(crate) struct Msr {
    pub tick: Nanos,
    pub label: Vec<u8>,
}

impl LineFormat for Msr {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_comma(line);
        if fields.count() < 6 {
            return Err("fewer than the six fields time,host,disk,type,offset,size");
        }
        if fields.get(0).eq_ignore_ascii_case(b"timestamp") {
            return Ok(None);
        }
        let op = match fields.get(3) {
            op if op.eq_ignore_ascii_case(b"read") => Op::Read,
            op if op.eq_ignore_ascii_case(b"write") => Op::Write,
            _ => return Err("the fourth field is neither Read nor Write"),
        };
        let at = time(fields.get(0), self.tick).ok_or("the first field is not a time")?;
        let offset = whole(fields.get(4)).ok_or("the fifth field is not an address")?;
        let len = whole(fields.get(5)).ok_or("the sixth field is not a length")?;
        self.label.clear();
        self.label.extend_from_slice(fields.get(1));
        self.label.push(b'_');
        self.label.extend_from_slice(fields.get(2));
        let device = devices.number(&self.label)?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}
