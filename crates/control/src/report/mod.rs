//! The stable JSON of status, explain and check, with units in the names.

pub(crate) mod changes;
pub(crate) mod guard;
pub(crate) mod ranges;
pub(crate) mod resting;
pub(crate) mod types;
