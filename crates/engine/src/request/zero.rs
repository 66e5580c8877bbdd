//! Discard and write zeros.
//!
//! Parts covered whole by the range become invalid: they read as zeros, and the change costs one record.
//! Fractions of other parts are written with zeros. A discarded extent without valid parts loses its copies;
//! the next write allocates new slots. On an adopted disk, extents stay valid: zeros are written, and a
//! discard is passed on to the disk.

use crate::copies::Timing;
use crate::core::{Core, Durable, Extents, Store};
use crate::epochs::Whole;
use crate::shape::Piece;
use crate::{Durability, Result, Zeroing};
use braid_base::{Bytes, Op};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::Origin;
use braid_runtime::{Device, Runtime, yield_now};
use std::ops::Range;

/// Number of extents after which a request lets other tasks run.
const HOLES_IN_A_ROW: usize = 1024;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Makes a range read as zeros.
    pub async fn zero(
        &self,
        offset: Bytes,
        len: Bytes,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Result<()> {
        self.store.shape.check_range(offset, len)?;
        self.extents.refuse_degraded()?;
        // One extent after the other: a discard of a whole disk must not keep guests from their extents.
        for (i, piece) in self.store.shape.pieces(offset, len).enumerate() {
            let all = self.extents.up_to_extent_end(piece.clone());
            if !self.extents.is_settled(&piece) {
                let keeps_bytes = || self.store.has_edges(&all);
                let settled =
                    self.upkeep.wait_until_settled(&piece, Op::Discard, keeps_bytes, || Whole::Zeros);
                Box::pin(settled).await?;
            }
            for part in self.durable.parts_to_zero(all) {
                self.zero_piece(part, zeroing).await?;
            }
            // Unallocated extents cost so little that a discard of TiBs would never let other tasks of the
            // shard run.
            if i % HOLES_IN_A_ROW == HOLES_IN_A_ROW - 1 {
                yield_now().await;
            }
        }
        // A device may have failed meanwhile.
        self.extents.refuse_degraded()?;
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Fua => self.durable.flush_for_guest().await,
        }
    }

    /// Frees the last extent after the end of the volume, which is about to grow. Bytes there may be valid:
    /// a write up to the end of the volume counts as a write up to the end of the extent.
    pub async fn zero_after_end(&self) -> Result<()> {
        let (size, extent_size) = (self.store.shape.volume_size, self.store.shape.extent_size);
        if size.is_aligned(extent_size) {
            return Ok(());
        }
        let after =
            Piece { extent: self.store.shape.extent_of(size), range: size % extent_size..extent_size };
        if self.store.state.borrow().map.get(after.extent).is_any_lost() {
            // What is lost stays lost in the grown volume.
            return Ok(());
        }
        for part in self.durable.parts_to_zero(after) {
            self.zero_piece(part, Zeroing::MayDiscard).await?;
        }
        Ok(())
    }

    /// Frees a range. Discarded bytes read as zeros; on an adopted disk, they read as the disk reads
    /// discarded blocks.
    pub async fn discard(&self, offset: Bytes, len: Bytes) -> Result<()> {
        if !self.store.state.borrow().map.is_of_adopted() {
            return self.zero(offset, len, Zeroing::MayDiscard, Durability::Volatile).await;
        }
        self.store.shape.check_range(offset, len)?;
        self.extents.refuse_degraded()?;
        // Only whole blocks are discarded: fractions of blocks keep their bytes.
        let block = self.store.shape.block_size;
        let end = offset + len;
        let end = if end == self.store.shape.volume_size { end } else { end.align_down(block) };
        let start = offset.align_up(block).min(end);
        for piece in self.store.shape.pieces(start, end - start) {
            for part in self.durable.parts_to_zero(piece) {
                self.discard_piece(&part).await?;
            }
        }
        Ok(())
    }

    /// Drops the extra copies of a piece, dirty copies included, and sends a discard to the disk.
    async fn discard_piece(&self, piece: &Piece) -> Result<()> {
        let _ticket = self.durable.claim(piece).await?.begin(&self.durable, piece);
        let _differing = self.extents.begin_differing(piece).await?;
        self.guests.cache.borrow_mut().remove(piece.extent);
        self.store.drop_covered_extras(&self.policy, piece);
        let home = self.store.state.borrow().map.get(piece.extent).home;
        let (member, start) = self.store.locate(home);
        let at = start + piece.range.start;
        let _noted = self.durable.begin_disk_write(member.id, at, piece.len(), None).await;
        self.durable.confirm_before_write().await?;
        if let Err(error) = member.discard(at, piece.len()).await {
            // A discard is only a hint: on a failure, the disk keeps its bytes.
            let text = format!("discard of {} at byte {}: {error}", piece.len(), at.0);
            member.stats.borrow_mut().last_error = Some(text);
        }
        member.note_write();
        Ok(())
    }

    async fn zero_piece(&self, piece: Piece, zeroing: Zeroing) -> Result<()> {
        if zeroing == Zeroing::MayDiscard && self.store.is_hole(&piece) {
            return Ok(());
        }
        let change = self.extents.admit_change(piece.len()).await;
        let claim = self.durable.claim(&piece).await?;
        if !claim.suffices(&self.store, &piece) {
            // Meanwhile a guest has written to a lost extent, which may now have extra copies.
            drop((claim, change));
            for part in self.durable.parts_to_zero(piece) {
                Box::pin(self.zero_piece(part, zeroing)).await?;
            }
            return Ok(());
        }
        let _ticket = claim.begin(&self.durable, &piece);
        let _differing =
            if self.store.has_edges(&piece) { self.extents.begin_differing(&piece).await? } else { None };
        let (result, _lacking) = match self.extents.begin_image_change(&piece).await {
            Ok(span) => (self.zero_locked(&piece, zeroing).await, span),
            Err(error) => (Err(error), None),
        };
        if result.is_err() {
            // The bytes on the devices are now unknown; the next read must ask the devices.
            self.guests.cache.borrow_mut().remove(piece.extent);
            self.store.drop_clean_extras(&self.policy, &piece);
        }
        result
    }

    async fn zero_locked(&self, piece: &Piece, zeroing: Zeroing) -> Result<()> {
        self.extents.zero_extra_edges(piece).await?;
        let entry = self.store.state.borrow().map.get(piece.extent);
        if entry.is_any_lost() {
            return self.zero_lost(piece, entry).await;
        }
        if entry.home == SlotNumber::NONE {
            return match zeroing {
                Zeroing::MayDiscard => Ok(()),
                Zeroing::KeepAllocated => {
                    let fresh = self.extents.allocate(piece.extent, None).await?;
                    self.store.note_new(&fresh.entry);
                    self.store.state.borrow_mut().set_extent(piece.extent, fresh.entry);
                    Ok(())
                }
            };
        }
        let covered = self.store.parts_freed(piece);
        let entry = self.zero_edges(piece, entry, covered).await?;
        self.guests.cache.borrow_mut().zero(piece);
        // Nothing waits from here to the end.
        self.store.drop_covered_extras(&self.policy, piece);
        let mut state = self.store.state.borrow_mut();
        let extras_left = state.any_extra(piece.extent);
        let left = Entry { valid: entry.valid & !covered, ..entry };
        if left.valid == 0 && zeroing == Zeroing::MayDiscard && !extras_left {
            self.guests.cache.borrow_mut().remove(piece.extent);
            state.set_extent(piece.extent, Entry::default());
            let slots = [entry.home, entry.second];
            slots.into_iter().filter(|&s| s != SlotNumber::NONE).for_each(|s| state.retire(s));
        } else {
            state.set_extent(piece.extent, left);
        }
        Ok(())
    }

    /// Writes zeros to the fractions of valid parts in the range.
    async fn zero_edges(&self, piece: &Piece, mut entry: Entry, covered: u16) -> Result<Entry> {
        let range = &piece.range;
        let inner_start = range.start.align_up(self.store.shape.part_size).min(range.end);
        let inner_end = range.end.align_down(self.store.shape.part_size).max(inner_start);
        let edges: [Range<Bytes>; 2] = match covered {
            0 => [range.start..inner_start, inner_start..range.end],
            _ => [range.start..inner_start, inner_end..range.end],
        };
        for edge in edges {
            // An edge lies within one part, or is the whole zeroed range.
            if edge.start < edge.end && entry.valid & self.store.shape.parts_touched(&edge) != 0 {
                let edge = Piece { extent: piece.extent, range: edge };
                entry = self.extents.write_required(&edge, entry, None, Origin::Guest, Timing::Now).await?;
            }
        }
        Ok(entry)
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Extends a piece that ends with the volume to the end of its extent: the last part is zeroed whole, and
    /// the extent becomes free. On a disk with all addresses, the bytes behind the end are left alone.
    fn up_to_extent_end(&self, piece: Piece) -> Piece {
        let ends =
            self.store.shape.bytes_of(piece.extent).start + piece.range.end == self.store.shape.volume_size;
        if !ends || self.epochs.is_some() || self.store.state.borrow().map.is_of_adopted() {
            return piece;
        }
        Piece { extent: piece.extent, range: piece.range.start..self.store.shape.extent_size }
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Cuts a piece so that the records of each cut fit into the journal: each block may have a dirty extra
    /// copy. If the map keeps validity in parts, cuts lie between parts.
    fn parts_to_zero(&self, piece: Piece) -> impl Iterator<Item = Piece> {
        let blocks = self.journal.most_pending() as u64 / 2;
        let step = (self.store.shape.block_size * blocks)
            .align_down(self.store.shape.part_size)
            .max(self.store.shape.part_size);
        // A lost extent needs one record in all.
        let step = if self.store.most_records(&piece) == 1 { self.store.shape.extent_size } else { step };
        let mut at = piece.range.start;
        std::iter::from_fn(move || {
            let end = (at.align_down(self.store.shape.part_size) + step).min(piece.range.end);
            let part = Piece { extent: piece.extent, range: at..end };
            at = end;
            (part.range.start < part.range.end).then_some(part)
        })
    }
}

impl<D: Device> Store<D> {
    /// True if some bytes of a piece are written with zeros.
    fn has_edges(&self, piece: &Piece) -> bool {
        self.shape.parts_touched(&piece.range) != self.parts_freed(piece)
    }

    /// Returns the parts that become invalid by zeroing a piece.
    fn parts_freed(&self, piece: &Piece) -> u16 {
        let state = self.state.borrow();
        let is_lost = state.map.get(piece.extent).is_any_lost();
        let stays_valid = state.map.is_of_adopted() || is_lost;
        if stays_valid { 0 } else { self.shape.parts_covered(&piece.range) }
    }

    /// True if a discard has nothing to do, as far as the map tells without the lock.
    fn is_hole(&self, piece: &Piece) -> bool {
        let state = self.state.borrow();
        state.map.get(piece.extent).home == SlotNumber::NONE
    }
}
