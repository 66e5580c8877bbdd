//! Runs cells, one after the other, the rows of each on all cores.

use super::oracle::{self, Writes, belongs_on_ssd};
use super::{Cell, Group, Half, Kept, Row, in_cell, layout};
use crate::fill::OWN;
use crate::outcome::Interval;
use crate::{Error, ErrorKind, Outcome, Progress, Result, Run, Setup, sweep_while};
use braid_base::DeviceClass;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

/// How cells are run.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Whether runs are a twentieth of their length: to see that they work.
    pub quick: bool,
    /// Simulations at the same time; none for one on each core.
    pub threads: Option<usize>,
}

/// What a row did in a cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RowRun {
    /// The row.
    pub row: String,
    /// What was measured; none if the row does not fit the cell.
    pub figures: Option<Figures>,
    /// Why it does not fit.
    pub unfit: Option<String>,
}

/// What was measured in the judged half. Whole numbers, so that they are read again as they were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Mean time of a read, write or flush.
    pub latency_ns_mean: u64,
    /// 99 of 100 reads and writes take at most so long.
    pub latency_ns_p99: u64,
    /// Bytes that guests read and wrote.
    pub throughput_bytes_per_second: u64,
    /// Bytes that the SSD was given to write.
    pub ssd_written_bytes: u64,
    /// Whether the last two quarters of the judged half have mean latencies that differ by a fifth at most.
    pub is_steady: bool,
    /// After a change, the time until the mean latency of two intervals is within 1/0.9 of that of the last quarter. None in a cell without a change, and if the end is
    /// not steady.
    pub recovery_ms: Option<u64>,
}

/// What came out of a cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CellRun {
    /// The cell.
    pub cell: String,
    /// The half that it belongs to.
    pub half: Half,
    /// How long it took: not the same twice.
    #[serde(skip)]
    pub seconds: f64,
    /// All rows that ran, in their order.
    pub runs: Vec<RowRun>,
}

/// What came out of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ran {
    /// The rows.
    #[serde(skip)]
    pub rows: Vec<Row>,
    /// Cells that ran.
    pub cells: Vec<CellRun>,
    /// Cells whose trace is not there.
    pub missing_cells: Vec<String>,
}

/// The most by which the mean latencies of two quarters of a steady row differ.
const STEADY: f64 = 1.2;
/// The share of the steady state that a return reaches.
const RECOVERED: f64 = 0.9;

/// Runs rows in cells, but for rows whose results are kept. `progress` is called about ten times a second for each cell, `ended` with each cell that ran.
///
/// # Errors
/// The first row that failed otherwise than by not fitting its cell: a fault of the engine or of a policy, or a trace that cannot be read.
pub fn run(
    cells: &[Cell],
    rows: &[Row],
    how: How,
    kept: &mut Kept,
    mut progress: impl FnMut(&Progress),
    mut ended: impl FnMut(&CellRun),
) -> Result<Ran> {
    let (mut ran, mut missing_cells) = (Vec::new(), Vec::new());
    for cell in cells {
        if cell.trace().is_some_and(|path| !path.exists()) {
            missing_cells.push(cell.name.clone());
            continue;
        }
        let run = run_cell(cell, rows, how, kept, &mut progress)?;
        ended(&run);
        ran.push(run);
    }
    Ok(Ran { rows: rows.to_vec(), cells: ran, missing_cells })
}

fn run_cell(
    cell: &Cell,
    rows: &[Row],
    how: How,
    kept: &mut Kept,
    progress: &mut impl FnMut(&Progress),
) -> Result<CellRun> {
    let begun = std::time::Instant::now();
    let mut runs: Vec<Option<RowRun>> =
        rows.iter().map(|row| kept.find(cell, row, how.quick).cloned()).collect();
    let left: Vec<usize> = (0..rows.len()).filter(|&number| runs[number].is_none()).collect();
    if !left.is_empty() {
        let begin = match Begin::of(cell, how.quick) {
            // A share of little data may be less than the smallest device.
            Err(error) if error.kind() == ErrorKind::Setup => Err(error.to_string()),
            begin => Ok(begin?),
        };
        // A row may have two setups, of which the better one counts, or none.
        let mut setups: Vec<(usize, Setup)> = Vec::new();
        for &number in &left {
            let planned = match &begin {
                Ok(begin) => begin.setups(&rows[number])?,
                Err(why) => Planned::Unfit(why.clone()),
            };
            match planned {
                Planned::Setups(of_row) => setups.extend(of_row.into_iter().map(|setup| (number, setup))),
                Planned::Unfit(why) => runs[number] = Some(unfit(&rows[number], why)),
            }
        }
        let (numbers, setups): (Vec<usize>, Vec<Setup>) = setups.into_iter().unzip();
        let show = |how_far: &Progress| {
            progress(how_far);
            ControlFlow::Continue(())
        };
        for (number, result) in numbers.into_iter().zip(sweep_while(&setups, how.threads, show)) {
            let run = of_row(cell, &rows[number], result, how.quick)?;
            let is_better = |known: &RowRun| match (&known.figures, &run.figures) {
                (Some(known), Some(run)) => run.latency_ns_mean < known.latency_ns_mean,
                (known, _) => known.is_none(),
            };
            if runs[number].as_ref().is_none_or(is_better) {
                runs[number] = Some(run);
            }
        }
        for &number in &left {
            let run = runs[number].as_ref().expect("each row has run, or does not fit");
            kept.keep(cell, &rows[number], how.quick, run)?;
        }
    }
    Ok(CellRun {
        cell: cell.name.clone(),
        half: cell.half(),
        seconds: begun.elapsed().as_secs_f64(),
        runs: runs.into_iter().flatten().collect(),
    })
}

/// How rows of a cell begin.
struct Begin<'a> {
    cell: &'a Cell,
    quick: bool,
    extents: u64,
    layout: Vec<std::ops::Range<braid_base::Bytes>>,
}

enum Planned {
    Setups(Vec<Setup>),
    Unfit(String),
}

impl<'a> Begin<'a> {
    fn of(cell: &'a Cell, quick: bool) -> Result<Begin<'a>> {
        let named = |error: Error| in_cell(cell, "any policy", error);
        let setup = cell.setup("hdd-only", quick).map_err(named)?;
        let extents = oracle::extents(&setup).map_err(named)?;
        let layout = layout::on_ssd(cell, extents, setup.extent_size, quick)?;
        Ok(Begin { cell, quick, extents, layout })
    }

    fn setups(&self, row: &Row) -> Result<Planned> {
        let setup = self.cell.setup(&row.policy, self.quick)?;
        let (most, _) = layout::room(self.extents, self.cell.ssd_percent);
        let own = |copies| Setup { prefill_policy: Some(OWN.to_owned()), copies, ..setup.clone() };
        let listed = |list: &[_]| Setup { prefill_ssd: Some(list.to_vec()), ..setup.clone() };
        let fits = |percent: u64| self.extents * percent <= most * 100;
        Ok(match row.group {
            Group::Policy | Group::Untouched => Planned::Setups(vec![listed(&self.layout)]),
            Group::Mirror if most < self.extents => Planned::Unfit("the SSD has no room for all data".into()),
            Group::Mirror => Planned::Setups(vec![own(2)]),
            Group::Split => match row.split_percent() {
                Some(percent) if fits(percent) => Planned::Setups(vec![own(1)]),
                _ => Planned::Unfit("the SSD has no room for that share of the data".into()),
            },
            Group::Oracle => {
                let best = [Writes::Buffered, Writes::Through];
                let best = best.map(|writes| belongs_on_ssd(&setup, self.extents, most, writes));
                // An SSD that is too slow for what is put on it is worse than what was there.
                let best = best.into_iter().chain([Ok(self.layout.clone())]);
                let setups = best.map(|list| Ok(listed(&list?)));
                Planned::Setups(setups.collect::<Result<_>>()?)
            }
        })
    }
}

fn unfit(row: &Row, why: String) -> RowRun {
    RowRun { row: row.name.clone(), figures: None, unfit: Some(why) }
}

fn of_row(cell: &Cell, row: &Row, result: Result<Run>, quick: bool) -> Result<RowRun> {
    match result {
        Ok(run) if run.outcome.all.requests == 0 => {
            Ok(unfit(row, "no request completed in the judged half".to_owned()))
        }
        Ok(run) => {
            let figures = figures(&run.outcome, cell.recovery_from(quick));
            Ok(RowRun { row: row.name.clone(), figures: Some(figures), unfit: None })
        }
        Err(error) if error.kind() == ErrorKind::Setup => Ok(unfit(row, error.to_string())),
        Err(error) => Err(in_cell(cell, &row.name, error)),
    }
}

/// The figures of a run.
fn figures(outcome: &Outcome, recovery_from: Option<f64>) -> Figures {
    let (all, flush) = (&outcome.all, &outcome.flush);
    let time = all.latency.mean * all.requests as f64 + flush.latency.mean * flush.requests as f64;
    let requests = all.requests + flush.requests;
    let ssds = outcome.devices.iter().filter(|device| device.is(DeviceClass::Ssd));
    let length = outcome.measured_seconds;
    let (before, last) = (mean(outcome, 0.5 * length..0.75 * length), mean(outcome, 0.75 * length..length));
    let is_steady = matches!((before, last), (Some(a), Some(b)) if a.max(b) <= STEADY * a.min(b));
    let recovery = recovery_from.zip(last.filter(|_| is_steady)).and_then(|(from, steady)| {
        let after = outcome.intervals.iter().filter(|interval| interval.start_seconds >= from - 1e-9);
        recovered(&after.collect::<Vec<_>>(), steady).map(|at| at - from)
    });
    Figures {
        latency_ns_mean: (time / requests.max(1) as f64).round() as u64,
        latency_ns_p99: all.latency.p99,
        throughput_bytes_per_second: outcome.throughput_bytes_per_second.round() as u64,
        ssd_written_bytes: ssds.map(|device| device.device_written_bytes).sum(),
        is_steady,
        recovery_ms: recovery.map(|seconds| (seconds.max(0.0) * 1e3).round() as u64),
    }
}

/// The mean latency of intervals that begin within a time; none if nothing completed then.
fn mean(outcome: &Outcome, within: std::ops::Range<f64>) -> Option<f64> {
    of_all(outcome.intervals.iter().filter(|interval| within.contains(&(interval.start_seconds + 1e-9))))
}

fn of_all<'a>(intervals: impl Iterator<Item = &'a Interval>) -> Option<f64> {
    let add = |(time, requests): (f64, u64), interval: &Interval| {
        (time + interval.latency_ns_mean * interval.requests as f64, requests + interval.requests)
    };
    let (time, requests) = intervals.fold((0.0, 0), add);
    (requests > 0).then(|| time / requests as f64)
}

/// When the first two intervals begin whose mean latency is that of a steady state, or near it.
fn recovered(intervals: &[&Interval], steady: f64) -> Option<f64> {
    let is_near =
        |pair: &&[&Interval]| of_all(pair.iter().copied()).is_some_and(|mean| mean * RECOVERED <= steady);
    intervals.windows(2).find(is_near).map(|pair| pair[0].start_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start_seconds: f64, latency: f64) -> Interval {
        Interval {
            start_seconds,
            length_seconds: 1.0,
            requests: 100,
            requests_per_second: 100.0,
            throughput_bytes_per_second: 0.0,
            latency_ns_mean: latency,
            migrated_bytes: 0,
            devices: Vec::new(),
        }
    }

    #[test]
    fn recovery_ends_where_two_intervals_are_near_the_steady_state() {
        let latencies = [900.0, 500.0, 105.0, 300.0, 110.0, 108.0, 100.0];
        let all: Vec<Interval> =
            latencies.iter().zip(0..).map(|(&ns, s)| interval(f64::from(s), ns)).collect();
        let all: Vec<&Interval> = all.iter().collect();
        assert_eq!(recovered(&all, 100.0), Some(4.0), "one interval near it is chance");
        assert_eq!(recovered(&all[..4], 100.0), None);
    }
}
