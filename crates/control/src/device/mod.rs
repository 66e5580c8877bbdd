//! A device by its path: how it is named, where its bytes lie and whose they are, how it is opened, what it
//! serves, what the log says when it fails.

pub(crate) mod adopted;
pub(crate) mod claims;
pub(crate) mod log;
pub(crate) mod look;
pub(crate) mod open;
pub(crate) mod place;
pub(crate) mod protected;
pub(crate) mod room;
pub(crate) mod served;
pub(crate) mod spec;
pub(crate) mod used;
