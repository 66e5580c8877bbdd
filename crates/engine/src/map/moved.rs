//! Which extents' copies have got other places: a slot that a copy has left may hold another extent by the
//! time that a read of it ends, if that read does not hold the extent's lock.
//!
//! Counted for groups of extents: if one moves, what is read of others in its group does not count either,
//! which costs speed alone.

use braid_base::ExtentId;

/// So many groups, in 16 KiB of memory: of a few hundred extents that are being read, one move in ten hits
/// another's group.
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
    /// A copy of an extent lies elsewhere from now on.
    pub fn note(&mut self, extent: ExtentId) {
        let group = &mut self.groups[extent.0 as usize % GROUPS];
        *group = group.wrapping_add(1);
    }

    /// How often that happened. As long as the answer stays the same, the places do.
    pub fn count(&self, extent: ExtentId) -> u32 {
        self.groups[extent.0 as usize % GROUPS]
    }
}
