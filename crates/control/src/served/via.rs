//! Ways to make a volume a block device of this machine.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A way to make a volume a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// The kernel's ublk driver: the block device outlives the daemon.
    Ublk,
    /// A loop device over a FUSE file.
    Loop,
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Via::Ublk => "ublk",
            Via::Loop => "loop",
        })
    }
}

impl FromStr for Via {
    type Err = String;

    fn from_str(text: &str) -> Result<Via, String> {
        match text {
            "ublk" => Ok(Via::Ublk),
            "loop" => Ok(Via::Loop),
            _ => Err(format!("'{text}' is no way to attach: use ublk or loop")),
        }
    }
}
