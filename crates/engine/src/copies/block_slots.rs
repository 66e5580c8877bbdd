//! Block slots for extra copies: taken where they are free, and free before they are needed.
//!
//! A block slot that a clean extra copy has left is used for another block only once the journal says that it
//! left: after a crash the table must not name a block for a place that holds another one. So a few clean
//! copies go ahead of need, and a batch says so before the free block slots run out. A block that finds none
//! all the same stays without an extra copy; no guest waits for one.

use crate::Result;
use crate::core::Core;
use crate::journal::Reservation;
use crate::shape::Piece;
use braid_base::{DeviceId, ExtentId, Nanos};
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_policy::Origin;
use braid_runtime::{Device, LockGuard, Mode, Runtime, yield_now};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

/// One part in so many of a cache's block slots holds no block.
const SPARE_SHARE: usize = 16;
/// In a small cache so many are, but no more than a quarter.
const LEAST_SPARE: usize = 16;
/// How long nothing is committed for block slots after all devices were flushed for them.
const REST: Nanos = Nanos::from_millis(100);
/// Extra copies that a search passes over before it lets others run.
const EXTRAS_IN_A_ROW: u32 = 4096;
/// Clean copies that go for one that comes, until as many block slots are spare as should be.
const EVICTED_AT_ONCE: usize = 2;

/// What the extra copies of a volume share.
#[derive(Default)]
pub(crate) struct BlockSlots {
    /// Free block slots run out, or the journal has no room for changes of clean copies: a batch is wanted.
    runs_out: Cell<bool>,
    /// Extra copies lie on a device that has been given up.
    any_lost: Cell<bool>,
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Up to `wanted` free block slots of a device that lie side by side: of the divided slots, or of another
    /// one as far as the policy allows. The caller holds the lock of the piece's extent, exclusive. The extra
    /// copies of the piece itself stay.
    pub(super) fn take_blocks(
        &self,
        device: DeviceId,
        piece: &Piece,
        wanted: usize,
    ) -> Option<(SlotNumber, Range<u16>)> {
        // The closing commit has been or is about to be: nothing would record what comes now.
        if self.jobs.are_ending() || !self.member(device).is_filled() || self.excess_slots(device) > 0 {
            return None;
        }
        let (taken, is_full) = {
            let mut state = self.state.borrow_mut();
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
            self.background.borrow_mut().promotions_skipped += 1;
        }
        taken
    }

    /// Gives back a block slot that was taken and is not used.
    pub(super) fn release_block(&self, slot: SlotNumber, place: u16) {
        self.state.borrow_mut().release_block(Extra { slot, place, dirty: false });
    }

    /// Room in the journal for changes of so many clean extra copies. At most half of what fits: guests'
    /// writes need the rest.
    pub(super) fn reserve_for_clean(&self, copies: usize) -> Option<Reservation<'_>> {
        let crowded = self.state.borrow().pending() * 2 > self.journal.most_pending();
        let room = if crowded { None } else { self.try_reserve(copies) };
        if room.is_none() {
            self.want_block_slots();
        }
        room
    }

    /// Gives up clean extra copies on a device in which block slots run out, for so many that have come.
    fn evict_ahead(&self, device: DeviceId, piece: &Piece, came: usize) {
        let wanted = self.wanted_spare(device);
        for _ in 0..came * EVICTED_AT_ONCE {
            let (_, spare) = self.state.borrow().extras.spare(device);
            if spare >= wanted || !self.evict(device, piece) {
                break;
            }
        }
        if self.lacks_block_slots(device) {
            self.want_block_slots();
        }
    }

    /// How many block slots of a device should hold no block.
    fn wanted_spare(&self, device: DeviceId) -> usize {
        let slots = self.state.borrow().extras.divided(device) as usize;
        let blocks = slots * (self.shape.extent_size / self.shape.block_size) as usize;
        let least = LEAST_SPARE.min(blocks / 4).max(1);
        (blocks / SPARE_SHARE).clamp(least, (self.journal.most_pending() / 4).max(least))
    }

    /// Whether less than half of the block slots that should be free are, and others wait for a batch.
    fn lacks_block_slots(&self, device: DeviceId) -> bool {
        let (free, spare) = self.state.borrow().extras.spare(device);
        free * 2 < self.wanted_spare(device).min(spare)
    }

    /// Gives up the clean extra copy that the policy names. False if it names none, or that cannot go now.
    fn evict(&self, device: DeviceId, piece: &Piece) -> bool {
        let Some(_room) = self.reserve_for_clean(1) else { return false };
        let Some(victim) = self.with_policy(|policy, view| policy.evict(device, view)) else { return false };
        let extent = self.shape.range_of(victim).extent;
        if self.blocks_of(piece).any(|(block, _)| block == victim) {
            return false;
        }
        // A task may be reading the victim: then it stays.
        let guard = match extent == piece.extent {
            true => None,
            false => match self.locks.try_lock(Self::lock_number(extent), Mode::Exclusive) {
                Some(guard) => Some(guard),
                None => return false,
            },
        };
        if self.state.borrow().extras.get(victim).is_none_or(|e| e.dirty) {
            return false;
        }
        self.drop_extra(victim);
        drop(guard);
        true
    }

    fn want_block_slots(&self) {
        if !self.block_slots.runs_out.replace(true) {
            self.jobs.wake();
        }
    }

    /// Has what lies on a device that has just been given up forgotten.
    pub(super) fn forget_lost_extras(&self) {
        self.block_slots.any_lost.set(true);
        self.jobs.wake();
    }

    /// Has the journal say what has left its block slots, when these run out.
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
            // A failure is remembered, and told to every flush from now on: nothing is ever free again then.
            if self.block_slots.any_lost.take() && self.drop_lost_extras().await.is_err() {
                return;
            }
            if self.block_slots.runs_out.take() && self.free_block_slots().await.is_err() {
                return;
            }
        }
    }

    /// Drops the extra copies on devices that were given up, which are clean. The policy learns of it.
    async fn drop_lost_extras(&self) -> Result<()> {
        let is_lost = |extra: &Extra| !self.locate(extra.slot).0.is_current();
        let (mut from, mut passed) = (0, 0);
        loop {
            let next = self.state.borrow().extras.next(from);
            let Some((after, block, extra)) = next else { return Ok(()) };
            (from, passed) = (after, passed + 1);
            if passed % EXTRAS_IN_A_ROW == 0 {
                yield_now().await;
            }
            if self.jobs.are_ending() {
                return Ok(());
            }
            if !is_lost(&extra) {
                continue;
            }
            let _room = self.reserve(1).await?;
            let extent = self.shape.range_of(block).extent;
            let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
            let known = self.state.borrow().extras.get(block);
            if known.is_some_and(|known| !known.dirty && is_lost(&known)) {
                self.drop_extra(block);
            }
        }
    }

    async fn free_block_slots(&self) -> Result<()> {
        if self.state.borrow().pending() * 2 > self.journal.most_pending() {
            return self.commit(Origin::Background).await;
        }
        // Others may have asked while the last batch was written.
        let lacks = || self.devices.iter().any(|member| self.lacks_block_slots(member.id));
        if !lacks() || self.record_left().await? {
            return Ok(());
        }
        // What was dirty leaves with a batch that speaks of data: all devices are flushed for that, so not
        // again and again.
        if lacks() && self.state.borrow().freeing_blocks() > 0 {
            self.commit(Origin::Background).await?;
            self.pause(self.rt.now() + REST, || false).await;
        }
        Ok(())
    }

    /// Gives up clean extra copies of one extent slot, on a device that `may`: it is free once that is
    /// durable. False if there are none that can go now.
    pub fn reclaim_extras(&self, may: impl Fn(DeviceId) -> bool) -> bool {
        let mut group = 0;
        loop {
            let candidate = self.state.borrow().extras.next_clean_slot(group);
            let Some((next, slot, mut blocks)) = candidate else { return false };
            group = next;
            if blocks.is_empty() || !may(self.device_of(slot)) {
                continue;
            }
            // If the journal has no room for all of them, the others follow after the next commit.
            blocks.truncate((self.journal.most_pending() / 2).max(1));
            let Some(_room) = self.try_reserve(blocks.len()) else { return false };
            let extents: BTreeSet<ExtentId> = blocks.iter().map(|&b| self.shape.range_of(b).extent).collect();
            let locked = extents.iter().map(|&e| self.locks.try_lock(Self::lock_number(e), Mode::Exclusive));
            let guards: Vec<Option<LockGuard>> = locked.collect();
            if guards.iter().all(Option::is_some) {
                blocks.into_iter().for_each(|block| self.drop_extra(block));
                return true;
            }
        }
    }
}
