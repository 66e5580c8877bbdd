//! The policy in charge, and what it learned at earlier openings.

mod places;
mod state;

use braid_base::DeviceClass;
use braid_policy::Policy;
pub(crate) use places::Places;
pub(crate) use state::PolicyStates;
use std::cell::{Cell, Ref, RefCell, RefMut};

/// The policy in charge.
pub(crate) struct InCharge {
    policy: RefCell<Box<dyn Policy>>,
    /// Whether it is told of requests as they arrive.
    observes: Cell<bool>,
    /// Of which class no device may be lacking.
    stops_without: Cell<Option<DeviceClass>>,
    /// Which class of devices it needs and does not have.
    lacks: RefCell<Option<String>>,
    /// How often another one took charge, or another mode.
    changes: Cell<u64>,
    states: PolicyStates,
}

impl InCharge {
    /// A policy, and the states that it and others left.
    pub fn new(policy: Box<dyn Policy>, states: PolicyStates) -> InCharge {
        let (observes, stops_without) = (Cell::new(policy.observes()), Cell::new(policy.stops_without()));
        let (lacks, changes) = (RefCell::default(), Cell::new(0));
        InCharge { policy: RefCell::new(policy), observes, stops_without, lacks, changes, states }
    }

    /// The policy.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, Box<dyn Policy>> {
        self.policy.borrow()
    }

    /// The policy, to learn something.
    #[inline]
    pub fn borrow_mut(&self) -> RefMut<'_, Box<dyn Policy>> {
        self.policy.borrow_mut()
    }

    /// Another policy is in charge from now on.
    pub fn replace(&self, policy: Box<dyn Policy>) {
        self.observes.set(policy.observes());
        self.stops_without.set(policy.stops_without());
        *self.policy.borrow_mut() = policy;
        self.lacks.replace(None);
        self.changes.set(self.changes.get() + 1);
    }

    /// The policy goes on in another mode. What was begun for the mode before ends, as when another policy
    /// takes charge.
    pub fn switch(&self, mode: usize) {
        self.policy.borrow_mut().switch(mode);
        self.changes.set(self.changes.get() + 1);
    }

    /// Says which class of devices the policy needs and does not have.
    pub fn note_lack(&self, lack: Option<String>) {
        self.lacks.replace(lack);
    }

    /// Which class of devices it needs and does not have.
    pub fn lacks(&self) -> Option<String> {
        self.lacks.borrow().clone()
    }

    /// Whether requests are to be told as they arrive.
    #[inline]
    pub fn observes(&self) -> bool {
        self.observes.get()
    }

    /// The class without a device of which guests change nothing.
    #[inline]
    pub fn stops_without(&self) -> Option<DeviceClass> {
        self.stops_without.get()
    }

    /// How often another policy took charge: a job that acts for one ends when this has changed.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }
}
