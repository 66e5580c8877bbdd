//! What the second copy of an extent has though it is behind in another part of it: it answers where the current copy cannot be read.

use super::{Copies, Other};
use crate::Result;
use crate::core::Core;
use braid_base::{Bytes, ExtentId};
use braid_format::SlotNumber;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;
use std::rc::Rc;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Reads a range of an extent of which no second copy is equal, from the current one if that can be read.
    pub(super) async fn read_current(
        self: &Rc<Self>,
        extent: ExtentId,
        copies: &Copies,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        if let Other::Behind(other) = copies.other
            && self.lacks_beside(extent, copies.current, other)
        {
            return self.read_apart(extent, (copies.current, other), range, into, origin).await;
        }
        let read = self.read_kept(extent, copies.current, range.clone(), into, origin).await;
        let (Err(error), Other::Behind(other)) = (&read, copies.other) else { return read };
        if !self.is_alike(extent, (copies.current, other), &range) {
            return read;
        }
        let instead = self.read_kept(extent, other, range.clone(), into, origin).await;
        // A guest may have written there meanwhile.
        let is_alike = self.is_alike(extent, (copies.current, other), &range);
        instead.ok().filter(|()| is_alike).ok_or_else(|| error.clone())
    }

    /// Reads a range of an extent whose current copy may have lost writes that the other one has kept: from
    /// the current one only what the other one lacks.
    async fn read_apart(
        self: &Rc<Self>,
        extent: ExtentId,
        (current, other): (SlotNumber, SlotNumber),
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        let start = self.shape.bytes_of(extent).start;
        let mut at = range.start;
        while at < range.end {
            let behind = self.state.borrow().behind.next(start + at);
            let behind = behind.map_or(range.end..range.end, |next| next.start - start..next.end - start);
            let (slot, end) = if behind.start <= at { (current, behind.end) } else { (other, behind.start) };
            let part = at..end.min(range.end);
            let bytes = into.slice(part.start - range.start..part.end - range.start);
            at = part.end;
            self.read_kept(extent, slot, part, &bytes, origin).await?;
        }
        Ok(())
    }

    /// Whether a copy that is behind elsewhere in its extent has a range as the current one has it, whose device must not fill the buffer any more.
    fn is_alike(
        &self,
        extent: ExtentId,
        (current, other): (SlotNumber, SlotNumber),
        range: &Range<Bytes>,
    ) -> bool {
        let (first, last) = (self.locate(current).0, self.locate(other).0);
        let start = self.shape.bytes_of(extent).start;
        let bytes = start + range.start..start + range.end;
        first.is_current()
            && last.is_current()
            && !first.is_late()
            && !self.lacks_beside(extent, other, current)
            && !self.state.borrow().behind.ranges().intersects(&bytes)
    }
}
