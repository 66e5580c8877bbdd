//! What the `Model` trait promises, for every named model under a mixed load.

use braid_base::{Bytes, GIB, KIB, Nanos, Rng};
use braid_model::{DeviceModel, Model, Op, Request, Spec, by_name, library};

const SIZE: Bytes = GIB;

/// A mixed load that does not depend on the device: (time, request), in order of time.
fn mixed_load(seed: u64, count: usize) -> Vec<(Nanos, Request)> {
    let mut rng = Rng::new(seed);
    let mut now = Nanos::ZERO;
    let mut next_sequential = Bytes::ZERO;
    let mut next = || {
        if rng.chance(0.7) {
            now += Nanos(rng.below(3_000_000));
        }
        let op = match rng.below(100) {
            0..50 => Op::Read,
            50..96 => Op::Write,
            96..98 => Op::Discard,
            _ => Op::Flush,
        };
        let len = KIB * 4 * rng.between(1, 40);
        let random = KIB * 4 * rng.below((SIZE - len) / (KIB * 4));
        let offset = if rng.chance(0.3) { next_sequential } else { random };
        next_sequential = (offset + len).min(SIZE - KIB * 256);
        match op {
            Op::Flush => (now, Request { op, offset: Bytes::ZERO, len: Bytes::ZERO }),
            _ => (now, Request { op, offset, len }),
        }
    };
    (0..count).map(|_| next()).collect()
}

/// Runs a load, stopping at every event; returns (time, tag) of each completion.
fn run_by_events(device: &mut DeviceModel, load: &[(Nanos, Request)]) -> Vec<(Nanos, u64)> {
    let mut completions = Vec::new();
    let mut advance = |device: &mut DeviceModel, now| {
        let mut tags = Vec::new();
        device.advance(now, &mut tags);
        completions.extend(tags.into_iter().map(|tag| (now, tag)));
    };
    for (tag, (at, request)) in load.iter().enumerate() {
        while let Some(event) = device.next_event().filter(|event| event <= at) {
            advance(device, event);
        }
        device.submit(tag as u64, *request, *at);
    }
    let mut events = 0;
    while let Some(event) = device.next_event() {
        advance(device, event);
        events += 1;
        assert!(events < 10_000_000, "the device never comes to rest");
    }
    completions
}

fn each_model(check: impl Fn(&Spec)) {
    for spec in library() {
        check(spec);
        check(&spec.clone().with_write_cache(false));
    }
    for name in ["mba3073", "x25-m", "dram"] {
        let spec = by_name(name).unwrap();
        check(&spec.raid0(3, KIB * 64).unwrap());
        check(&spec.raid1(2).unwrap());
        check(&spec.raid1(2).unwrap().raid0(2, KIB * 128).unwrap());
    }
}

#[test]
fn every_request_completes_exactly_once() {
    each_model(|spec| {
        let load = mixed_load(1, 2_000);
        let mut tags: Vec<u64> =
            run_by_events(&mut spec.build(SIZE, 1), &load).iter().map(|done| done.1).collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..2_000).collect::<Vec<_>>(), "{}", spec.name);
    });
}

#[test]
fn same_seed_gives_same_completion_times() {
    each_model(|spec| {
        let load = mixed_load(2, 500);
        let run = |seed| run_by_events(&mut spec.build(SIZE, seed), &load);
        assert_eq!(run(5), run(5), "{}", spec.name);
        let chance = !["dram", "ws-ros-ssd", "ws-ros-hdd"].iter().any(|certain| spec.name.contains(certain));
        assert_eq!(run(5) != run(6), chance, "{}: the effect of the seed", spec.name);
    });
}

#[test]
fn request_completes_after_submission() {
    each_model(|spec| {
        let load = mixed_load(3, 1_000);
        for (at, tag) in run_by_events(&mut spec.build(SIZE, 1), &load) {
            let (asked, Request { op, .. }) = load[tag as usize];
            let at_once = spec.name.starts_with("ws-ros") && matches!(op, Op::Flush | Op::Discard);
            assert!(at > asked || at_once && at == asked, "{}: request {tag}", spec.name);
        }
    });
}

#[test]
fn step_size_does_not_change_completion_order() {
    each_model(|spec| {
        let load = mixed_load(4, 500);
        let by_events: Vec<u64> =
            run_by_events(&mut spec.build(SIZE, 1), &load).iter().map(|done| done.1).collect();

        let mut device = spec.build(SIZE, 1);
        let mut in_one_step = Vec::new();
        for (tag, (at, request)) in load.iter().enumerate() {
            device.submit(tag as u64, *request, *at);
        }
        device.advance(Nanos::from_secs(100_000), &mut in_one_step);
        assert_eq!(by_events, in_one_step, "{}", spec.name);
    });
}

#[test]
fn each_event_advances_time_and_early_advance_changes_nothing() {
    each_model(|spec| {
        let mut device = spec.build(SIZE, 1);
        let mut now = Nanos::ZERO;
        let mut completed = Vec::new();
        let load = mixed_load(5, 300);
        load.iter()
            .enumerate()
            .for_each(|(tag, (_, request))| device.submit(tag as u64, *request, Nanos::ZERO));
        while let Some(event) = device.next_event() {
            assert!(event > now, "{}: the event at {now} remains after it was handled", spec.name);
            let before = completed.len();
            device.advance(Nanos(event.0 - 1), &mut completed);
            assert_eq!((before, device.next_event()), (completed.len(), Some(event)), "{}", spec.name);
            device.advance(event, &mut completed);
            now = event;
        }
        assert_eq!(completed.len(), 300, "{}", spec.name);
    });
}

#[test]
fn model_works_at_any_device_size() {
    each_model(|spec| {
        for size in [KIB * 4, KIB * 68, Bytes(1_000_448), GIB * 3] {
            let mut device = spec.build(size, 1);
            let whole = |op| Request { op, offset: Bytes::ZERO, len: size.min(KIB * 512) };
            let end = Request { op: Op::Read, offset: size - KIB * 4, len: KIB * 4 };
            let flush = Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO };
            let load = [whole(Op::Write), flush, whole(Op::Read), end, end, whole(Op::Discard)];
            let load: Vec<_> = load.into_iter().map(|request| (Nanos::from_millis(50), request)).collect();
            assert_eq!(run_by_events(&mut device, &load).len(), load.len(), "{} of {size}", spec.name);
        }
    });
}

#[test]
#[should_panic(expected = "does not lie within a device of 1 GiB")]
fn a_request_beyond_the_end_is_refused_loudly() {
    let request = Request { op: Op::Read, offset: SIZE - KIB * 4, len: KIB * 8 };
    library()[0].build(SIZE, 1).submit(0, request, Nanos::ZERO);
}
