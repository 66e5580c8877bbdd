//! A kernel block device: the command line's part, and the daemon's part, which is the file beneath.

pub(crate) mod block_device;
pub(crate) mod file;
pub(crate) mod users;
