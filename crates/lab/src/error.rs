//! Errors of simulations.

use std::fmt;

/// Kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The setup asks for something that does not exist, or its parts do not fit together.
    Setup,
    /// A trace cannot be read.
    Trace,
    /// The volume failed a request.
    Volume,
    /// A read returned something other than the last write: the engine or a device is broken.
    WrongData,
    /// Stopped by the caller.
    Stopped,
}

/// A failure: its kind, and a sentence with the subject, the value, the limit and the remedy.
///
/// One word long: the result of a request passes through many functions, and is nearly always `Ok`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    failure: Box<Failure>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Failure {
    kind: ErrorKind,
    message: String,
}

/// Result of a simulation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of `kind`, described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { failure: Box::new(Failure { kind, message: message.into() }) }
    }

    /// An error of an invalid setup.
    pub(crate) fn setup(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Setup, message)
    }

    /// The error of a simulation that was told to end early.
    pub(crate) fn stopped() -> Error {
        Error::new(ErrorKind::Stopped, "stopped before its end")
    }

    /// Kind of the failure.
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

impl From<braid_engine::Error> for Error {
    fn from(error: braid_engine::Error) -> Error {
        Error::new(ErrorKind::Volume, error.to_string())
    }
}

impl From<braid_base::BadSetting> for Error {
    fn from(error: braid_base::BadSetting) -> Error {
        Error::setup(error.to_string())
    }
}

impl From<braid_trace::Error> for Error {
    fn from(error: braid_trace::Error) -> Error {
        Error::new(ErrorKind::Trace, error.to_string())
    }
}
