//! Pending changes, and the selection for a batch.
//!
//! A flush promises most changes. Some only keep a cache warm after a crash: a clean extra copy comes or
//! goes, or the copies of a span are alike again. Such a change waits for the next batch written for another
//! reason, or for the longest time before every change is committed.

use super::Extras;
use braid_base::{BlockId, ExtentId};
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use braid_format::{SlotNumber, SpanId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Pending changes: not in the journal yet.
#[derive(Default)]
pub(super) struct Changes {
    /// Changed extents, with the entry still in the journal.
    pub extents: HashMap<ExtentId, Before, FixedState>,
    /// Changed blocks.
    pub blocks: HashMap<BlockId, ExtraChange, FixedState>,
    /// True if a dirty extra copy is or was among the changed blocks.
    pub any_dirty: bool,
    /// Slots unused once these changes are durable.
    pub freed: Vec<SlotNumber>,
    /// Block slots unused once these changes are durable, with the blocks that left.
    pub freed_blocks: Vec<(BlockId, Extra)>,
    /// Spans to be recorded as clean after a flush of all devices.
    pub cleared: Vec<SpanId>,
}

/// Journal's entry of an extent before the pending change.
#[derive(Clone, Copy, Default)]
pub(super) struct Before {
    pub entry: Entry,
    /// True if the journal recorded a stale copy when the extent changed first. If false, both copies had
    /// everything promised by a flush, and no flush has promised more of the extent since.
    pub was_behind: bool,
}

/// Pending change of a block's extra copy.
#[derive(Clone, Copy)]
pub(super) struct ExtraChange {
    /// Extra copy still in the journal.
    pub before: Option<Extra>,
    /// Extra copy in the batch being written.
    pub after: Option<Extra>,
}

/// Selection of changes for a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// All changes, if a flush promises any.
    Promised,
    /// All changes.
    All,
    /// Dropped clean extra copies: no data depends on these records.
    Left,
    /// Changes of the extents before this extent, given with its first block. For an opening with more
    /// changes than fit one batch. Slots freed by these changes stay taken.
    Below(ExtentId, BlockId),
}

impl ExtraChange {
    /// True if the extra copy is or was dirty: newer than the home.
    pub fn concerns_data(&self) -> bool {
        [self.before, self.after].into_iter().flatten().any(|extra| extra.dirty)
    }

    fn may_be_clean(&self) -> bool {
        [self.before, self.after].into_iter().flatten().any(|extra| !extra.dirty)
    }
}

impl Changes {
    /// Number of pending changes.
    pub fn len(&self) -> usize {
        self.extents.len() + self.blocks.len() + self.cleared.len()
    }

    /// Notes a changed extent with its journal entry; only the first change counts.
    pub fn note_extent(&mut self, extent: ExtentId, entry: Entry, was_behind: impl FnOnce() -> bool) {
        self.extents.entry(extent).or_insert_with(|| Before { entry, was_behind: was_behind() });
    }

    /// True if a flush promises any of the changes.
    pub fn is_promised(&self) -> bool {
        !self.extents.is_empty() || self.any_dirty
    }

    /// Takes the changes for a batch with room for `most`. `Promised` and `All` are split only if extents are
    /// pending.
    pub fn take(
        &mut self,
        scope: Scope,
        most: usize,
        extras: &Extras,
        extent_of: impl Fn(BlockId) -> ExtentId,
    ) -> Changes {
        match scope {
            Scope::Promised if !self.is_promised() => Changes::default(),
            // More than the reserved room: after the loss of a device, extents of the running commit become
            // pending again, beside the changes already pending.
            Scope::Promised | Scope::All if self.len() > most && !self.extents.is_empty() => {
                self.take_extents(most, extent_of)
            }
            Scope::Promised | Scope::All => std::mem::take(self),
            Scope::Left => self.take_left(extras),
            Scope::Below(extent, block) => Changes {
                extents: self.extents.extract_if(|other, _| *other < extent).collect(),
                blocks: self.blocks.extract_if(|other, _| *other < block).collect(),
                ..Changes::default()
            },
        }
    }

    /// Takes extents with the changes of their blocks: at most `most` changes, or one extent with more. An
    /// extent and its blocks share a batch, so no crash leaves a discarded extent with dirty extra copies.
    /// Freed slots go with the last change, so no batch frees a slot still named by another record.
    fn take_extents(&mut self, most: usize, extent_of: impl Fn(BlockId) -> ExtentId) -> Changes {
        let mut of_extent: HashMap<ExtentId, usize, FixedState> =
            self.extents.keys().map(|&e| (e, 1)).collect();
        for &block in self.blocks.keys() {
            of_extent.entry(extent_of(block)).and_modify(|changes| *changes += 1);
        }
        let (mut count, mut first) = (0, true);
        let taken = self.extents.extract_if(|extent, _| {
            let changes = of_extent[extent];
            let fits = first || count + changes <= most;
            if fits {
                count += changes;
                first = false;
            }
            fits
        });
        let extents: HashMap<_, _, FixedState> = taken.collect();
        let blocks = self.blocks.extract_if(|&block, _| extents.contains_key(&extent_of(block))).collect();
        Changes { extents, blocks, ..Changes::default() }
    }

    /// Takes clean extra copies no longer present, with their freed block slots. The journal still names the
    /// old block slot, so the block is among the changed blocks.
    fn take_left(&mut self, extras: &Extras) -> Changes {
        let mut left = Changes::default();
        self.freed_blocks.retain(|&(block, slot)| {
            let was_clean = |change: &ExtraChange| !change.concerns_data() && change.before.is_some();
            let goes = self.blocks.get(&block).is_some_and(was_clean) && extras.get(block).is_none();
            if goes {
                left.blocks.extend(self.blocks.remove_entry(&block));
                left.freed_blocks.push((block, slot));
            }
            !goes
        });
        left
    }

    /// True if the journal records a clean extra copy of a block, or may do so after the batch being written.
    pub fn may_say_clean(&self, block: BlockId) -> bool {
        self.blocks.get(&block).is_some_and(ExtraChange::may_be_clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::DeviceId;

    const SLOT: SlotNumber = SlotNumber(7);

    fn clean(place: u16) -> Extra {
        Extra { slot: SLOT, place, dirty: false }
    }

    fn extent_of(block: BlockId) -> ExtentId {
        ExtentId((block.0 / 8) as u32)
    }

    /// Block 1 has left place 1, block 2 has moved from place 2 to place 3, block 4 has come to place 4.
    fn changes() -> (Changes, Extras) {
        let mut extras = Extras::new(1, 8);
        assert!(extras.divide(DeviceId(0), SLOT));
        let mut changes = Changes::default();
        assert_eq!(extras.take(DeviceId(0), 5), Some((SLOT, 0..5)));
        for (block, before, now) in [(1, Some(1), None), (2, Some(2), Some(3)), (4, None, Some(4))] {
            let block = BlockId(block);
            let change = ExtraChange { before: before.map(clean), after: None };
            changes.blocks.insert(block, change);
            changes.freed_blocks.extend(before.map(|place| (block, clean(place))));
            extras.set(block, now.map(clean));
        }
        (changes, extras)
    }

    #[test]
    fn flush_commits_cache_changes_only_with_extent_changes() {
        let (mut changes, extras) = changes();
        assert_eq!(changes.take(Scope::Promised, 9, &extras, extent_of).len(), 0);
        changes.cleared.push(SpanId(3));
        assert_eq!(changes.take(Scope::Promised, 9, &extras, extent_of).len(), 0);
        changes.extents.insert(ExtentId(9), Before::default());
        assert_eq!(changes.take(Scope::Promised, 9, &extras, extent_of).len(), 5);
        assert_eq!(changes.len(), 0);
    }

    /// After the loss of a device, extents of the running commit wait for the next commit, beside the extents
    /// already pending. The batch was longer than its buffer.
    #[test]
    fn changes_beyond_full_batch_wait_with_freed_slots() {
        let (mut changes, extras) = changes();
        changes.extents.extend((1..9).map(|extent| (ExtentId(extent), Before::default())));
        changes.freed.push(SLOT);
        let first = changes.take(Scope::All, 5, &extras, extent_of);
        assert_eq!((first.len(), first.extents.len(), changes.len()), (5, 5, 6));
        assert!(first.freed.is_empty() && first.freed_blocks.is_empty() && changes.is_promised());
        assert_eq!(changes.take(Scope::All, 5, &extras, extent_of).len(), 3);
        let last = changes.take(Scope::All, 5, &extras, extent_of);
        assert_eq!((last.len(), last.freed, changes.len()), (3, vec![SLOT], 0));
    }

    /// The bug: batches took extents first, and all blocks with the last batch. After a power cut between two
    /// batches, a discarded extent had dirty extra copies.
    #[test]
    fn extent_and_cached_blocks_are_in_same_batch() {
        for most in 1..12 {
            let (mut changes, extras) = changes();
            changes.extents.extend((0..8).map(|extent| (ExtentId(extent), Before::default())));
            while !changes.extents.is_empty() {
                let batch = changes.take(Scope::All, most, &extras, extent_of);
                let whole = batch.extents.contains_key(&ExtentId(0));
                assert_eq!(batch.blocks.len(), if whole { 3 } else { 0 }, "{most} at most");
                assert!(batch.len() <= most.max(4) && batch.len() > 0, "{most} at most");
            }
        }
    }

    #[test]
    fn only_evicted_clean_copies_are_taken_with_block_slots() {
        let (mut changes, extras) = changes();
        let left = changes.take(Scope::Left, 9, &extras, extent_of);
        assert_eq!(left.blocks.keys().copied().collect::<Vec<_>>(), [BlockId(1)]);
        assert_eq!(left.freed_blocks, [(BlockId(1), clean(1))]);
        assert_eq!(changes.freed_blocks, [(BlockId(2), clean(2))]);
        assert!(changes.may_say_clean(BlockId(2)) && !changes.may_say_clean(BlockId(1)));
        // A record alone does not make a dirty block clean.
        let dirty = ExtraChange { before: Some(Extra { dirty: true, ..clean(1) }), after: None };
        changes.blocks.insert(BlockId(1), dirty);
        changes.freed_blocks.push((BlockId(1), clean(1)));
        assert_eq!(changes.take(Scope::Left, 9, &extras, extent_of).len(), 0);
    }
}
