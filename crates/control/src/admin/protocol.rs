//! The words of the admin socket: one JSON object per line, one reply per request, in order.
//!
//! ```text
//! → {"version":1,"request":"status"}
//! ← {"ok":{"name":"vault",…}}
//! → {"version":1,"request":"explain","offset_bytes":4096}
//! ← {"error":{"kind":"invalid","message":"…"}}
//! ```
//!
//! One request ends that: after the reply to `record` the connection carries bytes of a trace, and its end is
//! the recording's.
//!
//! A client that sends another version is refused with the version that is spoken here, and may try again.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The version that is spoken here.
pub const PROTOCOL_VERSION: u32 = 1;
/// The longest request, in bytes with its newline: a policy with all its settings fits many times.
pub const LONGEST_REQUEST: usize = 16 << 10;
/// The longest reply. The status of as many devices as a volume may have fits, each with the longest path
/// that Linux allows, twice, and with an error that names the path.
pub const LONGEST_REPLY: usize = 64 << 20;

/// A request with its version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub version: u32,
    #[serde(flatten)]
    pub request: Request,
}

/// What a daemon can be asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The volume now: a [`crate::StatusReport`].
    Status,
    /// Where a byte lies, and why: a [`crate::ExplainReport`].
    Explain {
        /// The byte.
        offset_bytes: u64,
    },
    /// The policy: a [`crate::PolicyReport`].
    Policy,
    /// Puts another policy in charge; no data is copied now: a [`crate::PolicyReport`].
    SetPolicy {
        /// `name,key=value,…`.
        policy: String,
    },
    /// Serves the volume as a file, for a loop device: an `AttachReply`. Where it is served so already, says
    /// where.
    Attach,
    /// Ends that. Refused while the file is open.
    Detach,
    /// Takes a device out of use; an empty object.
    FailDevice {
        /// Its place: 1 for `d1`.
        device: u16,
    },
    /// Gives the volume one more device: a [`crate::AddReport`].
    AddDevice {
        /// `ssd` or `hdd`.
        class: String,
        /// `PATH[,size=S][,model=M][,layout=L]`, with absolute paths.
        new: String,
        /// Whether it may be overwritten if it holds something.
        overwrite: bool,
    },
    /// Has a device drain, to be removed when it is empty; an empty object.
    RemoveDevice {
        /// Its place: 1 for `d1`.
        device: u16,
    },
    /// Adds a device, and has the one drain that it replaces: a [`crate::ReplaceReport`].
    ReplaceDevice {
        /// The place of the old one: 1 for `d1`.
        device: u16,
        /// `PATH[,size=S][,model=M]`, with absolute paths.
        new: String,
        /// Whether it may be overwritten if it holds something.
        overwrite: bool,
    },
    /// Ends that: the device stays; an empty object.
    KeepDevice {
        /// Its place: 1 for `d1`.
        device: u16,
    },
    /// Uses a device again that failed or was missing: a [`crate::AddReport`].
    ReturnDevice {
        /// Its place: 1 for `d1`.
        device: u16,
        /// Where it is now, an absolute path; none for where it was.
        path: Option<PathBuf>,
    },
    /// Makes every write so far durable.
    Flush,
    /// Makes the journal short.
    Checkpoint,
    /// Records what guests ask for. After the reply, an empty object, the connection carries a trace in the
    /// compact format (`crates/trace/src/compact/mod.rs`) until the client ends its side of it. One recording
    /// at a time.
    Record,
    /// Drains and stops the daemon. The reply comes when the volume is closed.
    Stop,
}

/// A reply: what was asked for, or why not.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// What was asked for; an empty object where there is nothing to say.
    Ok(serde_json::Value),
    /// Why not.
    Error(Error),
}

/// Where the volume appears as a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AttachReply {
    /// The file.
    pub file: PathBuf,
    /// A directory of its own, where it is.
    pub directory: PathBuf,
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
        let reply = Reply::Error(Error::new(ErrorKind::NoSpace, "full"));
        let text = r#"{"error":{"kind":"no_space","message":"full"}}"#;
        assert_eq!(serde_json::to_string(&reply).unwrap(), text);
        assert_eq!(serde_json::from_str::<Reply>(text).unwrap(), reply);
    }
}
