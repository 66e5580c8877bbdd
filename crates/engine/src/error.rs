//! What can go wrong, by what the reader can do about it.

use std::fmt;
use std::io;

/// The kinds of failure. Each tells what to do next; the message says what happened to what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// What is on a device is not what was written there: run `check`, restore from another copy.
    Corrupt,
    /// A device failed a request: look at the device.
    Io,
    /// No slot is free, or what a device lies on is full: discard data, or add a device.
    NoSpace,
    /// A device of the volume is missing: bring it back.
    Degraded,
    /// Another daemon has the volume open: stop that one.
    Busy,
    /// The volume needs a feature that this version lacks: use a newer version.
    Unsupported,
    /// The request itself is wrong: outside the volume, or against a rule.
    Invalid,
}

/// A failure: its kind, and a sentence that names the thing, the value, the limit and the remedy.
///
/// One word long: the result of a request passes through many hands, and nearly all are none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    failure: Box<Failure>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Failure {
    kind: ErrorKind,
    message: String,
}

/// What the engine's verbs return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of `kind`, described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { failure: Box::new(Failure { kind, message: message.into() }) }
    }

    /// An I/O error of a device, with what was tried. `NoSpace` where a device is a sparse file, and what it
    /// lies on is full: a virtual machine then waits for room instead of giving up.
    pub fn io(attempt: impl fmt::Display, error: &io::Error) -> Error {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("{attempt}: {error}"))
    }

    /// What to do next.
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
