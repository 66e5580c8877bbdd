//! The daemon's part of a recording: from the guests' requests to the client's connection.

pub(crate) mod notes;
pub(crate) mod recorded;
pub(crate) mod send;
