//! Footprint: distinct blocks of 4 KiB read or written, wholly or in part.

use super::BLOCK_BYTES;
use super::blocks::{BlockTable, READ, WRITTEN};

/// Distinct blocks touched.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Footprint {
    /// Size of a block.
    pub footprint_block_bytes: u64,
    /// Distinct blocks.
    pub footprint_blocks: u64,
    /// Distinct blocks in bytes.
    pub footprint_bytes: u64,
    /// Bytes in blocks that are read and never written.
    pub only_read_bytes: u64,
    /// Bytes in blocks that are written and never read.
    pub only_written_bytes: u64,
    /// References to blocks. A request is a reference to every touched block.
    pub block_references: u64,
    /// 1 if every block was remembered. If less, footprint, locality, reuse, miss ratios and working set are
    /// estimates from a sample of this share.
    pub sampled_share: f64,
}

impl Footprint {
    pub(super) fn of(blocks: &BlockTable) -> Footprint {
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
