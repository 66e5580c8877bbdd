//! Failures as Python's exceptions, with the text that the command line would show.

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

/// The exception for an argument that asks for what cannot be.
pub fn bad_argument(py: Python<'_>, message: String) -> PyErr {
    exception(py, &Error::new(ErrorKind::Setup, message))
}
