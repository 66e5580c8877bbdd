//! Reading and writing ranges of slots, whatever their alignment.

use crate::Result;
use crate::core::Core;
use crate::planted::{Bug, planted};
use braid_base::Bytes;
use braid_format::SlotNumber;
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};
use std::ops::Range;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Reads a range of a slot, whatever its alignment.
    pub async fn read_slot(
        &self,
        slot: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        let (member, start) = self.locate(slot);
        let (first, align) = (start + range.start, member.alignment);
        if first.is_aligned(align) && into.len().is_aligned(align) {
            return self.device_read(member, first, into, origin).await;
        }
        let span = first.align_down(align)..(first + into.len()).align_up(align);
        let mut at = span.start;
        // One bounce buffer is enough, but for a read of nearly the largest buffer's length.
        while at < span.end {
            let end = (at + self.bounce_limit()).min(span.end);
            let bounce = self.bounce.alloc(end - at).await;
            self.device_read(member, at, &bounce, origin).await?;
            let wanted = at.max(first)..end.min(first + into.len());
            into.copy_from(wanted.start - first, &bounce.slice(wanted.start - at..wanted.end - at));
            at = end;
        }
        Ok(())
    }

    /// Writes a range of a slot. Of the parts that it touches, those not `valid` become zero where it does not reach;
    /// edges that the device cannot write alone are read first. `from` is none for zeros.
    pub async fn write_slot(
        &self,
        slot: SlotNumber,
        range: &Range<Bytes>,
        from: Option<&Buf>,
        valid: u16,
        origin: Origin,
    ) -> Result<()> {
        let (member, start) = self.locate(slot);
        let (head, tail) =
            (self.pad(range.start, range.start, valid), self.pad(range.end, range.end - Bytes(1), valid));
        let align = member.alignment;
        let span = range.start.align_down(align).min(head.start)..range.end.align_up(align).max(tail.end);
        if let Some(from) = from.filter(|_| span == *range) {
            return self.device_write(member, start + range.start, from, origin).await;
        }
        let mut at = span.start;
        while at < span.end {
            let end = (at + self.bounce_limit()).min(span.end);
            let bounce = self.bounce.alloc(end - at).await;
            bounce.fill_zero();
            for edge in [range.start, range.end].into_iter().filter(|e| !e.is_aligned(align)) {
                let block = edge.align_down(align);
                if (at..end).contains(&block) && self.is_valid(block, valid) {
                    let part = bounce.slice(block - at..block - at + align);
                    self.device_read(member, start + block, &part, origin).await?;
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
            self.device_write(member, start + at, &bounce, origin).await?;
            at = end;
        }
        Ok(())
    }

    /// What must become zero around an edge: the part that holds `inside`, where that is not valid; else nothing.
    fn pad(&self, edge: Bytes, inside: Bytes, valid: u16) -> Range<Bytes> {
        if self.is_valid(inside, valid) || planted(Bug::PaddingForgotten) {
            return edge..edge;
        }
        let part = inside.align_down(self.shape.part_size);
        part..part + self.shape.part_size
    }

    fn is_valid(&self, at: Bytes, valid: u16) -> bool {
        valid >> (at / self.shape.part_size) & 1 == 1
    }

    /// The largest bounce buffer.
    pub fn bounce_limit(&self) -> Bytes {
        Arena::LARGEST
    }
}
