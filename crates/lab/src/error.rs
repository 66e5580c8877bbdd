//! Why a simulation came to no result.

use std::fmt;

/// What kind of failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The setup asks for something that is not there, or that does not fit together.
    Setup,
    /// A trace cannot be read.
    Trace,
    /// The volume failed a request.
    Volume,
    /// A read returned something else than the last write: the engine or a device is broken.
    WrongData,
    /// The caller does not want it any more.
    Stopped,
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

/// What simulations return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of `kind`, described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { failure: Box::new(Failure { kind, message: message.into() }) }
    }

    /// A setup that asks for what cannot be.
    pub(crate) fn setup(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Setup, message)
    }

    /// A simulation that ends early because it shall.
    pub(crate) fn stopped() -> Error {
        Error::new(ErrorKind::Stopped, "stopped before its end")
    }

    /// What kind of failure.
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
