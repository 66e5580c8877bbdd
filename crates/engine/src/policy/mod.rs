//! What the active policy sees of the volume, the state learned at earlier openings, the change to another
//! policy.

mod places;
mod state;

pub(crate) use places::Places;
pub(crate) use state::PolicyStates;

use crate::core::Upkeep;
use braid_policy::{Homes, Policy};
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Replaces the policy; the policy learns which extra copies there are.
    pub fn replace_policy(&self, policy: Box<dyn Policy>) {
        self.moves.budget.lift();
        self.policy.replace(policy);
        self.store.state.borrow_mut().behind.end_deferring();
        self.adopt_extras();
        self.jobs.wake();
    }

    /// Tells a new policy about all extra copies. Copies beyond the policy's limit are dropped in the
    /// background.
    pub fn adopt_extras(&self) {
        let (state, mut policy) = (self.store.state.borrow(), self.policy.borrow_mut());
        for (block, _) in state.extras.all() {
            let copy = state.extra(block).expect("a block in the table has an extra copy");
            policy.extra_changed(block, None, Some(copy));
        }
        drop((state, policy));
        self.shrink_beyond_room();
    }
}
