//! A kernel block device for a served volume: the command line's part.

pub(crate) mod block_device;
mod stable_name;
mod ublk;
pub(crate) mod users;
