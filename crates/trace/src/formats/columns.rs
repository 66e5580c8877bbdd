//! Five columns, time device address length op: three formats that differ only in their units.
//!
//! *DiskSim*, the ASCII format of Bucy, Schindler, Schlosser, Ganger, "The DiskSim Simulation Environment
//! Version 4.0 Reference Manual" (CMU-PDL-08-101), section 5 on traces:
//!
//! ```text
//! 4.530000 0 1843720 16 1
//! |        | |       |  flags in hexadecimal: bit 0 set is a read
//! |        | |       length in blocks (sectors of 512 bytes)
//! |        | address in blocks
//! |        device number
//! arrival in milliseconds
//! ```
//!
//! *SSDSim* (Hu et al., ICS 2011) and *MQSim* (Tavakkol et al., FAST 2018; `ASCII_Trace_Definition.h`) have
//! the same columns with the time in whole nanoseconds and, as op, 0 for a write and 1 for a read.
//!
//! *Slices of MSR Cambridge traces* (`msr-cut`), as prepared for the Heimdall project, have the time in
//! milliseconds, address and length in bytes.
//!
//! Detection, in `detect.rs`: whole numbers for times are SSDSim. Otherwise, if every address and every
//! length of the first lines is a multiple of 512, the unit is the byte (`msr-cut`). A DiskSim trace with
//! such numbers would have only requests of multiples of 256 KiB at multiples of 256 KiB. Otherwise the
//! format is DiskSim.

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, hexadecimal, time, whole};
use crate::problems::Reason;
use braid_base::{Bytes, Nanos, Op};

/// Divisor of all addresses and lengths in bytes.
pub(crate) const SECTOR_BYTES: u64 = 512;

pub(crate) struct Columns {
    pub unit: Nanos,
    /// True if times are whole numbers.
    pub whole: bool,
    pub block: Bytes,
}

impl LineFormat for Columns {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_space(line);
        if fields.count() < 5 {
            return Err("fewer than five columns: time, device, address, length, op");
        }
        if self.whole && fields.get(0).contains(&b'.') {
            return Err("the first column is not a whole number of nanoseconds");
        }
        let at = time(fields.get(0), self.unit).ok_or("the first column is not a time")?;
        whole(fields.get(1)).ok_or("the second column is not a device number")?;
        let blocks = |place| whole(fields.get(place))?.checked_mul(self.block.0);
        let offset = blocks(2).ok_or("the third column is not an address")?;
        let len = blocks(3).ok_or("the fourth column is not a length")?;
        let flags = hexadecimal(fields.get(4)).ok_or("the fifth column is not an operation")?;
        let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
        let device = devices.number(fields.get(1))?;
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}
