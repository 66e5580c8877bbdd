//! Changes that are not in the journal yet, and which of them a batch takes.
//!
//! Most of them a flush promises. What only makes a cache warmer after a crash, that a clean extra copy comes
//! or goes and that copies are alike again, waits for the next batch that is written anyway, or for the time
//! in which every change is committed.

use super::Extras;
use braid_base::{BlockId, ExtentId};
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use braid_format::{SlotNumber, SpanId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Changes that are not in the journal yet.
#[derive(Default)]
pub(super) struct Changes {
    /// Changed extents, with what the journal still says of them.
    pub extents: HashMap<ExtentId, Before, FixedState>,
    /// Changed blocks.
    pub blocks: HashMap<BlockId, ExtraChange, FixedState>,
    /// Whether a dirty extra copy is among them, or was.
    pub any_dirty: bool,
    /// Slots that nothing uses once these changes are durable.
    pub freed: Vec<SlotNumber>,
    /// Block slots likewise, with the blocks that left them.
    pub freed_blocks: Vec<(BlockId, Extra)>,
    /// Spans whose copies are alike once all devices have been flushed.
    pub cleared: Vec<SpanId>,
}

/// What the journal says of an extent that has changed since.
#[derive(Clone, Copy, Default)]
pub(super) struct Before {
    pub entry: Entry,
    /// Whether it said, when the extent changed first, that a copy is behind. If not, both had all that any
    /// flush had promised, and none has promised more of the extent since.
    pub was_behind: bool,
}

/// The extra copy of a block that is changed.
#[derive(Clone, Copy)]
pub(super) struct ExtraChange {
    /// What the journal still says.
    pub before: Option<Extra>,
    /// What the batch that is being written says.
    pub after: Option<Extra>,
}

/// Which changes a batch takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// All of them, if a flush promises any.
    Promised,
    /// All of them.
    All,
    /// Clean extra copies that have gone: these speak of no data.
    Left,
    /// Those of the extents before this one, whose first block this is: in an opening that has more changes
    /// than one batch has room for. What they freed stays taken.
    Below(ExtentId, BlockId),
}

impl ExtraChange {
    /// Whether it says where newer bytes lie than at the home, or lay.
    pub fn concerns_data(&self) -> bool {
        [self.before, self.after].into_iter().flatten().any(|extra| extra.dirty)
    }

    fn may_be_clean(&self) -> bool {
        [self.before, self.after].into_iter().flatten().any(|extra| !extra.dirty)
    }
}

impl Changes {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.extents.len() + self.blocks.len() + self.cleared.len()
    }

    /// An extent has changed, of which the journal says `entry`.
    pub fn note_extent(&mut self, extent: ExtentId, entry: Entry, was_behind: impl FnOnce() -> bool) {
        self.extents.entry(extent).or_insert_with(|| Before { entry, was_behind: was_behind() });
    }

    /// Whether a flush promises any.
    pub fn is_promised(&self) -> bool {
        !self.extents.is_empty() || self.any_dirty
    }

    /// Takes those that a batch is to say, which takes so many at most.
    pub fn take(
        &mut self,
        scope: Scope,
        most: usize,
        extras: &Extras,
        extent_of: impl Fn(BlockId) -> ExtentId,
    ) -> Changes {
        match scope {
            Scope::Promised if !self.is_promised() => Changes::default(),
            // More than room was reserved for: with a device that is lost, extents of a commit under way come
            // to those that wait.
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

    /// Takes extents with the changes of their blocks, `most` changes, or one extent with more. No crash
    /// leaves an extent without its blocks: what was discarded would have a dirty extra copy. Slots are free
    /// only with the last change, so no batch frees one that another record still names.
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

    /// Of a block that has left its block slot, the journal says that it is there: so it is among the changed
    /// ones.
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

    /// Whether the journal says that a block has a clean extra copy, or may say it after the batch that is
    /// being written.
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
    fn a_flush_leaves_what_only_makes_the_cache_warmer_for_a_later_batch() {
        let (mut changes, extras) = changes();
        assert_eq!(changes.take(Scope::Promised, 9, &extras, extent_of).len(), 0);
        changes.cleared.push(SpanId(3));
        assert_eq!(changes.take(Scope::Promised, 9, &extras, extent_of).len(), 0);
        changes.extents.insert(ExtentId(9), Before::default());
        assert_eq!(changes.take(Scope::Promised, 9, &extras, extent_of).len(), 5);
        assert_eq!(changes.len(), 0);
    }

    /// When a device is lost, the extents of a commit under way wait for the next one, beside as many as wait
    /// already: the batch was longer than its buffer.
    #[test]
    fn what_one_batch_does_not_hold_waits_for_the_next_with_the_slots_that_it_frees() {
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

    /// Batches took extents first, and their blocks with the last one: after a power cut between them a
    /// discarded extent had dirty extra copies.
    #[test]
    fn an_extent_and_its_blocks_are_in_the_same_batch() {
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
    fn clean_copies_that_have_gone_are_taken_with_their_block_slots_and_nothing_else_is() {
        let (mut changes, extras) = changes();
        let left = changes.take(Scope::Left, 9, &extras, extent_of);
        assert_eq!(left.blocks.keys().copied().collect::<Vec<_>>(), [BlockId(1)]);
        assert_eq!(left.freed_blocks, [(BlockId(1), clean(1))]);
        assert_eq!(changes.freed_blocks, [(BlockId(2), clean(2))]);
        assert!(changes.may_say_clean(BlockId(2)) && !changes.may_say_clean(BlockId(1)));
        // What was dirty, a record alone does not make good.
        let dirty = ExtraChange { before: Some(Extra { dirty: true, ..clean(1) }), after: None };
        changes.blocks.insert(BlockId(1), dirty);
        changes.freed_blocks.push((BlockId(1), clean(1)));
        assert_eq!(changes.take(Scope::Left, 9, &extras, extent_of).len(), 0);
    }
}
