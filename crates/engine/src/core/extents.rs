//! The bytes of extents: read from and written to copies, cached, brought up to date, kept in the image of
//! epochs. The policy decides with a view of the volume's present state.

use super::{Durable, Own};
use crate::copies::WriteBacks;
use crate::devices::Buffers;
use crate::epochs::Epochs;
use crate::policy::Places;
use braid_base::{Bytes, Nanos, Op};
use braid_policy::{ByteRange, Flags, Policy, Request, View};
use braid_runtime::{Device, Runtime};
use std::ops::Deref;

/// Copies of a volume's extents, and the verbs that read and write them. Knows no plan of moves.
pub(crate) struct Extents<R, D> {
    pub own: Own<Extents<R, D>>,
    pub durable: Durable<R, D>,
    pub buffers: Buffers,
    pub write_backs: WriteBacks,
    /// None for a volume without an epoch journal.
    pub epochs: Option<Epochs>,
}

impl<R, D> Deref for Extents<R, D> {
    type Target = Durable<R, D>;

    #[inline]
    fn deref(&self) -> &Durable<R, D> {
        &self.durable
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Asks the policy for a decision, with a view of the volume's present state.
    #[inline]
    pub fn with_policy<T>(&self, decide: impl FnOnce(&mut dyn Policy, &View) -> T) -> T {
        self.with_policy_at(self.rt.now(), decide)
    }

    #[inline]
    fn with_policy_at<T>(&self, now: Nanos, decide: impl FnOnce(&mut dyn Policy, &View) -> T) -> T {
        let state = self.store.state.borrow();
        let view = View {
            now,
            extent_size: self.store.shape.extent_size,
            block_size: self.store.shape.block_size,
            devices: &state.views,
            homes: &Places {
                state: &state,
                cache: &self.guests.cache,
                epochs: self.active_epochs(),
                can_resync: &|| self.store.devices.can_resync(),
            },
        };
        decide(&mut **self.policy.borrow_mut(), &view)
    }

    /// Tells the policy about a guest's request. Returns the delay that the policy asks for. A request beyond
    /// the end of the volume is not told: an error is about to follow. Called only for policies that observe
    /// requests.
    #[inline(never)]
    pub fn arrived(&self, op: Op, offset: Bytes, len: Bytes, flags: Flags, now: Nanos) -> Nanos {
        let end = offset.checked_add(len).filter(|&end| end <= self.store.shape.volume_size);
        let Some(end) = end else { return Nanos::ZERO };
        let request = Request { op, range: ByteRange { start: offset, end }, flags };
        self.with_policy_at(now, |policy, view| policy.arrived(&request, view))
    }
}
