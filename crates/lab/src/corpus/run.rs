//! Runs cells in sequence, with the rows of each cell on all cores.

use super::oracle::{self, Writes, belongs_on_ssd};
use super::{Cell, Group, Half, Kept, Row, bound, in_cell, layout};
use crate::fill::OWN;
use crate::outcome::Interval;
use crate::{Error, ErrorKind, Outcome, Progress, Result, Run, Setup, sweep_while};
use braid_base::{DeviceClass, Nanos};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

/// Options for running cells.
#[derive(Clone, Copy, Debug)]
pub struct CorpusOptions {
    /// True to run a twentieth of the length, as a check that runs work.
    pub quick: bool,
    /// Simulations at the same time; `None` for one on each core.
    pub threads: Option<usize>,
}

/// Result of a row in a cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RowRun {
    /// The row.
    pub row: String,
    /// Figures; `None` if the row does not fit the cell.
    pub figures: Option<Figures>,
    /// Why the row does not fit.
    pub unfit: Option<String>,
}

/// Figures of the judged half. Integers, so that they are read back exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Mean time of a read, write or flush.
    pub latency_ns_mean: u64,
    /// 99th percentile of reads and writes.
    pub latency_ns_p99: u64,
    /// Bytes read and written by guests, per second.
    pub throughput_bytes_per_second: u64,
    /// Bytes written to the SSD.
    pub ssd_written_bytes: u64,
    /// True if the mean latencies of the last two quarters of the judged half differ by at most a fifth.
    pub is_steady: bool,
    /// After a change, the time until the mean latency of two intervals is within 1/0.9 of the last quarter's
    /// mean. `None` in a cell without a change, or if the end is not steady.
    pub recovery_ms: Option<u64>,
}

/// Results of a cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CellRun {
    /// The cell.
    pub cell: String,
    /// Half to which the cell belongs.
    pub half: Half,
    /// Time of the run: differs between runs.
    #[serde(skip)]
    pub seconds: f64,
    /// All rows that ran, in order.
    pub runs: Vec<RowRun>,
}

/// Results of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ran {
    /// The rows.
    #[serde(skip)]
    pub rows: Vec<Row>,
    /// Cells that ran.
    pub cells: Vec<CellRun>,
    /// Cells with a missing trace.
    pub missing_cells: Vec<String>,
}

/// Largest ratio of the mean latencies of two quarters in a steady row.
const STEADY: f64 = 1.2;
/// Share of the steady state that counts as recovered.
const RECOVERED: f64 = 0.9;

/// Runs rows in cells, except rows with kept results. `progress` is called about ten times a second for each
/// cell, `ended` with each finished cell.
///
/// # Errors
/// The first failure of a row other than not fitting its cell: a fault of the engine or of a policy, or an
/// unreadable trace.
pub fn run(
    cells: &[Cell],
    rows: &[Row],
    how: CorpusOptions,
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
    how: CorpusOptions,
    kept: &mut Kept,
    progress: &mut impl FnMut(&Progress),
) -> Result<CellRun> {
    let begun = std::time::Instant::now();
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = how.threads.unwrap_or_else(cores);
    let mut runs: Vec<Option<RowRun>> =
        rows.iter().map(|row| kept.find(cell, row, how.quick).cloned()).collect();
    let left: Vec<usize> = (0..rows.len()).filter(|&number| runs[number].is_none()).collect();
    if !left.is_empty() {
        let begin = match Begin::of(cell, how.quick) {
            // A share of little data may be less than the smallest device.
            Err(error) if error.kind() == ErrorKind::Setup => Err(error.to_string()),
            begin => Ok(begin?),
        };
        // A row may have several setups, of which the best counts, or none.
        let mut setups: Vec<(usize, Setup)> = Vec::new();
        for &number in &left {
            let planned = match &begin {
                Ok(begin) => begin.setups(&rows[number])?,
                Err(why) => Planned::Unfit(why.clone()),
            };
            match planned {
                Planned::Setups(of_row) => setups.extend(of_row.into_iter().map(|setup| (number, setup))),
                Planned::Bound(setup) => {
                    let figures = bound::figures(&setup, cell.recovery_from(how.quick), threads);
                    runs[number] = Some(of_figures(cell, &rows[number], figures)?);
                }
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

/// Initial state of rows in a cell.
struct Begin<'a> {
    cell: &'a Cell,
    quick: bool,
    extents: u64,
    layout: Vec<std::ops::Range<braid_base::Bytes>>,
}

enum Planned {
    Setups(Vec<Setup>),
    Bound(Box<Setup>),
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
            Group::Bound => Planned::Bound(Box::new(setup)),
            Group::Oracle => {
                let best = [Writes::Buffered, Writes::Through];
                let best = best.map(|writes| belongs_on_ssd(&setup, self.extents, most, writes));
                // If the SSD is too slow for the data of the predicted layout, the cell's own layout is
                // better.
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
    let figures = result.and_then(|run| match run.outcome.all.requests {
        0 => Err(Error::setup("no request completed in the judged half")),
        _ => Ok(figures(&run.outcome, cell.recovery_from(quick))),
    });
    of_figures(cell, row, figures)
}

fn of_figures(cell: &Cell, row: &Row, figures: Result<Figures>) -> Result<RowRun> {
    match figures {
        Ok(figures) => Ok(RowRun { row: row.name.clone(), figures: Some(figures), unfit: None }),
        Err(error) if error.kind() == ErrorKind::Setup => Ok(unfit(row, error.to_string())),
        Err(error) => Err(in_cell(cell, &row.name, error)),
    }
}

/// Figures of a run.
fn figures(outcome: &Outcome, recovery_from: Option<f64>) -> Figures {
    let (all, flush) = (&outcome.all, &outcome.flush);
    let time = all.latency.mean * all.requests as f64 + flush.latency.mean * flush.requests as f64;
    let requests = all.requests + flush.requests;
    let ssds = outcome.devices.iter().filter(|device| device.is(DeviceClass::Ssd));
    let piece = |interval: &Interval| Piece {
        start: interval.start_seconds,
        time: interval.latency_ns_mean * interval.requests as f64,
        requests: interval.requests,
    };
    let course = LatencyCourse { pieces: outcome.intervals.iter().map(piece).collect(), length: None };
    let (is_steady, recovery_ms) = course.told(outcome.measured_seconds, recovery_from);
    Figures {
        latency_ns_mean: (time / requests.max(1) as f64).round() as u64,
        latency_ns_p99: all.latency.p99,
        throughput_bytes_per_second: outcome.throughput_bytes_per_second.round() as u64,
        ssd_written_bytes: ssds.map(|device| device.device_written_bytes).sum(),
        is_steady,
        recovery_ms,
    }
}

/// Course of the latency over time.
pub(super) struct LatencyCourse {
    pieces: Vec<Piece>,
    /// Present length of a piece, while requests are added.
    length: Option<Nanos>,
}

/// Requests completed in a piece of the time.
#[derive(Clone, Copy, Default)]
struct Piece {
    start: f64,
    /// Total latency of the requests, in nanoseconds.
    time: f64,
    requests: u64,
}

/// Pieces of a course of unknown length: initial length, and most pieces before pairs are joined.
const FIRST: Nanos = Nanos::from_millis(100);
const MOST_PIECES: usize = 512;

impl LatencyCourse {
    /// An empty course, in pieces of this length.
    pub fn new(length: Option<Nanos>) -> LatencyCourse {
        LatencyCourse { pieces: Vec::new(), length: Some(length.unwrap_or(FIRST)) }
    }

    /// Counts a request that completed at `at` after the beginning, with latency `took`.
    pub fn add(&mut self, at: Nanos, took: Nanos) {
        let Some(length) = &mut self.length else { return };
        while at.0 / length.0 >= MOST_PIECES as u64 {
            *length = *length * 2;
            let join = |pair: &[Piece]| Piece {
                start: pair[0].start,
                time: pair.iter().map(|piece| piece.time).sum(),
                requests: pair.iter().map(|piece| piece.requests).sum(),
            };
            self.pieces = self.pieces.chunks(2).map(join).collect();
        }
        let place = (at.0 / length.0) as usize;
        while self.pieces.len() <= place {
            let start = (*length * self.pieces.len() as u64).as_secs_f64();
            self.pieces.push(Piece { start, ..Piece::default() });
        }
        self.pieces[place].time += took.0 as f64;
        self.pieces[place].requests += 1;
    }

    /// Returns whether the end is steady, and the milliseconds from `recovery_from` until the latency was
    /// near the end's.
    pub fn told(&self, seconds: f64, recovery_from: Option<f64>) -> (bool, Option<u64>) {
        let within = |within: std::ops::Range<f64>| {
            mean(self.pieces.iter().filter(|piece| within.contains(&(piece.start + 1e-9))))
        };
        let (before, last) = (within(0.5 * seconds..0.75 * seconds), within(0.75 * seconds..seconds));
        let is_steady = matches!((before, last), (Some(a), Some(b)) if a.max(b) <= STEADY * a.min(b));
        let recovery = recovery_from.zip(last.filter(|_| is_steady)).and_then(|(from, steady)| {
            let after = self.pieces.iter().filter(|piece| piece.start >= from - 1e-9);
            recovered(&after.collect::<Vec<_>>(), steady).map(|at| at - from)
        });
        (is_steady, recovery.map(|seconds| (seconds.max(0.0) * 1e3).round() as u64))
    }
}

/// Mean latency; `None` if nothing completed.
fn mean<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Option<f64> {
    let add = |(time, requests): (f64, u64), piece: &Piece| (time + piece.time, requests + piece.requests);
    let (time, requests) = pieces.fold((0.0, 0), add);
    (requests > 0).then(|| time / requests as f64)
}

/// Start of the first two pieces with a mean latency at or near the steady state.
fn recovered(pieces: &[&Piece], steady: f64) -> Option<f64> {
    let is_near =
        |pair: &&[&Piece]| mean(pair.iter().copied()).is_some_and(|mean| mean * RECOVERED <= steady);
    pieces.windows(2).find(is_near).map(|pair| pair[0].start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: f64, latency: f64) -> Piece {
        Piece { start, time: 100.0 * latency, requests: 100 }
    }

    #[test]
    fn recovery_needs_two_intervals_near_steady_state() {
        let latencies = [900.0, 500.0, 105.0, 300.0, 110.0, 108.0, 100.0];
        let all: Vec<Piece> = latencies.iter().zip(0..).map(|(&ns, s)| piece(f64::from(s), ns)).collect();
        let all: Vec<&Piece> = all.iter().collect();
        assert_eq!(recovered(&all, 100.0), Some(4.0), "one interval near it is chance");
        assert_eq!(recovered(&all[..4], 100.0), None);
    }
}
