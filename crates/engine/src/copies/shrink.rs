//! Shrinking of caches beyond the size that a new policy allows: whole extent slots are emptied until the
//! cache is small enough.
//!
//! Slots without dirty blocks go first: dropping clean blocks costs no request, so a gigabyte goes in a
//! second or two. If more slots must go, dirty blocks are written back in order of address, many slots at
//! once. The choice of slots ignores how often blocks are used: blocks of all ages lie side by side, and
//! blocks in use soon return.
//!
//! The cache takes no new blocks meanwhile ([`Extents::take_blocks`]): otherwise the slots would never be
//! empty.

use crate::Result;
use crate::copier::Mover;
use crate::core::{InCharge, Store, Upkeep};
use crate::planted::{Bug, planted};
use braid_base::{BlockId, DeviceId, Nanos};
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};

/// Extent slots emptied together: some thousand blocks at the usual size.
const TOGETHER: usize = 128;
/// Pause for blocks that were in flight to a slot while the slot was emptied.
const REST: Nanos = Nanos::from_millis(100);

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Starts a task that drops extra copies until no more slots hold extra copies than the policy allows.
    pub fn shrink_beyond_room(&self) {
        let (state, policy) = (self.store.state.borrow(), self.policy.borrow());
        if state.views.iter().any(|view| state.extras.divided(view.id) > policy.extra_slots(view)) {
            let upkeep = self.own.handle();
            self.jobs.begin();
            self.rt.spawn(async move {
                upkeep.shrink_caches().await;
                upkeep.jobs.end();
            });
        }
    }

    /// Shrinks all caches to the active policy's limits, until the policy changes or the volume closes.
    pub async fn shrink_caches(&self) {
        let changes = self.policy.changes();
        let is_over = || self.jobs.are_ending() || self.policy.changes() != changes;
        for device in self.store.devices.iter().map(|member| member.id).collect::<Vec<_>>() {
            while !is_over() && self.store.excess_slots(&self.policy, device) > 0 {
                // A block that cannot be written back stays dirty in its place, and reads find the block
                // there.
                if self.give_up_slots(device, &is_over).await.is_err() {
                    return;
                }
                if self.store.excess_slots(&self.policy, device) > 0 {
                    self.durable.pause(self.rt.now() + REST, is_over).await;
                }
            }
        }
    }

    /// Empties the surplus extent slots of a cache and commits.
    async fn give_up_slots(&self, device: DeviceId, is_over: &impl Fn() -> bool) -> Result<()> {
        let mut left = self.store.excess_slots(&self.policy, device) as usize;
        for with_dirty in [false, true] {
            let mut group = 0;
            while left > 0 && !is_over() {
                let most = left.min(TOGETHER);
                let found = self.store.state.borrow().extras.slots_of(device, group, most, with_dirty);
                let Some((next, slots, mut blocks)) = found else { break };
                (group, left) = (next, left - slots);
                blocks.sort_unstable();
                self.drop_blocks(&blocks).await?;
            }
        }
        self.durable.commit(Origin::Background).await
    }

    async fn drop_blocks(&self, blocks: &[BlockId]) -> Result<()> {
        if planted(Bug::ShrinkingDropsDirty) {
            for &block in blocks {
                let _room = self.durable.reserve(1).await?;
                let extent = self.store.shape.range_of(block).extent;
                let _guard = self.locks.exclusive(extent).await;
                self.store.drop_extra(&self.policy, block);
            }
            return Ok(());
        }
        let demote = async |blocks: &[BlockId]| self.demote(blocks, Mover::Engine).await;
        self.in_order(blocks, Mover::Engine, demote).await.map(|_| ())
    }
}

impl<D: Device> Store<D> {
    /// Number of extent slots with extra copies beyond the policy's limit.
    pub(super) fn excess_slots(&self, policy: &InCharge, device: DeviceId) -> u32 {
        let state = self.state.borrow();
        let allowed = policy.borrow().extra_slots(&state.views[device.index()]);
        state.extras.divided(device).saturating_sub(allowed)
    }
}
