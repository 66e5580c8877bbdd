//! What a crash left undecided: the two copies of an extent differ at most by writes that were never flushed, and either is as good. A guest
//! that reads one of them may count on it from its next flush on, and a volume that lost the other must still have it. So before the first
//! request to such a range, the home's bytes are copied to the second copy, and no guest waits for the rest of a resync.
//!
//! Nothing is written to a range that is undecided. What the home holds of it was flushed by the opening, so a home that is lost later takes
//! nothing away from the second copy that was made from it.

use super::Deadline;
use crate::Result;
use crate::core::Core;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use braid_base::{Bytes, ExtentId, MIB};
use braid_format::map_page::Entry;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime};
use std::ops::Range;
use std::rc::Rc;

/// So much is copied at a time, or an extent that is smaller.
const STEP: Bytes = MIB;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Whether it is undecided which copy of a piece counts.
    #[inline]
    pub fn is_undecided(&self, piece: &Piece) -> bool {
        let state = self.state.borrow();
        state.behind.any_undecided()
            && state.behind.is_undecided(self.shape.span_of(piece.extent), &self.undecided_around(piece))
    }

    /// Makes both copies of a piece alike, before a guest's request to it. Where that cannot be done the home counts from now on, as the journal
    /// says then. The caller holds no lock.
    pub async fn decide(self: &Rc<Self>, piece: &Piece) -> Result<()> {
        let (span, range) = (self.shape.span_of(piece.extent), self.undecided_around(piece));
        let second = {
            let state = self.state.borrow();
            state.space.locate(state.map.get(piece.extent).second)
        };
        let is_held_up = second.is_some_and(|slot| self.member(slot.device).holds_up());
        if self.active_epochs().is_none() && !is_held_up {
            // A failure is counted by the device.
            let _tried = self.resync_for_guest(range.clone()).await;
        }
        if !self.state.borrow().behind.is_undecided(span, &range) {
            return Ok(());
        }
        self.state.borrow_mut().behind.mark_behind(span, range);
        match self.record_behind(span).await {
            // No flush will succeed any more, so none promises what is read now.
            Err(_) if self.journal.commits.have_failed() => Ok(()),
            recorded => recorded,
        }
    }

    /// What of an extent is decided with a piece of it.
    fn undecided_around(&self, piece: &Piece) -> Range<Bytes> {
        let (bytes, step) = (self.shape.bytes_of(piece.extent), STEP.max(self.shape.part_size));
        let (from, to) = (piece.range.start.align_down(step), piece.range.end.align_up(step));
        bytes.start + from..(bytes.start + to).min(bytes.end)
    }

    /// Copies a range of an extent that is undecided from the home to the second copy. A home that cannot be read is the second copy from
    /// now on. The caller holds the extent's lock, exclusive.
    pub async fn copy_undecided(
        self: &Rc<Self>,
        (extent, entry): (ExtentId, Entry),
        range: &Range<Bytes>,
        bytes: &Buf,
    ) -> Result<()> {
        let read = self.read_slot_copied(entry.home, range.clone(), bytes, Origin::Background).await;
        if let Err(error) = read {
            // What was made from the home must not outlive it.
            let whole = Piece { extent, range: Bytes::ZERO..self.shape.extent_size };
            self.drop_clean_extras(&whole);
            self.guests.cache.borrow_mut().remove(extent);
            self.lose_copy(extent, entry, entry.home, &error).await?;
            return Err(error);
        }
        let by = (Origin::Background, Deadline::Copied);
        if !planted(Bug::UndecidedNotCopied) {
            self.write_slot_by(entry.second, range, Some(bytes), u16::MAX, by).await?;
        }
        self.background.borrow_mut().resynced_bytes += (range.end - range.start).0;
        Ok(())
    }
}
