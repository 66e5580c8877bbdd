//! Device models: by name, from a file of your own, or made from measurements.

pub(crate) mod calibrate;
pub(crate) mod library;
