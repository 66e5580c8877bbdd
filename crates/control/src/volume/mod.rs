//! Commands on a volume by its name, with or without a daemon.

pub(crate) mod at_rest;
pub(crate) mod check;
pub(crate) mod create;
pub(crate) mod import;
pub(crate) mod policy;
pub(crate) mod recover;
pub(crate) mod replace;
pub(crate) mod resize;
pub(crate) mod ring;
