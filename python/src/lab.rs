//! Experiments of papers, and experiments that Python declares, without the interpreter's lock.

use crate::failure::{bad_argument, exception};
use crate::signals::Raised;
use braid_lab::experiment::Experiment;
use braid_lab::experiments::{all, find};
use braid_lab::study::{Folder, How, News, Seeds, study};
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// All built-in experiments as JSON: declarations with the fields of a file in TOML.
#[pyfunction]
pub fn lab_experiments() -> String {
    serde_json::to_string(&all()).expect("declarations are plain data")
}

/// How experiments are run: the first seed, how many (none for as many as verdicts need), whether runs are
/// shortened, simulations at the same time, the folder of results, and whether what is there is run again.
type Given = (u64, Option<u32>, bool, Option<usize>, Option<PathBuf>, bool);

/// Runs experiments, by name or declared in JSON, and gives their studies as JSON.
///
/// About ten times a second `progress` is called with simulations that have ended, simulations in all, and
/// seconds left. An exception raised by `progress` or by a signal ends the simulations.
#[pyfunction]
pub fn lab_run(
    py: Python<'_>,
    names: Vec<String>,
    declared: Vec<String>,
    given: Given,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (seed, seeds, quick, threads, results, fresh) = given;
    if threads == Some(0) || seeds == Some(0) {
        return Err(bad_argument(py, "threads=0 or seeds=0: use at least 1".to_owned()));
    }
    let failed = |error: braid_lab::Error| exception(py, &error);
    let mut experiments = if names.is_empty() { Vec::new() } else { find(&names).map_err(failed)? };
    for text in &declared {
        experiments.push(Experiment::from_json(text).map_err(failed)?);
    }
    let seeds = match (seeds, quick) {
        (Some(seeds), _) => Seeds::Fixed(seeds),
        (None, true) => Seeds::Fixed(1),
        (None, false) => Seeds::AsNeeded,
    };
    let folder = results.map(|path| Folder::open(&path, fresh)).transpose().map_err(failed)?;
    let folder = folder.unwrap_or_else(Folder::none);
    let how = How { seed, seeds, quick, threads };
    let raised = Raised::default();
    let studies = py.detach(|| {
        study(&experiments, how, &folder, |news| {
            let News::Progress { sweep, left, .. } = news else { return ControlFlow::Continue(()) };
            let goes_on = raised.go_on(|py| match &progress {
                Some(progress) => progress.call1(py, (sweep.finished, sweep.total, *left)).map(|_| ()),
                None => Ok(()),
            });
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    });
    raised.raise()?;
    let studies = studies.map_err(failed)?;
    Ok(serde_json::to_string(&studies).expect("studies are plain data"))
}
