//! The guard's task, beside the served volume.

use super::Guard;
use super::like::{Known, like};
use super::measure::{Measured, models};
use super::worker::Worker;
use crate::Result;
use braid_base::Nanos;
use braid_engine::Export;
use braid_lab::guard::{BATCH, Scale, Verdict};
use braid_runtime::Runtime;
use std::rc::Rc;

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
pub(crate) async fn keep(guard: Rc<Guard>) {
    let (served, seen) = (&*guard.served, &guard.seen);
    let (mut measured, mut wrong_for) = (Measured::new(), WRONG_FOR);
    let mut one_in = 1;
    while !served.end().has_begun() {
        if served.volume().modes(1).0.is_empty() {
            served.ring().sleep(LOOK_AGAIN).await;
            continue;
        }
        let known = Known::of(served);
        let ended = guarded(&guard, &known, &mut measured, one_in, wrong_for).await;
        served.frontends().recorder().watch(None);
        seen.means.borrow_mut().clear();
        seen.took.set(None);
        seen.one_in.set(0);
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
                let name = served.name();
                tracing::warn!(
                    "volume '{name}' keeps its mode, because mode=auto has no simulations: {problem}"
                );
                let until = served.ring().now() + RETRY;
                while !served.end().has_begun() && known == Known::of(served) && served.ring().now() < until {
                    served.ring().sleep(LOOK_AGAIN).await;
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

/// Guards a volume until its ghosts no longer fit.
async fn guarded(
    guard: &Guard,
    known: &Known,
    measured: &mut Measured,
    one_in: u64,
    wrong_for: Nanos,
) -> Result<Ended> {
    let (served, seen) = (&*guard.served, &guard.seen);
    let (ring, recorder) = (served.ring(), served.frontends().recorder());
    seen.measured.borrow_mut().clear();
    let Some(specs) = models(guard, known, measured).await? else { return Ok(Ended::Changed) };
    *seen.measured.borrow_mut() = measured.iter().map(|(id, nearest)| (*id, nearest.off)).collect();
    let like = like(served, &guard.options, specs, !measured.is_empty(), one_in).await;
    let scale = like.scale;
    let modes = served.volume().modes(scale.one_in()).0;
    let worker = Worker::new(like, modes)?;
    seen.one_in.set(scale.one_in());
    guard.tell(None);
    seen.share.set(0.0);
    let (mut over, mut wrong_since) = (0.0, None);
    recorder.watch(Some(scale));
    loop {
        let begun = ring.now();
        let batch = loop {
            let is_idle = recorder.with_watch(|watch| watch.is_idle());
            ring.sleep(if is_idle { LOOK_AGAIN } else { LOOK }).await;
            if *known != Known::of(served) || served.end().has_begun() {
                return Ok(Ended::Changed);
            }
            let is_over = ring.now() - begun >= BATCH || recorder.with_watch(|watch| watch.is_full());
            if is_over && let Some(batch) = recorder.with_watch(|watch| watch.take(ring.now())) {
                break batch;
            }
        };
        let took = batch.took;
        let present = served.volume().modes(1).1;
        worker.give(batch, present);
        let verdict = loop {
            if let Some(verdict) = worker.verdict()? {
                break verdict;
            }
            ring.sleep(LOOK).await;
        };
        if *known != Known::of(served) {
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
        judge(guard, known, verdict);
        seen.took.set(took);
        let elapsed = (ring.now() - begun).as_secs_f64();
        let rest = processor / MOST_SHARE - elapsed;
        seen.share.set(processor / (elapsed + rest.max(0.0)));
        if rest <= 0.0 {
            over = 0.0;
            continue;
        }
        let times = processor / elapsed / MOST_SHARE;
        over += times;
        if over >= PATIENCE {
            over = 0.0;
            let more = u64::from(scale.one_in()) * (times.ceil() as u64).max(2);
            if Scale::of(more, served.volume().size(), served.volume().superblock().extent_size) != scale {
                return Ok(Ended::TooMuch { one_in: more });
            }
        }
        recorder.watch(None);
        let until = ring.now() + Nanos::from_secs_f64(rest);
        while ring.now() < until && !served.end().has_begun() && *known == Known::of(served) {
            ring.sleep(LOOK_AGAIN.min(until - ring.now())).await;
        }
        recorder.watch(Some(scale));
    }
}

fn judge(guard: &Guard, known: &Known, verdict: Verdict) {
    let (served, seen) = (&*guard.served, &guard.seen);
    let (volume, name) = (served.volume(), served.name());
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
        seen.switches.set(seen.switches.get() + 1);
        seen.switched_at.set(Some(served.ring().now()));
        tracing::info!(
            "volume '{name}' continues as {}: requests of the last batch would take {}, instead of {} in \
             the present mode",
            known.modes[mode],
            told(mode),
            told(present)
        );
    }
    *seen.means.borrow_mut() = verdict.means;
}
