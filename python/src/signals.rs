//! Ctrl-C while Python waits for Rust.

use pyo3::prelude::*;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An exception that ended work early.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Takes the interpreter, and calls `look` unless an exception was raised before. True to continue.
    pub fn go_on(&self, look: impl FnOnce(Python<'_>) -> PyResult<()>) -> bool {
        let mut raised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if raised.is_none() {
            *raised = Python::attach(|py| py.check_signals().and_then(|()| look(py)).err());
        }
        raised.is_none()
    }

    /// Raises the exception, if there is one.
    pub fn raise(&self) -> PyResult<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// How often is looked for signals.
const LOOK: Duration = Duration::from_millis(50);

/// A source that fails once an exception was raised.
pub struct Interruptible<R> {
    source: R,
    raised: Raised,
    looked: Instant,
}

impl<R> Interruptible<R> {
    /// `source`, ended early by the exception in `raised`.
    pub fn new(source: R, raised: Raised) -> Interruptible<R> {
        Interruptible { source, raised, looked: Instant::now() }
    }
}

impl<R: Read> Read for Interruptible<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.looked.elapsed() >= LOOK {
            if !self.raised.go_on(|_| Ok(())) {
                return Err(io::Error::other("interrupted"));
            }
            self.looked = Instant::now();
        }
        self.source.read(buffer)
    }
}
