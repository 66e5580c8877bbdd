//! Copies from slot to slot within the budget.

use super::mover::Mover;
use crate::Result;
use crate::core::Upkeep;
use braid_base::{Bytes, ExtentId};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Copies the valid parts of an extent to another slot, without its lock. Each request takes a turn.
    /// Returns the bytes copied, or `None` if the plan had to yield before the end.
    pub async fn copy_parts(
        &self,
        extent: ExtentId,
        entry: Entry,
        slot: SlotNumber,
        mover: Mover,
    ) -> Result<Option<Bytes>> {
        let (mut at, mut copied) = (Bytes::ZERO, Bytes::ZERO);
        while at < self.store.shape.extent_size {
            if mover == Mover::Plan && at > Bytes::ZERO && self.must_yield() {
                return Ok(None);
            }
            let limit = (at + self.moves.budget.longest_move()).min(self.store.shape.extent_size);
            let (valid, end) = self.store.shape.run(entry.valid, at, limit);
            if valid {
                let source = self.store.device_of(self.store.copies_of(extent, &entry).current);
                let target = self.store.device_of(slot);
                self.rest(mover, &[source, target]).await;
                let bytes = self.extents.buffer(&self.extents.buffers.moves, end - at).await?;
                let read = self.extents.read_to_move(extent, &entry, at..end, &bytes);
                self.in_turn(mover, source, end - at, read).await?;
                let (member, start) = self.store.locate(slot);
                let node = self.store.member(source).node();
                let write = self.durable.device_write_moved(member, start + at, &bytes, node);
                self.in_turn(mover, target, end - at, write).await?;
                copied += end - at;
            }
            at = end;
        }
        Ok(Some(copied))
    }

    /// Copies the valid parts of an extent from slot to slot, within a turn of both devices. The caller holds
    /// the extent's lock, and the journal says that the copies may differ.
    pub async fn copy_locked(
        &self,
        extent: ExtentId,
        entry: Entry,
        source: SlotNumber,
        target: SlotNumber,
        bytes: &Buf,
    ) -> Result<Bytes> {
        let (mut at, mut copied) = (Bytes::ZERO, Bytes::ZERO);
        while at < self.store.shape.extent_size {
            let limit = (at + bytes.len()).min(self.store.shape.extent_size);
            let (valid, end) = self.store.shape.run(entry.valid, at, limit);
            if valid {
                let part = bytes.slice(Bytes::ZERO..end - at);
                self.read_locked(extent, source, at..end, &part, Mover::Engine).await?;
                self.write_locked(target, at..end, &part, entry.valid, Mover::Engine).await?;
                copied += end - at;
            }
            at = end;
        }
        Ok(copied)
    }

    /// Reads a range from one copy, within a turn of its device. The caller holds the extent's lock.
    pub async fn read_locked(
        &self,
        extent: ExtentId,
        source: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        mover: Mover,
    ) -> Result<()> {
        let read = self.extents.read_kept(extent, source, range, into, Origin::Background);
        self.charged(mover, self.store.device_of(source), 1, read).await
    }

    /// Writes a range of a slot, within a turn of its device. The caller holds the extent's lock.
    pub async fn write_locked(
        &self,
        target: SlotNumber,
        range: Range<Bytes>,
        from: &Buf,
        valid: u16,
        mover: Mover,
    ) -> Result<()> {
        let write = self.extents.write_slot(target, &range, Some(from), valid, Origin::Background);
        self.charged(mover, self.store.device_of(target), 1, write).await
    }
}
