//! Runs experiments seed by seed, on all cores. Experiments with the same simulation share one run.
//!
//! With [`Seeds::AsNeeded`] all experiments run with three seeds, experiments with an undecided verdict with
//! five, and still undecided experiments with ten. A verdict is examined up to three times, each time with a
//! 95 % interval. A test that errs once in 20 errs in at most 3 of 20 claims if examined three times.

use super::plan::QUICK;
use super::{Folder, How, Seeds, Study, Table, put_together, tables, values};
use crate::experiment::Experiment;
use crate::experiments::seconds;
use crate::judge::{Ruling, judge};
use crate::sweep::sweep_each;
use crate::{Error, Load, Outcome, Progress, Result, Run, Setup};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Numbers of seeds after which verdicts are examined.
const LOOKS: [u32; 3] = [3, 5, 10];
/// Most seconds of processor time for an experiment if seeds are drawn as needed, except for the first
/// examination.
const MOST_SECONDS: f64 = 600.0;
/// Assumed seconds of a simulation in an experiment of unknown length.
const UNKNOWN: f64 = 0.5;

/// Reports while experiments run.
#[derive(Debug)]
pub enum News<'a> {
    /// Progress of simulations; about ten times a second.
    Progress {
        /// The running simulations.
        sweep: &'a Progress,
        /// Seconds left for the running simulations.
        left: f64,
        /// Seconds left if all experiments need the most seeds.
        left_at_most: f64,
    },
    /// All simulations of an experiment with this number of seeds have ended.
    Ended {
        /// The experiment.
        experiment: &'a Experiment,
        /// Present number of seeds.
        seeds: u32,
        /// True if verdicts are undecided, and more seeds will run.
        undecided: bool,
    },
}

/// Remaining work: seconds of processor time, as declared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// Seconds if every verdict is decided at the first examination.
    pub least_seconds: f64,
    /// Seconds if all experiments need the most seeds.
    pub most_seconds: f64,
    /// Seeds of experiments with kept values.
    pub kept: usize,
}

/// An experiment with one seed.
struct Unit {
    experiment: usize,
    how: How,
}

/// Most seeds of an experiment.
pub fn most_seeds(experiment: &Experiment, how: How) -> u32 {
    match how.seeds {
        Seeds::Fixed(seeds) => seeds.max(1),
        Seeds::AsNeeded => {
            let affordable = |look: &u32| f64::from(*look) * cost(experiment, how) <= MOST_SECONDS;
            LOOKS.into_iter().rfind(affordable).unwrap_or(LOOKS[0])
        }
    }
}

/// Remaining work for the studies of these experiments.
///
/// # Errors
/// If kept values cannot be read.
pub fn work(experiments: &[&Experiment], how: How, folder: &Folder) -> Result<Work> {
    let mut work = Work { least_seconds: 0.0, most_seconds: 0.0, kept: 0 };
    for experiment in experiments {
        let (least, most) = (first_look(how), most_seeds(experiment, how));
        for seed in 0..most {
            if folder.find(experiment, with_seed(how, seed))?.is_some() {
                work.kept += 1;
            } else {
                let seconds = cost(experiment, how);
                work.most_seconds += seconds;
                work.least_seconds += if seed < least { seconds } else { 0.0 };
            }
        }
    }
    Ok(work)
}

/// Runs experiments; kept values are read from the folder. `tell` may end the run: finished seeds are kept.
///
/// # Errors
/// The first simulation that failed, an unusable folder, or an end by `tell`.
pub fn study(
    experiments: &[&Experiment],
    how: How,
    folder: &Folder,
    mut tell: impl FnMut(&News) -> ControlFlow<()>,
) -> Result<Vec<Study>> {
    let mut done: Vec<Vec<Vec<Table>>> = experiments.iter().map(|_| Vec::new()).collect();
    let mut wanted = vec![first_look(how); experiments.len()];
    let mut is_open = vec![true; experiments.len()];
    while is_open.contains(&true) {
        let missing =
            |number: usize| (done[number].len() as u32..wanted[number]).map(move |seed| (number, seed));
        let units: Vec<Unit> = (0..experiments.len())
            .flat_map(missing)
            .map(|(experiment, seed)| Unit { experiment, how: with_seed(how, seed) })
            .collect();
        let beyond = |number: usize| {
            let more = most_seeds(experiments[number], how).saturating_sub(wanted[number]);
            if is_open[number] { f64::from(more) * cost(experiments[number], how) } else { 0.0 }
        };
        let later = (0..experiments.len()).map(beyond).sum();
        let found = run(experiments, &units, folder, how.threads, later, &mut tell)?;
        for (unit, tables) in units.iter().zip(found) {
            done[unit.experiment].push(tables);
        }
        for (number, experiment) in experiments.iter().enumerate() {
            if !is_open[number] {
                continue;
            }
            let next = next_look(experiment, how, wanted[number])
                .filter(|_| is_undecided(experiment, &done[number], how));
            if tell(&News::Ended { experiment, seeds: wanted[number], undecided: next.is_some() }).is_break()
            {
                return Err(Error::stopped());
            }
            is_open[number] = next.is_some();
            wanted[number] = next.unwrap_or(wanted[number]);
        }
    }
    Ok(experiments
        .iter()
        .zip(&done)
        .map(|(experiment, seeds)| put_together(experiment, how, seeds))
        .collect())
}

fn with_seed(how: How, number: u32) -> How {
    How { seed: how.seed.wrapping_add(u64::from(number)), ..how }
}

fn first_look(how: How) -> u32 {
    match how.seeds {
        Seeds::Fixed(seeds) => seeds.max(1),
        Seeds::AsNeeded => LOOKS[0],
    }
}

fn next_look(experiment: &Experiment, how: How, seeds: u32) -> Option<u32> {
    let most = most_seeds(experiment, how);
    LOOKS.into_iter().find(|&look| look > seeds && look <= most)
}

/// True if more seeds may decide a verdict on the systems as published. Other settings of the systems get the
/// same seeds.
fn is_undecided(experiment: &Experiment, seeds: &[Vec<Table>], how: How) -> bool {
    let (_, claims) = judge(experiment, seeds, how.quick);
    let first = claims.iter().filter_map(|claim| claim.verdicts.first());
    first.into_iter().any(|verdict| verdict.ruling == Some(Ruling::Undecided))
}

/// Seconds of processor time of one seed, as declared.
fn cost(experiment: &Experiment, how: How) -> f64 {
    let whole = seconds(experiment.id).unwrap_or(experiment.simulations() as f64 * UNKNOWN);
    if how.quick { whole * QUICK } else { whole }
}

/// Tables of units, from the folder or from simulations.
fn run(
    experiments: &[&Experiment],
    units: &[Unit],
    folder: &Folder,
    threads: Option<usize>,
    later: f64,
    tell: &mut impl FnMut(&News) -> ControlFlow<()>,
) -> Result<Vec<Vec<Table>>> {
    let mut found: Vec<Option<Vec<Table>>> = Vec::new();
    for unit in units {
        let experiment = experiments[unit.experiment];
        found.push(folder.find(experiment, unit.how)?.map(|values| tables(experiment, values)));
    }
    let mut batch = SimulationBatch::of(experiments, units, &found)?;
    let setups = std::mem::take(&mut batch.setups);
    let mut failed: Option<Error> = None;
    let mut errors: BTreeMap<usize, Error> = BTreeMap::new();
    // Both closures of the sweep change this state, in turn.
    let state = std::cell::RefCell::new((&mut batch, &mut failed, &mut errors));
    let show = |sweep: &Progress| {
        let state = state.borrow();
        let (left, rate) = state.0.left(sweep, threads);
        let going = tell(&News::Progress { sweep, left, left_at_most: left + later * rate });
        if state.1.is_some() { ControlFlow::Break(()) } else { going }
    };
    sweep_each(&setups, threads, show, |place, run| {
        let mut state = state.borrow_mut();
        let (batch, failed, errors) = &mut *state;
        match run {
            Ok(run) => {
                for (number, values, seconds) in batch.ended(place, run, experiments, units) {
                    let experiment = experiments[units[number].experiment];
                    if let Err(error) = folder.keep(experiment, units[number].how, &values, seconds) {
                        failed.get_or_insert(error);
                    }
                    found[number] = Some(tables(experiment, values));
                }
            }
            Err(error) => drop(errors.insert(place, error)),
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some((place, error)) = errors.pop_first() {
        let Load::Workload(load) = &setups[place].load else { return Err(error) };
        let policy = &setups[place].policy;
        return Err(Error::new(error.kind(), format!("{load} under {policy}: {error}")));
    }
    Ok(found
        .into_iter()
        .map(|tables| tables.expect("a unit is kept, or its simulations have ended"))
        .collect())
}

/// Simultaneous simulations, and the units that wait for each.
struct SimulationBatch {
    setups: Vec<Setup>,
    /// Declared seconds of each simulation.
    seconds: Vec<f64>,
    /// Simulations of each unit, in the order of the plan; empty if the unit's values were kept.
    needed: Vec<Vec<usize>>,
    awaited: Vec<BTreeSet<usize>>,
    outcomes: Vec<Option<(Outcome, f64)>>,
    ended_seconds: f64,
}

impl SimulationBatch {
    fn of(
        experiments: &[&Experiment],
        units: &[Unit],
        found: &[Option<Vec<Table>>],
    ) -> Result<SimulationBatch> {
        let (mut setups, mut seconds, mut needed) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for (unit, found) in units.iter().zip(found) {
            let experiment = experiments[unit.experiment];
            let mut places = Vec::new();
            if found.is_none() {
                let planned = super::plan(experiment, unit.how)?;
                let each = cost(experiment, unit.how) / planned.len() as f64;
                for setup in planned {
                    places.push(*known.entry(format!("{setup:?}")).or_insert_with(|| {
                        setups.push(setup);
                        seconds.push(each);
                        setups.len() - 1
                    }));
                }
            }
            needed.push(places);
        }
        let awaited = needed.iter().map(|places| places.iter().copied().collect()).collect();
        let outcomes = setups.iter().map(|_| None).collect();
        Ok(SimulationBatch { setups, seconds, needed, awaited, outcomes, ended_seconds: 0.0 })
    }

    /// Records the end of a simulation. Returns the units completed by the simulation, with their values and
    /// seconds.
    fn ended(
        &mut self,
        place: usize,
        run: Run,
        experiments: &[&Experiment],
        units: &[Unit],
    ) -> Vec<(usize, super::Values, f64)> {
        self.ended_seconds += self.seconds[place];
        self.outcomes[place] = Some((run.outcome, run.wall_seconds));
        let mut whole = Vec::new();
        for number in 0..units.len() {
            if !self.awaited[number].remove(&place) || !self.awaited[number].is_empty() {
                continue;
            }
            let of = |&place: &usize| self.outcomes[place].as_ref().expect("nothing is awaited any more");
            let runs: Vec<&(Outcome, f64)> = self.needed[number].iter().map(of).collect();
            let outcomes: Vec<&Outcome> = runs.iter().map(|(outcome, _)| outcome).collect();
            let seconds = runs.iter().map(|(_, seconds)| seconds).sum();
            whole.push((number, values(experiments[units[number].experiment], &outcomes), seconds));
        }
        // Drops outcomes that no unit waits for any more.
        for (number, ..) in &whole {
            for &place in &self.needed[*number] {
                let mut others =
                    self.awaited.iter().zip(&self.needed).filter(|(awaited, _)| !awaited.is_empty());
                if !others.any(|(_, needed)| needed.contains(&place)) {
                    self.outcomes[place] = None;
                }
            }
        }
        whole
    }

    /// Seconds left for these simulations, and actual seconds per declared second.
    fn left(&self, sweep: &Progress, threads: Option<usize>) -> (f64, f64) {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = threads.unwrap_or_else(cores).max(1) as f64;
        let elapsed = sweep.elapsed.as_secs_f64();
        // Until some of the work is done, only the declared time is known.
        let rate = if self.ended_seconds > 5.0 { elapsed / self.ended_seconds } else { 1.0 / threads };
        let all: f64 = self.seconds.iter().sum();
        ((all - self.ended_seconds).max(0.0) * rate, rate)
    }
}
