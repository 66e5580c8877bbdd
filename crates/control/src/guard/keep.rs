//! The daemon's end of the guard.

use super::like::{devices, is_in_use, like};
use super::worker::Worker;
use crate::Result;
use crate::report::types::{GuardReport, ModeReport};
use crate::serve::daemon::Daemon;
use crate::volume::state_dir::StateDir;
use braid_base::{DeviceId, Nanos};
use braid_engine::Export;
use braid_lab::guard::{BATCH, Scale, Verdict};
use braid_model::Spec;
use braid_runtime::Runtime;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What the guard did, for the status.
#[derive(Default)]
pub(crate) struct Guard {
    /// What requests of the last batch took.
    took: Cell<Option<Nanos>>,
    /// What ghosts said of it, by mode.
    means: RefCell<Vec<Option<f64>>>,
    switches: Cell<u64>,
    switched_at: Cell<Option<Nanos>>,
    one_in: Cell<u32>,
    share: Cell<f64>,
    /// Why there are no ghosts, or not of all modes.
    problem: RefCell<Option<String>>,
}

/// The share of a processor that ghosts have.
const MOST_SHARE: f64 = 0.02;
/// Ghosts have a smaller part of the volume once batches in a row have cost that share so many times, added up: at once where the load is far too much.
const PATIENCE: f64 = 6.0;
/// How long it waits to look again.
const LOOK: Nanos = Nanos::from_millis(100);
/// The same where there is nothing to guard.
const LOOK_AGAIN: Nanos = Nanos::from_secs(1);

/// Guards a volume as long as the daemon runs.
pub(crate) async fn keep(daemon: Rc<Daemon>) {
    let guard = &daemon.guard;
    let mut one_in = 1;
    while !daemon.is_stopping() {
        if daemon.volume.modes(1).0.is_empty() {
            daemon.ring.sleep(LOOK_AGAIN).await;
            continue;
        }
        let known = Known::of(&daemon);
        let ended = guarded(&daemon, &known, one_in).await;
        daemon.recorder.watch(None);
        guard.means.borrow_mut().clear();
        guard.took.set(None);
        guard.one_in.set(0);
        *guard.problem.borrow_mut() = ended.as_ref().err().map(ToString::to_string);
        one_in = match ended {
            Ok(next) => next,
            Err(problem) => {
                let name = &daemon.name;
                tracing::warn!(
                    "volume '{name}' stays in its mode, for mode=auto has no simulations: {problem}"
                );
                while !daemon.is_stopping() && known == Known::of(&daemon) {
                    daemon.ring.sleep(LOOK_AGAIN).await;
                }
                1
            }
        };
    }
}

/// What ghosts are made for.
#[derive(PartialEq)]
struct Known {
    modes: Vec<String>,
    /// Which, with how many slots, and whether they are in use.
    devices: Vec<(DeviceId, u32, bool)>,
}

impl Known {
    fn of(daemon: &Daemon) -> Known {
        let devices = devices(daemon);
        Known {
            modes: daemon.volume.modes(1).0,
            devices: devices.iter().map(|(id, device)| (*id, device.slots, is_in_use(device))).collect(),
        }
    }
}

/// Guards a volume until the policy or the devices change, or ghosts had better have a smaller part of the volume. Returns the part of the next ghosts: one in so
/// many.
async fn guarded(daemon: &Daemon, known: &Known, one_in: u64) -> Result<u64> {
    let (guard, ring) = (&daemon.guard, &daemon.ring);
    let like = like(daemon, specs(daemon)?, one_in).await;
    let scale = like.scale;
    let modes = daemon.volume.modes(scale.one_in()).0;
    let worker = Worker::new(like, modes)?;
    guard.one_in.set(scale.one_in());
    *guard.problem.borrow_mut() = None;
    guard.share.set(0.0);
    let mut over = 0.0;
    daemon.recorder.watch(Some(scale));
    loop {
        let begun = ring.now();
        let batch = loop {
            ring.sleep(LOOK).await;
            if *known != Known::of(daemon) || daemon.is_stopping() {
                return Ok(1);
            }
            let is_over = ring.now() - begun >= BATCH || daemon.recorder.with_watch(|watch| watch.is_full());
            if is_over && let Some(batch) = daemon.recorder.with_watch(|watch| watch.take(ring.now())) {
                break batch;
            }
        };
        let took = batch.took;
        worker.give(batch, daemon.volume.modes(1).1);
        let verdict = loop {
            if let Some(verdict) = worker.verdict()? {
                break verdict;
            }
            ring.sleep(LOOK).await;
        };
        if *known != Known::of(daemon) {
            return Ok(1);
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
                return Ok(more);
            }
        }
        daemon.recorder.watch(None);
        let until = ring.now() + Nanos::from_secs_f64(rest);
        while ring.now() < until && !daemon.is_stopping() && *known == Known::of(daemon) {
            ring.sleep(LOOK).await;
        }
        daemon.recorder.watch(Some(scale));
    }
}

fn specs(daemon: &Daemon) -> Result<Vec<Spec>> {
    let record = StateDir::load(&daemon.state, &daemon.name)?;
    let members = daemon.members.borrow();
    let path = |id| members.iter().find(|member| member.id == id).map(|member| member.name.clone());
    daemon.models.of(&devices(daemon), &record, |device| path(device).unwrap_or_default())
}

fn judge(daemon: &Daemon, known: &Known, verdict: Verdict) {
    let (guard, volume, name) = (&daemon.guard, &daemon.volume, &daemon.name);
    let told = |(mode, error): &(usize, _)| format!("{} is left out: {error}", known.modes[*mode]);
    let left_out: Vec<String> = verdict.left_out.iter().map(told).collect();
    if !left_out.is_empty() {
        let problem = left_out.join("; ");
        tracing::warn!("mode=auto of volume '{name}': {problem}");
        *guard.problem.borrow_mut() = Some(problem);
    }
    if let Some(mode) = verdict.switch {
        let told =
            |mode: usize| verdict.means[mode].map_or("?".to_owned(), |mean| Nanos(mean as u64).to_string());
        let present = volume.modes(1).1;
        volume.switch_mode(mode);
        guard.switches.set(guard.switches.get() + 1);
        guard.switched_at.set(Some(daemon.ring.now()));
        tracing::info!(
            "volume '{name}' goes on as {}: requests of the last batch would take {}, and {} as until now",
            known.modes[mode],
            told(mode),
            told(present)
        );
    }
    *guard.means.borrow_mut() = verdict.means;
}

impl Guard {
    /// What there is to know; none of a policy without a choice.
    pub fn report(&self, modes: (Vec<String>, usize), now: Nanos) -> Option<GuardReport> {
        let (modes, present) = modes;
        let mode = modes.get(present)?.clone();
        let means = self.means.borrow();
        let of_mode = |(place, mode): (usize, String)| ModeReport {
            mode,
            latency_ns_mean: means.get(place).copied().flatten().map(|mean| mean as u64),
        };
        Some(GuardReport {
            mode,
            switches: self.switches.get(),
            switched_seconds_ago: self.switched_at.get().map(|at| (now - at).as_secs_f64()),
            modes: modes.into_iter().enumerate().map(of_mode).collect(),
            measured_ns_mean: self.took.get().map(|took| took.0),
            one_in: self.one_in.get(),
            processor_share: self.share.get(),
            problem: self.problem.borrow().clone(),
        })
    }
}
