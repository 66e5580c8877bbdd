//! Device models: by name, or from a user's file.

pub(crate) mod library;
