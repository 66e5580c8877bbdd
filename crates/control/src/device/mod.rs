//! A device by its path: how it is named, how it is opened, what the log says when it fails.

pub(crate) mod adopted;
pub(crate) mod log;
pub(crate) mod open;
pub(crate) mod spec;
