//! A ring for one command on a volume without a daemon.

use crate::Result;
use braid_base::MIB;
use braid_runtime::Arena;
use braid_uring::Ring;

/// Runs `work` on a new ring, then ends every task left on the ring.
pub(crate) fn on_ring<T>(work: impl AsyncFnOnce(&Ring) -> Result<T>) -> Result<T> {
    let ring = Ring::new(ENTRIES, &Arena::new(MIB))?;
    let result = ring.block_on(work(&ring));
    ring.clear();
    result
}

/// Operations queued between two submissions.
const ENTRIES: u32 = 64;
