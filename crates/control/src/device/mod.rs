//! A device by its path: its name, the place and owner of its bytes, opening, served requests, and log
//! messages for failures.

pub(crate) mod adopted;
pub(crate) mod calibrate;
pub(crate) mod log;
pub(crate) mod look;
pub(crate) mod open;
pub(crate) mod place;
pub(crate) mod protected;
pub(crate) mod remote;
pub(crate) mod room;
pub(crate) mod served;
pub(crate) mod spec;
pub(crate) mod ublk;
pub(crate) mod used;
