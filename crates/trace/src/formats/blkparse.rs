//! The default output of blkparse: blkparse(1), "DEFAULT OUTPUT".
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//!   |      |        |     |             |    |   | |        | sectors of 512 bytes
//!   |      |        |     |             |    |   | first sector
//!   |      |        |     |             |    |   what: R, W, D (discard), F (flush); then F, S, A, M (ignored)
//!   |      |        |     |             |    event: Q queued, D issued, C completed, and others
//!   |      |        |     seconds       process
//!   |      processor  sequence
//!   device: major,minor
//! ```
//! Lines that do not begin with a device belong to the summary and are skipped. Also skipped are other
//! events, requests without sectors except flushes, and commands passed through to the device.

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, time, whole};
use crate::options::{Event, Events};
use crate::problems::Reason;
use braid_base::{Nanos, Op, SECTOR};

pub(crate) struct Blkparse {
    pub event: Event,
    pub events: Events,
}

impl LineFormat for Blkparse {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_space(line);
        if !is_device(fields.get(0)) {
            return Ok(None);
        }
        let at = time(fields.get(3), Nanos::from_secs(1)).ok_or("the fourth column is not a time")?;
        let event = match fields.get(5) {
            b"Q" => Event::Queue,
            b"D" => Event::Issue,
            b"C" => Event::Complete,
            _ => return Ok(None),
        };
        self.events.count(event);
        if event != self.event {
            return Ok(None);
        }
        let what = fields.get(6);
        let extent = (whole(fields.get(7)), fields.get(8), whole(fields.get(9)));
        let (Some(sector), b"+", Some(sectors @ 1..)) = extent else {
            // Of requests without sectors, only flushes count.
            let flush = what.starts_with(b"F").then(|| devices.number(fields.get(0))).transpose()?;
            return Ok(flush.map(|device| Raw { at, device, op: Op::Flush, offset: 0, len: 0, number: 0 }));
        };
        let Some(op) = operation(what) else { return Ok(None) };
        let bytes = |sectors: u64| sectors.checked_mul(SECTOR.0).ok_or("an address beyond 64 bits");
        let (offset, len) = (bytes(sector)?, bytes(sectors)?);
        Ok(Some(Raw { at, device: devices.number(fields.get(0))?, op, offset, len, number: 0 }))
    }

    fn events(&self) -> Events {
        self.events
    }
}

/// Returns true if a field is `major,minor`.
pub(crate) fn is_device(field: &[u8]) -> bool {
    let mut parts = field.split(|&byte| byte == b',');
    let number = |part: Option<&[u8]>| part.and_then(whole).is_some();
    number(parts.next()) && number(parts.next()) && parts.next().is_none()
}

/// Returns the operation of a request with data. A write with a preceding flush (`FW`) is a write.
fn operation(what: &[u8]) -> Option<Op> {
    match what.strip_prefix(b"F").unwrap_or(what).first() {
        Some(b'R') => Some(Op::Read),
        Some(b'W') => Some(Op::Write),
        Some(b'D') => Some(Op::Discard),
        _ => None,
    }
}
