//! A volume by its name: the paths of its devices, the process that uses the volume, and commands on a volume
//! without a daemon.

pub(crate) mod at_rest;
pub(crate) mod check;
pub(crate) mod create;
pub(crate) mod finding;
pub(crate) mod import;
pub(crate) mod lasting;
pub(crate) mod left_log;
pub(crate) mod lock;
pub(crate) mod log_place;
pub(crate) mod members;
pub(crate) mod noted;
pub(crate) mod outdated;
pub(crate) mod policy;
pub(crate) mod recover;
pub(crate) mod replace;
pub(crate) mod state_dir;
