//! Dirty cached copies, on devices without the journal, that the witness lists.
//!
//! If the journal is lost, the remaining cache table describes the last checkpoint. The list of recent
//! entries says which blocks became dirty since then, and which are no longer dirty. The witness itself lists
//! extents whose home may be newer, because a dirty copy left its place after that list. A copy that is
//! written back and stays in its place is not listed: its bytes equal the home.

use crate::map::DirtyChange;
use braid_base::{BlockId, ExtentId};
use braid_format::journal::Extra;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Changes since the last checkpoint. Room in the journal bounds their number.
#[derive(Default)]
pub(crate) struct ListedBlocks {
    /// Dirty copy of each changed block, and the batch of the change.
    blocks: RefCell<BTreeMap<BlockId, (u64, Option<Extra>)>>,
    /// Blocks whose copy left a place that a table may call dirty, with the first batch from which no table
    /// and no list calls the place dirty.
    left: RefCell<BTreeMap<BlockId, (u64, ExtentId)>>,
    /// Number of changes in `left` that need a page of the witness; `written`: the newest such change that a
    /// page contains.
    changes: Cell<u64>,
    written: Cell<u64>,
}

impl ListedBlocks {
    /// Notes that copies have left their places. `is_on_page` is true if a page or its list already tells of
    /// the extent.
    pub fn begin(
        &self,
        left: impl IntoIterator<Item = (BlockId, ExtentId, u64)>,
        is_on_page: impl Fn(ExtentId, u64) -> bool,
    ) {
        for (block, extent, until) in left {
            let mut left = self.left.borrow_mut();
            let (known, _) = left.entry(block).or_insert((until, extent));
            *known = until.max(*known);
            if !is_on_page(extent, until) {
                self.changes.set(self.changes.get() + 1);
            }
        }
    }

    /// Notes that a batch with these changes is durable.
    pub fn end(&self, changes: &[DirtyChange], batch: u64) {
        let (mut blocks, mut left) = (self.blocks.borrow_mut(), self.left.borrow_mut());
        for change in changes {
            blocks.insert(change.block, (batch, change.now));
            if change.leaves {
                left.insert(change.block, (batch, change.extent));
            }
        }
    }

    /// Forgets batches up to `done`: the cache tables contain their changes.
    pub fn forget(&self, done: u64) {
        self.blocks.borrow_mut().retain(|_, (batch, _)| *batch > done);
        self.left.borrow_mut().retain(|_, (until, _)| *until > done);
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.borrow().is_empty() && self.left.borrow().is_empty()
    }

    /// True if a page with blocks that left their place must be written before a guest's flush ends.
    pub fn is_due(&self) -> bool {
        self.changes.get() > self.written.get()
    }

    /// Returns, in order, the extents that copies have left since the list as of `batch`, and the number for
    /// [`Self::note_written`].
    pub fn left_since(&self, batch: u64) -> (Vec<ExtentId>, u64) {
        let left = self.left.borrow();
        let lacking = left.values().filter(|(until, _)| *until > batch).map(|(_, extent)| *extent);
        let mut extents: Vec<ExtentId> = lacking.collect();
        extents.dedup();
        (extents, self.changes.get())
    }

    /// Notes that a page lists all blocks that had left at change number `changes`.
    pub fn note_written(&self, changes: u64) {
        self.written.set(self.written.get().max(changes));
    }

    /// True if a list as of batch `known` lacks a durable change.
    pub fn lacks(&self, known: u64) -> bool {
        self.blocks.borrow().values().any(|(batch, _)| *batch > known)
    }

    /// Returns the dirty copy of each changed block, in order.
    pub fn all(&self) -> Vec<(BlockId, Option<Extra>)> {
        self.blocks.borrow().iter().map(|(block, (_, now))| (*block, *now)).collect()
    }
}
