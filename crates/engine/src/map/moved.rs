//! Counters of moved copies, for reads without the extent's lock. At the end of such a read, the copy may
//! have left its slot, and the slot may hold another extent.
//!
//! Moves are counted by groups of extents: a move also discards reads of other extents in the same group. The
//! cost is speed alone.

use braid_base::ExtentId;

/// Number of groups, in 16 KiB of memory. With a few hundred extents being read, one move in ten hits the
/// group of another extent.
const GROUPS: usize = 4096;

/// Moves of copies, counted by groups of extents.
pub(crate) struct Moved {
    groups: Box<[u32]>,
}

impl Default for Moved {
    fn default() -> Moved {
        Moved { groups: vec![0; GROUPS].into() }
    }
}

impl Moved {
    /// Counts a move of a copy of an extent.
    pub fn note(&mut self, extent: ExtentId) {
        let group = &mut self.groups[extent.0 as usize % GROUPS];
        *group = group.wrapping_add(1);
    }

    /// Number of moves in the extent's group (wrapping). While the count is unchanged, the places are
    /// unchanged.
    pub fn count(&self, extent: ExtentId) -> u32 {
        self.groups[extent.0 as usize % GROUPS]
    }
}
