//! The life of a read: split by extent, shared lock, one place of one device. `copies/read.rs` reads from
//! several copies.

use crate::Result;
use crate::copies::lost;
use crate::core::{Core, Durable, Extents};
use crate::devices::{Deadline, Member};
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use braid_base::{Bytes, DeviceId, Op};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_policy::{ByteRange, Direction, Occasion, Origin};
use braid_runtime::{Buf, Device, LockGuard, Mode, Runtime, join_all};

/// Changes beside a read.
struct Beside {
    /// Guests' changes of the extent so far; `None` if a change is in flight.
    changes: Option<u32>,
    /// Changes of device states so far.
    states: u64,
}

/// The policy's decision on a read.
#[derive(Clone, Copy)]
struct ReadDecision {
    /// Device for new extra copies, if any.
    admit: Option<DeviceId>,
    /// True if clean extra copies are not read.
    passes_clean: bool,
}

/// How to read a piece, decided without waiting.
enum Way<'a, D> {
    /// Already done: from memory, or zeros.
    Done,
    /// Already done, from bytes read ahead; extra copies are made on the device.
    Ahead(DeviceId),
    /// From one place of one device: nearly every read.
    Device(&'a Member<D>, Bytes),
    /// Into the memory cache, with the whole extent, and with extra copies if the policy wants them.
    Fetch(ReadDecision),
    /// From several places, or with extra copies made on a device.
    Further(ReadDecision),
    /// Lost: no copy was proved.
    Lost,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Fills `into` with the bytes at `offset`.
    pub async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        self.store.shape.check_range(offset, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        if self.guests.ahead.borrow().is_used() {
            self.memory.note_read(offset..offset + into.len());
        }
        let request = ByteRange::new(offset, into.len());
        if self.store.shape.is_one_piece(offset, into.len()) {
            self.read_one(offset, request, into).await
        } else {
            Box::pin(self.read_pieces(request, into)).await
        }
    }

    async fn read_pieces(&self, request: ByteRange, into: &Buf) -> Result<()> {
        let all = self.store.shape.pieces(request.start, into.len()).map(async |piece| {
            let start = self.store.shape.extent_size * u64::from(piece.extent.0) + piece.range.start;
            let part = into.slice(start - request.start..start - request.start + piece.len());
            self.read_one(start, request, &part).await
        });
        join_all(all).await.into_iter().collect()
    }

    #[inline]
    async fn read_one(&self, offset: Bytes, request: ByteRange, into: &Buf) -> Result<()> {
        let piece = &self.store.shape.one_piece(offset, into.len());
        if self.extents.must_decide(piece) && !planted(Bug::UndecidedRead) {
            Box::pin(self.upkeep.decide(piece, Op::Read)).await?;
        }
        let guard = match self.locks.try_lock(piece.extent, Mode::Shared) {
            Some(guard) => guard,
            None => self.locks.lock(piece.extent, Mode::Shared).await,
        };
        let coming = self.guests.ahead.borrow().coming(piece);
        if let Some(coming) = coming {
            Box::pin(coming.answer()).await;
        }
        match self.way_of(piece, request, into) {
            Way::Done => Ok(()),
            Way::Ahead(device) => {
                let beside = self.durable.beside(piece);
                drop(guard);
                self.extents.promote_read(piece, into, Some(device), beside);
                Ok(())
            }
            Way::Device(member, at) => {
                let attempt = self.durable.begin(member, Direction::Read, at, into.len(), Origin::Guest);
                self.durable.end(&attempt, member.read(at, into, Deadline::Only).await)?;
                // A flush may have failed meanwhile.
                let home = || self.store.state.borrow().map.get(piece.extent).home;
                if member.has_lost_writes() {
                    self.store.check_kept(piece.extent, home(), &piece.range)
                } else {
                    Ok(())
                }
            }
            Way::Fetch(ReadDecision { admit, passes_clean }) => {
                // Bytes to be cached must not change meanwhile: the lock must be exclusive.
                drop(guard);
                let guard = self.locks.exclusive(piece.extent).await;
                let beside = self.durable.beside(piece);
                self.memory.fetch(piece, into, passes_clean).await?;
                drop(guard);
                self.extents.promote_read(piece, into, admit, beside);
                Ok(())
            }
            Way::Further(decision) => {
                Box::pin(self.read_further(piece.clone(), into.clone(), guard, decision)).await
            }
            Way::Lost => Err(lost(&self.store.shape, piece.extent)),
        }
    }

    /// Tries the memory cache and the bytes read ahead, tells the policy, and finds the source of the bytes.
    #[inline]
    fn way_of(&self, piece: &Piece, request: ByteRange, into: &Buf) -> Way<'_, D> {
        let hit = self.guests.cache.borrow_mut().read(piece, into);
        let ahead = if hit { None } else { self.guests.ahead.borrow().read(piece, into) };
        let entry = self.store.state.borrow().map.get(piece.extent);
        let mapped = entry.home != SlotNumber::NONE;
        let shown = self.store.shape.shown(piece, request, hit);
        let occasion = if hit { Occasion::ReadHit(shown) } else { Occasion::ReadMiss(shown) };
        let placed = self.extents.with_policy(|policy, view| policy.place(&occasion, view));
        let decision = ReadDecision { admit: placed.promoted_to(), passes_clean: placed.passes_clean() };
        let admit = decision.admit;
        {
            let mut guests = self.guests.stats.borrow_mut();
            guests.cache_hits += u64::from(hit);
            guests.cache_misses += u64::from(!hit);
        }
        if hit {
            return Way::Done;
        }
        if let Some(request) = ahead {
            self.memory.pass_ahead(piece, &request);
            return admit.map_or(Way::Done, Way::Ahead);
        }
        if !mapped {
            self.guests.stats.borrow_mut().unwritten += 1;
            into.fill_zero();
            return Way::Done;
        }
        if entry.home == SlotNumber::LOST {
            return Way::Lost;
        }
        if self.store.shape.is_whole(piece.extent)
            && !entry.partly_lost
            && self.guests.cache.borrow_mut().wants(piece.extent)
            && !self.store.is_held_up(&self.store.shape.whole_extent(piece.extent))
        {
            return Way::Fetch(decision);
        }
        match self.extents.only_place(piece, &entry) {
            Some((member, at)) if admit.is_none() && member.can_use(into) => Way::Device(member, at),
            _ => Way::Further(decision),
        }
    }

    async fn read_further(
        &self,
        piece: Piece,
        into: Buf,
        guard: LockGuard,
        ReadDecision { admit, passes_clean }: ReadDecision,
    ) -> Result<()> {
        let beside = self.durable.beside(&piece);
        // A read must not return a write that only one copy has: a later read could return older bytes.
        self.guests.ranges.wait(piece.extent.0, &piece.range).await;
        self.extents.read_copies_by(&piece, &into, passes_clean, Origin::Guest, Deadline::Only).await?;
        drop(guard);
        self.extents.promote_read(&piece, &into, admit, beside);
        Ok(())
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Returns the single place of a piece. `None` if the extent has other copies, the piece has invalid
    /// parts or changes not yet applied, the request is unaligned for the device, or the device has lost
    /// writes.
    #[inline]
    pub(super) fn only_place(&self, piece: &Piece, entry: &Entry) -> Option<(&Member<D>, Bytes)> {
        let state = self.store.state.borrow();
        let parts = self.store.shape.parts_touched(&piece.range);
        let only = entry.second == SlotNumber::NONE && !state.map.has_extras(piece.extent);
        if !only
            || self.is_unapplied(piece.extent)
            || entry.home == SlotNumber::NONE
            || entry.valid & parts != parts
        {
            return None;
        }
        let slot = state.space.locate(entry.home).expect("the map names slots that exist");
        let member = self.store.member(slot.device);
        let at = member.slot_offset(slot.index, self.store.shape.extent_size) + piece.range.start;
        let is_readable = !member.has_lost_writes()
            && at.is_aligned(member.alignment)
            && piece.len().is_aligned(member.alignment);
        is_readable.then_some((member, at))
    }

    /// Starts a task that makes extra copies of the bytes just read, if the policy named a device.
    fn promote_read(&self, piece: &Piece, read: &Buf, device: Option<DeviceId>, beside: Beside) {
        let Beside { changes: Some(changes), states } = beside else { return };
        let Some(device) = device else { return };
        // A task that cannot succeed would only hold its lock against other tasks.
        if !self.guests.changing.is_as_read(piece.extent, changes)
            || self.jobs.are_ending()
            || self.store.member(device).holds_up()
        {
            return;
        }
        // If memory is short, the extra copy waits for another read.
        let Some(copy) = self.buffers.to_copy.try_alloc(read.len()) else { return };
        copy.copy_from(Bytes::ZERO, read);
        let (extents, piece) = (self.own.handle(), piece.clone());
        self.jobs.begin();
        self.rt.spawn(async move {
            if let Some(guard) = extents.durable.lock_briefly(piece.extent, Deadline::WARMTH).await
                && extents.guests.changing.is_as_read(piece.extent, changes)
            {
                extents.promote(piece, copy, device, states, guard).await;
            }
            extents.jobs.end();
        });
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Returns the counts that must stay the same from before a read until its bytes are copied. The caller
    /// holds the extent's lock.
    fn beside(&self, piece: &Piece) -> Beside {
        Beside { changes: self.guests.changing.settled(piece.extent), states: self.store.devices.changes() }
    }
}
