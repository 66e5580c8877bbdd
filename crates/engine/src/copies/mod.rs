//! The copies of extents and blocks: the only part that touches devices.

mod cache;
mod extra;
mod member;

pub(crate) use cache::ExtentCache;
pub(crate) use member::{Member, Timed};
