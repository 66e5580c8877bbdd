//! Runs experiments. Declarations become setups (`plan.rs`); the setups are simulated on all cores with as
//! many seeds as a verdict needs (`run.rs`). The values of each seed are kept in a folder (`kept.rs`), and
//! all seeds become tables.

use crate::Outcome;
use crate::estimate::Estimate;
use crate::experiment::{Experiment, Jitter, Measure, Published, Quantity, Series, Test};
use crate::judge::{self, Judged, Number, SEEDS_NEEDED, shown_with_spread};
use crate::measure::value;
use serde::Serialize;

mod kept;
mod plan;
mod run;

pub use kept::Folder;
use plan::Lengths;
pub use plan::plan;
pub use run::{News, Work, most_seeds, study, work};

/// A finished experiment: plain data, the same on every machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Study {
    /// The experiment's id.
    pub id: String,
    /// Title of the experiment.
    pub title: String,
    /// The paper.
    pub paper: String,
    /// Authors of the paper.
    pub authors: String,
    /// Year of publication.
    pub year: u16,
    /// Place in the paper.
    pub place: String,
    /// First seed of all simulations; further seeds follow consecutively.
    pub seed: u64,
    /// Number of seeds.
    pub seeds: u32,
    /// Fewest seeds for a verdict.
    pub seeds_needed: u32,
    /// True if the runs were shortened: the numbers are not worth comparing.
    pub quick: bool,
    /// Seconds before measuring; under phases a part of the run's length.
    pub warm_up_seconds: f64,
    /// Seconds measured.
    pub measured_seconds: f64,
    /// The horizontal axis.
    pub axis: String,
    /// Places on the axis.
    pub axis_values: Vec<u32>,
    /// Simulated systems, by series.
    pub series: Vec<Simulated>,
    /// A table for each measure.
    pub tables: Vec<Table>,
    /// Assumed parameters of loads, drawn by each seed: `{name}` in a load.
    pub jitter: Vec<Jitter>,
    /// The paper's rows of single devices. Unless all are reproduced, no claim about a policy is judged.
    pub baselines: Vec<Number>,
    /// Claims of the paper, beside our numbers.
    pub claims: Vec<Judged>,
    /// Values that the paper gives in numbers.
    pub published: String,
    /// Results of the paper used to calibrate the models; everything else is predicted.
    pub calibrated: Vec<String>,
    /// Places in which the paper contradicts itself.
    pub contradictions: Vec<String>,
    /// Differences from the paper, in this experiment.
    pub differs: Vec<String>,
    /// Differences from the paper, in all experiments of the paper.
    pub differs_in_all: Vec<String>,
}

impl Study {
    /// The seeds in words, for people.
    pub fn seeds_shown(&self) -> String {
        match self.seeds {
            1 => format!("seed {}", self.seed),
            seeds => format!("means of {seeds} seeds from {} on", self.seed),
        }
    }

    /// The measured part of each run, in words.
    pub fn measured_shown(&self) -> String {
        match self.measured_seconds > 0.0 {
            true => format!("{} s measured after {} s", self.measured_seconds, self.warm_up_seconds),
            false => "the whole load measured".to_owned(),
        }
    }
}

/// A simulated series.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Simulated {
    /// Name of the series.
    pub label: String,
    /// The devices, the network between their nodes, and the memory before them, as on the command line.
    pub device_arguments: Vec<String>,
    /// Required copies of all data.
    pub copies: u8,
    /// The policy, with `{x}` for the place on the axis.
    pub policy: String,
    /// The load, with `{x}` for the place on the axis.
    pub load: String,
    /// The series with another setting of the same system, if this is a variant.
    pub variant_of: Option<String>,
}

/// Values of one measure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// Name of the measure.
    pub measure: String,
    /// Unit of the measure.
    pub unit: String,
    /// True if more is better.
    pub more_is_better: bool,
    /// A value for each series and place: the mean over all seeds with a value; `None` if no seed has a
    /// value.
    pub values: Vec<Vec<Option<f64>>>,
    /// Half the width of the 95 % confidence interval of each value.
    pub half_widths: Vec<Vec<f64>>,
    /// Number of seeds without a value: the run did not reach the measured state.
    pub seeds_without: Vec<Vec<u32>>,
    /// The paper's values.
    pub paper_values: Vec<PaperValue>,
    #[serde(skip)]
    pub(crate) of: Option<Measure>,
}

impl Table {
    /// A value with its spread, for people.
    pub fn shown(&self, series: usize, place: usize) -> String {
        let spread = self.half_widths[series][place];
        match (self.values[series][place], self.seeds_without[series][place]) {
            (None, _) => "not reached".to_owned(),
            (Some(value), 0) => shown_with_spread(value, spread),
            (Some(value), seeds) => {
                format!("{}, not reached in {seeds} seeds", shown_with_spread(value, spread))
            }
        }
    }
}

/// A value given by the paper.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PaperValue {
    /// Index of the series, from 0 on.
    pub series_index: usize,
    /// Place on the axis.
    pub axis_value: u32,
    /// The value, or the lower end of a range.
    pub low: f64,
    /// The value, or the upper end of a range.
    pub high: f64,
}

/// Options for running experiments.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// First seed of workloads and devices.
    pub seed: u64,
    /// Number of seeds, from the first seed on.
    pub seeds: Seeds,
    /// True to shorten runs, as a check that experiments work.
    pub quick: bool,
    /// Simulations at the same time; `None` for one on each core.
    pub threads: Option<usize>,
}

/// Number of seeds of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seeds {
    /// A fixed number; at least one seed is run.
    Fixed(u32),
    /// Three, then five, then ten, until no verdict is undecided, and fewer if an experiment takes long
    /// ([`most_seeds`]). The number of seeds depends on the verdicts and on the declared time of the
    /// experiment, never on the speed of the machine.
    AsNeeded,
}

/// The values of one seed: for each measure, each series and each place.
pub(crate) type Values = Vec<Vec<Vec<Option<f64>>>>;

/// The values of one seed, from the outcomes of its simulations.
fn values(experiment: &Experiment, outcomes: &[&Outcome]) -> Values {
    let places = experiment.axis.places();
    let of_series = |row: &[&Outcome], series: &Series, measure: Measure| {
        let row = row.iter().zip(&places);
        row.map(|(outcome, &place)| value(experiment, series, place, measure, outcome)).collect()
    };
    let of_measure = |&measure: &Measure| {
        let rows = outcomes.chunks(places.len()).zip(experiment.series);
        rows.map(|(row, series)| of_series(row, series, measure)).collect()
    };
    experiment.measures.iter().map(of_measure).collect()
}

/// The tables of one seed.
fn tables(experiment: &Experiment, values: Values) -> Vec<Table> {
    let places = experiment.axis.places().len();
    let table = |(&measure, values): (&Measure, Vec<Vec<Option<f64>>>)| Table {
        measure: measure.name().to_owned(),
        unit: measure.unit().to_owned(),
        more_is_better: measure.more_is_better(),
        values,
        half_widths: vec![vec![0.0; places]; experiment.series.len()],
        seeds_without: vec![vec![0; places]; experiment.series.len()],
        paper_values: published(experiment, measure),
        of: Some(measure),
    };
    experiment.measures.iter().zip(values).map(table).collect()
}

/// Means over all seeds.
fn means(seeds: &[Vec<Table>]) -> Vec<Table> {
    let mean = |number: usize| {
        let mut table = seeds[0][number].clone();
        for (series, row) in table.values.iter_mut().enumerate() {
            for (place, value) in row.iter_mut().enumerate() {
                let all = seeds.iter().filter_map(|tables| tables[number].values[series][place]);
                let all: Vec<f64> = all.collect();
                let estimate = Estimate::of(&all);
                *value = (!all.is_empty()).then_some(estimate.mean);
                table.half_widths[series][place] = if all.is_empty() { 0.0 } else { estimate.half_width() };
                table.seeds_without[series][place] = (seeds.len() - all.len()) as u32;
            }
        }
        table
    };
    (0..seeds[0].len()).map(mean).collect()
}

fn put_together(experiment: &Experiment, how: How, seeds: &[Vec<Table>]) -> Study {
    let (baselines, claims) = judge::judge(experiment, seeds, how.quick);
    let times = Lengths::of(experiment, how);
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    Study {
        id: experiment.id.to_owned(),
        title: experiment.title.to_owned(),
        paper: experiment.paper.title.to_owned(),
        authors: experiment.paper.authors().to_owned(),
        year: experiment.paper.year,
        place: experiment.place.to_owned(),
        seed: how.seed,
        seeds: seeds.len() as u32,
        seeds_needed: SEEDS_NEEDED,
        quick: how.quick,
        warm_up_seconds: times.warm_up,
        measured_seconds: times.measured,
        axis: experiment.axis.label().to_owned(),
        axis_values: experiment.axis.places(),
        series: experiment.series.iter().map(simulated).collect(),
        tables: means(seeds),
        jitter: experiment.jitter.to_vec(),
        baselines,
        claims,
        published: experiment.published.to_owned(),
        calibrated: owned(experiment.calibrated),
        contradictions: owned(experiment.contradictions),
        differs: owned(experiment.differs),
        differs_in_all: owned(experiment.paper.differs),
    }
}

/// A study without runs, for tests of properties common to all studies.
#[cfg(test)]
pub(crate) fn unrun(experiment: &Experiment, how: How) -> Study {
    let nothing = vec![vec![None; experiment.axis.places().len()]; experiment.series.len()];
    let values = vec![nothing; experiment.measures.len()];
    put_together(experiment, how, &[tables(experiment, values)])
}

/// The paper's values of a measure.
fn published(experiment: &Experiment, measure: Measure) -> Vec<PaperValue> {
    let tests = experiment.claims.iter().flat_map(|claim| claim.tests);
    let value = |test: &Test| {
        let Quantity::Value { measure: of, series, at } = test.quantity else { return None };
        let series = experiment.series.iter().position(|known| known.label == series)?;
        let (low, high) = match test.published {
            Published::Number(number) => (number, number),
            Published::Range(low, high) => (low, high),
            Published::Words => return None,
        };
        (of == measure).then_some(PaperValue { series_index: series, axis_value: at, low, high })
    };
    tests.filter_map(value).collect()
}

/// A series, as on the command line.
pub fn simulated(series: &Series) -> Simulated {
    let devices = series.devices.iter().map(|(class, text)| format!("--{class} {text}"));
    Simulated {
        label: series.label.to_owned(),
        device_arguments: devices
            .chain(series.network.map(|text| format!("--network {text}")))
            .chain(series.dram.map(|text| format!("--dram {text}")))
            .collect(),
        copies: series.copies,
        policy: series.policy.to_owned(),
        load: series.load.to_owned(),
        variant_of: series.variant_of.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests;
