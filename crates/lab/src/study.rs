//! Runs experiments: their declarations become setups, these are simulated on all cores, and what came out becomes tables.
//!
//! Experiments that ask for the same simulation share it.

use crate::estimate::Estimate;
use crate::experiment::{Axis, Experiment, Jitter, Measure, Published, Quantity, Series, Test};
use crate::judge::{self, Judged, Number, SEEDS_NEEDED, shown_with_spread};
use crate::measure::value;
use crate::sweep::sweep_told;
use crate::{DeviceSetup, Error, Load, OWN, Outcome, Progress, Result, Setup, WarmUp, parse_network};
use braid_base::{Bytes, DeviceClass, Nanos, Rng};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// An experiment that has been run: plain data, the same on every machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Study {
    /// The experiment's id.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The paper.
    pub paper: String,
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
}

/// What a series was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Simulated {
    /// What it is called.
    pub label: String,
    /// Its devices, and the network that joins their nodes, as on the command line.
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
    /// Seed of workloads and devices.
    pub seed: u64,
    /// So many seeds, from that one on; at least one counts.
    pub seeds: u32,
    /// Whether runs are shortened, to see that they work.
    pub quick: bool,
    /// Simulations at the same time; none for one on each core.
    pub threads: Option<usize>,
}

/// Runs of a quick study are so much shorter.
const QUICK: f64 = 0.05;
/// What a quick study runs of a load that is else measured whole, in seconds.
const QUICK_WHOLE: f64 = 2.0;

/// Runs experiments, and calls `progress` about ten times a second, and `ended` with each experiment whose simulations have all ended, once.
///
/// # Errors
/// The first simulation that failed.
pub fn study(
    experiments: &[&Experiment],
    how: How,
    mut progress: impl FnMut(&Progress),
    mut ended: impl FnMut(&Experiment),
) -> Result<Vec<Study>> {
    let mut setups: Vec<Setup> = Vec::new();
    // By experiment and seed.
    let mut needed: Vec<Vec<Vec<usize>>> = Vec::new();
    for experiment in experiments {
        let mut seeds = Vec::new();
        for number in 0..u64::from(how.seeds.max(1)) {
            let mut places = Vec::new();
            for setup in plan(experiment, How { seed: how.seed.wrapping_add(number), ..how })? {
                places.push(setups.iter().position(|known| *known == setup).unwrap_or_else(|| {
                    setups.push(setup);
                    setups.len() - 1
                }));
            }
            seeds.push(places);
        }
        needed.push(seeds);
    }
    let mut awaited: Vec<BTreeSet<usize>> =
        needed.iter().map(|seeds| seeds.iter().flatten().copied().collect()).collect();
    let show = |how_far: &Progress| {
        progress(how_far);
        ControlFlow::Continue(())
    };
    let ended_at = |place: usize| {
        for (experiment, awaited) in experiments.iter().zip(&mut awaited) {
            if awaited.remove(&place) && awaited.is_empty() {
                ended(experiment);
            }
        }
    };
    let runs: Vec<Outcome> = sweep_told(&setups, how.threads, show, ended_at)
        .into_iter()
        .zip(&setups)
        .map(|(run, setup)| {
            let named = |error: Error| {
                let Load::Workload(load) = &setup.load else { return error };
                Error::new(error.kind(), format!("{load} under {}: {error}", setup.policy))
            };
            run.map(|run| run.outcome).map_err(named)
        })
        .collect::<Result<_>>()?;
    let outcomes = |places: &Vec<usize>| places.iter().map(|&place| &runs[place]).collect::<Vec<_>>();
    let put_together = |(experiment, seeds): (&&Experiment, &Vec<Vec<usize>>)| {
        let tables: Vec<Vec<Table>> =
            seeds.iter().map(|places| tables(experiment, &outcomes(places))).collect();
        put_together(experiment, how, &tables)
    };
    Ok(experiments.iter().zip(&needed).map(put_together).collect())
}

/// The setups of an experiment: series after series, place after place.
///
/// # Errors
/// Devices that cannot be.
pub fn plan(experiment: &Experiment, how: How) -> Result<Vec<Setup>> {
    let times = Lengths::of(experiment, how);
    let mut setups = Vec::new();
    for series in experiment.series {
        for (place, (warm_up, measured)) in
            experiment.axis.places().into_iter().zip(times.of_places(experiment))
        {
            let device = |&(class, text): &(DeviceClass, &str)| {
                DeviceSetup::parse(class, &fill_in(text, place, times.all / 2.0))
            };
            let devices: Vec<DeviceSetup> = series.devices.iter().map(device).collect::<Result<_>>()?;
            let fill = match (series.copies > 1, experiment.paper.own_fill) {
                (true, _) => Some(MIRROR),
                (false, true) => Some(OWN),
                (false, false) => None,
            };
            let network = series.network.map(|text| parse_network(&fill_in(text, place, times.all / 2.0)));
            let load = drawn(series.load, experiment.jitter, how.seed);
            let load = Load::Workload(fill_in(&load, place, times.all / 2.0));
            setups.push(Setup {
                network: network.transpose()?,
                seed: how.seed,
                size: experiment.paper.volume,
                copies: series.copies,
                cache_extents: experiment.paper.cache_extents,
                readahead: experiment.paper.readahead,
                // No paper reads ahead of streams.
                ahead: Bytes::ZERO,
                processors: experiment.paper.processors,
                prefill: experiment.prefill,
                prefill_policy: fill.map(str::to_owned),
                burstiness: experiment.measures.contains(&Measure::Entropy),
                block_costs: experiment.measures.contains(&Measure::Covered),
                warm_up: WarmUp::Time(seconds(warm_up)),
                duration: (measured > 0.0).then(|| seconds(measured)),
                block_size: series.block_size.unwrap_or(experiment.paper.block_size),
                ..Setup::new(devices, fill_in(series.policy, place, times.all / 2.0), load)
            });
        }
    }
    Ok(setups)
}

/// What fills a volume of two copies: both of them are current when the load begins.
const MIRROR: &str = "raid1";

fn fill_in(text: &str, place: u32, half: f64) -> String {
    let text =
        text.replace("{x}", &place.to_string()).replace("{x*512}", &(u64::from(place) * 512).to_string());
    text.replace("{half}", &format!("{}ms", (half * 1e3).round()))
}

/// A load with its assumed parameters, as a seed draws them: the same for all series, and for all experiments that share one.
fn drawn(load: &str, jitter: &[Jitter], seed: u64) -> String {
    jitter.iter().fold(load.to_owned(), |load, parameter| {
        // The name is part of the draw, or all parameters would be high together.
        let mut rng =
            Rng::new(parameter.name.bytes().fold(seed, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte)));
        let value = u64::from(parameter.low) + rng.below(u64::from(parameter.high - parameter.low) + 1);
        load.replace(&format!("{{{}}}", parameter.name), &value.to_string())
    })
}

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}

/// How long runs are, in seconds.
struct Lengths {
    warm_up: f64,
    measured: f64,
    all: f64,
}

impl Lengths {
    fn of(experiment: &Experiment, how: How) -> Lengths {
        let scale = if how.quick { QUICK } else { 1.0 };
        let warm_up = f64::from(experiment.times.warm_up) * scale;
        let measured = match (experiment.times.measured, how.quick) {
            (0, true) => QUICK_WHOLE,
            (measured, _) => f64::from(measured) * scale,
        };
        Lengths { warm_up, measured, all: warm_up + measured }
    }

    /// Warm-up and measured time at each place of the axis.
    fn of_places(&self, experiment: &Experiment) -> Vec<(f64, f64)> {
        match experiment.axis {
            Axis::Numbers { places, .. } => vec![(self.warm_up, self.measured); places.len()],
            Axis::Phases { phases, .. } => {
                phases.iter().map(|p| (self.all * p.from, self.all * (p.to - p.from))).collect()
            }
        }
    }
}

/// What one seed gave.
fn tables(experiment: &Experiment, outcomes: &[&Outcome]) -> Vec<Table> {
    let places = experiment.axis.places();
    let table = |&measure: &Measure| Table {
        measure: measure.name().to_owned(),
        unit: measure.unit().to_owned(),
        more_is_better: measure.more_is_better(),
        values: outcomes
            .chunks(places.len())
            .zip(experiment.series)
            .map(|(row, series)| {
                let row = row.iter().zip(&places);
                row.map(|(outcome, &place)| value(experiment, series, place, measure, outcome)).collect()
            })
            .collect(),
        half_widths: vec![vec![0.0; places.len()]; experiment.series.len()],
        seeds_without: vec![vec![0; places.len()]; experiment.series.len()],
        paper_values: published(experiment, measure),
        of: Some(measure),
    };
    experiment.measures.iter().map(table).collect()
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

fn simulated(series: &Series) -> Simulated {
    let devices = series.devices.iter().map(|(class, text)| format!("--{class} {text}"));
    Simulated {
        label: series.label.to_owned(),
        device_arguments: devices.chain(series.network.map(|text| format!("--network {text}"))).collect(),
        copies: series.copies,
        policy: series.policy.to_owned(),
        load: series.load.to_owned(),
        variant_of: series.variant_of.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(values: [Option<f64>; 2]) -> Vec<Table> {
        vec![Table {
            measure: "time to equilibrium".to_owned(),
            unit: "s".to_owned(),
            more_is_better: false,
            values: vec![values.to_vec()],
            half_widths: vec![vec![0.0; 2]],
            seeds_without: vec![vec![0; 2]],
            paper_values: Vec::new(),
            of: Some(Measure::Settling),
        }]
    }

    #[test]
    fn seeds_without_a_value_are_told_and_not_averaged() {
        let seeds = [table([Some(20.0), None]), table([None, None]), table([Some(30.0), None])];
        let mean = &means(&seeds)[0];
        assert_eq!(mean.values, [[Some(25.0), None]]);
        assert_eq!(mean.seeds_without, [[1, 3]]);
        assert!(mean.half_widths[0][0] > 60.0, "two seeds say little: {:?}", mean.half_widths);
        assert!(
            mean.shown(0, 0).starts_with("25.0 ± ") && mean.shown(0, 0).contains('1'),
            "{}",
            mean.shown(0, 0)
        );
        assert_eq!(mean.shown(0, 1), "not reached");
    }
}
