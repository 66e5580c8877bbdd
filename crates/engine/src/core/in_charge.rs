//! The active policy, and the state learned at earlier openings.

use crate::policy::PolicyStates;
use braid_base::DeviceClass;
use braid_policy::Policy;
use std::cell::{Cell, Ref, RefCell, RefMut};

/// Active policy.
pub(crate) struct InCharge {
    policy: RefCell<Box<dyn Policy>>,
    /// True if the policy is told of requests as they arrive.
    observes: Cell<bool>,
    /// Device class without which guests' changes fail: no device of the class may be missing or failed.
    stops_without: Cell<Option<DeviceClass>>,
    /// Message if the policy needs a class of devices that the volume lacks.
    lacks: RefCell<Option<String>>,
    /// Number of changes to another policy or mode.
    changes: Cell<u64>,
    /// State saved by this and other policies.
    pub states: PolicyStates,
}

impl InCharge {
    /// Takes a policy, and the states saved by this and other policies.
    pub fn new(policy: Box<dyn Policy>, states: PolicyStates) -> InCharge {
        let (observes, stops_without) = (Cell::new(policy.observes()), Cell::new(policy.stops_without()));
        let (lacks, changes) = (RefCell::default(), Cell::new(0));
        InCharge { policy: RefCell::new(policy), observes, stops_without, lacks, changes, states }
    }

    /// Borrows the policy.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, Box<dyn Policy>> {
        self.policy.borrow()
    }

    /// Borrows the policy for a change, such as learning.
    #[inline]
    pub fn borrow_mut(&self) -> RefMut<'_, Box<dyn Policy>> {
        self.policy.borrow_mut()
    }

    /// Activates another policy.
    pub fn replace(&self, policy: Box<dyn Policy>) {
        self.observes.set(policy.observes());
        self.stops_without.set(policy.stops_without());
        *self.policy.borrow_mut() = policy;
        self.lacks.replace(None);
        self.changes.set(self.changes.get() + 1);
    }

    /// Switches the policy to another mode. Jobs begun for the old mode end, as after a change of the policy.
    pub fn switch(&self, mode: usize) {
        self.policy.borrow_mut().switch(mode);
        self.changes.set(self.changes.get() + 1);
    }

    /// Notes the class of devices that the policy needs and the volume lacks.
    pub fn note_lack(&self, lack: Option<String>) {
        self.lacks.replace(lack);
    }

    /// Class of devices that the policy needs and the volume lacks.
    pub fn lacks(&self) -> Option<String> {
        self.lacks.borrow().clone()
    }

    /// True if the policy is to be told of requests as they arrive.
    #[inline]
    pub fn observes(&self) -> bool {
        self.observes.get()
    }

    /// Device class without which guests' changes fail, if any.
    #[inline]
    pub fn stops_without(&self) -> Option<DeviceClass> {
        self.stops_without.get()
    }

    /// Number of changes to another policy or mode: a job that acts for a policy ends after a change.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }
}
