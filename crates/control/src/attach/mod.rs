//! A kernel block device over the file that the daemon serves: the command line's part.

pub(crate) mod block_device;
mod stable_name;
pub(crate) mod users;
