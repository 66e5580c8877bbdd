//! Copies of extents and blocks: the only part of the engine to access devices.

mod alike;
mod allocate;
mod audit;
mod block_slots;
mod buffers;
mod deferred;
mod devices;
mod extra;
mod given_up;
mod health;
mod member;
mod repair;
mod requests;
mod required;
mod runs;
mod shrink;
mod slot;
mod speed;
mod undecided;
mod watch;
mod write_back;

pub(crate) use allocate::Allocated;
pub(crate) use block_slots::BlockSlots;
pub(crate) use buffers::Buffers;
pub(crate) use devices::Devices;
pub(crate) use extra::Updated;
pub(crate) use member::{Member, Timed};
pub(crate) use requests::Deadline;
pub(crate) use required::{Copies, Other, Timing, lost};
pub(crate) use undecided::OnBadPlace;
pub(crate) use watch::{answered, watched};
pub(crate) use write_back::{AT_ONCE as WRITTEN_BACK_AT_ONCE, WriteBacks};
