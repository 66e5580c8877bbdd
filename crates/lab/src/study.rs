//! Runs experiments: the declarations become setups (`plan.rs`), the setups are simulated on all cores with
//! as many seeds as a verdict needs (`run.rs`), the values of each seed are kept in a folder (`kept.rs`), and
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

/// An experiment that has been run: plain data, the same on every machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Study {
    /// The experiment's id.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The paper.
    pub paper: String,
    /// Its authors.
    pub authors: String,
    /// The year in which it was published.
    pub year: u16,
    /// The place in it.
    pub place: String,
    /// Seed of all simulations: the first of several, which follow each other.
    pub seed: u64,
    /// How many there are.
    pub seeds: u32,
    /// How many a verdict takes at least.
    pub seeds_needed: u32,
    /// Whether it was shortened: its numbers are not worth comparing then.
    pub quick: bool,
    /// Seconds before measuring, and measured ones; under phases the length of the run.
    pub warm_up_seconds: f64,
    /// Seconds measured.
    pub measured_seconds: f64,
    /// What runs from left to right.
    pub axis: String,
    /// The places on it.
    pub axis_values: Vec<u32>,
    /// What was simulated, by series.
    pub series: Vec<Simulated>,
    /// A table for each measure.
    pub tables: Vec<Table>,
    /// Assumed parameters of loads, which each seed draws: `{name}` in a load.
    pub jitter: Vec<Jitter>,
    /// The paper's rows of single devices: unless all come out, no claim about a policy is judged.
    pub baselines: Vec<Number>,
    /// What the paper says, beside ours.
    pub claims: Vec<Judged>,
    /// Which values the paper gives in numbers.
    pub published: String,
    /// Which of the paper's own results went into the models: all else is predicted.
    pub calibrated: Vec<String>,
    /// Where the paper itself says otherwise elsewhere.
    pub contradictions: Vec<String>,
    /// What is not as in the paper, in this experiment.
    pub differs: Vec<String>,
    /// What is not as in the paper, in all experiments of that paper.
    pub differs_in_all: Vec<String>,
}

impl Study {
    /// Its seeds, for people.
    pub fn seeds_shown(&self) -> String {
        match self.seeds {
            1 => format!("seed {}", self.seed),
            seeds => format!("means of {seeds} seeds from {} on", self.seed),
        }
    }

    /// Which part of each run was measured.
    pub fn measured_shown(&self) -> String {
        match self.measured_seconds > 0.0 {
            true => format!("{} s measured after {} s", self.measured_seconds, self.warm_up_seconds),
            false => "the whole load measured".to_owned(),
        }
    }
}

/// What a series was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Simulated {
    /// What it is called.
    pub label: String,
    /// Its devices, the network that joins their nodes, and the memory before them, as on the command line.
    pub device_arguments: Vec<String>,
    /// Required copies of everything.
    pub copies: u8,
    /// Its policy, `{x}` for the place on the axis.
    pub policy: String,
    /// Its load, likewise.
    pub load: String,
    /// The series of which it is another setting.
    pub variant_of: Option<String>,
}

/// What was measured of one kind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// What it is called.
    pub measure: String,
    /// Its unit.
    pub unit: String,
    /// Whether more is better.
    pub more_is_better: bool,
    /// For each series a value at each place: the mean over all seeds that have one, if any has.
    pub values: Vec<Vec<Option<f64>>>,
    /// Half the width of the 95 % confidence interval of each of these.
    pub half_widths: Vec<Vec<f64>>,
    /// In how many seeds there is no value: the run did not reach what is measured.
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

/// A value that the paper gives.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PaperValue {
    /// Of which series, from 0 on.
    pub series_index: usize,
    /// At which place.
    pub axis_value: u32,
    /// The value, or the lower end of a range.
    pub low: f64,
    /// The value, or the upper end of a range.
    pub high: f64,
}

/// How experiments are run.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Seed of workloads and devices: the first one.
    pub seed: u64,
    /// How many seeds, from the first one on.
    pub seeds: Seeds,
    /// Whether runs are shortened, to see that they work.
    pub quick: bool,
    /// Simulations at the same time; none for one on each core.
    pub threads: Option<usize>,
}

/// How many seeds an experiment is run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seeds {
    /// So many; at least one counts.
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

/// The means of what all seeds gave.
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

/// A study in which nothing has run, for tests of what is the same in all studies.
#[cfg(test)]
pub(crate) fn unrun(experiment: &Experiment, how: How) -> Study {
    let nothing = vec![vec![None; experiment.axis.places().len()]; experiment.series.len()];
    let values = vec![nothing; experiment.measures.len()];
    put_together(experiment, how, &[tables(experiment, values)])
}

/// The values that the paper gives of a measure.
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

/// What a series is, as on the command line.
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
