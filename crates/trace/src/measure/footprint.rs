//! The footprint: distinct blocks of 4 KiB that were read or written, wholly or in part.

use super::BLOCK_BYTES;
use super::blocks::{Blocks, READ, WRITTEN};

/// What was touched at all.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Footprint {
    /// The size of a block.
    pub footprint_block_bytes: u64,
    /// Distinct blocks.
    pub footprint_blocks: u64,
    /// The same in bytes.
    pub footprint_bytes: u64,
    /// Bytes in blocks that were read and not written.
    pub only_read_bytes: u64,
    /// Bytes in blocks that were written and not read.
    pub only_written_bytes: u64,
    /// References to blocks: a request has one to each block that it touches.
    pub block_references: u64,
    /// 1 where every block was remembered; less where footprint, locality, reuse, miss ratios and working set
    /// are estimates from a sample of that share of blocks.
    pub sampled_share: f64,
}

impl Footprint {
    pub(super) fn of(blocks: &Blocks) -> Footprint {
        let footprint_blocks = blocks.count(|_| true);
        Footprint {
            footprint_block_bytes: BLOCK_BYTES,
            footprint_blocks,
            footprint_bytes: footprint_blocks * BLOCK_BYTES,
            only_read_bytes: blocks.count(|ops| ops == READ) * BLOCK_BYTES,
            only_written_bytes: blocks.count(|ops| ops == WRITTEN) * BLOCK_BYTES,
            block_references: blocks.references(),
            sampled_share: blocks.sampled_share(),
        }
    }
}
