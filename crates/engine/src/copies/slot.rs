//! Reads and writes of ranges of slots, with any alignment on the device and in memory.

use crate::core::Extents;
use crate::devices::{Deadline, LARGEST_BUFFER, Member};
use crate::planted::{Bug, planted};
use crate::shape::{Piece, Shape};
use crate::{Error, ErrorKind, Result};
use braid_base::Bytes;
use braid_format::SlotNumber;
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};
use std::ops::Range;

impl Shape {
    fn is_valid(&self, at: Bytes, valid: u16) -> bool {
        valid >> (at / self.part_size) & 1 == 1
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Reads a range of a slot without another copy. After an error a late device may still fill `into`, so
    /// `into` must not be used again.
    pub async fn read_slot(
        &self,
        slot: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        self.read_slot_by(slot, range, into, origin, Deadline::Only).await
    }

    /// Reads a range of a slot with another current copy. After an error `into` is unchanged: the device
    /// reads into a separate buffer, at the cost of copying the bytes.
    pub async fn read_slot_copied(
        &self,
        slot: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        let own = self.replaceable(into.len());
        self.read_slot_by(slot, range, &own, origin, Deadline::Copied).await?;
        into.copy_from(Bytes::ZERO, &own);
        Ok(())
    }

    /// Returns a buffer for a read that may be abandoned. Never waits: late requests may hold the arena's
    /// buffers for ever.
    fn replaceable(&self, len: Bytes) -> Buf {
        let more = || Arena::new(len).try_alloc(len).expect("a new arena has room");
        self.buffers.replaceable.try_alloc(len).unwrap_or_else(more)
    }

    /// Waits for a buffer of an arena whose holders wait for devices.
    ///
    /// # Errors
    /// `Io` after `Devices::longest_silence`: late requests may hold all buffers.
    pub async fn buffer(&self, arena: &Arena, len: Bytes) -> Result<Buf> {
        if let Some(buf) = arena.try_alloc(len) {
            return Ok(buf);
        }
        let limit = self.store.devices.longest_silence();
        let buf = self.durable.within(limit, arena.alloc(len)).await;
        buf.ok_or_else(|| {
            let late = self.store.devices.refuse_late().err();
            late.unwrap_or_else(|| {
                Error::new(ErrorKind::Io, format!("no buffer of {len} for {limit}: devices are slow"))
            })
        })
    }

    /// Like [`Extents::read_slot`], with a deadline.
    pub async fn read_slot_by(
        &self,
        slot: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let (member, start) = self.store.locate(slot);
        match self.is_recovering() {
            true => {
                let read = self.read_applied(member, start + range.start, into, origin, deadline);
                Box::pin(read).await
            }
            false => self.read_place(member, start + range.start, into, origin, deadline).await,
        }
    }

    /// Reads from a place on a device, with any alignment.
    pub async fn read_place(
        &self,
        member: &Member<D>,
        first: Bytes,
        into: &Buf,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let align = member.alignment;
        if first.is_aligned(align) && into.len().is_aligned(align) && member.can_use(into) {
            return self.durable.device_read_by(member, first, into, origin, deadline).await;
        }
        let span = first.align_down(align)..(first + into.len()).align_up(align);
        let mut at = span.start;
        // One bounce buffer is enough, except for a read of nearly the largest buffer's length.
        while at < span.end {
            let end = (at + LARGEST_BUFFER).min(span.end);
            let bounce = self.buffer(&self.buffers.bounce, end - at).await?;
            self.durable.device_read_by(member, at, &bounce, origin, deadline).await?;
            let wanted = at.max(first)..end.min(first + into.len());
            into.copy_from(wanted.start - first, &bounce.slice(wanted.start - at..wanted.end - at));
            at = end;
        }
        Ok(())
    }

    /// Writes a range of a slot; `None` stands for zeros.
    ///
    /// In touched parts outside of `valid`, bytes around the range become zero. Edges within a sector of the
    /// device are read first. After an error a late device may still write the bytes, so `from` must not be
    /// changed.
    pub async fn write_slot(
        &self,
        slot: SlotNumber,
        range: &Range<Bytes>,
        from: Option<&Buf>,
        valid: u16,
        origin: Origin,
    ) -> Result<()> {
        self.write_slot_by(slot, range, from, valid, origin, Deadline::Only).await
    }

    /// Like [`Extents::write_slot`], with a deadline.
    pub async fn write_slot_by(
        &self,
        slot: SlotNumber,
        range: &Range<Bytes>,
        from: Option<&Buf>,
        valid: u16,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let (member, start) = self.store.locate(slot);
        let (head, tail) = (
            self.store.shape.pad(range.start, range.start, valid),
            self.store.shape.pad(range.end, range.end - Bytes(1), valid),
        );
        let align = member.alignment;
        let span = range.start.align_down(align).min(head.start)..range.end.align_up(align).max(tail.end);
        if let Some(from) = from.filter(|from| span == *range && member.can_use(from)) {
            return self.durable.device_write_by(member, start + range.start, from, origin, deadline).await;
        }
        let mut at = span.start;
        while at < span.end {
            let end = (at + LARGEST_BUFFER).min(span.end);
            let bounce = self.buffer(&self.buffers.bounce, end - at).await?;
            bounce.fill_zero();
            // The last edge comes first: `read_edge` may overwrite the start of the buffer.
            for edge in [range.end, range.start].into_iter().filter(|e| !e.is_aligned(align)) {
                let block = edge.align_down(align);
                if (at..end).contains(&block) && self.store.shape.is_valid(block, valid) {
                    let part = bounce.slice(block - at..block - at + align);
                    self.read_edge(member, start + block, &bounce, &part, origin, deadline).await?;
                }
            }
            let wanted = at.max(range.start)..end.min(range.end);
            if wanted.start < wanted.end {
                let part = bounce.slice(wanted.start - at..wanted.end - at);
                match from {
                    None => part.fill_zero(),
                    Some(from) => {
                        let source = wanted.start - range.start..wanted.end - range.start;
                        part.copy_from(Bytes::ZERO, &from.slice(source));
                    }
                }
            }
            self.durable.device_write_by(member, start + at, &bounce, origin, deadline).await?;
            at = end;
        }
        Ok(())
    }

    /// Reads a block of a device to its place in a buffer. If the place does not suit the device, the block
    /// is read to the buffer's start and copied. The start is zero afterwards.
    async fn read_edge(
        &self,
        member: &Member<D>,
        at: Bytes,
        all: &Buf,
        place: &Buf,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        if member.can_use(place) {
            return self.durable.device_read_by(member, at, place, origin, deadline).await;
        }
        let first = all.slice(Bytes::ZERO..place.len());
        self.durable.device_read_by(member, at, &first, origin, deadline).await?;
        place.copy_from(Bytes::ZERO, &first);
        first.fill_zero();
        Ok(())
    }
}

impl Shape {
    /// Returns the part of an extent that a write to a piece changes: parts that are not valid become zero
    /// around the piece.
    pub(crate) fn padded(&self, piece: &Piece, valid: u16) -> Piece {
        let Range { start, end } = piece.range;
        let (head, tail) = (self.pad(start, start, valid), self.pad(end, end - Bytes(1), valid));
        Piece { extent: piece.extent, range: start.min(head.start)..end.max(tail.end) }
    }

    /// Returns the range to be zeroed at an edge: the part with `inside` if the part is not valid, else an
    /// empty range.
    fn pad(&self, edge: Bytes, inside: Bytes, valid: u16) -> Range<Bytes> {
        if self.is_valid(inside, valid) || planted(Bug::PaddingForgotten) {
            return edge..edge;
        }
        let part = inside.align_down(self.part_size);
        part..part + self.part_size
    }
}
