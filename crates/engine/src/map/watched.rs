//! Extents and blocks copied by a background job while guests may write. Part of [`State`].

use super::State;
use crate::planted::{Bug, planted};
use braid_base::{BlockId, ExtentId};

impl State {
    /// Watches an extent for guest writes. Returns false if the extent is watched already.
    pub fn watch(&mut self, extent: ExtentId) -> bool {
        self.watched.insert(extent, false).is_none_or(|before| {
            self.watched.insert(extent, before);
            false
        })
    }

    /// Notes a guest write about to begin in an extent.
    pub fn disturb(&mut self, extent: ExtentId) {
        if !self.watched.is_empty()
            && let Some(disturbed) = self.watched.get_mut(&extent)
        {
            *disturbed = true;
        }
    }

    /// Keeps blocks dirty despite a write back under way: a guest is about to write to these blocks.
    pub fn keep_dirty(&mut self, blocks: impl Iterator<Item = BlockId>) {
        if !self.cleaning.is_empty() && !planted(Bug::WriteBackIgnoresWrites) {
            blocks.for_each(|block| _ = self.cleaning.remove(&block));
        }
    }

    /// Stops watching. Returns true if a guest wrote meanwhile. Panics if the extent is not watched.
    pub fn unwatch(&mut self, extent: ExtentId) -> bool {
        let disturbed = self.watched.remove(&extent);
        disturbed.expect("an extent that is no longer watched was watched")
            && !planted(Bug::MoveIgnoresWrites)
    }
}
