//! Lost extents that become whole again part by part, as a restore writes them.
//!
//! The first write of whole parts gives a lost extent its slots. The extent is then *partly lost*: invalid
//! parts read as errors, not as zeros. A write to a fraction of a lost part is refused, because the rest of
//! the part would become zeros. Zeroing such an extent writes zeros, because "invalid" does not mean zeros
//! there. Once all parts are valid, the extent is like any other.

use crate::Result;
use crate::copies::{Timing, lost};
use crate::core::{Core, Durable};
use crate::shape::{Piece, Shape};
use braid_format::SlotNumber;
use braid_format::map_page::{Entry, MOST_MARKED};
use braid_format::superblock::Features;
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};

impl Shape {
    /// True if a piece covers only a fraction of some part that is not in `valid`.
    pub(super) fn lost_edges(&self, piece: &Piece, valid: u16) -> bool {
        let edges = self.parts_touched(&piece.range) & !self.parts_covered_of(piece);
        edges & !valid != 0
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Prepares a write that makes some parts of a lost extent valid: first the superblocks say that partly
    /// lost extents exist. Not needed for a write of the whole extent.
    ///
    /// # Errors
    /// `Corrupt` if a lost part would be covered only in part, or if slot numbers leave no room for the mark.
    pub(super) async fn begin_healing(&self, piece: &Piece, valid: u16) -> Result<()> {
        if self.store.shape.is_all_of(piece) {
            return Ok(());
        }
        let has_room = {
            let superblock = self.store.devices.superblock();
            let last = superblock.devices.last();
            last.is_none_or(|last| u64::from(last.first_slot) + u64::from(last.slots) <= MOST_MARKED)
        };
        if self.store.shape.lost_edges(piece, valid) || !has_room {
            return Err(lost(&self.store.shape, piece.extent));
        }
        self.require_feature(Features::PARTLY_LOST).await
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Zeroes a piece of a lost or partly lost extent. A whole extent becomes unallocated; parts are written
    /// with zeros. The caller holds the extent's lock, exclusive.
    pub(super) async fn zero_lost(&self, piece: &Piece, entry: Entry) -> Result<()> {
        if self.store.shape.is_all_of(piece) {
            self.guests.cache.borrow_mut().remove(piece.extent);
            self.store.drop_covered_extras(&self.policy, piece);
            let mut state = self.store.state.borrow_mut();
            state.set_extent(piece.extent, Entry::default());
            let slots = [entry.home, entry.second].into_iter();
            let slots = slots.filter(|slot| ![SlotNumber::NONE, SlotNumber::LOST].contains(slot));
            slots.for_each(|slot| state.retire(slot));
            return Ok(());
        }
        self.durable.begin_healing(piece, entry.valid).await?;
        let is_new = entry.home == SlotNumber::LOST;
        let entry = match is_new {
            true => Entry { partly_lost: true, ..self.extents.allocate(piece.extent, None).await?.entry },
            false => entry,
        };
        let written = self.extents.write_required(piece, entry, None, Origin::Guest, Timing::Now).await;
        let written = written.inspect_err(|_| {
            if is_new {
                self.store.release(&entry);
            }
        })?;
        self.guests.cache.borrow_mut().remove(piece.extent);
        self.store.drop_clean_extras(&self.policy, piece);
        self.store.make_valid(piece, written);
        Ok(())
    }
}
