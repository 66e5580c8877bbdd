//! The native part of the Python package `braid`.
//!
//! Reads arguments as the command line does, runs the lab's simulations beside other threads of Python, and
//! reads traces into columns. Conveniences (products of arguments, columns of results, classes of
//! exceptions) are Python, in `braid/`. A result crosses as the JSON of `braid simulate --json`, therefore
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
