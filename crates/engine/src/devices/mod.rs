//! The devices of a volume: requests to them, their deadlines, their speed.

mod answers;
mod buffers;
mod busy;
mod deadline;
mod described;
mod drains;
mod member;
mod requests;
mod set;
mod speed;
mod superblocks;

pub(crate) use answers::{answered, finish_abandoned, watched, within};
pub(crate) use buffers::{Buffers, LARGEST_BUFFER};
pub(crate) use deadline::{Deadline, TICK};
pub use drains::DrainStatus;
pub(crate) use member::{LARGEST_ALIGNMENT, Member, Timed};
pub(crate) use set::{Devices, Watch};
pub(crate) use superblocks::{
    NeededTable, RENEWALS, SuperblockWrite, number_next, write_new, write_superblocks,
};
