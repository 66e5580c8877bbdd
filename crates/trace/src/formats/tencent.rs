//! Tencent's block traces of a cloud (Zhang, Zhang, Yang, Zhao et al., "OSCA: An Online-Model Based Cache
//! Allocation Scheme in Cloud Block Storage Systems", USENIX ATC 2020), as distributed by SNIA IOTTA. The
//! readme of the traces defines the format.
//!
//! ```text
//! 1538323200,12910952,128,0,1063
//! |          |        |   | volume: the device
//! |          |        |   0 is a read, 1 a write
//! |          |        length in sectors of 512 bytes
//! |          first sector
//! seconds since 1970
//! ```
//! Times are whole seconds: all requests of a second have the same time.

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, time, whole};
use crate::problems::Reason;
use braid_base::{Bytes, Nanos, Op};

pub(crate) struct Tencent {
    pub second: Nanos,
    pub block: Bytes,
}

impl LineFormat for Tencent {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_comma(line);
        if fields.count() != 5 {
            return Err("not the five fields Timestamp,Offset,Size,IOType,VolumeID");
        }
        if fields.get(0).eq_ignore_ascii_case(b"timestamp") {
            return Ok(None);
        }
        let op = match fields.get(3) {
            b"0" => Op::Read,
            b"1" => Op::Write,
            _ => return Err("the fourth field, the type, is neither 0 nor 1"),
        };
        let at = time(fields.get(0), self.second).ok_or("the first field is not a time")?;
        let blocks = |place| whole(fields.get(place))?.checked_mul(self.block.0);
        let offset = blocks(1).ok_or("the second field is not a sector")?;
        let len = blocks(2).ok_or("the third field is not a length")?;
        whole(fields.get(4)).ok_or("the fifth field is not a volume number")?;
        let device = devices.number(fields.get(4))?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}
