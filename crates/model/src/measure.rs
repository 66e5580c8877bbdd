//! What a model does under a load, in virtual time: a closed loop, and the measures in which figures are published.

use crate::ssd::State;
use crate::{DeviceModel, Measure, Model, Op, Request, Spec, Timing};
use braid_base::{Bytes, KIB, MIB, Nanos, Rng};

/// Keeps `depth` requests outstanding until `count` have completed; returns the time at which the last did.
///
/// # Panics
/// Where `depth` is zero.
pub fn drive(
    device: &mut impl Model,
    depth: usize,
    count: u64,
    start: Nanos,
    mut next: impl FnMut(u64) -> Request,
) -> Nanos {
    let mut completed = Vec::with_capacity(depth);
    assert!(depth > 0, "without a request outstanding nothing completes");
    let (mut submitted, mut done, mut now) = (0, 0, start);
    while done < count {
        while submitted < count && submitted - done < depth as u64 {
            device.submit(submitted, next(submitted), now);
            submitted += 1;
        }
        now = device.next_event().expect("requests are outstanding, so something happens").max(now);
        device.advance(now, &mut completed);
        done += completed.drain(..).count() as u64;
    }
    now
}

/// Measures a model at its full capacity: MB/s of sequential access, requests per second of random access.
///
/// Takes a few milliseconds to a few seconds of processor time. The same model gives the same value.
pub fn measure(spec: &Spec, measure: Measure) -> f64 {
    let spec = match measure {
        Measure::RandomWrite { state, .. } => &spec.clone().with_state(state),
        _ => &spec.clone().with_state(State::Filled),
    };
    let mut device = spec.build(spec.capacity, 7);
    let mut rng = Rng::new(11);
    let sequential = KIB * 128;
    let small = KIB * 4;
    let run =
        |device: &mut DeviceModel, depth, warm_up: u64, count: u64, next: &mut dyn FnMut(u64) -> Request| {
            let start = drive(device, depth, warm_up, Nanos::ZERO, &mut *next);
            let end = drive(device, depth, count, start, |at| next(warm_up + at));
            count as f64 / (end - start).as_secs_f64()
        };
    let request = |op, offset, len| Request { op, offset, len };
    match measure {
        Measure::SequentialRead { depth, from } => {
            let from = Bytes((spec.capacity.0 as f64 * from) as u64).align_down(MIB);
            let mut next = |at| request(Op::Read, from + sequential * at, sequential);
            run(&mut device, depth, 100, 3_000, &mut next) * sequential.0 as f64 / 1e6
        }
        Measure::SequentialWrite { depth } => {
            let mut next = |at| request(Op::Write, sequential * at, sequential);
            let warm_up = 4 * (buffer_of(spec) / sequential) + 100;
            run(&mut device, depth, warm_up, 3_000, &mut next) * sequential.0 as f64 / 1e6
        }
        Measure::RandomRead { depth } => {
            let slots = spec.capacity / small;
            let mut next = |_| request(Op::Read, small * rng.below(slots), small);
            run(&mut device, depth, 4 * depth as u64, 3_000.max(20 * depth as u64), &mut next)
        }
        Measure::RandomWrite { depth, span, .. } => {
            let slots = (spec.capacity / small) as f64 * span;
            let mut next = |_| request(Op::Write, small * rng.below(slots as u64), small);
            let warm_up = 2 * (buffer_of(spec) / small).min(buffered_runs_of(spec)) + 2_000;
            run(&mut device, depth, warm_up, warm_up.max(4_000), &mut next)
        }
    }
}

fn buffer_of(spec: &Spec) -> Bytes {
    match &spec.timing {
        Timing::Ssd(params) => params.buffer,
        Timing::Hdd(params) => params.buffer,
        Timing::Dram(_) => Bytes::ZERO,
        Timing::Group(params) => buffer_of(&params.member) * params.count as u64,
    }
}

fn buffered_runs_of(spec: &Spec) -> u64 {
    match &spec.timing {
        Timing::Ssd(_) | Timing::Dram(_) => u64::MAX,
        Timing::Hdd(params) => params.buffered_runs as u64,
        Timing::Group(params) => buffered_runs_of(&params.member).saturating_mul(params.count as u64),
    }
}
