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
