//! Extents and blocks that a background job copies while guests may write to them: a part of [`State`].

use super::State;
use crate::planted::{Bug, planted};
use braid_base::{BlockId, ExtentId};

impl State {
    /// Watches an extent for writes of guests. False where someone watches it already.
    pub fn watch(&mut self, extent: ExtentId) -> bool {
        self.watched.insert(extent, false).is_none_or(|before| {
            self.watched.insert(extent, before);
            false
        })
    }

    /// A guest is about to write to an extent.
    pub fn disturb(&mut self, extent: ExtentId) {
        if !self.watched.is_empty()
            && let Some(disturbed) = self.watched.get_mut(&extent)
        {
            *disturbed = true;
        }
    }

    /// A guest is about to write to these blocks: those that are being written back stay dirty.
    pub fn keep_dirty(&mut self, blocks: impl Iterator<Item = BlockId>) {
        if !self.cleaning.is_empty() && !planted(Bug::WriteBackIgnoresWrites) {
            blocks.for_each(|block| _ = self.cleaning.remove(&block));
        }
    }

    /// Stops watching; whether a guest wrote meanwhile.
    pub fn unwatch(&mut self, extent: ExtentId) -> bool {
        let disturbed = self.watched.remove(&extent);
        disturbed.expect("an extent that is no longer watched was watched")
            && !planted(Bug::MoveIgnoresWrites)
    }
}
