//! Caches that are larger than the policy in charge allows, since it has taken charge with another split or
//! without any cache: they give up extent slots, whole ones, until they are as small as that.
//!
//! Slots in which nothing is dirty come first, for these cost no request to a device: a gigabyte of clean
//! blocks goes in a second or two. Where that is not enough, dirty blocks are written back in the order of
//! their addresses, many slots together. Which slots go does not depend on how often their blocks are used:
//! blocks of all ages lie side by side. What is used soon comes back.
//!
//! No block comes to such a cache meanwhile ([`Core::take_blocks`]), or the slots would never be empty.

use crate::Result;
use crate::core::Core;
use crate::moves::Mover;
use crate::planted::{Bug, planted};
use braid_base::{BlockId, DeviceId, Nanos};
use braid_policy::Origin;
use braid_runtime::{Device, Mode, Runtime};
use std::rc::Rc;

/// Extent slots that are given up together: of the usual size, some thousand blocks.
const TOGETHER: usize = 128;
/// How long it waits for blocks that were on their way to a slot when that was emptied.
const REST: Nanos = Nanos::from_millis(100);

impl<R: Runtime, D: Device> Core<R, D> {
    /// How many extent slots of a device hold extra copies beyond what the policy allows.
    pub(super) fn excess_slots(&self, device: DeviceId) -> u32 {
        let state = self.state.borrow();
        let allowed = self.policy.borrow().extra_slots(&state.views[device.index()]);
        state.extras.divided(device).saturating_sub(allowed)
    }

    /// Makes all caches as small as the policy wants them, as long as it is in charge.
    pub async fn shrink_caches(self: &Rc<Self>) {
        let changes = self.policy.changes();
        let is_over = || self.jobs.are_ending() || self.policy.changes() != changes;
        for device in self.devices.iter().map(|member| member.id).collect::<Vec<_>>() {
            while !is_over() && self.excess_slots(device) > 0 {
                // A block that cannot be written back stays as it is, and is read from where it is.
                if self.give_up_slots(device, &is_over).await.is_err() {
                    return;
                }
                if self.excess_slots(device) > 0 {
                    self.pause(self.rt.now() + REST, is_over).await;
                }
            }
        }
    }

    /// Gives up as many extent slots of a cache as are too many, and has the journal say so.
    async fn give_up_slots(self: &Rc<Self>, device: DeviceId, is_over: &impl Fn() -> bool) -> Result<()> {
        let mut left = self.excess_slots(device) as usize;
        for with_dirty in [false, true] {
            let mut group = 0;
            while left > 0 && !is_over() {
                let most = left.min(TOGETHER);
                let found = self.state.borrow().extras.slots_of(device, group, most, with_dirty);
                let Some((next, slots, mut blocks)) = found else { break };
                (group, left) = (next, left - slots);
                blocks.sort_unstable();
                self.drop_blocks(&blocks).await?;
            }
        }
        self.commit(Origin::Background).await
    }

    async fn drop_blocks(self: &Rc<Self>, blocks: &[BlockId]) -> Result<()> {
        if planted(Bug::ShrinkingDropsDirty) {
            for &block in blocks {
                let _room = self.reserve(1).await?;
                let extent = self.shape.range_of(block).extent;
                let _guard = self.locks.lock(Self::lock_number(extent), Mode::Exclusive).await;
                self.drop_extra(block);
            }
            return Ok(());
        }
        let demote = async |blocks: &[BlockId]| self.demote(blocks, Mover::Engine).await;
        self.in_order(blocks, Mover::Engine, demote).await.map(|_| ())
    }
}
