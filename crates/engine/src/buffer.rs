//! Buffers for rare work: opening, recovery, changes of the set of devices.

use braid_base::Bytes;
use braid_runtime::{Arena, Buf};

/// Allocates a separate buffer, for rare work.
pub(crate) async fn buffer(len: Bytes) -> Buf {
    Arena::new(len).alloc(len).await
}
