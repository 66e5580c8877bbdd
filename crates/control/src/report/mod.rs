//! What status, explain and check say, with units in the names: the stable JSON.

pub(crate) mod collect;
pub(crate) mod resting;
pub(crate) mod types;
