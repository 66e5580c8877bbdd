//! The life of a write: split by extent, lock, target, devices, map.
//!
//! The extent's lock is shared if the write changes only bytes that the map already calls valid: such writes
//! may overlap, as on any disk. If the extent has a second copy or an extra copy, overlapping ranges take
//! turns, so that all copies get the writes in the same order. The lock is exclusive if the set of copies
//! changes:
//!
//! - a new extent;
//! - a part whose rest must become zero;
//! - a new extra copy;
//! - an extent in the memory cache;
//! - an edge that the device cannot write alone.

use super::ticket::Ticket;
use crate::copies::{Allocated, Timing, Updated, lost};
use crate::core::{Core, Durable, Extents, Store};
use crate::devices::Deadline;
use crate::epochs::Whole;
use crate::map::Arrival;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use crate::{Durability, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, Op};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::{ByteRange, Direction, Occasion, Origin, WriteTarget};
use braid_runtime::{Buf, Device, Mode, RangeGuard, Runtime, join_all};

/// The policy's placement of a write.
#[derive(Clone, Copy)]
struct Placed {
    /// The extent under the lock, before the write.
    entry: Entry,
    target: WriteTarget,
    timing: Timing,
    /// The request that contains the piece. The policy is asked again with this request if the extent turns
    /// out to have no home.
    request: ByteRange,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes `from` at `offset`.
    pub async fn write(&self, offset: Bytes, from: &Buf, durability: Durability) -> Result<()> {
        self.store.shape.check_range(offset, from.len())?;
        self.extents.refuse_degraded()?;
        if from.is_empty() {
        } else if from.len() > self.extents.longest_change() {
            Box::pin(self.write_parts(offset, from)).await?;
        } else {
            self.write_change(offset, from).await?;
        }
        // A device may have failed meanwhile.
        self.extents.refuse_degraded()?;
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Fua if planted(Bug::FuaIgnored) => Ok(()),
            Durability::Fua => self.durable.flush_for_guest().await,
        }
    }

    /// Writes a range that is too long for one change of an epoch, one change after the other.
    async fn write_parts(&self, offset: Bytes, from: &Buf) -> Result<()> {
        let (most, mut at) = (self.extents.longest_change(), Bytes::ZERO);
        while at < from.len() {
            let end = from.len().min(at + most);
            self.write_change(offset + at, &from.slice(at..end)).await?;
            at = end;
        }
        Ok(())
    }

    /// Writes at most one change of an epoch.
    #[inline]
    async fn write_change(&self, offset: Bytes, from: &Buf) -> Result<()> {
        loop {
            let change = self.extents.admit_change(from.len()).await;
            let were_kept = change.is_some();
            let written = self.write_now(offset, from).await;
            drop(change);
            let Err(error) = written else { return Ok(()) };
            let is_full = error.kind() == ErrorKind::NoSpace;
            if !(is_full && were_kept && Box::pin(self.extents.wait_for_room_in_image()).await) {
                return Err(error);
            }
        }
    }

    #[inline]
    async fn write_now(&self, offset: Bytes, from: &Buf) -> Result<()> {
        let request = ByteRange::new(offset, from.len());
        if self.store.shape.is_one_piece(offset, from.len()) {
            let piece = self.store.shape.one_piece(offset, from.len());
            self.write_piece(&piece, request, from).await
        } else {
            Box::pin(self.write_pieces(request, from)).await
        }
    }

    async fn write_pieces(&self, request: ByteRange, from: &Buf) -> Result<()> {
        let all = self.store.shape.pieces(request.start, from.len()).map(async |piece| {
            let start = self.store.shape.extent_size * u64::from(piece.extent.0) + piece.range.start;
            let part = from.slice(start - request.start..start - request.start + piece.len());
            self.write_piece(&piece, request, &part).await
        });
        join_all(all).await.into_iter().collect()
    }

    async fn write_piece(&self, piece: &Piece, request: ByteRange, from: &Buf) -> Result<()> {
        if !self.extents.is_settled(piece) {
            let whole = || Whole::Bytes(from.clone());
            Box::pin(self.upkeep.wait_until_settled(piece, Op::Write, || true, whole)).await?;
        }
        let mut claim = match self.durable.try_claim_to_write(piece) {
            Some(claim) => claim,
            None => Box::pin(self.durable.claim_to_write(piece)).await?,
        };
        let mut placed = self.place(piece, request, claim.mode());
        if claim.mode() == Mode::Shared && self.store.makes_extras(piece, &placed) {
            claim = Box::pin(claim.exclusive(&self.locks, piece)).await;
            placed = self.store.still_placed(piece, placed);
        }
        let ticket = claim.begin(&self.durable, piece);
        if self.extents.is_plain(piece, from, &placed) {
            self.write_plain(piece, from, placed.entry, &ticket).await
        } else {
            Box::pin(self.write_differing(piece, from, placed, ticket)).await
        }
    }

    /// Writes to the only copy. Nearly every write: one place of one device.
    #[inline]
    async fn write_plain(&self, piece: &Piece, from: &Buf, entry: Entry, ticket: &Ticket<'_>) -> Result<()> {
        let (member, start) = self.store.locate(entry.home);
        let at = start + piece.range.start;
        let _noted = self.durable.begin_disk_write(member.id, at, from.len(), Some(from)).await;
        let start = self.durable.confirm_before_write().await?;
        let attempt = self.durable.begin_at(start, member, Direction::Write, at, from.len(), Origin::Guest);
        let written = self.durable.end(&attempt, member.write(at, from, Deadline::Only).await);
        let written = written.map(|()| self.store.make_valid(piece, entry));
        self.guests.update_cache(piece, from, ticket.guard.mode(), &written);
        written
    }

    /// Writes a piece that needs more than one request to one device. After a failure, clean extra copies may
    /// differ from the home. The span counts as written until their removal is in the journal, and only then
    /// becomes clean.
    async fn write_differing(
        &self,
        piece: &Piece,
        from: &Buf,
        placed: Placed,
        ticket: Ticket<'_>,
    ) -> Result<()> {
        let guard = ticket.guard;
        let mode = guard.mode();
        let (result, _differing) = {
            let _turn = self.durable.turn_to_write(piece, mode).await;
            // Nothing waits between the next two calls: dirty blocks stay dirty, and clean blocks get an
            // intent.
            self.store
                .state
                .borrow_mut()
                .keep_dirty(self.store.shape.blocks_in(piece).map(|(block, _)| block));
            // A write-back in flight may reach the home after this write. Another write-back waits for the
            // turn.
            let was_only = guard.is_only();
            let is_only = || was_only && guard.is_only() || planted(Bug::PastDropsBesideOthers);
            match self.extents.begin_differing(piece).await {
                Ok(begun) => (self.write_further(piece, from, placed, is_only).await, begun),
                Err(error) => (Err(error), None),
            }
        };
        let are_all_written = matches!(result, Ok(Updated::All));
        let mut result = result.map(drop);
        self.guests.update_cache(piece, from, mode, &result);
        if !are_all_written && self.store.state.borrow().map.has_extras(piece.extent) {
            // Other holders of the shared lock may still read the extra copies. Reads that begin after this
            // write must not.
            let _guard = match mode {
                Mode::Exclusive => guard,
                Mode::Shared => {
                    drop(guard);
                    self.locks.exclusive(piece.extent).await
                }
            };
            self.store.drop_clean_extras(&self.policy, piece);
            self.guests.cache.borrow_mut().remove(piece.extent);
            if result.is_ok() {
                // A write to another part of the block may have made an extra copy dirty that missed this
                // write. The dirty copy hides the home, so this write goes to the dirty copy, too.
                result = self.extents.update_extras(piece, from).await.map(drop);
            }
        } else {
            drop(guard);
        }
        result
    }

    /// Asks the policy for the target of a write, under a lock in this mode. For an extent without a home,
    /// the allocation chooses the target.
    #[inline]
    fn place(&self, piece: &Piece, request: ByteRange, mode: Mode) -> Placed {
        let cached = mode == Mode::Exclusive && self.guests.cache.borrow().contains(piece.extent);
        let entry = self.store.state.borrow().map.get(piece.extent);
        if entry.home == SlotNumber::NONE {
            return Placed { entry, target: WriteTarget::Home, timing: Timing::Now, request };
        }
        let occasion = Occasion::Write(self.store.shape.shown(piece, request, cached));
        let (target, second) = self.extents.with_policy(|policy, view| {
            let placement = policy.place(&occasion, view);
            (placement.write_target(), placement.second)
        });
        Placed { entry, target: self.store.shape.enough(target), timing: Timing::of(second), request }
    }

    /// Writes to the target chosen by the policy.
    async fn write_further(
        &self,
        piece: &Piece,
        from: &Buf,
        Placed { entry, target, timing, request }: Placed,
        is_only: impl Fn() -> bool,
    ) -> Result<Updated> {
        if entry.partly_lost && self.store.shape.lost_edges(piece, entry.valid) {
            return Err(lost(&self.store.shape, piece.extent));
        }
        // Blocks of a lost part become valid only together with the whole part.
        let target = if entry.partly_lost { WriteTarget::Home } else { target };
        match target {
            WriteTarget::Home if entry.home == SlotNumber::NONE => self.write_new(piece, request, from).await,
            _ if entry.home == SlotNumber::LOST => {
                // The covered parts become valid.
                self.durable.begin_healing(piece, 0).await?;
                self.write_new(piece, request, from).await
            }
            WriteTarget::Home => self.write_home(piece, from, entry, timing).await,
            WriteTarget::HomeAlone => self.write_home_alone(piece, from, entry, timing, is_only).await,
            WriteTarget::NewHome(target) => match self.write_moved(piece, from, target).await? {
                Some(updated) => Ok(updated),
                None => self.write_home(piece, from, entry, timing).await,
            },
            WriteTarget::Extra(device) => match self.extents.write_extra(piece, from, device).await? {
                true => Ok(Updated::All),
                false => self.write_home(piece, from, entry, timing).await,
            },
        }
    }

    /// Writes to an extent for the first time, or for the first time since a discard. Allocates the required
    /// copies, and writes the required copies or an extra copy.
    async fn write_new(&self, piece: &Piece, request: ByteRange, from: &Buf) -> Result<Updated> {
        let (mut full, mut tries) = (None, self.store.devices.iter().count());
        loop {
            let allocated = self.extents.allocate(piece.extent, Some((piece, request))).await;
            // If no other place is left, the error is the full device.
            let Allocated { entry, target, second } =
                allocated.map_err(|error| full.take().unwrap_or(error))?;
            let was_lost = self.store.state.borrow().map.get(piece.extent).home == SlotNumber::LOST;
            let entry = Entry { partly_lost: was_lost && !self.store.shape.is_all_of(piece), ..entry };
            if let WriteTarget::Extra(device) = target
                && !was_lost
            {
                // While nothing is valid there, the home reads as zeros, as the extent did.
                self.store.state.borrow_mut().set_extent(piece.extent, entry);
                return match self.extents.write_extra(piece, from, device).await? {
                    true => Ok(Updated::All),
                    false => self.write_home(piece, from, entry, Timing::Now).await,
                };
            }
            let result = self.write_home(piece, from, entry, Timing::of(second)).await;
            let Err(error) = result else { return result };
            self.store.release(&entry);
            if tries == 0 || !self.extents.leave_full(entry.home, &error) {
                return Err(error);
            }
            tries -= 1;
            full = Some(error);
        }
    }

    /// Writes to the required copies, and to extra copies if there are any.
    async fn write_home(&self, piece: &Piece, from: &Buf, entry: Entry, timing: Timing) -> Result<Updated> {
        let written = self.write_required_copies(piece, from, entry, timing).await?;
        let updated = self.extents.update_extras(piece, from).await?;
        self.store.make_valid(piece, written);
        Ok(updated)
    }

    /// Writes to the required copies, and drops the extra copies of blocks covered whole. The copies stay,
    /// updated, if other tasks use the extent: readers may still use the copies. Waiting for such readers
    /// would bring the requests of a stream to the disk out of order.
    async fn write_home_alone(
        &self,
        piece: &Piece,
        from: &Buf,
        entry: Entry,
        timing: Timing,
        is_only: impl Fn() -> bool,
    ) -> Result<Updated> {
        if planted(Bug::PastDropsBeforeHome) {
            self.store.drop_covered_extras(&self.policy, piece);
        }
        let written = self.write_required_copies(piece, from, entry, timing).await?;
        // Before anything waits: a commit in between could record no copy with the bytes.
        self.store.make_valid(piece, written);
        if is_only() {
            self.store.drop_covered_extras(&self.policy, piece);
        }
        self.extents.update_extras(piece, from).await
    }

    async fn write_required_copies(
        &self,
        piece: &Piece,
        from: &Buf,
        entry: Entry,
        timing: Timing,
    ) -> Result<Entry> {
        // An epoch must also bring changes of extents with one copy.
        let _lacking = match entry.second {
            SlotNumber::NONE => self.extents.begin_image_change(piece).await?,
            _ => None,
        };
        self.extents.write_required(piece, entry, Some(from), Origin::Guest, timing).await
    }

    /// Writes a whole cached extent, updated by this piece, to a new home. `None` if the extent is not
    /// cached, the target has no room, or the extent has a second copy.
    async fn write_moved(&self, piece: &Piece, from: &Buf, target: DeviceId) -> Result<Option<Updated>> {
        if self.store.state.borrow().map.get(piece.extent).second != SlotNumber::NONE {
            return Ok(None);
        }
        let whole = {
            let cache = self.guests.cache.borrow();
            let Some(buf) = cache.whole(piece.extent) else { return Ok(None) };
            buf.copy_from(piece.range.start, from);
            buf.clone()
        };
        let taken = self.store.state.borrow_mut().take_for(piece.extent, target, Arrival::Moved);
        let Some(slot) = taken else { return Ok(None) };
        let all = Bytes::ZERO..self.store.shape.extent_size;
        let written = async {
            self.extents
                .write_slot(slot, &all, Some(&whole), self.store.shape.all_parts(), Origin::Guest)
                .await?;
            self.extents.update_extras(piece, from).await
        };
        let updated = written.await.inspect_err(|_| self.store.state.borrow_mut().release(slot))?;
        let mut state = self.store.state.borrow_mut();
        let before = state.map.get(piece.extent);
        state.set_extent(piece.extent, Entry { home: slot, valid: self.store.shape.all_parts(), ..before });
        state.retire(before.home);
        drop(state);
        let mut background = self.durable.background.borrow_mut();
        background.migrations += 1;
        background.migrations_from_memory += 1;
        background.migrated_bytes += self.store.shape.extent_size.0;
        Ok(Some(updated))
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// True if a write is one request to one device, directly from its buffer, with no other copy and no
    /// epoch to update.
    #[inline]
    fn is_plain(&self, piece: &Piece, from: &Buf, Placed { entry, target, .. }: &Placed) -> bool {
        let to_home = matches!(target, WriteTarget::Home | WriteTarget::HomeAlone);
        let only =
            entry.second == SlotNumber::NONE && !self.store.state.borrow().map.has_extras(piece.extent);
        let counts = || {
            let member = self.store.locate(entry.home).0;
            // One copy of two required copies: the device may have failed since.
            (self.store.shape.copies == 1 || member.is_current()) && member.can_use(from)
        };
        to_home
            && only
            && self.active_epochs().is_none()
            && self.store.changes_no_map(piece, entry)
            && counts()
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Makes writes that share the extent's lock take turns if they overlap in a sector. Writes that only
    /// share a block do not wait: waiting would bring the requests of a stream out of order.
    async fn turn_to_write(&self, piece: &Piece, mode: Mode) -> Option<RangeGuard> {
        if mode == Mode::Exclusive {
            return None;
        }
        let first = self.store.extra_sector(piece, piece.range.start);
        let last = self.store.extra_sector(piece, piece.range.end - Bytes(1));
        let sectors = piece.range.start.align_down(first)..piece.range.end.align_up(last);
        Some(self.guests.ranges.lock(piece.extent.0, sectors).await)
    }
}

impl<D: Device> Store<D> {
    /// True if a write changes only valid bytes, aligned for the devices.
    #[inline]
    pub(super) fn changes_no_map(&self, piece: &Piece, entry: &Entry) -> bool {
        if entry.home == SlotNumber::NONE || entry.home == SlotNumber::LOST {
            return false;
        }
        let edges = self.shape.parts_touched(&piece.range) & !self.shape.parts_covered(&piece.range);
        let state = self.state.borrow();
        let is_aligned = |slot: SlotNumber| {
            let device = state.space.locate(slot).expect("the map names slots that exist").device;
            let align = self.member(device).alignment;
            piece.range.start.is_aligned(align) && piece.range.end.is_aligned(align)
        };
        let second = entry.second == SlotNumber::NONE || is_aligned(entry.second);
        edges & !entry.valid == 0 && second && is_aligned(entry.home)
    }

    /// True if a write makes new copies. A new copy needs the exclusive lock, because the copy would hide
    /// bytes that other holders of a shared lock write to the home.
    #[inline]
    fn makes_extras(&self, piece: &Piece, placed: &Placed) -> bool {
        matches!(placed.target, WriteTarget::Extra(_) | WriteTarget::NewHome(_))
            && !self.has_all_extras(piece)
    }

    /// The placement after an exchange of locks, in which the extent may have changed.
    fn still_placed(&self, piece: &Piece, placed: Placed) -> Placed {
        let entry = self.state.borrow().map.get(piece.extent);
        let target = if entry.home == SlotNumber::NONE { WriteTarget::Home } else { placed.target };
        Placed { entry, target, ..placed }
    }

    /// Returns the sector size of the device with the extra copy of the block at `at`. Required copies do not
    /// count: a shared lock implies aligned writes for their devices.
    fn extra_sector(&self, piece: &Piece, at: Bytes) -> Bytes {
        let extra = self.state.borrow().extras.get(self.shape.block_of(piece.extent, at));
        extra.map_or(Bytes(1), |extra| self.locate(extra.slot).0.alignment)
    }

    /// True if every block touched by a piece has an extra copy.
    fn has_all_extras(&self, piece: &Piece) -> bool {
        let state = self.state.borrow();
        state.map.has_extras(piece.extent)
            && self.shape.blocks_in(piece).all(|(block, _)| state.extras.get(block).is_some())
    }
}
