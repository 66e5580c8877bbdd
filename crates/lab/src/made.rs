//! Policies made by the caller of a simulation, instead of a policy by name.

use crate::Result;
use braid_policy::Policy;
use std::fmt;
use std::sync::Arc;

/// Constructor of a policy without a name: each simulation makes its own, on its own thread.
#[derive(Clone)]
pub struct MadePolicy(Arc<dyn Fn() -> Result<Box<dyn Policy>> + Send + Sync>);

impl MadePolicy {
    /// A policy made by `make`. Each call must return a policy without state learned in another simulation.
    pub fn new(make: impl Fn() -> Result<Box<dyn Policy>> + Send + Sync + 'static) -> MadePolicy {
        MadePolicy(Arc::new(make))
    }

    pub(crate) fn make(&self) -> Result<Box<dyn Policy>> {
        (self.0)()
    }
}

/// Equal only if both hold the same function.
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
