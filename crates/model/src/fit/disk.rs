//! A disk from measurements.

use super::{
    END, MANY, ONE, Observed, SAME, SAME_LONG, START, WRITE, WRITE_MANY, WRITE_ONE, adjusted, hdd, slower,
};
use crate::hdd::{Curve, SEGMENTS};
use crate::library::{InvalidModel, Spec};
use crate::measure::{Measure, measure};
use crate::rate::Rate;
use braid_base::{KIB, MIB, Nanos};

/// The measures of a disk.
pub(super) const WANTED: &[Measure] = &[
    ONE,
    MANY,
    START,
    END,
    Measure::NearRead,
    Measure::FarRead,
    Measure::BackwardRead,
    SAME,
    SAME_LONG,
    WRITE,
    WRITE_ONE,
    WRITE_MANY,
];

const ASSUMED: &str = "heads, track_read, track_write, write_settle, head_switch, queue_depth, buffer, segments, read_ahead; \
                       without writes also write_cache and buffered_runs";

pub(super) fn fit(spec: &mut Spec, seen: &Observed) -> Result<&'static str, InvalidModel> {
    transfer(spec, seen)?;
    seeks(spec, seen)?;
    for _ in 0..5 {
        correct(spec, seen);
    }
    ordering(spec, seen);
    writes(spec, seen);
    Ok(ASSUMED)
}

/// Fits the rates, the revolution, and the time of the electronics.
fn transfer(spec: &mut Spec, seen: &Observed) -> Result<(), InvalidModel> {
    let (outer, inner) = (seen.need(START)? * 1e6, seen.need(END)? * 1e6);
    let params = hdd(spec);
    (params.segments, params.read_ahead) = (SEGMENTS, KIB * 512);
    params.outer = Rate((outer as u64).clamp(5_000_000, 10_000_000_000));
    params.inner = Rate((inner as u64).clamp(5_000_000, params.outer.0));
    params.revolution = turn(seen.get(Measure::BackwardRead), outer);
    // A buffer hit costs only command and interface time; a miss costs a turn.
    let hit = |measure| seen.get(measure).map(|rate| 1.0 / rate).filter(|time| *time < 1.5e-3);
    if let (Some(short), Some(long)) = (hit(SAME), hit(SAME_LONG))
        && long > short
    {
        let interface = (SAME_LONG.len().0 - SAME.len().0) as f64 / (long - short);
        params.interface = Rate(interface.clamp(outer, 1e11) as u64);
        params.command = Nanos(((short - SAME.len().0 as f64 / interface) * 1e9).max(1_000.0) as u64);
    }
    Ok(())
}

/// The revolution: a read before the previous read waits for a turn less its own length. A value near a usual
/// speed is rounded to the usual speed.
fn turn(backward: Option<f64>, outer: f64) -> Nanos {
    const USUAL: [f64; 7] = [4_200.0, 5_400.0, 5_900.0, 7_200.0, 10_000.0, 10_500.0, 15_000.0];
    let seconds = backward.map(|rate| 1.0 / rate + Measure::BackwardRead.len().0 as f64 / outer);
    let Some(seconds) = seconds.filter(|seconds| (2e-3..20e-3).contains(seconds)) else {
        return Nanos((60e9 / 7_200.0) as u64);
    };
    let off = |rpm: &&f64| (60.0 / *rpm / seconds - 1.0).abs();
    let usual = USUAL.iter().min_by(|one, other| off(one).total_cmp(&off(other)));
    let turn = usual.filter(|rpm| off(rpm) < 0.025).map_or(seconds, |rpm| 60.0 / rpm);
    Nanos::from_secs_f64(turn)
}

/// Fits the seek curve's figures to mean times less half a turn and the command.
fn seeks(spec: &mut Spec, seen: &Observed) -> Result<(), InvalidModel> {
    let params = hdd(spec);
    let beside = params.revolution.as_secs_f64() / 2.0 + params.command.as_secs_f64();
    let seek = |rate: f64| ((1.0 / rate - beside) * 1e9).max(0.0);
    let average = seek(seen.need(ONE)?).max(2e5);
    // Reads faster than a part of a turn were buffer hits.
    let near = seen.get(Measure::NearRead).filter(|rate| 1.0 / rate > 0.4 * params.revolution.as_secs_f64());
    let settle = near.map_or(average * 0.15, seek);
    let full = seen.get(Measure::FarRead).map_or(average * 2.1, seek);
    set_seeks(spec, settle, average, full);
    Ok(())
}

/// Sets the figures as near to the given figures as a rising curve allows.
fn set_seeks(spec: &mut Spec, settle: f64, average: f64, full: f64) {
    let params = hdd(spec);
    let average = average.clamp(1e5, 4e8);
    let mut seek = params.seek;
    seek.average = Nanos(average as u64);
    seek.settle = Nanos(settle.clamp(5e4, average * 0.8) as u64);
    for step in 0..60 {
        // Towards the usual ratio: twice the average.
        let part = f64::from(step) / 59.0;
        let full = full * (1.0 - part) + average * 2.0 * part;
        seek.full = Nanos(full.clamp(average * 1.05, 9e8) as u64);
        if Curve::solve(seek).is_some() {
            break;
        }
    }
    seek.track_read = seek.settle * 2 / 5;
    seek.track_write = seek.settle * 3 / 5;
    // A smaller value makes writes faster than reads of the same places; the buffer compensates for a larger
    // value.
    seek.write_settle = Nanos::from_micros(200);
    if Curve::solve(seek).is_some() {
        params.seek = seek;
        params.head_switch = seek.track_read.max(params.revolution / 20);
    }
}

/// Adds the model's missing time to each figure, by the measure that determines the figure.
fn correct(spec: &mut Spec, seen: &Observed) {
    let lacks = |spec: &Spec, measure| seen.lacks(spec, measure);
    let seek = hdd(spec).seek;
    let add = |time: Nanos, by: f64| time.0 as f64 + by;
    let near =
        seen.get(Measure::NearRead).is_some_and(|rate| 1e9 / rate > 0.4 * hdd(spec).revolution.0 as f64);
    let settle = add(seek.settle, if near { lacks(spec, Measure::NearRead) } else { 0.0 });
    let average = add(seek.average, lacks(spec, ONE));
    let full = add(seek.full, lacks(spec, Measure::FarRead));
    set_seeks(spec, settle, average, full);
    for (wanted, inner) in [(START, false), (END, true)] {
        let off = seen.get(wanted).map_or(1.0, |seen| seen / measure(spec, wanted)).clamp(0.9, 1.1);
        let params = hdd(spec);
        let rate = if inner { &mut params.inner } else { &mut params.outer };
        *rate = Rate(((rate.0 as f64 * off) as u64).clamp(5_000_000, 10_000_000_000));
        params.inner = params.inner.min(params.outer);
    }
    let (command, long) = (lacks(spec, SAME), lacks(spec, SAME_LONG));
    if command.abs().max(long.abs()) < 1e6 {
        let params = hdd(spec);
        params.command = adjusted(params.command, command, Nanos(1_000), Nanos::from_millis(10));
        let interface = slower(params.interface, SAME_LONG.len(), long - command);
        params.interface = interface.max(params.outer);
    }
}

/// Fits the number of weighed requests: the fewest that reach the rate at depth.
fn ordering(spec: &mut Spec, seen: &Observed) {
    let Some(wanted) = seen.get(MANY) else { return };
    let (mut low, mut high) = (1, 32);
    while low < high {
        let middle = (low + high) / 2;
        hdd(spec).weighed = middle;
        if measure(spec, MANY) < wanted { low = middle + 1 } else { high = middle }
    }
    let nearest = |spec: &mut Spec, weighed: usize| {
        hdd(spec).weighed = weighed;
        (measure(spec, MANY) - wanted).abs()
    };
    let fewer = low.saturating_sub(1).max(1);
    hdd(spec).weighed = if nearest(spec, fewer) < nearest(spec, low) { fewer } else { low };
}

/// Fits whether writes are buffered, and the number of buffered runs.
fn writes(spec: &mut Spec, seen: &Observed) {
    let (Some(one), Some(many)) = (seen.get(WRITE_ONE), seen.get(WRITE_MANY)) else { return };
    // Without a buffer, a single writer waits for the arm like a single reader.
    let read = seen.get(ONE).unwrap_or(one);
    hdd(spec).write_cache = one > 1.25 * read;
    if !hdd(spec).write_cache {
        return;
    }
    let off = |spec: &mut Spec, runs: usize| {
        hdd(spec).buffered_runs = runs;
        hdd(spec).buffer = (KIB * 32 * runs as u64).max(MIB * 8);
        (measure(spec, WRITE_MANY) / many).ln().abs()
    };
    let candidates = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1_024, 2_048, 4_096];
    let offs: Vec<(f64, usize)> = candidates.iter().map(|&runs| (off(spec, runs), runs)).collect();
    let best = offs.iter().min_by(|one, other| one.0.total_cmp(&other.0)).map_or(128, |(_, runs)| *runs);
    off(spec, best);
}
