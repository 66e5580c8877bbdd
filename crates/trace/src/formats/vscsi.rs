//! The format of VMware's tracer of virtual SCSI disks, used for CloudPhysics traces (Waldspurger, Park,
//! Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015). After `vscsi.h` of libCacheSim
//! (github.com/1a1a11a/libCacheSim).
//!
//! ```text
//! version 1: 32 bytes, little-endian          version 2: 40 bytes
//! offset bytes                                offset bytes
//!  0     4     sequence number; ignored        0     2     SCSI operation code
//!  4     4     length in bytes                 2     2     version: 2 in the upper byte
//!  8     4     scatter-gather entries          4     4     sequence number; ignored
//! 12     2     SCSI operation code             8     4     length in bytes
//! 14     2     version: 1 in the upper byte   12     4     scatter-gather entries
//! 16     8     first sector of 512 bytes      16     8     first sector
//! 24     8     time in microseconds           24     8     time in microseconds
//!                                             32     8     response time; ignored
//! ```
//! The format has no magic number. `detect.rs` detects binary content if all of the first records have the
//! version at its place, times that decrease by at most a second, and requests of at most 256 MiB. Commands
//! that touch no blocks are skipped.

use super::cloudphysics::operation;
use super::fixed::{FixedFormat, little};
use crate::decode::Raw;
use crate::devices::Devices;
use crate::problems::Reason;
use braid_base::{Bytes, Nanos};

#[derive(Clone, Copy)]
pub(crate) struct Vscsi {
    version: Version,
    pub microsecond: Nanos,
    pub block: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Limit of records for detection.
const MOST_LOOKED_AT: usize = 200;
/// Minimum of records for detection. A single record is no proof: random bytes have the right version in one
/// of 256 records.
const FEWEST_LOOKED_AT: usize = 2;

impl Vscsi {
    /// Detects the version from the beginning of a trace. `None` if the beginning has another format.
    pub(crate) fn tell(beginning: &[u8], microsecond: Nanos, block: Bytes) -> Option<Vscsi> {
        let of = |version| Vscsi { version, microsecond, block };
        [Version::One, Version::Two].map(of).into_iter().find(|format| format.is_plausible(beginning))
    }

    fn is_plausible(&self, beginning: &[u8]) -> bool {
        const SECOND: u64 = 1_000_000;
        let mut before = 0;
        let records = beginning.chunks_exact(self.len()).take(MOST_LOOKED_AT);
        let count = records.len();
        let mut fits = records.map(|record| {
            let time = little(&record[24..32]);
            let in_order = time.saturating_add(SECOND) >= before;
            before = time;
            in_order && self.has_version(record) && little(self.length_of(record)) <= 256 << 20
        });
        count >= FEWEST_LOOKED_AT && fits.all(|fits| fits)
    }

    fn has_version(&self, record: &[u8]) -> bool {
        match self.version {
            Version::One => record[15] == 1,
            Version::Two => record[3] == 2,
        }
    }

    fn length_of<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        match self.version {
            Version::One => &record[4..8],
            Version::Two => &record[8..12],
        }
    }
}

impl FixedFormat for Vscsi {
    fn len(&self) -> usize {
        match self.version {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    fn record(&mut self, bytes: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        if !self.has_version(bytes) {
            return Err("a record of another version");
        }
        let code = match self.version {
            Version::One => &bytes[12..14],
            Version::Two => &bytes[0..2],
        };
        let Some(op) = operation(little(code)) else { return Ok(None) };
        let offset = little(&bytes[16..24]).checked_mul(self.block.0).ok_or("an address beyond 64 bits")?;
        let at = little(&bytes[24..32]).checked_mul(self.microsecond.0).ok_or("a time beyond 64 bits")?;
        let (len, device) = (little(self.length_of(bytes)), devices.number(b"0")?);
        Ok(Some(Raw { at, device, op, offset, len, number: 0 }))
    }
}
