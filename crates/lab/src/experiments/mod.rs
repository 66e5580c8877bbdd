//! The experiments: one file for each table or figure, in a folder for each paper. An id is the folder's name and the
//! file's.

pub mod colloid;
pub mod exclusive;
pub mod hystor;
pub mod matrix;
pub mod most;
pub mod orthus;
pub mod pass;
mod tiers;
pub mod wardrop;
pub mod working_set;

use crate::experiment::Experiment;
use crate::{Error, Result};

/// All of them, paper after paper, then those of later systems, and all under all loads.
pub fn all() -> Vec<&'static Experiment> {
    let papers = [wardrop::ALL, pass::ALL, hystor::ALL, exclusive::ALL, working_set::ALL];
    let heirs = [orthus::ALL, colloid::ALL, most::ALL, matrix::ALL];
    papers.into_iter().chain(heirs).flatten().copied().collect()
}

/// The experiments that these names stand for: an id, a system for all of its, or `all`. In the order of [`all`], each
/// once.
///
/// # Errors
/// A name that stands for nothing, with those that do.
pub fn find(names: &[String]) -> Result<Vec<&'static Experiment>> {
    let known = all();
    let is_meant = |experiment: &Experiment, name: &str| {
        name == "all" || experiment.id == name || experiment.paper.system == name
    };
    if let Some(unknown) = names.iter().find(|name| !known.iter().any(|e| is_meant(e, name))) {
        let ids: Vec<&str> = known.iter().map(|experiment| experiment.id).collect();
        return Err(Error::setup(format!("no experiment '{unknown}': use one of {}", ids.join(", "))));
    }
    let meant = |e: &&Experiment| names.iter().any(|name| is_meant(e, name));
    Ok(known.into_iter().filter(meant).collect())
}

#[cfg(test)]
mod heirs_tests;
#[cfg(test)]
mod tests;
