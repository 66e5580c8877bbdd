//! Conditions of a volume that need its owner, and their beginnings and ends as events.
//!
//! - `conditions.rs`: conditions in one report
//! - `watch.rs`: beginnings and ends of conditions

pub(crate) mod conditions;
pub(crate) mod watch;
