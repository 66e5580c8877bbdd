//! Copies of extents and blocks: reads, writes and repairs of the copies, and the health of their devices.

mod allocate;
mod audit;
mod block_slots;
mod deferred;
mod extra;
mod given_up;
mod health;
mod mirrored;
mod read;
mod repair;
mod required;
mod runs;
mod shrink;
mod slot;
mod undecided;
mod watch;
mod write_back;
mod write_backs;

pub(crate) use allocate::Allocated;
pub(crate) use extra::Updated;
pub(crate) use mirrored::Timing;
pub(crate) use required::{Copies, lost};
pub(crate) use undecided::OnBadPlace;
pub(crate) use write_backs::WriteBacks;
