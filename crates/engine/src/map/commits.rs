//! Commits: the choice of changes, and the slots freed at the end. Part of [`State`].

use super::State;
use super::changes::{ExtraChange, Scope};
use super::outdated::Freed;
use crate::planted::{Bug, planted};
use braid_format::intent_page::Difference;
use braid_format::journal::Record;
use braid_format::map_page;

impl State {
    /// Begins a commit of at most `most` changes and fills `records`. Returns true if changes are left
    /// pending although `scope` is `All` or `Promised` and the batch is not empty.
    pub fn begin_commit(&mut self, scope: Scope, most: usize, records: &mut Vec<Record>) -> bool {
        assert!(
            self.committing.extents.is_empty() && self.committing.blocks.is_empty(),
            "one commit runs at a time"
        );
        let extent_of = |block| self.shape.range_of(block).extent;
        self.committing = self.pending.take(scope, most, &self.extras, extent_of);
        // Changes outside the batch stay in the pending log, so nothing is forgotten unless all changes are
        // taken.
        let takes_all = self.pending.len() == 0;
        self.committing_log = if takes_all { self.begin_log_commit() } else { None };
        if planted(Bug::LogForgottenEarly) {
            self.end_log_commit(self.committing_log, 0);
        }
        let takes_part = matches!(scope, Scope::All | Scope::Promised)
            && self.committing.len() > 0
            && self.pending.len() > 0;
        self.committing.cleared = self.behind.begin_clearing(&self.committing.cleared);
        records.clear();
        records.extend(self.committing.extents.keys().map(|&e| Record::Extent(e, self.map.get(e))));
        for (&block, change) in &mut self.committing.blocks {
            let now = self.extras.get(block);
            change.after = now.filter(|extra| !extra.dirty || !planted(Bug::DirtyMarkDropped));
            records.push(Record::Extra(block, change.after));
        }
        records.extend(self.committing.cleared.iter().map(|&span| Record::Intent(span, Difference::None)));
        records.sort_unstable_by_key(|record| match record {
            Record::Extent(extent, _) => (0, u64::from(extent.0)),
            Record::Extra(block, _) => (1, block.0),
            Record::Intent(span, _) => (2, u64::from(span.0)),
            Record::Device(..) | Record::Epoch(_) => (3, 0),
        });
        takes_part
    }

    /// Ends a durable commit with batch `newest`. Freed slots are free at once, or held until a checkpoint.
    pub fn end_commit(&mut self, newest: u64) {
        let mut done = std::mem::take(&mut self.committing);
        let number = self.committing_log.take();
        self.end_log_commit(number, newest);
        let per_page = map_page::extents_per_page(self.shape.copies);
        self.behind.end_clearing(&done.cleared, true);
        self.mark_intents_stale(std::mem::take(&mut done.cleared));
        self.stale_pages.extend(done.extents.keys().map(|e| e.0 / per_page));
        for (&block, change) in &done.blocks {
            let ExtraChange { before, after } = *change;
            self.map.remove_extra(self.shape.range_of(block).extent);
            if let Some(place) = before.filter(|before| before.dirty && Some(*before) != after) {
                self.outdated.note_clean(newest, place, &self.space);
            }
            if planted(Bug::CleanExtrasNotSaved) && !change.concerns_data() {
                continue;
            }
            let left = before.filter(|_| !planted(Bug::LeftCacheEntryKept));
            for place in [left, after].into_iter().flatten() {
                let page = self.cache_page(&place);
                self.tables.mark_stale(page);
            }
        }
        let blocks = done.freed_blocks.into_iter().map(|(_, left)| left).collect();
        let freed = Freed { slots: done.freed, blocks };
        let freed = self.outdated.hold(newest, freed, &self.space);
        self.free(freed);
    }

    /// Ends a checkpoint: the pages contain all batches up to `done`, on every device with pages. Slots freed
    /// by these batches become free.
    pub fn end_checkpoint(&mut self, done: u64) {
        let freed = self.outdated.release(done, &self.space);
        self.free(freed);
    }

    fn free(&mut self, Freed { slots, blocks }: Freed) {
        self.trims.extend(slots.iter().map(|slot| slot.0));
        blocks.into_iter().for_each(|extra| self.release_block(extra));
    }

    /// Keeps the state of the spans to be cleared: the commit failed, or a device failed meanwhile.
    pub fn keep_spans(&mut self) {
        let kept = std::mem::take(&mut self.committing.cleared);
        self.behind.end_clearing(&kept, false);
    }

    /// Treats the spans to be cleared as clean: the batch may be on a device or not, and no other batch
    /// follows. The next opening may find these spans clean, so nothing is written to both copies there from
    /// now on.
    pub fn doubt_spans(&mut self) {
        let doubted = std::mem::take(&mut self.committing.cleared);
        self.behind.end_clearing(&doubted, true);
    }
}
