//! Why bytes from a device are rejected.

use std::fmt;

/// Why bytes from a device are rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// No structure of the expected kind.
    Absent,
    /// Wrong checksum: torn, overwritten or rotten.
    Checksum,
    /// Valid checksum, but a value that this version never writes.
    Value(String),
    /// Written by a version with an unknown feature.
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
