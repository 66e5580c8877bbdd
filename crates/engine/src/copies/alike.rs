//! Reads of an extent whose second copy is stale in some ranges: outside of the stale ranges the second copy
//! may answer when the current copy cannot be read.

use super::Copies;
use crate::Result;
use crate::core::{Extents, Store};
use crate::map::Other;
use braid_base::{Bytes, ExtentId};
use braid_format::SlotNumber;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Reads a range of an extent without an equal second copy. If the other copy has equal bytes in the
    /// range, the other copy may answer: first if only the current copy's device is late, else after a failed
    /// read.
    pub(super) async fn read_current(
        &self,
        extent: ExtentId,
        copies: &Copies,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        if let Other::Behind(other) = copies.other
            && self.store.lacks_beside(extent, copies.current, other)
        {
            return self.read_apart(extent, copies.current, other, range, into, origin).await;
        }
        let Other::Behind(other) = copies.other else {
            return self.read_kept(extent, copies.current, range, into, origin).await;
        };
        let is_alike = || self.store.is_alike(extent, copies.current, other, &range);
        if !is_alike() {
            return self.read_kept(extent, copies.current, range, into, origin).await;
        }
        let is_late = |slot| self.store.locate(slot).0.is_late();
        let (first, next) = match is_late(copies.current) && !is_late(other) {
            true => (other, copies.current),
            false => (copies.current, other),
        };
        let read = async {
            self.store.check_kept(extent, first, &range)?;
            self.read_slot_copied(first, range.clone(), into, origin).await?;
            self.store.check_kept(extent, first, &range)
        };
        let read = read.await;
        // During the read a guest may have written to the range, or a device may have been excluded.
        let counts = |slot| {
            let is_current = |slot| self.store.locate(slot).0.is_current();
            slot == copies.current || is_alike() || !is_current(copies.current) && is_current(other)
        };
        if read.is_ok() && counts(first) || !counts(next) {
            return read;
        }
        let instead = self.read_kept(extent, next, range.clone(), into, origin).await;
        match counts(next) {
            true => instead.map_err(|error| read.err().unwrap_or(error)),
            false => read,
        }
    }

    /// Reads a range if the current copy may have lost writes and the other copy has not. Only ranges in
    /// which the other copy is stale are read from the current copy.
    async fn read_apart(
        &self,
        extent: ExtentId,
        current: SlotNumber,
        other: SlotNumber,
        range: Range<Bytes>,
        into: &Buf,
        origin: Origin,
    ) -> Result<()> {
        let start = self.store.shape.bytes_of(extent).start;
        let mut at = range.start;
        while at < range.end {
            let behind = self.store.state.borrow().behind.next(start + at);
            let behind = behind.map_or(range.end..range.end, |next| next.start - start..next.end - start);
            let (slot, end) = if behind.start <= at { (current, behind.end) } else { (other, behind.start) };
            let part = at..end.min(range.end);
            let bytes = into.slice(part.start - range.start..part.end - range.start);
            at = part.end;
            self.read_kept(extent, slot, part, &bytes, origin).await?;
        }
        Ok(())
    }
}

impl<D: Device> Store<D> {
    /// True if a copy that is stale elsewhere in the extent equals the current copy in a range.
    fn is_alike(
        &self,
        extent: ExtentId,
        current: SlotNumber,
        other: SlotNumber,
        range: &Range<Bytes>,
    ) -> bool {
        let (first, last) = (self.locate(current).0, self.locate(other).0);
        let start = self.shape.bytes_of(extent).start;
        let bytes = start + range.start..start + range.end;
        first.is_current()
            && last.is_current()
            && !self.lacks_beside(extent, other, current)
            && !self.state.borrow().behind.ranges().intersects(&bytes)
    }
}
