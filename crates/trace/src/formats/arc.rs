//! The `.lis` files of Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003),
//! described in the readme of the files.
//!
//! ```text
//! 1842745 64 0 1
//! |       |  | number of the request
//! |       |  unused
//! |       number of consecutive blocks
//! first block
//! ```
//! The format has no time: lines are one unit of time apart (1 ms by default). The format has no operation:
//! all requests are reads. A block is 512 bytes by default. The default is right for the P traces. Other
//! traces count in pages.

use crate::decode::{LineFormat, Raw};
use crate::devices::Devices;
use crate::number::{Fields, whole};
use crate::problems::Reason;
use braid_base::{Bytes, Nanos, Op};

pub(crate) struct Arc {
    pub between: Nanos,
    pub block: Bytes,
    pub lines: u64,
}

impl LineFormat for Arc {
    fn record(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Raw>, Reason> {
        let fields = Fields::by_space(line);
        if fields.count() != 4 || whole(fields.get(2)).is_none() || whole(fields.get(3)).is_none() {
            return Err("not four numbers: first block, blocks, 0, number");
        }
        let blocks = |place| whole(fields.get(place))?.checked_mul(self.block.0);
        let offset = blocks(0).ok_or("the first column is not a block")?;
        let len = blocks(1).ok_or("the second column is not a number of blocks")?;
        let at = self.lines.saturating_mul(self.between.0);
        self.lines += 1;
        Ok(Some(Raw { at, device: devices.number(b"0")?, op: Op::Read, offset, len, number: 0 }))
    }
}
