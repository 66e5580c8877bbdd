//! The stable JSON of status, explain, check and map, with units in the names.

pub(crate) mod changes;
pub(crate) mod guard;
pub(crate) mod map;
pub(crate) mod ranges;
pub(crate) mod resting;
pub(crate) mod types;
