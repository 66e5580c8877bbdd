//! Extents in memory: whole extents in the memory cache, and parts read ahead of streams.
//!
//! The bytes lie below this owner, in [`Guests`](crate::request::Guests): a device that fails drops the
//! bytes, and a policy sees the cached extents.

use super::{Own, Upkeep};
use crate::request::Streams;
use std::cell::RefCell;
use std::ops::Deref;

/// Extents in memory, and the verbs that read extents into memory. Nothing below knows of streams.
pub(crate) struct Memory<R, D> {
    pub own: Own<Memory<R, D>>,
    pub upkeep: Upkeep<R, D>,
    pub streams: RefCell<Streams>,
}

impl<R, D> Deref for Memory<R, D> {
    type Target = Upkeep<R, D>;

    #[inline]
    fn deref(&self) -> &Upkeep<R, D> {
        &self.upkeep
    }
}
