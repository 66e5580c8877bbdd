//! What the witness lists of dirty extra copies on devices without the journal.
//!
//! If the journal is lost, the table of a cache that is left describes the last checkpoint. The list of
//! recent entries says which blocks became dirty since, and which are no longer dirty. The witness itself
//! lists the extents of which a copy left its place after that list: the home may be newer. A copy that is
//! written back and stays in its place need not be listed, for it has the bytes of the home.

use crate::map::DirtyChange;
use braid_base::{BlockId, ExtentId};
use braid_format::journal::Extra;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Changes since the last checkpoint. The journal has room for a bounded number of them.
#[derive(Default)]
pub(crate) struct ListedBlocks {
    /// The dirty copy of each block that changed, with the batch.
    blocks: RefCell<BTreeMap<BlockId, (u64, Option<Extra>)>>,
    /// Blocks of which a copy left a place that a table may call dirty, with the batch from which on no table
    /// and no list does.
    left: RefCell<BTreeMap<BlockId, (u64, ExtentId)>>,
    /// How often the second list changed, and as of which change a page has all of it.
    changes: Cell<u64>,
    written: Cell<u64>,
}

impl ListedBlocks {
    /// Copies have left their places. `is_on_page` says whether a page and its list tell that of an extent.
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

    /// A batch is durable that says so.
    pub fn end(&self, changes: &[DirtyChange], batch: u64) {
        let (mut blocks, mut left) = (self.blocks.borrow_mut(), self.left.borrow_mut());
        for change in changes {
            blocks.insert(change.block, (batch, change.now));
            if change.leaves {
                left.insert(change.block, (batch, change.extent));
            }
        }
    }

    /// The cache tables contain all batches up to `done`.
    pub fn forget(&self, done: u64) {
        self.blocks.borrow_mut().retain(|_, (batch, _)| *batch > done);
        self.left.borrow_mut().retain(|_, (until, _)| *until > done);
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.borrow().is_empty() && self.left.borrow().is_empty()
    }

    /// Whether a page with what left its place has to be written before a guest's flush ends.
    pub fn is_due(&self) -> bool {
        self.changes.get() > self.written.get()
    }

    /// The extents of which a list as of some batch lacks that copies left, in order, and the number for
    /// [`Self::note_written`].
    pub fn left_since(&self, batch: u64) -> (Vec<ExtentId>, u64) {
        let left = self.left.borrow();
        let lacking = left.values().filter(|(until, _)| *until > batch).map(|(_, extent)| *extent);
        let mut extents: Vec<ExtentId> = lacking.collect();
        extents.dedup();
        (extents, self.changes.get())
    }

    /// A page lists all that had left when this number was given.
    pub fn note_written(&self, changes: u64) {
        self.written.set(self.written.get().max(changes));
    }

    /// Whether a list as of batch `known` lacks a change that is durable.
    pub fn lacks(&self, known: u64) -> bool {
        self.blocks.borrow().values().any(|(batch, _)| *batch > known)
    }

    /// The dirty copy of each block that changed, in order.
    pub fn all(&self) -> Vec<(BlockId, Option<Extra>)> {
        self.blocks.borrow().iter().map(|(block, (_, now))| (*block, *now)).collect()
    }
}
