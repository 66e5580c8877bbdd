//! Admission of a guest's request: all waits and marks before a device hears of the request, in this order.
//! A value gives back what it holds when dropped.
//!
//! | step | of | waits for | held by |
//! |---|---|---|---|
//! | gate | a request | nothing: refused while the volume closes | [`AdmittedRequest`] |
//! | delay | a request | the policy | |
//! | change of an epoch | a change | the bound on the lag of the image | `AdmittedChange` |
//! | applied | a piece | journaled bytes of a recovered disk | |
//! | decided | a piece | equal copies, after a crash | |
//! | journal room | a piece | a commit | [`PieceClaim`] |
//! | extent | a piece | other users of the extent | [`PieceClaim`] |
//! | mark | a piece | nothing: bytes read beside the change no longer count | [`Ticket`] |
//!
//! A write is placed between claim and ticket: the policy chooses the target under the lock.
//!
//! A step that need not wait is no future: with `admit`, `is_settled` and `try_claim_to_write`, the volume
//! alone of `simulate-speed` takes a tenth less than with the same steps as futures.

use super::changing::ChangeMark;
use super::gate::Inside;
use crate::Result;
use crate::core::{Core, Durable, ExtentLocks, Extents, Store, Upkeep};
use crate::epochs::Whole;
use crate::journal::Reservation;
use crate::shape::Piece;
use braid_base::{Bytes, Nanos, Op};
use braid_policy::Flags;
use braid_runtime::{Device, LockGuard, Mode, Runtime};

/// A guest's request in the volume.
pub(crate) struct AdmittedRequest<'a> {
    /// `None` for a read: reads are answered until the end.
    _inside: Option<Inside<'a>>,
    /// Arrival.
    pub start: Nanos,
    delay: Nanos,
}

/// Journal room and lock of a piece about to change.
pub(super) struct PieceClaim<'a> {
    // The lock is dropped first.
    guard: LockGuard,
    room: Reservation<'a>,
}

/// A change of a piece under way.
pub(super) struct Ticket<'a> {
    // The mark is dropped first, under the lock, and the room last.
    _mark: ChangeMark<'a>,
    pub guard: LockGuard,
    _room: Reservation<'a>,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Admits a request, which then waits for [`Core::delay`].
    ///
    /// # Errors
    /// `Io` while the volume closes, except for a read.
    #[inline]
    pub fn admit(&self, op: Op, offset: Bytes, len: Bytes, flags: Flags) -> Result<AdmittedRequest<'_>> {
        let inside = if op == Op::Read { None } else { Some(self.guests.gate.enter()?) };
        let start = self.rt.now();
        let delay = if self.policy.observes() {
            self.extents.arrived(op, offset, len, flags, start)
        } else {
            Nanos::ZERO
        };
        Ok(AdmittedRequest { _inside: inside, start, delay })
    }

    /// The delay that the policy asks for, if any.
    #[inline]
    pub fn delay(&self, admitted: &AdmittedRequest) -> Option<impl Future<Output = ()> + use<R, D>> {
        if admitted.delay == Nanos::ZERO { None } else { Some(Box::pin(self.rt.sleep(admitted.delay))) }
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// False if a piece may not change yet after a recovery: see [`Upkeep::wait_until_settled`].
    #[inline]
    pub(super) fn is_settled(&self, piece: &Piece) -> bool {
        !self.is_unapplied(piece.extent) && !self.store.is_undecided(piece)
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Waits until a piece may change after a recovery: until no journaled bytes will be applied to its
    /// extent, and, if `keeps_bytes`, until its copies are equal. `whole` gives the bytes of a change that
    /// replaces the extent. The caller holds no lock.
    pub(super) async fn wait_until_settled(
        &self,
        piece: &Piece,
        op: Op,
        keeps_bytes: impl FnOnce() -> bool,
        whole: impl FnOnce() -> Whole,
    ) -> Result<()> {
        if self.extents.is_unapplied(piece.extent) {
            let whole = (piece.len() == self.store.shape.extent_size).then(whole);
            self.extents.wait_until_applied(piece.extent, whole).await?;
        }
        if self.store.is_undecided(piece) && keeps_bytes() {
            self.decide(piece, op).await?;
        }
        Ok(())
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Claims a piece for any change: room in the journal, then the lock of the extent, exclusive. A change
    /// without room waits for a commit, so the caller holds no lock.
    pub(super) async fn claim(&self, piece: &Piece) -> Result<PieceClaim<'_>> {
        let room = self.reserve(self.store.most_records(piece)).await?;
        let guard = self.locks.exclusive(piece.extent).await;
        Ok(PieceClaim { guard, room })
    }

    /// Claims a piece for a write, as [`Durable::claim_to_write`], if room and lock are free.
    #[inline]
    pub(super) fn try_claim_to_write(&self, piece: &Piece) -> Option<PieceClaim<'_>> {
        let room = self.journal.try_reserve(&self.store, self.store.most_records(piece))?;
        let guard = self.locks.try_lock(piece.extent, self.mode_to_write(piece))?;
        Some(PieceClaim { guard, room })
    }

    /// Claims a piece for a write, as [`Durable::claim`]: the lock is exclusive if the write changes the map,
    /// else shared.
    pub(super) async fn claim_to_write(&self, piece: &Piece) -> Result<PieceClaim<'_>> {
        let room = self.reserve(self.store.most_records(piece)).await?;
        let mode = self.mode_to_write(piece);
        let claim = PieceClaim { guard: self.locks.lock(piece.extent, mode).await, room };
        // Meanwhile the extent may have entered the memory cache or lost its home.
        if mode == Mode::Shared && self.mode_to_write(piece) == Mode::Exclusive {
            return Ok(claim.exclusive(&self.locks, piece).await);
        }
        Ok(claim)
    }

    /// Mode of the lock that a write needs.
    #[inline]
    fn mode_to_write(&self, piece: &Piece) -> Mode {
        let entry = self.store.state.borrow().map.get(piece.extent);
        let shared =
            self.store.changes_no_map(piece, &entry) && !self.guests.cache.borrow().contains(piece.extent);
        if shared { Mode::Shared } else { Mode::Exclusive }
    }
}

impl<'a> PieceClaim<'a> {
    /// Mode of the lock.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.guard.mode()
    }

    /// True if the room suffices for a change of the piece as the piece is under the lock.
    pub fn suffices<D: Device>(&self, store: &Store<D>, piece: &Piece) -> bool {
        store.most_records(piece) <= self.room.records()
    }

    /// Exchanges the lock for an exclusive lock. The extent may change in between.
    pub async fn exclusive(self, locks: &ExtentLocks, piece: &Piece) -> PieceClaim<'a> {
        drop(self.guard);
        let guard = locks.exclusive(piece.extent).await;
        PieceClaim { guard, ..self }
    }

    /// Begins the change, before the first byte: bytes read ahead are dropped, and copies under way learn of
    /// the change.
    #[inline]
    pub fn begin<R: Runtime, D: Device>(self, durable: &'a Durable<R, D>, piece: &Piece) -> Ticket<'a> {
        let mark = durable.guests.mark_change(piece);
        durable.store.state.borrow_mut().disturb(piece.extent);
        Ticket { _mark: mark, guard: self.guard, _room: self.room }
    }
}
