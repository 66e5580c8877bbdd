//! A ring for one command on a volume that no daemon serves.

use crate::Result;
use braid_base::MIB;
use braid_runtime::Arena;
use braid_uring::Ring;

/// Runs `work` on a new ring, and ends every task that `work` left.
pub(crate) fn on_ring<T>(work: impl AsyncFnOnce(&Ring) -> Result<T>) -> Result<T> {
    let ring = Ring::new(ENTRIES, &Arena::new(MIB))?;
    let result = ring.block_on(work(&ring));
    ring.clear();
    result
}

/// Operations that are queued between two submissions.
const ENTRIES: u32 = 64;
