//! "Identifying Metadata Blocks": by a guest's flag of a request, or by the known structures of a file
//! system.

use super::areas::List;
use super::structures::{self, Scan};
use super::{Hystor, METADATA};
use crate::{ByteRange, Move, Plan, Request, View};
use braid_base::{BlockId, Nanos, Op};

/// Time between two scans for file systems and their growth: a scan of 1 TiB of ext4 reads 0.6 MB.
const SCAN_EVERY: Nanos = Nanos::from_secs(120);
/// Longest time to the next scan after a guest's write to the place of superblocks: the write may have made a
/// file system, or enlarged one.
const SCAN_AGAIN: Nanos = Nanos::from_secs(10);
/// Ranges requested by a scan in one plan.
const INSPECTED_AT_ONCE: usize = 16;
impl Hystor {
    /// Marks metadata blocks. Marked blocks are remapped from now on, and become the last of their list to
    /// leave.
    fn note_metadata(&mut self, first: BlockId, blocks: u64, view: &View) {
        self.table(view).mark(first, blocks, METADATA);
        for block in (first.0..first.0 + blocks).map(BlockId) {
            if let Some(copy) = view.homes.extra(block) {
                self.areas.put(block, copy, List::Metadata);
                self.keep_to_size(copy.device, view);
            }
        }
    }

    /// Marks the metadata that a request touches: all blocks if the guest's flag says metadata, otherwise the
    /// part in known structures.
    pub(super) fn note_request(&mut self, request: &Request, view: &View) {
        let size = view.block_size;
        let touched = |part: ByteRange| {
            let first = part.start / size;
            (BlockId(first), part.end.align_up(size) / size - first)
        };
        if request.flags.metadata {
            let (first, blocks) = touched(request.range);
            return self.note_metadata(first, blocks, view);
        }
        if request.op == Op::Write && request.range.start < structures::BEGINNING {
            self.next_scan = self.next_scan.min(view.now + SCAN_AGAIN);
        }
        let structures = std::mem::take(&mut self.structures);
        for part in structures.within(request.range) {
            let (first, blocks) = touched(part);
            self.note_metadata(first, blocks, view);
        }
        self.structures = structures;
    }

    /// Continues the scan for file systems, or begins the next scan when due.
    pub(super) fn look_for_structures(&mut self, view: &View, plan: &mut Plan) {
        if !self.settings.metadata {
            return;
        }
        if self.scan.is_none() && view.now >= self.next_scan {
            self.next_scan = view.now + SCAN_EVERY;
            self.scan = Some(Scan::new(view.extent_size * u64::from(view.homes.extents())));
        }
        let Some(scan) = &self.scan else { return };
        plan.moves.extend(scan.next(INSPECTED_AT_ONCE).map(|range| Move::Inspect { range }));
        if plan.moves.is_empty()
            && let Some(scan) = self.scan.take()
        {
            let structures = scan.finish();
            if structures != self.structures
                && let Some(table) = &mut self.table
            {
                // Metadata blocks of a previous file system may be data now.
                table.clear_flag(METADATA);
            }
            self.structures = structures;
        }
    }
}
