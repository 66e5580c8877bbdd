//! The life of the daemon: open, serve, drain, close.

pub(crate) mod daemon;
pub(crate) mod doors;
mod notify;
mod powers;
pub(crate) mod recovered;
mod user;
