//! From a search to the remap area: chosen blocks are marked, and the data mover copies them to the SSDs.

use super::areas::List;
use super::candidates::Search;
use super::{Hystor, METADATA, ROUND};
use crate::{Move, Plan, View};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId};

/// Sub-regions searched before guests' requests are served again: up to 8,192 blocks, in about 0.3 ms.
const SUB_REGIONS_IN_A_ROW: usize = 8;
/// Maximum number of chosen ranges in the queue: 128 KiB of memory. Blocks beyond the limit wait for a
/// guest's access or the next search.
const LONGEST_QUEUE: usize = 8192;
/// Ranges that the data mover gets in one plan: few, because the next plan may be to write back.
const PROMOTED_AT_ONCE: usize = 32;
impl Hystor {
    /// Continues the search, or begins the next search when due.
    pub(super) fn search(&mut self, view: &View) {
        if self.table.is_none() || self.search.is_none() && !self.begin_search(view) {
            return;
        }
        let (Some(mut search), mut chosen) = (self.search.take(), std::mem::take(&mut self.chosen)) else {
            return;
        };
        for _ in 0..SUB_REGIONS_IN_A_ROW {
            let without = if self.settings.metadata { METADATA } else { 0 };
            if !search.next(self.table(view), without, &mut chosen) {
                self.end_search(view);
                self.chosen = chosen;
                return;
            }
            chosen.iter().for_each(|&block| self.choose(block, view));
        }
        (self.search, self.chosen) = (Some(search), chosen);
    }

    /// Begins a search. False if no search is due, or if no request has come since the last search began.
    fn begin_search(&mut self, view: &View) -> bool {
        if !self.is_due(view) || self.requests == 0 {
            return false;
        }
        self.next_search = Some(view.now + self.settings.period);
        self.requests = 0;
        self.round = self.round % u8::MAX + 1;
        self.queue.clear();
        let remap_size = |d: &DeviceId| {
            let size = self.areas.remap_size(&view.devices[d.index()], view);
            u64::from(size.saturating_sub(self.areas.count(*d, List::Metadata)))
        };
        let size: u64 = self.ssds.iter().map(remap_size).sum();
        let quota = (size as f64 * self.settings.quota) as u64;
        let table = self.table(view);
        table.set_bar();
        self.search = Some(Search::new(table, quota));
        true
    }

    /// Handles a block of the update list: an existing copy comes to the head of the resident list, another
    /// block is queued for an SSD.
    fn choose(&mut self, block: BlockId, view: &View) {
        if let Some(copy) = view.homes.extra(block) {
            if self.areas.list_of(copy.cell) != Some(List::Metadata) {
                self.areas.put(block, copy, List::HighCost);
            }
            return;
        }
        let range = view.range_of_block(block);
        if !self.is_on_disk(ExtentId((range.start / view.extent_size) as u32), view) {
            return;
        }
        let round = u16::from(self.round);
        if let Some(flags) = self.table(view).flags_mut(block) {
            *flags = *flags & METADATA | round << ROUND;
        }
        let is_full = self.queue.len() >= LONGEST_QUEUE;
        match self.queue.back_mut() {
            Some(last) if last.end == range.start && !range.start.is_aligned(view.extent_size) => {
                last.end = range.end;
            }
            _ if is_full => {}
            _ => self.queue.push_back(range),
        }
    }

    fn end_search(&mut self, view: &View) {
        self.searches += 1;
        self.queue.make_contiguous().sort_unstable();
        self.ssds.clone().into_iter().for_each(|device| self.keep_to_size(device, view));
    }

    /// True if no guest has sent a request for a period.
    fn is_idle(&self, view: &View) -> bool {
        self.requests == 0 && self.is_due(view)
    }

    fn is_due(&self, view: &View) -> bool {
        self.next_search.is_some_and(|next| view.now >= next)
    }

    /// The data mover: plans copies of chosen blocks, within the budget while guests use the disk.
    pub(super) fn promote(&mut self, view: &View, plan: &mut Plan) {
        let mut coming = vec![0; view.devices.len()];
        for _ in 0..PROMOTED_AT_ONCE {
            let Some(range) = self.queue.pop_front() else { break };
            let target = self.roomiest_remap_area(view);
            let coming = &mut coming[target.index()];
            *coming += (range.len() / view.block_size) as u32;
            if self.areas.make_room(&view.devices[target.index()], *coming, view) {
                plan.moves.push(Move::Promote { range, target });
            }
        }
        for disk in view.devices.iter().filter(|d| d.class == DeviceClass::Hdd) {
            plan.limit(disk.id, if self.is_idle(view) { 1.0 } else { self.settings.budget });
        }
        // The next plan comes early, to check the water marks: moves not begun by then are returned.
        plan.revise = true;
    }
}
