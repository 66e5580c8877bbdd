//! Extents that are lost, and become whole again part by part, as a restore writes them.
//!
//! The first write of whole parts gives such an extent its slots. It is *partly lost* then: parts that are
//! not valid read as errors, and not as zeros. A write to a bit of a part that is lost is refused: what it
//! does not cover would become zeros. Zeros are written, for a part that is not valid means another thing
//! there. Once all parts are valid, the extent is like any other.

use crate::Result;
use crate::copies::{Timing, lost};
use crate::core::Core;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use braid_format::SlotNumber;
use braid_format::map_page::{Entry, MOST_MARKED};
use braid_format::superblock::Features;
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Whether a piece covers a bit of a part that is not among these.
    pub(super) fn lost_edges(&self, piece: &Piece, valid: u16) -> bool {
        if planted(Bug::LostEdgesZero) {
            return false;
        }
        let edges = self.shape.parts_touched(&piece.range) & !self.shape.parts_covered_of(piece);
        edges & !valid != 0
    }

    /// Whether some parts of an extent are lost.
    pub(super) fn is_any_lost(&self, entry: &Entry) -> bool {
        entry.partly_lost || entry.home == SlotNumber::LOST
    }

    /// Before some parts of a lost extent become valid, the superblocks say that there are such extents.
    ///
    /// # Errors
    /// `Corrupt` if a part would not be covered whole, or slot numbers leave no room for the mark.
    pub(super) async fn begin_healing(&self, piece: &Piece, valid: u16) -> Result<()> {
        if self.shape.is_all_of(piece) {
            return Ok(());
        }
        let has_room = {
            let superblock = self.devices.superblock();
            let last = superblock.devices.last();
            last.is_none_or(|last| u64::from(last.first_slot) + u64::from(last.slots) <= MOST_MARKED)
        };
        if self.lost_edges(piece, valid) || !has_room {
            return Err(lost(&self.shape, piece.extent));
        }
        self.require_feature(Features::PARTLY_LOST).await
    }

    /// Zeros of a piece of an extent that is lost, or partly: all of it has no bytes then, and parts hold
    /// zeros. The caller holds the extent's lock, exclusive.
    pub(super) async fn zero_lost(self: &Rc<Self>, piece: &Piece, entry: Entry) -> Result<()> {
        if self.shape.is_all_of(piece) {
            self.guests.cache.borrow_mut().remove(piece.extent);
            self.drop_covered_extras(piece);
            let mut state = self.state.borrow_mut();
            state.set_extent(piece.extent, Entry::default());
            let slots = [entry.home, entry.second].into_iter();
            let slots = slots.filter(|slot| ![SlotNumber::NONE, SlotNumber::LOST].contains(slot));
            slots.for_each(|slot| state.retire(slot));
            return Ok(());
        }
        self.begin_healing(piece, entry.valid).await?;
        let is_new = entry.home == SlotNumber::LOST;
        let entry = match is_new {
            true => Entry { partly_lost: true, ..self.allocate(piece.extent, None).await?.entry },
            false => entry,
        };
        let zeros = (None, Origin::Guest);
        let written = self.write_required(piece.extent, entry, &piece.range, zeros, Timing::Now).await;
        let written = written.inspect_err(|_| {
            if is_new {
                self.release(&entry);
            }
        })?;
        self.guests.cache.borrow_mut().remove(piece.extent);
        self.drop_clean_extras(piece);
        self.make_valid(piece, written);
        Ok(())
    }
}
