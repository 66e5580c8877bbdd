//! Policies: one file per published system, pure
