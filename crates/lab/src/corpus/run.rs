//! Runs cells: each with all rows and both seeds on one thread, as many cells at a time as there are threads.

use super::cell::{Cell, Change};
use super::clairvoyant::clairvoyant;
use super::rows::{INTERVAL, Kind, Room, Row};
use super::write::write;
use crate::{Drive, Error, ErrorKind, Result, simulate};
use braid_base::DeviceClass;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How cells are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who is compared.
    pub rows: Vec<Row>,
    /// Repetitions, each with a seed of its own: 1 or 2.
    pub repetitions: usize,
    /// Cells at the same time; none for one for each core.
    pub threads: Option<usize>,
}

/// What a row did in a cell, measured after the warm-up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Value {
    /// Mean latency of reads and writes.
    pub mean_ns: f64,
    /// 99 of 100 take at most so long.
    pub p99_ns: u64,
    /// Reads and writes.
    pub requests: u64,
    /// Reads and writes per second.
    pub requests_per_second: f64,
    /// Their bytes per second.
    pub bytes_per_second: f64,
    /// Bytes that the SSD was given to write, background included.
    pub ssd_written_bytes: u64,
    /// Time from the change to 90 % of the row's last speed; none without a change, or if the speed was never
    /// reached.
    pub recovery_seconds: Option<f64>,
    /// Whether requests waited outside the volume for most of their time.
    pub is_overloaded: bool,
    /// The time that was measured.
    pub measured_seconds: f64,
}

/// What a row came to in a cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// A value for each repetition.
    Measured(Vec<Value>),
    /// Why the cell has no room for it.
    NotApplicable(String),
    /// Why it could not be simulated: a bug.
    Failed(String),
}

/// A cell, and what the rows came to.
#[derive(Clone, PartialEq, Debug)]
pub struct CellOutcome {
    /// The cell.
    pub cell: Cell,
    /// By row.
    pub rows: Vec<Outcome>,
    /// How long it took on the machine: not the same twice.
    pub wall: Duration,
}

/// How far a run is.
#[derive(Clone, Debug)]
pub struct HowFar<'a> {
    /// Cells that have ended.
    pub finished: usize,
    /// All cells.
    pub total: usize,
    /// The one that has ended now.
    pub cell: &'a str,
    /// How long it took.
    pub wall: Duration,
}

/// Runs cells; results are in their order. `ended` is called as each ends, and may end the run.
///
/// # Errors
/// A load that cannot be written, or if `ended` broke off.
pub fn run(
    cells: &[Cell],
    options: &Options,
    mut ended: impl FnMut(&HowFar) -> ControlFlow<()>,
) -> Result<Vec<CellOutcome>> {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = options.threads.unwrap_or_else(cores).clamp(1, cells.len().max(1));
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut results: Vec<Option<Result<CellOutcome>>> = cells.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        let (done, told) = mpsc::channel();
        for _ in 0..threads {
            let (done, next, stopped) = (done.clone(), &next, &stopped);
            scope.spawn(move || {
                while !stopped.load(Relaxed) {
                    let place = next.fetch_add(1, Relaxed);
                    let Some(cell) = cells.get(place) else { return };
                    if done.send((place, run_cell(cell, options, stopped))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        for (finished, (place, result)) in (1..).zip(told) {
            let wall = result.as_ref().map_or(Duration::ZERO, |outcome| outcome.wall);
            let how_far = HowFar { finished, total: cells.len(), cell: &cells[place].name, wall };
            if result.is_err() || ended(&how_far).is_break() {
                stopped.store(true, Relaxed);
            }
            results[place] = Some(result);
        }
    });
    // The reason stands before what was stopped for it.
    let failed = results
        .iter()
        .position(|result| matches!(result, Some(Err(error)) if error.kind() != ErrorKind::Stopped));
    if let Some(Some(Err(error))) = failed.map(|place| results.swap_remove(place)) {
        return Err(error);
    }
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(Error::stopped()))).collect()
}

fn run_cell(cell: &Cell, options: &Options, stopped: &AtomicBool) -> Result<CellOutcome> {
    let begun = Instant::now();
    let mut rows: Vec<Outcome> = options.rows.iter().map(|_| Outcome::Measured(Vec::new())).collect();
    for repetition in 0..options.repetitions.min(cell.seeds.len()) {
        let seed = cell.seeds[repetition];
        let written = write(cell, repetition)?;
        let script = Arc::new(written.script.clone());
        let room = Room::of(cell, written.script.span);
        for (row, outcome) in options.rows.iter().zip(&mut rows) {
            if stopped.load(Relaxed) {
                return Err(Error::stopped());
            }
            let Outcome::Measured(values) = outcome else { continue };
            if let Some(why) = row.not_applicable(&room) {
                *outcome = Outcome::NotApplicable(why);
                continue;
            }
            let value = match row.kind {
                Kind::Clairvoyant => clairvoyant(cell, &written, seed),
                _ => row.setups(cell, &written, &script, seed).and_then(|setups| best_of(cell, &setups)),
            };
            match value {
                Ok(value) => values.push(value),
                Err(error) => *outcome = Outcome::Failed(error.to_string()),
            }
        }
    }
    Ok(CellOutcome { cell: cell.clone(), rows, wall: begun.elapsed() })
}

/// The simulation with the lowest mean latency.
fn best_of(cell: &Cell, setups: &[crate::Setup]) -> Result<Value> {
    let values = setups.iter().map(|setup| Ok(value(cell, &simulate(setup)?.outcome, setup)));
    let values = values.collect::<Result<Vec<Value>>>()?;
    let best = values.into_iter().min_by(|a, b| a.mean_ns.total_cmp(&b.mean_ns));
    best.ok_or_else(|| Error::setup("a row has a simulation"))
}

fn value(cell: &Cell, outcome: &crate::Outcome, setup: &crate::Setup) -> Value {
    let ssds = outcome.devices.iter().filter(|device| device.is(DeviceClass::Ssd));
    let is_open = matches!(&setup.load, crate::Load::Script(script) if script.drive == Drive::Open);
    let recovery = (cell.change != Change::None).then(|| recovery(&outcome.intervals, is_open));
    Value {
        mean_ns: outcome.all.latency.mean,
        p99_ns: outcome.all.latency.p99,
        requests: outcome.all.requests,
        requests_per_second: outcome.requests_per_second,
        bytes_per_second: outcome.throughput_bytes_per_second,
        ssd_written_bytes: ssds.map(|ssd| ssd.device_written_bytes).sum(),
        recovery_seconds: recovery.flatten(),
        is_overloaded: outcome.all.queue.mean > outcome.all.latency.mean / 2.0,
        measured_seconds: outcome.measured_seconds,
    }
}

/// When the speed has come to 90 % of that in the last third of the time, averaged over as many intervals as
/// make a second.
pub(super) fn recovery(intervals: &[crate::Interval], is_open: bool) -> Option<f64> {
    let speed = |of: &[crate::Interval]| {
        let requests: f64 = of.iter().map(|interval| interval.requests as f64).sum();
        let time: f64 = match is_open {
            true => of.iter().map(|interval| interval.latency_ns_mean * interval.requests as f64).sum(),
            false => of.iter().map(|interval| interval.length_seconds).sum(),
        };
        if time > 0.0 { requests / time } else { 0.0 }
    };
    let last = intervals.last()?;
    let end = last.start_seconds + last.length_seconds;
    let last_third = intervals.partition_point(|interval| interval.start_seconds < end * 2.0 / 3.0);
    let steady = speed(&intervals[last_third..]);
    let window = (1.0 / INTERVAL.as_secs_f64()) as usize;
    let reached = |part: &&[crate::Interval]| steady > 0.0 && speed(part) >= RECOVERED * steady;
    let part = intervals.windows(window.min(intervals.len())).find(reached)?;
    Some(part.first()?.start_seconds)
}

/// The share of the last speed at which a row has recovered.
const RECOVERED: f64 = 0.9;
