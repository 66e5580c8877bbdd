//! Memory for requests to devices, in arenas that are asked in one order, so that no two holders wait for
//! each other.

use braid_base::{Bytes, MIB};
use braid_runtime::Arena;

/// Buffers of runs: so much is on its way at the same time.
const RUNS: Bytes = Bytes(8 << 20);
/// Bounce buffers.
const BOUNCE: Bytes = Bytes(8 << 20);
/// Bytes that guests have read and that get extra copies.
const TO_COPY: Bytes = Bytes(4 << 20);
/// Buffers of reads that may be abandoned.
const REPLACEABLE: Bytes = Bytes(16 << 20);

/// The arenas, in the order in which they are asked.
pub(crate) struct Buffers {
    /// For runs of migrations and for write-backs: a task that holds a buffer of it may ask for one of the
    /// next ones, and for locks.
    pub runs: Arena,
    /// For moves and probes: a task that holds a buffer of it may ask for one of the next ones.
    pub moves: Arena,
    /// For whole blocks of extra copies, held while a bounce buffer is.
    pub blocks: Arena,
    /// For bytes that guests have read and that get extra copies: a task holds a buffer of it while it waits
    /// for an extent's lock. No task waits for one.
    pub to_copy: Arena,
    /// For unaligned edges, and for the image of epochs. A task that holds a buffer of it takes no second
    /// one.
    pub bounce: Arena,
    /// For reads that another copy answers if the device is late. A read that finds none gets memory of its
    /// own.
    pub replaceable: Arena,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            runs: Arena::new(RUNS),
            moves: Arena::new(Arena::LARGEST * 2),
            blocks: Arena::new(MIB),
            to_copy: Arena::new(TO_COPY),
            bounce: Arena::new(BOUNCE),
            replaceable: Arena::new(REPLACEABLE),
        }
    }
}
