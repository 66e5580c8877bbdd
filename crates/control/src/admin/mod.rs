//! The admin socket: both ends of it, and its words.

pub(crate) mod client;
pub(crate) mod protocol;
pub(crate) mod server;
pub(crate) mod silence;
