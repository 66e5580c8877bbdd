//! The native part of the Python package `braid`: what Python cannot do itself.
//!
//! It reads arguments as the command line does, lets the lab simulate while other threads of Python run, and
//! reads traces into columns. What is convenient (products of arguments, columns of results, the classes of
//! exceptions) is Python, in `braid/`. A result crosses as the JSON that `braid simulate --json` prints, so
//! the two cannot differ; a trace crosses as NumPy arrays that take over the memory of Rust's vectors.

mod arguments;
mod failure;
mod lab;
mod policy;
mod signals;
mod simulations;
mod traces;

/// The module `braid._native`.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::lab::{lab_experiments, lab_run};
    #[pymodule_export]
    use crate::policy::{Move, Placement};
    #[pymodule_export]
    use crate::simulations::sweep;
    #[pymodule_export]
    use crate::traces::read_trace;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
