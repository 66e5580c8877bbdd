//! FIU, also called SRCMap: block traces of a university's servers (Verma, Koller, Useche, Rangaswami,
//! "SRCMap", FAST 2010; Koller, Rangaswami, "I/O Deduplication", FAST 2010), as distributed by SNIA IOTTA.
//! The readme of the traces defines the format.
//!
//! ```text
//! 89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523
//! |              |     |    |         | | | | digest of the content; ignored, and may be missing
//! |              |     |    |         | | | minor and, before it, major number of the device
//! |              |     |    |         | | R or W
//! |              |     |    |         | length in sectors of 512 bytes
//! |              |     |    |         first sector
//! |              |     |    process, by name
//! |              |     process, by number
//! |              nanoseconds
//! ```

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, time, whole};
use crate::problems::Reason;
use braid_base::{Bytes, Nanos, Op};

pub(crate) struct Fiu {
    pub unit: Nanos,
    pub block: Bytes,
    pub label: Vec<u8>,
}

impl LineFormat for Fiu {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_space(line);
        if fields.count() < 8 {
            return Err(
                "fewer than eight columns: time, pid, process, sector, sectors, R or W, major, minor",
            );
        }
        let op = match fields.get(5) {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err("the sixth column is neither R nor W"),
        };
        let at = time(fields.get(0), self.unit).ok_or("the first column is not a time")?;
        whole(fields.get(1)).ok_or("the second column is not a process number")?;
        let blocks = |place| whole(fields.get(place))?.checked_mul(self.block.0);
        let offset = blocks(3).ok_or("the fourth column is not a sector")?;
        let len = blocks(4).ok_or("the fifth column is not a length")?;
        let numbers = whole(fields.get(6)).zip(whole(fields.get(7)));
        numbers.ok_or("the seventh and eighth column are not a device")?;
        self.label.clear();
        self.label.extend_from_slice(fields.get(6));
        self.label.push(b',');
        self.label.extend_from_slice(fields.get(7));
        let device = devices.number(&self.label)?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}
