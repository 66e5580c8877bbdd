//! What ends a trace: the thing, the value, the limit, the remedy. A bad record alone does not; see
//! [`crate::Problems`].

use std::io;

/// Why a trace cannot be read, or not further.
#[derive(thiserror::Error, Debug)]
pub enum Error {
    /// The source or the destination failed, or what is compressed is damaged.
    #[error("{attempt}: {source}")]
    Io {
        /// What was tried.
        attempt: String,
        /// What came of it.
        source: io::Error,
    },
    /// The content is that of no format, or not of the format that was named.
    #[error("{0}")]
    Unrecognised(String),
    /// Options contradict each other or the format.
    #[error("{0}")]
    Options(String),
    /// The first bad record, where reading is strict.
    #[error(
        "{place}: {reason}; mend the trace, or read it without --strict, which skips such records and counts them"
    )]
    Strict {
        /// The format's word for a record, and its number.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(attempt: impl Into<String>, source: io::Error) -> Error {
        Error::Io { attempt: attempt.into(), source }
    }

    /// The same with the name of the trace.
    pub(crate) fn within(self, name: &str) -> Error {
        match self {
            Error::Io { attempt, source } => Error::Io { attempt: format!("{name}: {attempt}"), source },
            Error::Unrecognised(what) => Error::Unrecognised(format!("{name}: {what}")),
            Error::Options(what) => Error::Options(format!("{name}: {what}")),
            Error::Strict { place, reason } => Error::Strict { place: format!("{name}, {place}"), reason },
        }
    }
}
