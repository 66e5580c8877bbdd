//! Errors that end the reading of a trace: the thing, the value, the limit, the remedy. Bad records alone are
//! not errors; see [`crate::Problems`].

use std::io;

/// Reason why a trace cannot be read, or not further.
#[derive(thiserror::Error, Debug)]
pub enum Error {
    /// The source or the destination failed, or the compressed content is damaged.
    #[error("{attempt}: {source}")]
    Io {
        /// The failed operation.
        attempt: String,
        /// The cause.
        source: io::Error,
    },
    /// The content has no known format, or not the named format.
    #[error("{0}")]
    Unrecognised(String),
    /// Options contradict each other or the format.
    #[error("{0}")]
    Options(String),
    /// The first bad record, if reading is strict.
    #[error(
        "{place}: {reason}; repair the trace, or read it without --strict, which skips and counts such \
         records"
    )]
    Strict {
        /// The format's word for a record, and its number.
        place: String,
        /// The defect of the record.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(attempt: impl Into<String>, source: io::Error) -> Error {
        Error::Io { attempt: attempt.into(), source }
    }

    /// Adds the name of the trace.
    pub(crate) fn within(self, name: &str) -> Error {
        match self {
            Error::Io { attempt, source } => Error::Io { attempt: format!("{name}: {attempt}"), source },
            Error::Unrecognised(what) => Error::Unrecognised(format!("{name}: {what}")),
            Error::Options(what) => Error::Options(format!("{name}: {what}")),
            Error::Strict { place, reason } => Error::Strict { place: format!("{name}, {place}"), reason },
        }
    }
}
