//! The recording of a trace: from the requests of guests to the client that writes them down.

pub(crate) mod notes;
pub(crate) mod recorded;
pub(crate) mod recording;
pub(crate) mod send;
