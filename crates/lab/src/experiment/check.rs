//! Consistency check of declarations from files: everything mentioned is declared. Tests check the constants
//! more strictly.

use super::{Axis, Experiment, Quantity};
use crate::study::{How, Seeds, plan};
use crate::{Error, Result};

impl Experiment {
    /// Returns an error if the declaration is inconsistent.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::setup(format!("experiment {}: {what}", self.id)));
        let system = self.paper.system;
        match self.id.split_once('/') {
            Some((first, figure)) if first == system && is_plain(system) && is_plain(figure) => {}
            _ => {
                return wrong(format!(
                    "use an id that is the paper's system, '{system}', then / and a word of letters, digits and -"
                ));
            }
        }
        let places = self.axis.places();
        if places.is_empty() || !places.is_sorted_by(|a, b| a < b) {
            return wrong(
                "the places of its axis must rise: give at least one, each larger than the place before"
                    .to_owned(),
            );
        }
        if let Axis::Phases { phases, .. } = self.axis
            && !phases.iter().all(|phase| 0.0 <= phase.from && phase.from < phase.to && phase.to <= 1.0)
        {
            return wrong(
                "a phase is empty: from and to are parts of the run, 0 <= from < to <= 1".to_owned(),
            );
        }
        if self.measures.is_empty() || self.series.is_empty() {
            return wrong("it needs at least one measure and one series".to_owned());
        }
        let labels: Vec<&str> = self.series.iter().map(|series| series.label).collect();
        for (place, series) in self.series.iter().enumerate() {
            if labels[..place].contains(&series.label) {
                return wrong(format!("two series are called '{}': rename one of them", series.label));
            }
            if let Some(of) = series.variant_of.filter(|of| !labels.contains(of)) {
                return wrong(format!("variant_of = '{of}' is no series: use one of {}", labels.join(", ")));
            }
        }
        if let Some(jitter) = self.jitter.iter().find(|jitter| jitter.low >= jitter.high) {
            return wrong(format!("jitter {}: low is not below high", jitter.name));
        }
        let of_claims = self.claims.iter().flat_map(|claim| claim.tests).map(|test| test.quantity);
        let instead = self.claims.iter().flat_map(|claim| claim.instead).copied();
        let baselines = self.baselines.iter().map(|baseline| baseline.quantity);
        for quantity in of_claims.chain(instead).chain(baselines) {
            self.check_number(&quantity, &labels, &places)?;
        }
        let how = How { seed: 1, seeds: Seeds::Fixed(1), quick: false, threads: None };
        for setup in plan(self, how)? {
            for device in &setup.devices {
                device.spec()?;
            }
            let crate::Load::Workload(load) = &setup.load else { continue };
            if let Err(error) = braid_workload::parse(load, 1) {
                return wrong(format!("load = '{load}': {error}"));
            }
        }
        Ok(())
    }

    fn check_number(&self, quantity: &Quantity, labels: &[&str], places: &[u32]) -> Result<()> {
        let wrong = |what: String| Err(Error::setup(format!("experiment {}: {what}", self.id)));
        if !self.measures.contains(&quantity.measure()) {
            return wrong(format!(
                "a number uses the measure {}, which the experiment does not have: add the measure",
                quantity.measure().name()
            ));
        }
        if let Some(unknown) = quantity.series().into_iter().find(|series| !labels.contains(series)) {
            return wrong(format!(
                "a number is of the series '{unknown}', which is not there: use one of {}",
                labels.join(", ")
            ));
        }
        let at = match *quantity {
            Quantity::Value { at, .. } | Quantity::Ratio { at, .. } | Quantity::RatioToSum { at, .. } => {
                vec![at]
            }
            Quantity::WorstRatio { from, .. } => vec![from],
            Quantity::Change { at, from, .. } => vec![at, from],
            Quantity::Peak { from, to, .. }
            | Quantity::Rise { from, to, .. }
            | Quantity::Fall { from, to, .. } => {
                vec![from, to]
            }
            Quantity::Best { .. }
            | Quantity::Most { .. }
            | Quantity::BestPlace { .. }
            | Quantity::BestRatio { .. }
            | Quantity::RatioOfBests { .. } => Vec::new(),
        };
        match at.into_iter().find(|at| !places.contains(at)) {
            Some(at) => wrong(format!(
                "a number uses the place {at}, which is not on its axis: use one of {places:?}"
            )),
            None => Ok(()),
        }
    }
}

/// True for a word that can be part of an id and of a file's name.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}
