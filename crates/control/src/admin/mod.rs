//! The admin socket: client, server and protocol.

pub(crate) mod client;
pub(crate) mod protocol;
pub(crate) mod recording;
pub(crate) mod server;
pub(crate) mod silence;
