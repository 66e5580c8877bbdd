//! Failures as exceptions of Python, with the text of the command line.

use braid_lab::{Error, ErrorKind};
use pyo3::prelude::*;

/// The name of the class in `braid.errors` for a kind of failure.
pub fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Setup => "SetupError",
        ErrorKind::Trace => "TraceError",
        ErrorKind::Volume => "VolumeError",
        ErrorKind::WrongData => "WrongDataError",
        ErrorKind::Stopped => "Error",
    }
}

/// The exception for a failure.
pub fn exception(py: Python<'_>, failure: &Error) -> PyErr {
    let raise = || {
        let class = py.import("braid.errors")?.getattr(class(failure.kind()))?;
        class.call1((failure.to_string(),))
    };
    raise().map_or_else(|error| error, PyErr::from_value)
}

/// The exception for an impossible argument.
pub fn bad_argument(py: Python<'_>, message: String) -> PyErr {
    exception(py, &Error::new(ErrorKind::Setup, message))
}
