//! Block slots for extra copies: allocation, and eviction ahead of need.
//!
//! A block slot that a clean extra copy has left is reused only after the journal has recorded the departure.
//! Otherwise, after a crash, the cache table would name a block for a place with another block's bytes.
//! Therefore a few clean copies are evicted ahead of need, and a batch records the evictions before the free
//! block slots run out. A block without a free slot stays uncached; no guest waits for a block slot.

use crate::Result;
use crate::copier::IN_A_ROW;
use crate::core::{BlockSlots, Durable, Extents, Store};
use crate::journal::Reservation;
use crate::shape::Piece;
use braid_base::{DeviceId, ExtentId, Nanos};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::Origin;
use braid_runtime::{Device, LockGuard, Runtime, yield_now};
use std::collections::BTreeSet;
use std::ops::Range;

/// One in so many block slots of a cache is kept without a block.
const SPARE_SHARE: usize = 16;
/// Lower bound for [`SPARE_SHARE`] in a small cache, but at most a quarter of the block slots.
const LEAST_SPARE: usize = 16;
/// Pause after a commit for block slots: the commit flushes all devices.
const REST: Nanos = Nanos::from_millis(100);
/// Clean copies evicted for each new copy, until enough block slots are spare.
const EVICTED_AT_ONCE: usize = 2;

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Takes up to `wanted` adjacent free block slots of a device: from divided slots, or from a newly
    /// divided slot if the policy allows another slot.
    ///
    /// The caller holds the exclusive lock of the piece's extent. Extra copies of the piece are never evicted
    /// here.
    pub(super) fn take_blocks(
        &self,
        device: DeviceId,
        piece: &Piece,
        wanted: usize,
    ) -> Option<(SlotNumber, Range<u16>)> {
        // During a shutdown no later commit would record the new copy.
        if self.jobs.are_ending()
            || !self.store.member(device).is_filled()
            || self.store.excess_slots(&self.policy, device) > 0
        {
            return None;
        }
        // Divided slots of the window must become empty.
        if self.store.state.borrow().window_device() == Some(device) {
            return None;
        }
        let (taken, is_full) = {
            let mut state = self.store.state.borrow_mut();
            let allowed = self.policy.borrow().extra_slots(&state.views[device.index()]);
            let taken = state.take_blocks(device, wanted, allowed);
            let cannot_grow =
                state.extras.divided(device) >= allowed || state.views[device.index()].free == 0;
            let is_full = taken.is_none() || cannot_grow;
            (taken, is_full)
        };
        if is_full {
            self.evict_ahead(device, piece, taken.as_ref().map_or(1, |(_, places)| places.len()));
        }
        if taken.is_none() {
            self.durable.background.borrow_mut().promotions_skipped += 1;
        }
        taken
    }

    /// Evicts clean extra copies on a device with too few spare block slots, after `came` new copies.
    fn evict_ahead(&self, device: DeviceId, piece: &Piece, came: usize) {
        let wanted = self.durable.wanted_spare(device);
        for _ in 0..came * EVICTED_AT_ONCE {
            let (_, spare) = self.store.state.borrow().extras.spare(device);
            if spare >= wanted || !self.evict(device, piece) {
                break;
            }
        }
        if self.durable.lacks_block_slots(device) {
            self.durable.want_block_slots();
        }
    }

    /// Evicts the clean extra copy chosen by the policy. Returns false if the policy chooses none, or if the
    /// copy cannot be evicted now.
    fn evict(&self, device: DeviceId, piece: &Piece) -> bool {
        let Some(_room) = self.durable.reserve_for_clean(1) else { return false };
        let Some(victim) = self.with_policy(|policy, view| policy.evict(device, view)) else { return false };
        let extent = self.store.shape.range_of(victim).extent;
        if self.store.shape.blocks_in(piece).any(|(block, _)| block == victim) {
            return false;
        }
        // A task may be reading the victim: without the lock the copy stays.
        let guard = match extent == piece.extent {
            true => None,
            false => match self.locks.try_exclusive(extent) {
                Some(guard) => Some(guard),
                None => return false,
            },
        };
        if self.store.state.borrow().extras.get(victim).is_none_or(|e| e.dirty) {
            return false;
        }
        self.store.drop_extra(&self.policy, victim);
        drop(guard);
        true
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Reserves journal room for changes of `copies` clean extra copies. Clean copies use at most half of the
    /// journal's room: guests' writes need the rest. Without room, a batch is requested.
    pub(super) fn reserve_for_clean(&self, copies: usize) -> Option<Reservation<'_>> {
        let crowded = self.store.state.borrow().pending() * 2 > self.journal.most_pending();
        let room = if crowded { None } else { self.journal.try_reserve(&self.store, copies) };
        if room.is_none() {
            self.want_block_slots();
        }
        room
    }

    fn want_block_slots(&self) {
        if !self.block_slots.runs_out.replace(true) {
            self.jobs.wake();
        }
    }

    /// Schedules the removal of extra copies on a device that was just excluded.
    pub(super) fn forget_lost_extras(&self) {
        self.block_slots.any_lost.set(true);
        self.jobs.wake();
    }

    /// Background task: commits evictions when free block slots run out, and drops extra copies on excluded
    /// devices.
    pub async fn keep_block_slots_free(&self) {
        loop {
            let due = || {
                let BlockSlots { runs_out, any_lost } = &self.block_slots;
                self.jobs.are_ending() || runs_out.get() || any_lost.get()
            };
            self.jobs.wait_for(|| due().then_some(())).await;
            if self.jobs.are_ending() {
                return;
            }
            // The journal remembers a failure and fails every later flush. After a failure no block slot is
            // ever freed.
            if self.block_slots.any_lost.take() && self.drop_lost_extras().await.is_err() {
                return;
            }
            if self.block_slots.runs_out.take() && self.free_block_slots().await.is_err() {
                return;
            }
        }
    }

    /// Drops the clean extra copies on excluded devices, and tells the policy.
    async fn drop_lost_extras(&self) -> Result<()> {
        let is_lost = |extra: &Extra| !self.store.locate(extra.slot).0.is_current();
        let (mut from, mut passed) = (0, 0u32);
        loop {
            let next = self.store.state.borrow().extras.next(from);
            let Some((after, block, extra)) = next else { return Ok(()) };
            (from, passed) = (after, passed + 1);
            if passed.is_multiple_of(IN_A_ROW) {
                yield_now().await;
            }
            if self.jobs.are_ending() {
                return Ok(());
            }
            if !is_lost(&extra) {
                continue;
            }
            let _room = self.reserve(1).await?;
            let extent = self.store.shape.range_of(block).extent;
            let _guard = self.locks.exclusive(extent).await;
            let known = self.store.state.borrow().extras.get(block);
            if known.is_some_and(|known| !known.dirty && is_lost(&known)) {
                self.store.drop_extra(&self.policy, block);
            }
        }
    }

    async fn free_block_slots(&self) -> Result<()> {
        if self.store.state.borrow().pending() * 2 > self.journal.most_pending() {
            return self.commit(Origin::Background).await;
        }
        // The last batch may have freed block slots for other requests.
        let lacks = || self.store.devices.iter().any(|member| self.lacks_block_slots(member.id));
        if !lacks() || self.record_left().await? {
            return Ok(());
        }
        // Block slots of formerly dirty copies are freed only by a commit with a flush of all devices, so
        // such commits are kept apart.
        if lacks() && self.store.state.borrow().freeing_blocks() > 0 {
            self.commit(Origin::Background).await?;
            self.pause(self.rt.now() + REST, || false).await;
        }
        Ok(())
    }

    /// Drops all clean extra copies in one extent slot of an allowed device. The extent slot is free once the
    /// drop is durable. Returns false if no slot can be emptied now.
    pub fn reclaim_extras(&self, may: impl Fn(DeviceId) -> bool) -> bool {
        let mut group = 0;
        loop {
            let candidate = self.store.state.borrow().extras.next_clean_slot(group);
            let Some((next, slot, mut blocks)) = candidate else { return false };
            group = next;
            if blocks.is_empty() || !may(self.store.device_of(slot)) {
                continue;
            }
            // If the journal has no room for all of the blocks, the rest follows after the next commit.
            blocks.truncate((self.journal.most_pending() / 2).max(1));
            let Some(_room) = self.journal.try_reserve(&self.store, blocks.len()) else { return false };
            let extents: BTreeSet<ExtentId> =
                blocks.iter().map(|&b| self.store.shape.range_of(b).extent).collect();
            let locked = extents.iter().map(|&e| self.locks.try_exclusive(e));
            let guards: Vec<Option<LockGuard>> = locked.collect();
            if guards.iter().all(Option::is_some) {
                blocks.into_iter().for_each(|block| self.store.drop_extra(&self.policy, block));
                return true;
            }
        }
    }

    /// Block slots of a device that should hold no block.
    fn wanted_spare(&self, device: DeviceId) -> usize {
        let slots = self.store.state.borrow().extras.divided(device) as usize;
        let blocks = slots * (self.store.shape.extent_size / self.store.shape.block_size) as usize;
        let least = LEAST_SPARE.min(blocks / 4).max(1);
        (blocks / SPARE_SHARE).clamp(least, (self.journal.most_pending() / 4).max(least))
    }

    /// True if fewer than half of the wanted block slots are free, and others wait for a batch.
    fn lacks_block_slots(&self, device: DeviceId) -> bool {
        let (free, spare) = self.store.state.borrow().extras.spare(device);
        free * 2 < self.wanted_spare(device).min(spare)
    }
}

impl<D: Device> Store<D> {
    /// Frees a block slot that was taken but is not used.
    pub(super) fn release_block(&self, slot: SlotNumber, place: u16) {
        self.state.borrow_mut().release_block(Extra { slot, place, dirty: false });
    }
}
