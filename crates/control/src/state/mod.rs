//! What this machine knows of a volume by its name: the record with the paths of its devices, the process
//! that uses the volume, notes, and the pending log of a dead daemon.

pub(crate) mod lasting;
pub(crate) mod left_log;
pub(crate) mod lock;
pub(crate) mod log_place;
pub(crate) mod noted;
pub(crate) mod outdated;
pub(crate) mod state_dir;
