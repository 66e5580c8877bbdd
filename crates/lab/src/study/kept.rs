//! Values of seeds in a folder, with a file for each experiment and seed, so that a stopped run continues,
//! and a page can be made from finished runs.
//!
//! A file is used only if its key is current. The key is a hash of the seed's simulations, of their devices'
//! models, of the measures, and of the sources of all crates used by a simulation (`build.rs`). A file with
//! another key is of other code or of another declaration: the simulations run again, and the file is
//! replaced. Claims are not part of the key, because claims are judged anew each time.

use super::{How, Values, plan};
use crate::block_costs::Metric;
use crate::experiment::Experiment;
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Hash of the sources used by a simulation.
const SOURCES: &str = env!("BRAID_LAB_SOURCES");

/// A folder of values; without a path, nothing is kept.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    path: Option<PathBuf>,
    /// True to replace existing values instead of using them.
    fresh: bool,
}

#[derive(Serialize, Deserialize)]
struct KeptValues {
    key: String,
    experiment: String,
    seed: u64,
    quick: bool,
    /// Seconds taken by the simulations, of all threads together.
    seconds: f64,
    /// As texts, to keep every bit of a number.
    values: Vec<Vec<Vec<Option<String>>>>,
}

impl Folder {
    /// No folder: nothing is kept.
    pub fn none() -> Folder {
        Folder::default()
    }

    /// The folder at `path`, which is created if missing. With `fresh`, everything runs again, and existing
    /// values are replaced.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn open(path: &Path, fresh: bool) -> Result<Folder> {
        std::fs::create_dir_all(path).map_err(|error| cannot("make the folder", path, &error))?;
        Ok(Folder { path: Some(path.to_owned()), fresh })
    }

    /// Values of the seed `how.seed`; `None` if missing, or of another version of the program or of the
    /// experiment.
    pub(super) fn find(&self, experiment: &Experiment, how: How) -> Result<Option<Values>> {
        let Some(path) = self.file(experiment, how).filter(|_| !self.fresh) else { return Ok(None) };
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| cannot("read", &path, &error))?,
        };
        let damaged =
            || Error::new(ErrorKind::Setup, format!("{}: no results of the lab: remove it", path.display()));
        let kept: KeptValues = serde_json::from_str(&text).map_err(|_| damaged())?;
        if kept.key != key(experiment, how)? {
            return Ok(None);
        }
        let number = |text: Option<String>| text.map(|text| text.parse().map_err(|_| damaged())).transpose();
        let row = |row: Vec<Option<String>>| row.into_iter().map(number).collect::<Result<Vec<_>>>();
        let table = |rows: Vec<Vec<Option<String>>>| rows.into_iter().map(row).collect::<Result<Vec<_>>>();
        let values: Values = kept.values.into_iter().map(table).collect::<Result<_>>()?;
        let (series, places) = (experiment.series.len(), experiment.axis.places().len());
        let is_whole = values.len() == experiment.measures.len()
            && values.iter().all(|rows| rows.len() == series && rows.iter().all(|row| row.len() == places));
        if is_whole { Ok(Some(values)) } else { Err(damaged()) }
    }

    /// Keeps the values of the seed `how.seed`. The file is written whole or not at all.
    pub(super) fn keep(
        &self,
        experiment: &Experiment,
        how: How,
        values: &Values,
        seconds: f64,
    ) -> Result<()> {
        let Some(path) = self.file(experiment, how) else { return Ok(()) };
        let row = |row: &Vec<Option<f64>>| row.iter().map(|v| v.map(|v| v.to_string())).collect();
        let kept = KeptValues {
            key: key(experiment, how)?,
            experiment: experiment.id.to_owned(),
            seed: how.seed,
            quick: how.quick,
            seconds,
            values: values.iter().map(|table| table.iter().map(row).collect()).collect(),
        };
        let beside = path.with_extension(format!("{}.part", std::process::id()));
        let text = serde_json::to_string(&kept).expect("texts and numbers are always written");
        std::fs::write(&beside, text)
            .and_then(|()| std::fs::rename(&beside, &path))
            .map_err(|error| cannot("write", &path, &error))
    }

    fn file(&self, experiment: &Experiment, how: How) -> Option<PathBuf> {
        let quick = if how.quick { "-quick" } else { "" };
        let name = format!("{}{quick}-seed{}.json", experiment.id.replace('/', "-"), how.seed);
        Some(self.path.as_ref()?.join(name))
    }
}

/// Key of a seed's values: a hash of everything that the values depend on.
fn key(experiment: &Experiment, how: How) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    SOURCES.hash(&mut hasher);
    for setup in plan(experiment, how)? {
        let specs = setup.devices.iter().map(|device| device.spec()).collect::<Result<Vec<_>>>()?;
        format!("{setup:?} {specs:?}").hash(&mut hasher);
    }
    let metrics: Vec<Option<Metric>> = experiment.series.iter().map(|series| series.metric).collect();
    format!("{:?} {:?} {metrics:?} {:?}", experiment.measures, experiment.counting, experiment.axis)
        .hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::Setup,
        format!("cannot {what} {}: {error}; name another place with --results", path.display()),
    )
}
