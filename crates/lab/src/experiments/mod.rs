//! The experiments: one file for each table or figure, in a folder for each paper. An id consists of the
//! names of the folder and the file.

pub mod colloid;
mod costs;
pub mod exclusive;
pub mod hystor;
pub mod matrix;
pub mod most;
pub mod orthus;
pub mod pass;
mod tiers;
pub mod wardrop;
pub mod working_set;

pub use costs::seconds;

use crate::experiment::{Experiment, Series};
use crate::{Error, Result};
use std::path::Path;

/// All experiments, paper after paper, then those of later systems, and finally the cross-matrix.
pub fn all() -> Vec<&'static Experiment> {
    let papers = [wardrop::ALL, pass::ALL, hystor::ALL, exclusive::ALL, working_set::ALL];
    let heirs = [orthus::ALL, colloid::ALL, most::ALL, matrix::ALL];
    papers.into_iter().chain(heirs).flatten().copied().collect()
}

/// Experiments by name: an id, a system for all of its experiments, or `all`; in the order of [`all`],
/// without duplicates. Names that end in `.toml` are files with declarations, and come last.
///
/// # Errors
/// An unknown name, with the known names; an unreadable file, or an invalid declaration.
pub fn find(names: &[String]) -> Result<Vec<&'static Experiment>> {
    let known = all();
    let is_meant = |experiment: &Experiment, name: &str| {
        name == "all" || experiment.id == name || experiment.paper.system == name
    };
    let is_file = |name: &str| name.ends_with(".toml");
    let mut unknown = names.iter().filter(|name| !is_file(name) && !known.iter().any(|e| is_meant(e, name)));
    if let Some(unknown) = unknown.next() {
        let ids: Vec<&str> = known.iter().map(|experiment| experiment.id).collect();
        return Err(Error::setup(format!(
            "no experiment '{unknown}': use a file that ends in .toml, or one of {}",
            ids.join(", ")
        )));
    }
    let meant = |e: &&Experiment| names.iter().any(|name| is_meant(e, name));
    let mut found: Vec<&'static Experiment> = known.iter().copied().filter(meant).collect();
    for name in names.iter().filter(|name| is_file(name)) {
        let experiment = read(Path::new(name))?;
        if found.iter().chain(&known).any(|other| other.id == experiment.id) {
            return Err(Error::setup(format!(
                "{name}: there is another experiment {}: name it otherwise",
                experiment.id
            )));
        }
        found.push(experiment);
    }
    Ok(found)
}

/// Reads the experiment declared in a TOML file.
fn read(path: &Path) -> Result<&'static Experiment> {
    let named = |why: String| Error::setup(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    Experiment::from_toml(&text).map_err(|error| named(error.to_string()))
}

/// The `N` series of an experiment: those of the paper's figure, followed by those that give reasons.
const fn with<const N: usize>(figure: &[Series], more: &[Series]) -> [Series; N] {
    assert!(figure.len() + more.len() == N, "N is the number of all series");
    let mut all = [figure[0]; N];
    let mut place = 0;
    while place < N {
        all[place] = if place < figure.len() { figure[place] } else { more[place - figure.len()] };
        place += 1;
    }
    all
}

#[cfg(test)]
mod heirs_tests;
#[cfg(test)]
mod tests;
