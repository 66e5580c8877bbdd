//! Interface for frontends (NBD, FUSE, …): a range of bytes with the verbs of a disk.

use crate::Result;
use braid_base::{Bytes, Request};
use braid_runtime::Buf;
use std::future::Future;

/// Whether a write may stay in volatile caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// May stay there until the next flush.
    Volatile,
    /// Durable before the reply (forced unit access, FUA).
    Fua,
}

/// Whether zeroing frees the room of the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zeroing {
    /// Frees the zeroed range: later writes allocate again.
    MayDiscard,
    /// Keeps the range allocated, so that later writes find room.
    KeepAllocated,
}

/// Whether a range occupies room on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Written, and not discarded since.
    Data,
    /// Never written, or discarded: reads as zeros, occupies no room.
    Hole,
}

/// Hints of a guest on a request. Hints never change the answer; the policy may decide better with hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// The bytes are metadata of a file system.
    pub metadata: bool,
    /// The guest expects to continue at the end of the request.
    pub sequential: bool,
}

/// A disk as a guest sees it: [`crate::Volume`], or a simpler one in tests of frontends.
///
/// Requests of any offset and length within `size()`, aligned or not, may run at the same time. One buffer
/// holds at most [`braid_runtime::Arena::LARGEST`]; a frontend splits larger requests. A range beyond the end
/// fails with `Invalid` and has no effect.
///
/// After an error a late device may still fill the buffer or write the contents of the buffer. A frontend
/// must drop the buffer and use another.
pub trait Export: Clone + 'static {
    /// Returns the number of bytes that the guest can address.
    fn size(&self) -> Bytes;

    /// Returns the cheapest request size and alignment: at least the block size, at most the extent size.
    fn preferred_block(&self) -> Bytes;

    /// True if the disk refuses all changes. A frontend tells its guests.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Fills `into` with the bytes at `offset`.
    fn read(&self, offset: Bytes, into: &Buf) -> impl Future<Output = Result<()>>;

    /// Writes `from` at `offset`.
    fn write(&self, offset: Bytes, from: &Buf, durability: Durability) -> impl Future<Output = Result<()>>;

    /// Makes every write acknowledged before this call durable.
    fn flush(&self) -> impl Future<Output = Result<()>>;

    /// Frees a range. The range then reads as zeros, or as anything if [`Export::discards_to_zeros`] is
    /// false.
    fn discard(&self, offset: Bytes, len: Bytes) -> impl Future<Output = Result<()>>;

    /// True if discarded ranges read as zeros. If false, a frontend whose protocol promises zeros offers no
    /// discard.
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

    /// Reads a range into the memory cache, if there is one.
    fn prefetch(&self, offset: Bytes, len: Bytes) -> impl Future<Output = Result<()>>;

    /// Returns whether the byte at `offset` occupies room, and the number of bytes from `offset` with the
    /// same answer, at most `limit`.
    fn allocation(&self, offset: Bytes, limit: Bytes) -> (Allocation, Bytes);

    /// Returns the same disk, for requests with these hints. A frontend whose protocol carries hints calls
    /// the verbs of such a request on the returned disk. ublk carries hints of metadata; NBD and FUSE carry
    /// none. By default, hints are ignored.
    #[must_use]
    fn with_hints(&self, _hints: Hints) -> Self {
        self.clone()
    }

    /// Announces a request of a guest, for a recording. A frontend calls `asked` once for each read, write,
    /// flush, zeroing or discard within `size()`, with the range as the guest asked. The call comes before
    /// any verb that serves the request, even if the request is then served in pieces or not at all. Does
    /// nothing by default.
    fn asked(&self, _request: Request) {}
}
