//! Reads whole extents into the memory cache: for a guest's read that misses, and for a guest that asks to
//! prefetch.

use crate::Result;
use crate::core::Memory;
use crate::devices::Deadline;
use crate::shape::Piece;
use braid_base::Bytes;
use braid_format::SlotNumber;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};

impl<R: Runtime, D: Device> Memory<R, D> {
    /// Reads an extent into the memory cache, if the volume has one.
    pub async fn prefetch(&self, piece: &Piece) -> Result<()> {
        let (cached, limit) = self.guests.cache.borrow().len_and_limit();
        let entry = self.store.state.borrow().map.get(piece.extent);
        let is_lost = entry.home == SlotNumber::LOST || entry.partly_lost;
        let mapped = entry.home != SlotNumber::NONE && !is_lost && self.store.shape.is_whole(piece.extent);
        if limit == 0 || !mapped || cached > 0 && self.guests.cache.borrow().contains(piece.extent) {
            return Ok(());
        }
        if self.store.is_undecided(&self.store.shape.whole_extent(piece.extent)) {
            // Undecided copies are made equal only for requests of guests.
            return Ok(());
        }
        let _guard = self.locks.exclusive(piece.extent).await;
        let nothing = Piece { extent: piece.extent, range: Bytes::ZERO..Bytes(1) };
        // Not from `bounce`: the read below may take a buffer of `bounce`.
        let into = self.extents.buffers.blocks.alloc(Bytes(1)).await;
        self.fetch(&nothing, &into, false).await
    }

    /// Reads a whole extent into the memory cache and copies the piece out. A bad sector elsewhere in the
    /// extent does not fail the piece.
    pub(super) async fn fetch(&self, piece: &Piece, into: &Buf, passes_clean: bool) -> Result<()> {
        let buf = {
            let mut cache = self.guests.cache.borrow_mut();
            // Another task may have cached the extent while this task waited for the lock.
            if cache.read(piece, into) {
                return Ok(());
            }
            cache.room()
        };
        let whole = self.store.shape.whole_extent(piece.extent);
        let buf = buf.filter(|_| !self.store.is_held_up(&whole));
        let (origin, deadline) = (Origin::Guest, Deadline::Only);
        let Some(buf) = buf else {
            return Box::pin(self.extents.read_copies_by(piece, into, passes_clean, origin, deadline)).await;
        };
        let changes = self.store.devices.changes();
        let entry = self.store.state.borrow().map.get(piece.extent);
        let read = match self.extents.only_place(&whole, &entry) {
            Some((member, at)) => {
                let read = self.durable.device_read(member, at, &buf, Origin::Guest).await;
                if read.is_err() && member.is_late() {
                    // A read of the piece alone would have to wait, too.
                    return read;
                }
                read
            }
            // Bytes beyond the guest's piece may lie on a device that does not answer.
            None => {
                let read =
                    self.extents.read_copies_by(&whole, &buf, passes_clean, Origin::Guest, Deadline::Brief);
                Box::pin(read).await
            }
        };
        // A device that failed meanwhile may have returned bytes older than its lost writes.
        if read.is_err() || self.store.devices.changes() != changes {
            drop(buf);
            return Box::pin(self.extents.read_copies_by(piece, into, passes_clean, origin, deadline)).await;
        }
        into.copy_from(Bytes::ZERO, &buf.slice(piece.range.clone()));
        self.guests.cache.borrow_mut().insert(piece.extent, buf);
        Ok(())
    }
}
