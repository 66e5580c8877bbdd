//! Recording of a trace: from the guests' requests to the client's file.

pub(crate) mod notes;
pub(crate) mod recorded;
pub(crate) mod recording;
pub(crate) mod send;
