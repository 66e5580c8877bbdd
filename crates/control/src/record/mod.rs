//! The daemon's part of a recording: from the guests' requests to the client's connection; and the heat of
//! the volume's parts, from the same requests.

pub(crate) mod heat;
pub(crate) mod notes;
pub(crate) mod recorded;
pub(crate) mod send;
