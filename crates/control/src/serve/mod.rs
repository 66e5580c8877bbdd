//! The life of the daemon: open, serve, drain, close.

pub(crate) mod address;
pub(crate) mod catch_up;
pub(crate) mod daemon;
pub(crate) mod devices;
pub(crate) mod doors;
pub(crate) mod recovered;
