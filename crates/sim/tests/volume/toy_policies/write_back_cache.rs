//! A write-back cache: homes lie on the disk. Reads and writes make extra copies on the SSD; dirty copies
//! are written back once the disk is idle or too many copies are dirty.

use super::{HDD, SSD};
use braid_base::{BlockId, DeviceId, ExtentId, Nanos};
use braid_policy::{DeviceView, ExtraCopy, Lru, Move, Occasion, Placement, Plan, Policy, View};
use std::collections::BTreeSet;

#[derive(Default)]
pub struct WriteBackCache {
    clean: Lru<BlockId>,
    dirty: BTreeSet<BlockId>,
}

/// With more dirty blocks than this, write-back does not wait for an idle disk.
const MOST_DIRTY: usize = 24;
/// Blocks that are written back before the policy looks again.
const BATCH: usize = 8;

impl Policy for WriteBackCache {
    fn place<'a>(&mut self, occasion: &Occasion<'a>, _: &View) -> Placement<'a> {
        for block in occasion.piece().into_iter().flat_map(|piece| piece.touched()) {
            if self.clean.contains(block) {
                self.clean.touch(block);
            }
        }
        match occasion {
            Occasion::New { write, .. } => Placement::on(HDD).with_extra(write.as_ref().map(|_| SSD)),
            Occasion::Write(_) => Placement::write_back(SSD),
            Occasion::ReadHit(_) => Placement::KEEP,
            Occasion::ReadMiss(_) => Placement::cached(Some(SSD)),
        }
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let too_many = self.dirty.len() > MOST_DIRTY;
        if too_many || view.devices[HDD.index()].in_flight == 0 {
            let ranges = self.dirty.iter().take(BATCH).map(|&block| view.range_of_block(block));
            plan.moves.extend(ranges.map(|range| Move::WriteBack { range }));
        }
        plan.limit(HDD, if too_many { 1.0 } else { 0.3 });
        view.now + Nanos::from_millis(5)
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        if device.id == SSD { device.slots / 2 } else { 0 }
    }

    fn evict(&mut self, _: DeviceId, _: &View) -> Option<BlockId> {
        self.clean.oldest()
    }

    fn extra_changed(&mut self, block: BlockId, _: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        self.clean.remove(block);
        self.dirty.remove(&block);
        match now {
            Some(copy) if copy.dirty => _ = self.dirty.insert(block),
            Some(_) => _ = self.clean.touch(block),
            None => {}
        }
    }

    fn name(&self) -> &'static str {
        "toy-write-back-cache"
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        format!("home on {HDD}; {} block(s) on {SSD} clean, {} dirty", self.clean.len(), self.dirty.len())
    }
}
