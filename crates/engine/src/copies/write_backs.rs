//! Write-backs under way.

use crate::copier::RUNS_AT_ONCE;
use braid_runtime::{RangeTable, Semaphore};

/// State shared by all write-backs.
pub(crate) struct WriteBacks {
    pub permits: Semaphore,
    /// Locks by extent: of two write-backs, the last to write might have been the first to read.
    pub extents: RangeTable,
}

impl Default for WriteBacks {
    fn default() -> WriteBacks {
        WriteBacks { permits: Semaphore::new(RUNS_AT_ONCE), extents: RangeTable::default() }
    }
}
