//! Why bytes from a device are rejected.

use std::fmt;

/// Why bytes from a device are rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// There is no such structure here at all.
    Absent,
    /// There is one, but the checksum does not match: torn, overwritten or rotten.
    Checksum,
    /// The checksum matches, but a value is outside what this version writes.
    Value(String),
    /// Written by a version with a feature that this one does not know.
    Feature(String),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Absent => f.write_str("no structure of Braid here"),
            Invalid::Checksum => f.write_str("the checksum does not match the content"),
            Invalid::Value(what) | Invalid::Feature(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Invalid {}
