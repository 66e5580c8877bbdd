//! A ring for one command on a volume without a daemon, and the ring, memory and signals of a daemon.

use crate::Result;
use braid_base::{Bytes, MIB};
use braid_runtime::Arena;
use braid_uring::{Ring, Signals};

/// Runs `work` on a new ring, then ends every task left on the ring.
pub(crate) fn on_ring<T>(work: impl AsyncFnOnce(&Ring) -> Result<T>) -> Result<T> {
    let ring = Ring::new(ENTRIES, &Arena::new(MIB))?;
    let result = ring.block_on(work(&ring));
    ring.clear();
    result
}

/// Operations queued between two submissions.
const ENTRIES: u32 = 64;

/// Ring, memory and signals of a daemon.
pub(crate) struct World {
    pub ring: Ring,
    pub arena: Arena,
    pub signals: Signals,
}

/// Runs `work` with the ring, memory and signals of a daemon, then ends every task left on the ring.
pub(crate) fn in_world<T>(work: impl AsyncFnOnce(&World) -> Result<T>) -> Result<T> {
    let arena = Arena::new(ARENA);
    let ring = Ring::new(DAEMON_ENTRIES, &arena)?;
    let signals = Signals::new(&ring)?;
    for fallback in ring.fallbacks() {
        tracing::warn!("{fallback}");
    }
    let world = World { ring, arena, signals };
    let result = world.ring.block_on(work(&world));
    world.ring.clear();
    result
}

/// Memory for guests' requests: the NBD and vhost-user servers together hold at most half.
const ARENA: Bytes = Bytes(96 << 20);
/// Operations of a daemon that are queued between two submissions.
const DAEMON_ENTRIES: u32 = 256;
