//! Simulations, without the interpreter's lock.

use crate::arguments::setup;
use crate::failure::{class, exception};
use crate::policy::made;
use crate::signals::Raised;
use braid_lab::{Error, ErrorKind, Progress, Setup, sweep_while};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The SSDs and disks of a volume, the other arguments by name, and a class of policies, if there is one in
/// place of a name.
type Given = (Vec<String>, Vec<String>, BTreeMap<String, String>, Option<Py<PyAny>>);

/// Simulates setups on `threads` threads. Gives, for each, None and the result as JSON, or the name of an
/// exception's class and its text.
///
/// About ten times a second `progress` is called with ended simulations, all simulations,
/// requests begun, seconds simulated, the completed share (None if unknown), and seconds since the
/// beginning. An exception raised by `progress` or by a signal ends the simulations.
#[pyfunction]
pub fn sweep(
    py: Python<'_>,
    setups: Vec<Given>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<(Option<&'static str>, String)>> {
    let raised = Raised::default();
    let read = |(ssds, hdds, texts, class): Given| {
        let mut setup = setup(py, &ssds, &hdds, texts)?;
        setup.made_policy = class.map(|class| made(class, raised.clone()));
        Ok(setup)
    };
    let setups: Vec<Setup> = setups.into_iter().map(read).collect::<PyResult<_>>()?;
    if threads == Some(0) {
        return Err(exception(py, &Error::new(ErrorKind::Setup, "threads=0: use at least 1")));
    }
    let results = py.detach(|| {
        sweep_while(&setups, threads, |how_far| {
            match raised.go_on(|py| show(py, how_far, progress.as_ref())) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })
    });
    raised.raise()?;
    let ended = |result| match result {
        Ok(run) => (None, serde_json::to_string(&run).expect("results are plain data")),
        Err(error) => (Some(class(Error::kind(&error))), error.to_string()),
    };
    Ok(results.into_iter().map(ended).collect())
}

fn show(py: Python<'_>, how_far: &Progress, progress: Option<&Py<PyAny>>) -> PyResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    let Progress { finished, total, requests, simulated, share, elapsed } = *how_far;
    let figures = (finished, total, requests, simulated.as_secs_f64(), share, elapsed.as_secs_f64());
    progress.call1(py, figures).map(|_| ())
}
