//! Buffers for requests to devices, in arenas with a fixed order of acquisition: no two holders wait for each
//! other.

use braid_base::{Bytes, MIB};
use braid_runtime::Arena;

/// Length of the largest buffer.
pub(crate) const LARGEST_BUFFER: Bytes = Arena::LARGEST;
/// Memory for runs and write-backs in flight.
const RUNS: Bytes = Bytes(8 << 20);
/// Memory for bounce buffers.
const BOUNCE: Bytes = Bytes(8 << 20);
/// Memory for bytes read by guests and about to be cached.
const TO_COPY: Bytes = Bytes(4 << 20);
/// Memory for reads that may be abandoned.
const REPLACEABLE: Bytes = Bytes(16 << 20);

/// The arenas, in the order of acquisition.
pub(crate) struct Buffers {
    /// For runs of migrations and for write-backs. A holder may ask for buffers of the later arenas, and for
    /// locks.
    pub runs: Arena,
    /// For moves and probes. A holder may ask for buffers of the later arenas.
    pub moves: Arena,
    /// For whole blocks of extra copies. A holder may ask for a bounce buffer.
    pub blocks: Arena,
    /// For bytes read by guests and about to be cached. A holder may wait for an extent's lock, so no task
    /// waits for a buffer here.
    pub to_copy: Arena,
    /// For unaligned edges, and for the image of epochs. A holder takes no second buffer.
    pub bounce: Arena,
    /// For reads that another copy answers if the device is late. If the arena is exhausted, a read allocates
    /// its own buffer.
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
