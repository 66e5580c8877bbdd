//! The daemon's part of the guard.

use super::like::{devices, is_in_use, like};
use super::measure::{Measured, models};
use super::worker::Worker;
use crate::Result;
use crate::report::types::{GuardReport, ModeReport};
use crate::serve::daemon::Daemon;
use braid_base::{DeviceId, Nanos};
use braid_engine::Export;
use braid_lab::guard::{BATCH, Scale, Verdict};
use braid_runtime::Runtime;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// State of the guard, for the status.
#[derive(Default)]
pub(crate) struct Guard {
    /// Mean time of the last batch's requests.
    took: Cell<Option<Nanos>>,
    /// Mean times of the last batch in the ghosts, by mode.
    means: RefCell<Vec<Option<f64>>>,
    switches: Cell<u64>,
    switched_at: Cell<Option<Nanos>>,
    one_in: Cell<u32>,
    share: Cell<f64>,
    /// Why there are no ghosts, or not of all modes.
    problem: RefCell<Option<String>>,
    /// Devices measured while they served, with the error factors of their models.
    measured: RefCell<Vec<(DeviceId, f64)>>,
}

/// Share of a processor that the ghosts may use.
const MOST_SHARE: f64 = 0.02;
/// Limit for the summed cost of consecutive batches, in multiples of [`MOST_SHARE`]. Beyond the limit, ghosts
/// get a smaller part of the volume: at once if the load is far too high.
const PATIENCE: f64 = 6.0;
/// Delay between two looks.
const LOOK: Nanos = Nanos::from_millis(100);
/// Delay between two looks while guests send no requests, or the policy has no modes.
const LOOK_AGAIN: Nanos = Nanos::from_secs(1);
/// Delay before another attempt after a failure.
const RETRY: Nanos = Nanos::from_secs(600);
/// Devices are measured again if the times of requests differ from the present mode's ghost for this time.
/// The time doubles after each new measurement.
const WRONG_FOR: Nanos = Nanos::from_secs(120);

/// Guards a volume for as long as the daemon runs.
pub(crate) async fn keep(daemon: Rc<Daemon>) {
    let guard = &daemon.guard;
    let (mut measured, mut wrong_for) = (Measured::new(), WRONG_FOR);
    let mut one_in = 1;
    while !daemon.is_stopping() {
        if daemon.volume.modes(1).0.is_empty() {
            daemon.ring.sleep(LOOK_AGAIN).await;
            continue;
        }
        let known = Known::of(&daemon);
        let ended = guarded(&daemon, &known, &mut measured, one_in, wrong_for).await;
        daemon.recorder.watch(None);
        guard.means.borrow_mut().clear();
        guard.took.set(None);
        guard.one_in.set(0);
        guard.tell(ended.as_ref().err().map(ToString::to_string));
        one_in = 1;
        match ended {
            Ok(Ended::Changed) => {}
            Ok(Ended::TooMuch { one_in: next }) => one_in = next,
            Ok(Ended::Wrong) => {
                measured.clear();
                wrong_for = wrong_for * 2;
            }
            Err(problem) => {
                let name = &daemon.name;
                tracing::warn!(
                    "volume '{name}' keeps its mode, because mode=auto has no simulations: {problem}"
                );
                let until = daemon.ring.now() + RETRY;
                while !daemon.is_stopping() && known == Known::of(&daemon) && daemon.ring.now() < until {
                    daemon.ring.sleep(LOOK_AGAIN).await;
                }
            }
        }
    }
}

/// Reason for the end of the ghosts.
enum Ended {
    /// The policy or the devices changed, or the daemon stops.
    Changed,
    /// The ghosts cost too much: the next ghosts should have one part in `one_in` of the volume.
    TooMuch { one_in: u64 },
    /// Models of measured devices are wrong by now.
    Wrong,
}

/// The modes and devices for which ghosts are made.
#[derive(PartialEq)]
pub(super) struct Known {
    modes: Vec<String>,
    /// Each device with its number of slots, and true if it is in use.
    devices: Vec<(DeviceId, u32, bool)>,
}

impl Known {
    pub fn of(daemon: &Daemon) -> Known {
        let devices = devices(daemon);
        Known {
            modes: daemon.volume.modes(1).0,
            devices: devices.iter().map(|(id, device)| (*id, device.slots, is_in_use(device))).collect(),
        }
    }
}

/// Guards a volume until its ghosts no longer fit.
async fn guarded(
    daemon: &Daemon,
    known: &Known,
    measured: &mut Measured,
    one_in: u64,
    wrong_for: Nanos,
) -> Result<Ended> {
    let (guard, ring) = (&daemon.guard, &daemon.ring);
    guard.measured.borrow_mut().clear();
    let Some(specs) = models(daemon, known, measured).await? else { return Ok(Ended::Changed) };
    *guard.measured.borrow_mut() = measured.iter().map(|(id, nearest)| (*id, nearest.off)).collect();
    let like = like(daemon, specs, !measured.is_empty(), one_in).await;
    let scale = like.scale;
    let modes = daemon.volume.modes(scale.one_in()).0;
    let worker = Worker::new(like, modes)?;
    guard.one_in.set(scale.one_in());
    guard.tell(None);
    guard.share.set(0.0);
    let (mut over, mut wrong_since) = (0.0, None);
    daemon.recorder.watch(Some(scale));
    loop {
        let begun = ring.now();
        let batch = loop {
            let is_idle = daemon.recorder.with_watch(|watch| watch.is_idle());
            ring.sleep(if is_idle { LOOK_AGAIN } else { LOOK }).await;
            if *known != Known::of(daemon) || daemon.is_stopping() {
                return Ok(Ended::Changed);
            }
            let is_over = ring.now() - begun >= BATCH || daemon.recorder.with_watch(|watch| watch.is_full());
            if is_over && let Some(batch) = daemon.recorder.with_watch(|watch| watch.take(ring.now())) {
                break batch;
            }
        };
        let took = batch.took;
        let present = daemon.volume.modes(1).1;
        worker.give(batch, present);
        let verdict = loop {
            if let Some(verdict) = worker.verdict()? {
                break verdict;
            }
            ring.sleep(LOOK).await;
        };
        if *known != Known::of(daemon) {
            return Ok(Ended::Changed);
        }
        let now = ring.now();
        if verdict.is_off {
            if now - *wrong_since.get_or_insert(begun) >= wrong_for {
                return Ok(Ended::Wrong);
            }
        } else {
            wrong_since = None;
        }
        let processor = verdict.processor.as_secs_f64();
        judge(daemon, known, verdict);
        guard.took.set(took);
        let elapsed = (ring.now() - begun).as_secs_f64();
        let rest = processor / MOST_SHARE - elapsed;
        guard.share.set(processor / (elapsed + rest.max(0.0)));
        if rest <= 0.0 {
            over = 0.0;
            continue;
        }
        let times = processor / elapsed / MOST_SHARE;
        over += times;
        if over >= PATIENCE {
            over = 0.0;
            let more = u64::from(scale.one_in()) * (times.ceil() as u64).max(2);
            if Scale::of(more, daemon.volume.size(), daemon.volume.superblock().extent_size) != scale {
                return Ok(Ended::TooMuch { one_in: more });
            }
        }
        daemon.recorder.watch(None);
        let until = ring.now() + Nanos::from_secs_f64(rest);
        while ring.now() < until && !daemon.is_stopping() && *known == Known::of(daemon) {
            ring.sleep(LOOK_AGAIN.min(until - ring.now())).await;
        }
        daemon.recorder.watch(Some(scale));
    }
}

fn judge(daemon: &Daemon, known: &Known, verdict: Verdict) {
    let (guard, volume, name) = (&daemon.guard, &daemon.volume, &daemon.name);
    let told = |(mode, error): &(usize, _)| format!("{} is excluded: {error}", known.modes[*mode]);
    let left_out: Vec<String> = verdict.left_out.iter().map(told).collect();
    if !left_out.is_empty() {
        let problem = left_out.join("; ");
        tracing::warn!("mode=auto of volume '{name}': {problem}");
        guard.tell(Some(problem));
    }
    if let Some(mode) = verdict.switch {
        let told =
            |mode: usize| verdict.means[mode].map_or("?".to_owned(), |mean| Nanos(mean as u64).to_string());
        let present = volume.modes(1).1;
        volume.switch_mode(mode);
        guard.switches.set(guard.switches.get() + 1);
        guard.switched_at.set(Some(daemon.ring.now()));
        tracing::info!(
            "volume '{name}' continues as {}: requests of the last batch would take {}, instead of {} in \
             the present mode",
            known.modes[mode],
            told(mode),
            told(present)
        );
    }
    *guard.means.borrow_mut() = verdict.means;
}

impl Guard {
    /// Sets the problem in the status; `None` for no problem.
    pub(super) fn tell(&self, problem: Option<String>) {
        *self.problem.borrow_mut() = problem;
    }

    /// Returns the guard's report; `None` for a policy without modes.
    pub fn report(&self, modes: (Vec<String>, usize), now: Nanos) -> Option<GuardReport> {
        let (modes, present) = modes;
        let mode = modes.get(present)?.clone();
        let means = self.means.borrow();
        let of_mode = |(place, mode): (usize, String)| ModeReport {
            mode,
            latency_ns_mean: means.get(place).copied().flatten().map(|mean| mean as u64),
        };
        let measured = self.measured.borrow();
        let off = measured.iter().map(|(device, off)| (device.to_string(), *off));
        Some(GuardReport {
            mode,
            switches: self.switches.get(),
            switched_seconds_ago: self.switched_at.get().map(|at| (now - at).as_secs_f64()),
            modes: modes.into_iter().enumerate().map(of_mode).collect(),
            measured_ns_mean: self.took.get().map(|took| took.0),
            one_in: self.one_in.get(),
            processor_share: self.share.get(),
            measured_models_off: off.collect(),
            problem: self.problem.borrow().clone(),
        })
    }
}
