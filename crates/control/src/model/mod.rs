//! Device models: by name, from a user's file, or made from measurements.

pub(crate) mod calibrate;
pub(crate) mod library;
