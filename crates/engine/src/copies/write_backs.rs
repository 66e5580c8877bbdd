//! Write-backs under way.

use braid_runtime::{RangeTable, Semaphore};

/// Write-backs in parallel, if their devices have time.
pub(crate) const AT_ONCE: usize = 4;

/// State shared by all write-backs.
pub(crate) struct WriteBacks {
    pub permits: Semaphore,
    /// Locks by extent: of two write-backs, the last to write might have been the first to read.
    pub extents: RangeTable,
}

impl Default for WriteBacks {
    fn default() -> WriteBacks {
        WriteBacks { permits: Semaphore::new(AT_ONCE), extents: RangeTable::default() }
    }
}
