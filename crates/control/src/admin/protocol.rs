//! Protocol of the admin socket: one JSON object per line, one reply per request, in order.
//!
//! ```text
//! → {"version":1,"request":"status"}
//! ← {"ok":{"name":"vault",…}}
//! → {"version":1,"request":"explain","offset_bytes":4096}
//! ← {"error":{"kind":"invalid","message":"…"}}
//! ```
//!
//! `record` ends the protocol: after its reply the connection carries bytes of a trace. The end of the
//! connection is the end of the recording.
//!
//! A client with another version is refused with the daemon's version, and may try again.

use crate::Error;
use crate::served::via::Via;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest request, in bytes with its newline: a policy with all its settings fits many times.
pub const LONGEST_REQUEST: usize = 16 << 10;
/// Longest reply. The status of the largest number of devices fits, even if each path is the longest that
/// Linux allows, occurs twice, and occurs in an error message.
pub const LONGEST_REPLY: usize = 64 << 20;

/// A request with its version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub version: u32,
    #[serde(flatten)]
    pub request: Request,
}

/// Requests to a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Returns the status of the volume: a [`crate::StatusReport`].
    Status,
    /// Explains where a byte lies, and why: a [`crate::ExplainReport`].
    Explain {
        /// The byte.
        offset_bytes: u64,
    },
    /// Returns where data lies, and its heat: a [`crate::MapReport`]. The daemon examines the places at most
    /// for a hundredth of its time, so the reply may be some seconds old, or take seconds.
    Map {
        /// A device in question: 1 for `d1`.
        #[serde(default)]
        device: Option<u16>,
    },
    /// Returns the policy: a [`crate::PolicyReport`].
    Policy,
    /// Changes the policy; no data is copied now: a [`crate::PolicyReport`].
    SetPolicy {
        /// `name,key=value,…`.
        policy: String,
    },
    /// Serves the volume as a block device, or as a file for a loop device: an `AttachReply`. Returns the
    /// same device or file if already attached, in any way.
    Attach {
        /// Way to attach; `None` for a file.
        #[serde(default)]
        via: Option<Via>,
        /// Sector size of a block device; `None` if the content of the volume decides.
        #[serde(default)]
        sector_bytes: Option<u32>,
    },
    /// Ends serving the volume as a block device or file. Refused while the file is open.
    Detach {
        /// The block device, if any: the client has found no users of the device.
        #[serde(default)]
        block_device: Option<PathBuf>,
    },
    /// Fails a device; an empty object.
    FailDevice {
        /// Place of the device: 1 for `d1`.
        device: u16,
    },
    /// Adds a device to the volume: a [`crate::AddReport`].
    AddDevice {
        /// `ssd` or `hdd`.
        class: String,
        /// `PATH[,size=S][,model=M][,layout=L]`, with absolute paths.
        new: String,
        /// Overwrite the device if it holds something.
        overwrite: bool,
    },
    /// Drains a device, and removes the empty device; an empty object.
    RemoveDevice {
        /// Place of the device: 1 for `d1`.
        device: u16,
    },
    /// Adds a device, and drains the device to be replaced: a [`crate::ReplaceReport`].
    ReplaceDevice {
        /// Place of the old device: 1 for `d1`.
        device: u16,
        /// `PATH[,size=S][,model=M]`, with absolute paths.
        new: String,
        /// Overwrite the device if it holds something.
        overwrite: bool,
    },
    /// Cancels the removal of a device; an empty object.
    KeepDevice {
        /// Place of the device: 1 for `d1`.
        device: u16,
    },
    /// Uses a device again that failed or was missing: a [`crate::AddReport`].
    ReturnDevice {
        /// Place of the device: 1 for `d1`.
        device: u16,
        /// Absolute path of the device; `None` to search for the device.
        path: Option<PathBuf>,
    },
    /// Changes the size of the volume; guests' requests wait meanwhile: a [`crate::ResizeReport`].
    Resize {
        /// The new size.
        size_bytes: u64,
    },
    /// Makes all earlier writes durable.
    Flush,
    /// Writes a checkpoint, which shortens the journal.
    Checkpoint,
    /// Records guests' requests. After the reply, an empty object, the connection carries a trace in the
    /// compact format (`crates/trace/src/compact/mod.rs`) until the client ends its side of the connection.
    /// One recording at a time.
    Record,
    /// Drains and stops the daemon. The reply comes when the volume is closed.
    Stop,
}

/// A reply: the result or an error.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The result; an empty object if there is none.
    Ok(serde_json::Value),
    /// The error.
    Error(Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn the_lines_are_as_documented() {
        let line = |request| serde_json::to_string(&Envelope { version: PROTOCOL_VERSION, request }).unwrap();
        assert_eq!(line(Request::Status), r#"{"version":1,"request":"status"}"#);
        assert_eq!(
            line(Request::Explain { offset_bytes: 4096 }),
            r#"{"version":1,"request":"explain","offset_bytes":4096}"#
        );
        assert_eq!(
            line(Request::Attach { via: Some(Via::Ublk), sector_bytes: None }),
            r#"{"version":1,"request":"attach","via":"ublk","sector_bytes":null}"#
        );
        assert_eq!(line(Request::Map { device: None }), r#"{"version":1,"request":"map","device":null}"#);
        let reply = Reply::Error(Error::new(ErrorKind::NoSpace, "full"));
        let text = r#"{"error":{"kind":"no_space","message":"full"}}"#;
        assert_eq!(serde_json::to_string(&reply).unwrap(), text);
        assert_eq!(serde_json::from_str::<Reply>(text).unwrap(), reply);
    }

    /// Clients before ublk asked without fields, for a file.
    #[test]
    fn requests_of_earlier_clients_are_understood() {
        let request = |text: &str| serde_json::from_str::<Envelope>(text).unwrap().request;
        assert_eq!(
            request(r#"{"version":1,"request":"attach"}"#),
            Request::Attach { via: None, sector_bytes: None }
        );
        assert_eq!(request(r#"{"version":1,"request":"detach"}"#), Request::Detach { block_device: None });
    }
}
