//! A policy that the caller of a simulation brings, in place of one by name.

use crate::Result;
use braid_policy::Policy;
use std::fmt;
use std::sync::Arc;

type Make = dyn Fn() -> Result<Box<dyn Policy>> + Send + Sync;

/// How a policy is made that has no name: each simulation makes its own, on its own thread.
#[derive(Clone)]
pub struct MadePolicy(Arc<Make>);

impl MadePolicy {
    /// What `make` returns, which is without what it learned in another simulation.
    pub fn new(make: impl Fn() -> Result<Box<dyn Policy>> + Send + Sync + 'static) -> MadePolicy {
        MadePolicy(Arc::new(make))
    }

    pub(crate) fn make(&self) -> Result<Box<dyn Policy>> {
        (self.0)()
    }
}

/// The same only if it is the same function.
impl PartialEq for MadePolicy {
    fn eq(&self, other: &MadePolicy) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for MadePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MadePolicy")
    }
}
