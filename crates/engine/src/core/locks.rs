//! Locks of a volume's extents. ARCHITECTURE.md has the order in which a task takes locks.

use braid_base::ExtentId;
use braid_runtime::{LockGuard, LockTable, Locking, Mode};

/// One lock for each extent: shared or exclusive, first come first served.
#[derive(Default)]
pub(crate) struct ExtentLocks(LockTable);

impl ExtentLocks {
    /// Takes an extent's lock.
    #[inline]
    pub fn lock(&self, extent: ExtentId, mode: Mode) -> Locking<'_> {
        self.0.lock(u64::from(extent.0), mode)
    }

    /// Takes an extent's lock, exclusive.
    #[inline]
    pub fn exclusive(&self, extent: ExtentId) -> Locking<'_> {
        self.lock(extent, Mode::Exclusive)
    }

    /// Takes an extent's lock if no waiting is needed.
    #[inline]
    pub fn try_lock(&self, extent: ExtentId, mode: Mode) -> Option<LockGuard> {
        self.0.try_lock(u64::from(extent.0), mode)
    }

    /// Takes an extent's lock, exclusive, if no waiting is needed.
    #[inline]
    pub fn try_exclusive(&self, extent: ExtentId) -> Option<LockGuard> {
        self.try_lock(extent, Mode::Exclusive)
    }
}
