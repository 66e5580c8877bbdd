//! Many simulations on all cores: each in a world of its own on one thread, so the number of simultaneous
//! simulations cannot change the outcome.

use crate::simulation::{Run, run};
use crate::{Error, Result, Setup};
use braid_base::Nanos;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Progress of a sweep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Finished simulations.
    pub finished: usize,
    /// Total number of simulations.
    pub total: usize,
    /// Requests begun, of all simulations together.
    pub requests: u64,
    /// Simulated time, of all simulations together.
    pub simulated: Nanos,
    /// Completed share, 0 to 1; `None` if the length of a load is unknown.
    pub share: Option<f64>,
    /// Time since the sweep began.
    pub elapsed: Duration,
}

/// Progress of one simulation, shared with other threads.
#[derive(Default)]
pub(crate) struct Gauge {
    requests: AtomicU64,
    simulated: AtomicU64,
    /// Expected totals; zero if unknown.
    all_requests: AtomicU64,
    all_simulated: AtomicU64,
    ended: AtomicBool,
    /// True if the simulation is to end early.
    stopped: AtomicBool,
}

/// Interval between reports of progress.
const LOOK: Duration = Duration::from_millis(100);

/// Runs simulations on `threads` threads; `None` for as many as there are cores. Results are in the order of
/// the setups. `progress` is called about ten times a second.
pub fn sweep(
    setups: &[Setup],
    threads: Option<usize>,
    mut progress: impl FnMut(&Progress),
) -> Vec<Result<Run>> {
    sweep_while(setups, threads, |how_far| {
        progress(how_far);
        ControlFlow::Continue(())
    })
}

/// As [`sweep`], until `progress` breaks the sweep. Running simulations then end within a few thousand
/// requests, with an error of kind `Stopped`, and no further simulation begins.
pub fn sweep_while(
    setups: &[Setup],
    threads: Option<usize>,
    progress: impl FnMut(&Progress) -> ControlFlow<()>,
) -> Vec<Result<Run>> {
    let mut results: Vec<Option<Result<Run>>> = setups.iter().map(|_| None).collect();
    sweep_each(setups, threads, progress, |place, result| results[place] = Some(result));
    results.into_iter().map(|result| result.expect("every simulation came to an end")).collect()
}

/// As [`sweep_while`], and reports each result with its place at the end of the simulation.
pub(crate) fn sweep_each(
    setups: &[Setup],
    threads: Option<usize>,
    mut progress: impl FnMut(&Progress) -> ControlFlow<()>,
    mut ended: impl FnMut(usize, Result<Run>),
) {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = threads.unwrap_or_else(cores).clamp(1, setups.len().max(1));
    let gauges: Vec<Arc<Gauge>> = setups.iter().map(|_| Arc::default()).collect();
    let (next, begun) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        let (done, results) = mpsc::channel();
        for _ in 0..threads {
            let (done, next, gauges) = (done.clone(), &next, &gauges);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Relaxed);
                    let Some(setup) = setups.get(place) else { return };
                    let gauge = &gauges[place];
                    let result = if gauge.is_stopped() { Err(Error::stopped()) } else { run(setup, gauge) };
                    gauge.ended.store(true, Relaxed);
                    if done.send((place, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        loop {
            match results.recv_timeout(LOOK) {
                Ok((place, result)) => ended(place, result),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            if progress(&look(&gauges, begun.elapsed())).is_break() {
                gauges.iter().for_each(|gauge| gauge.stopped.store(true, Relaxed));
            }
        }
    });
}

fn look(gauges: &[Arc<Gauge>], elapsed: Duration) -> Progress {
    let sum = |of: fn(&Gauge) -> &AtomicU64| gauges.iter().map(|gauge| of(gauge).load(Relaxed)).sum::<u64>();
    let shares: Option<Vec<f64>> = gauges.iter().map(|gauge| gauge.share()).collect();
    Progress {
        finished: gauges.iter().filter(|gauge| gauge.ended.load(Relaxed)).count(),
        total: gauges.len(),
        requests: sum(|gauge| &gauge.requests),
        simulated: Nanos(sum(|gauge| &gauge.simulated)),
        share: shares.map(|shares| shares.iter().sum::<f64>() / shares.len().max(1) as f64),
        elapsed,
    }
}

impl Gauge {
    /// Reports the progress of the simulation.
    pub fn show(&self, requests: u64, simulated: Nanos) {
        self.requests.store(requests, Relaxed);
        self.simulated.store(simulated.0, Relaxed);
    }

    /// True if the simulation is to end early.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Sets the expected totals.
    pub fn expect(&self, requests: Option<u64>, simulated: Option<Nanos>) {
        self.all_requests.store(requests.unwrap_or(0), Relaxed);
        self.all_simulated.store(simulated.map_or(0, |time| time.0), Relaxed);
    }

    /// Completed share. A simulation that has not begun counts as of known length.
    fn share(&self) -> Option<f64> {
        if self.ended.load(Relaxed) {
            return Some(1.0);
        }
        let part = |done: &AtomicU64, all: &AtomicU64| {
            let (done, all) = (done.load(Relaxed), all.load(Relaxed));
            (all > 0).then(|| (done as f64 / all as f64).min(1.0))
        };
        let parts = [part(&self.requests, &self.all_requests), part(&self.simulated, &self.all_simulated)];
        let known = parts.into_iter().flatten().reduce(f64::max);
        known.or((self.requests.load(Relaxed) == 0).then_some(0.0))
    }
}
