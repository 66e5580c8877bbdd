//! Errors of the engine, by the remedy.

use std::fmt;
use std::io;

/// Kinds of failure. Each kind implies a remedy; the message tells what happened to which object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A device holds other bytes than were written: run `check`, restore from another copy.
    Corrupt,
    /// A device failed a request: look at the device.
    Io,
    /// No slot is free, or the file system under a device is full: discard data, or add a device.
    NoSpace,
    /// A device of the volume is missing: bring the device back.
    Degraded,
    /// Another daemon has the volume open: stop that daemon.
    Busy,
    /// The volume needs a feature that this version lacks: use a newer version.
    Unsupported,
    /// The request itself is wrong: outside the volume, or against a rule.
    Invalid,
}

/// A failure: its kind, and a sentence with object, value, limit and remedy.
///
/// One word long: the result of a request passes through many hands, and nearly all results are no failures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    failure: Box<Failure>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Failure {
    kind: ErrorKind,
    message: String,
}

/// Result of the engine's verbs.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates a failure of `kind`, described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { failure: Box::new(Failure { kind, message: message.into() }) }
    }

    /// Error for requests that arrive after the volume began to close.
    #[cold]
    pub(crate) fn closing() -> Error {
        Error::new(ErrorKind::Io, "the volume is closing: no more writes")
    }

    /// Converts an I/O error of a device; `attempt` describes the request. `NoSpace` if the device is a
    /// sparse file on a full file system: a virtual machine then waits for room instead of failing.
    pub fn io(attempt: impl fmt::Display, error: &io::Error) -> Error {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("{attempt}: {error}"))
    }

    /// Returns the kind, which implies the remedy.
    pub fn kind(&self) -> ErrorKind {
        self.failure.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure.message)
    }
}

impl std::error::Error for Error {}
