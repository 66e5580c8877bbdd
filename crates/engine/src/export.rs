//! What a front (NBD, FUSE, …) serves: a range of bytes with the verbs of a disk.

use crate::Result;
use braid_base::{Bytes, Request};
use braid_runtime::Buf;
use std::future::Future;

/// Whether a write may wait in volatile caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Until the next flush.
    Volatile,
    /// No: durable before the reply (forced unit access, FUA).
    Fua,
}

/// What zeroing does with the room of what it zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zeroing {
    /// Frees it: later writes are allocated anew.
    MayDiscard,
    /// Keeps it, so that later writes find room.
    KeepAllocated,
}

/// Whether bytes take room on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Written, and not discarded since.
    Data,
    /// Never written, or discarded: reads as zeros, takes no room.
    Hole,
}

/// What a guest says of a request beyond what it asks for. No answer depends on it: the policy may decide
/// better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// The bytes are metadata of a file system.
    pub metadata: bool,
    /// The guest expects to go on where the request ends.
    pub sequential: bool,
}

/// A disk as a guest sees it. [`crate::Volume`] is one; tests of the fronts bring simpler ones.
///
/// Requests of any offset and length within `size()`, aligned or not, may run at the same time. One buffer
/// holds at most [`braid_runtime::Arena::LARGEST`]; a front splits what is larger. A range beyond the end is
/// `Invalid`, and nothing is done.
///
/// After an error a device that is late may still fill the buffer or write what it holds: a front drops it,
/// and takes another.
pub trait Export: Clone + 'static {
    /// Bytes that the guest can address.
    fn size(&self) -> Bytes;

    /// The request size and alignment that cost least: at least the block size, at most the extent size.
    fn preferred_block(&self) -> Bytes;

    /// Whether it refuses all changes. A front tells its guests.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Fills `into` with the bytes at `offset`.
    fn read(&self, offset: Bytes, into: &Buf) -> impl Future<Output = Result<()>>;

    /// Writes `from` at `offset`.
    fn write(&self, offset: Bytes, from: &Buf, durability: Durability) -> impl Future<Output = Result<()>>;

    /// Makes every write that was acknowledged before this call durable.
    fn flush(&self) -> impl Future<Output = Result<()>>;

    /// Frees a range: it reads as zeros afterwards, or as anything if [`Export::discards_to_zeros`] says so.
    fn discard(&self, offset: Bytes, len: Bytes) -> impl Future<Output = Result<()>>;

    /// Whether what was discarded reads as zeros. A front whose protocol promises that offers no discard
    /// otherwise.
    fn discards_to_zeros(&self) -> bool {
        true
    }

    /// Makes a range read as zeros.
    fn write_zeroes(
        &self,
        offset: Bytes,
        len: Bytes,
        zeroing: Zeroing,
        durability: Durability,
    ) -> impl Future<Output = Result<()>>;

    /// Brings a range into the memory cache, where there is one.
    fn prefetch(&self, offset: Bytes, len: Bytes) -> impl Future<Output = Result<()>>;

    /// Whether the byte at `offset` takes room, and for how many bytes from there, at most `limit`, that
    /// stays so.
    fn allocation(&self, offset: Bytes, limit: Bytes) -> (Allocation, Bytes);

    /// The same disk, for requests of which a guest says this. A front whose protocol carries hints makes the
    /// verbs of such a request with it; those of NBD and FUSE carry none. A disk that has no use for hints is
    /// what it was.
    #[must_use]
    fn with_hints(&self, _hints: Hints) -> Self {
        self.clone()
    }

    /// A guest asks for this. A front says so once for each read, write, flush, zeroing or discard that lies
    /// within `size()`, as the guest asked for it, before it serves it with the verbs above, be it in pieces
    /// or not at all. For a recording; does nothing by itself.
    fn asked(&self, _request: Request) {}
}
