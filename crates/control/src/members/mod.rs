//! The devices of a volume: found by their superblocks, claimed, opened.

pub(crate) mod claims;
pub(crate) mod finding;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod replaced;
