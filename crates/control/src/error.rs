//! Errors by their remedy, and exit statuses for scripts.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Kinds of errors. They are stable, and the same on the admin socket and in `--json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The command or request is malformed.
    Usage,
    /// The request does not fit the volume, its devices or their content.
    Invalid,
    /// Another process has the volume or the device.
    Busy,
    /// The volume is not served, and the request needs a daemon.
    NotServed,
    /// A device, file or socket failed.
    Io,
    /// No slot is free.
    NoSpace,
    /// A device of the volume is missing.
    Degraded,
    /// The volume needs a newer version, or the machine lacks a feature.
    Unsupported,
    /// The content of a device is not as it was written.
    Corrupt,
    /// Data promised to guests may be lost.
    Unsafe,
}

/// An error: its kind, and a sentence that names the object, the value, the limit and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error of `kind` with `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// Makes an error of a file or socket, with the attempted action.
    pub fn io(attempt: impl fmt::Display, error: &io::Error) -> Error {
        Error::new(ErrorKind::Io, format!("{attempt}: {error}"))
    }

    /// Converts a refused policy to `Usage`: an unknown policy is a wrong word of the command.
    pub(crate) fn of_policy(error: braid_engine::Error) -> Error {
        match error.kind() {
            braid_engine::ErrorKind::Invalid => Error::new(ErrorKind::Usage, error.to_string()),
            _ => error.into(),
        }
    }

    /// Returns the kind, which tells the next step.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the kind as a word, the same as in `--json`.
    pub fn code(&self) -> &'static str {
        match self.kind {
            ErrorKind::Usage => "usage",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Busy => "busy",
            ErrorKind::NotServed => "not_served",
            ErrorKind::Io => "io",
            ErrorKind::NoSpace => "no_space",
            ErrorKind::Degraded => "degraded",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Unsafe => "unsafe",
        }
    }

    /// Returns the exit status of a command: 1 the work failed, 2 bad usage, 3 data unsafe or lost.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            ErrorKind::Usage => 2,
            ErrorKind::Corrupt | ErrorKind::Unsafe => 3,
            _ => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<braid_engine::Error> for Error {
    fn from(error: braid_engine::Error) -> Error {
        let kind = match error.kind() {
            braid_engine::ErrorKind::Corrupt => ErrorKind::Corrupt,
            braid_engine::ErrorKind::Io => ErrorKind::Io,
            braid_engine::ErrorKind::NoSpace => ErrorKind::NoSpace,
            braid_engine::ErrorKind::Degraded => ErrorKind::Degraded,
            braid_engine::ErrorKind::Busy => ErrorKind::Busy,
            braid_engine::ErrorKind::Unsupported => ErrorKind::Unsupported,
            braid_engine::ErrorKind::Invalid => ErrorKind::Invalid,
        };
        Error::new(kind, error.to_string())
    }
}

/// An error of a device or socket whose message names the attempt and the object.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        let kind = match error.kind() {
            io::ErrorKind::ResourceBusy | io::ErrorKind::AddrInUse => ErrorKind::Busy,
            io::ErrorKind::InvalidInput => ErrorKind::Invalid,
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        Error::new(kind, error.to_string())
    }
}
