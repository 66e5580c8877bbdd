//! What happens to requests that wait: order, buffers, flushes.

use braid_base::{Bytes, GIB, KIB, Nanos, Rng};
use braid_model::ssd::State;
use braid_model::{DeviceModel, Model, Op, Request, Timing, by_name, drive, library};

const SIZE: Bytes = Bytes(64 << 30);
const FLUSH: Request = Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO };

fn build(name: &str) -> DeviceModel {
    by_name(name).expect("a name of the library").build(SIZE, 1)
}

fn small(op: Op, at: u64) -> Request {
    Request { op, offset: KIB * 4 * at, len: KIB * 4 }
}

fn random(rng: &mut Rng, op: Op) -> Request {
    small(op, rng.below(SIZE / (KIB * 4)))
}

/// Advances until the request `tag` has completed; returns when.
fn completion_of(device: &mut DeviceModel, tag: u64) -> Nanos {
    let mut completed = Vec::new();
    loop {
        let now = device.next_event().expect("the request is outstanding");
        device.advance(now, &mut completed);
        if completed.contains(&tag) {
            return now;
        }
    }
}

#[test]
fn positional_ordering_serves_more_reads_than_oldest_first() {
    let rate = |weighed| {
        let mut spec = by_name("exos-x20").unwrap().clone();
        if let Timing::Hdd(params) = &mut spec.timing {
            params.weighed = weighed;
        }
        let mut rng = Rng::new(3);
        let mut device = spec.build(spec.capacity, 1);
        2_000.0 / drive(&mut device, 32, 2_000, Nanos::ZERO, |_| random(&mut rng, Op::Read)).as_secs_f64()
    };
    let (by_position, oldest_first) = (rate(32), rate(1));
    assert!(by_position > 1.7 * oldest_first, "{by_position} against {oldest_first} reads/s");
}

#[test]
fn far_read_does_not_starve_among_near_reads() {
    for name in ["mba3073", "barracuda-7200.12", "exos-x20"] {
        let mut device = build(name);
        let mut rng = Rng::new(4);
        let mut completed = Vec::new();
        (0..31).for_each(|tag| device.submit(tag, small(Op::Read, rng.below(1 << 14)), Nanos::ZERO));
        device.submit(u64::MAX, small(Op::Read, (SIZE - GIB) / (KIB * 4)), Nanos::ZERO);
        while !completed.contains(&u64::MAX) {
            completed.clear();
            let now = device.next_event().unwrap();
            device.advance(now, &mut completed);
            assert!(now < Nanos::from_secs(4), "{name}: the far read starves");
            completed.iter().for_each(|&tag| device.submit(tag, small(Op::Read, rng.below(1 << 14)), now));
        }
    }
}

#[test]
fn reads_and_buffered_writes_both_go_on_when_both_press() {
    for spec in library() {
        let mut device = spec.build(SIZE, 1);
        let mut rng = Rng::new(5);
        let mut completed = Vec::new();
        let (mut reads, mut writes, mut now) = (0u32, 0u32, Nanos::ZERO);
        let depth = if spec.name == "nvme-ssd" { 256 } else { 16 };
        let mut submit = |device: &mut DeviceModel, tag: u64, now| {
            let op = if tag.is_multiple_of(2) { Op::Read } else { Op::Write };
            device.submit(tag, random(&mut rng, op), now);
        };
        (0..depth).for_each(|tag| submit(&mut device, tag, now));
        while reads + writes < 12_000 {
            completed.clear();
            now = device.next_event().unwrap();
            device.advance(now, &mut completed);
            for &tag in &completed {
                *if tag.is_multiple_of(2) { &mut reads } else { &mut writes } += 1;
                submit(&mut device, tag, now);
            }
        }
        assert!(reads > 200 && writes > 200, "{}: {reads} reads, {writes} writes", spec.name);
    }
}

#[test]
fn a_flush_waits_for_buffered_writes() {
    for name in ["mba3073", "exos-x20", "transcend-16g", "sata-ssd"] {
        let flush_time = |writes: u64| {
            let mut device = build(name);
            let mut rng = Rng::new(6);
            let written = drive(&mut device, 1, writes, Nanos::ZERO, |_| random(&mut rng, Op::Write));
            device.submit(u64::MAX, FLUSH, written);
            completion_of(&mut device, u64::MAX) - written
        };
        let (few, many) = (flush_time(1), flush_time(40));
        assert!(many > few, "{name}: {few} after one write, {many} after forty");
        let disk_time = Nanos::from_millis(40);
        assert!(
            by_name(name).unwrap().class != braid_base::DeviceClass::Hdd || many > disk_time,
            "{name}: {many}"
        );
    }
}

#[test]
fn flush_of_protected_buffer_completes_at_once() {
    let mut device = build("nvme-ssd");
    let mut rng = Rng::new(7);
    let written = drive(&mut device, 32, 1_000, Nanos::ZERO, |_| random(&mut rng, Op::Write));
    device.submit(u64::MAX, FLUSH, written);
    assert!(completion_of(&mut device, u64::MAX) - written < Nanos::from_micros(40));
}

#[test]
fn writes_complete_at_once_with_the_write_cache_and_take_the_arm_without() {
    let mut rng = Rng::new(8);
    let mut mean_time = |on| {
        let mut device = by_name("cheetah-15k5").unwrap().clone().with_write_cache(on).build(SIZE, 1);
        drive(&mut device, 1, 50, Nanos::ZERO, |_| random(&mut rng, Op::Write)) / 50
    };
    assert!(mean_time(true) < Nanos::from_micros(200));
    assert!(mean_time(false) > Nanos::from_millis(4));
}

#[test]
fn full_buffer_slows_writes_to_controller_rate() {
    let Timing::Ssd(params) = by_name("x25-m").unwrap().timing else { panic!("the x25-m is an SSD") };
    let (len, start) = (KIB * 16, SIZE / 2);
    let held = params.buffer / len;
    let mut device = by_name("x25-m").unwrap().clone().with_state(State::Fresh).build(SIZE, 1);
    let mut at = 0;
    let mut next = |_| {
        at += 1;
        Request { op: Op::Write, offset: start + len * (at - 1), len }
    };
    // The first one finds no stream that it goes on with.
    let first = drive(&mut device, 1, 1, Nanos::ZERO, &mut next);
    let burst = drive(&mut device, 1, held, first, &mut next) - first;
    let alone = params.command + params.latency + params.write_rate.time_for(len);
    assert!(burst < alone * held * 11 / 10, "{burst} for {held} writes that take {alone} each");
    let filled = first + burst;
    let rest = drive(&mut device, 1, 10 * held, filled, &mut next) - filled;
    let rate = (len * 10 * held).0 as f64 / rest.as_secs_f64() / 1e6;
    assert!((rate / 70.0 - 1.0).abs() < 0.1, "{rate} MB/s while the buffer is full");
}

#[test]
fn disk_writes_faster_with_more_sorted_runs() {
    let mut spec = by_name("mba3073").unwrap().clone();
    let mut rate = |runs| {
        if let Timing::Hdd(params) = &mut spec.timing {
            params.buffered_runs = runs;
        }
        let (mut rng, mut device) = (Rng::new(12), spec.build(spec.capacity, 1));
        let filled = drive(&mut device, 32, 2_000, Nanos::ZERO, |_| random(&mut rng, Op::Write));
        2_000.0
            / (drive(&mut device, 32, 2_000, filled, |_| random(&mut rng, Op::Write)) - filled).as_secs_f64()
    };
    let rates = [8, 32, 128, 512].map(&mut rate);
    assert!(rates.is_sorted_by(|one, other| 1.1 * one < *other), "{rates:?}");
}

#[test]
fn small_sequential_requests_stream() {
    for name in ["mba3073", "cheetah-15k5", "barracuda-7200.12", "exos-x20"] {
        for op in [Op::Read, Op::Write] {
            let mut device = build(name);
            let count = 20_000;
            let time = drive(&mut device, 1, count, Nanos::ZERO, |at| small(op, at));
            let rate = 4.096e-3 * count as f64 / time.as_secs_f64();
            assert!(rate > 30.0, "{name}: {op:?} of 4 KiB, one after the other, run at {rate} MB/s");
        }
    }
}

#[test]
fn repeated_disk_read_is_served_from_buffer() {
    let mut device = build("barracuda-7200.12");
    let first = drive(&mut device, 1, 1, Nanos::ZERO, |_| small(Op::Read, 1_000_000));
    let again = drive(&mut device, 1, 1, first, |_| small(Op::Read, 1_000_000)) - first;
    assert!(again < Nanos::from_micros(200), "{again}");
}

#[test]
fn slow_sequential_reader_hits_readahead() {
    let mut device = build("mba3073");
    let mut now = Nanos::ZERO;
    let mut slow = 0;
    for at in 0..2_000 {
        let done = drive(&mut device, 1, 1, now, |_| small(Op::Read, at));
        slow += u32::from(done - now > Nanos::from_millis(1));
        now = done + Nanos::from_millis(3);
    }
    assert_eq!(slow, 1, "only the first read waits for the platter");
}

#[test]
fn requests_beyond_queue_depth_complete_in_order() {
    let mut device = build("memoright-gt");
    (0..10).for_each(|tag| device.submit(tag, small(Op::Read, 100 * tag), Nanos::ZERO));
    let mut completed = Vec::new();
    device.advance(Nanos::from_secs(1), &mut completed);
    assert_eq!(completed, (0..10).collect::<Vec<_>>());
}

#[test]
fn nearby_random_writes_are_cheap_on_merging_drive() {
    let mut rng = Rng::new(9);
    let mut rate = |span: u64| {
        let mut device = build("memoright-gt");
        2_000.0
            / drive(&mut device, 1, 2_000, Nanos::ZERO, |_| small(Op::Write, rng.below(span))).as_secs_f64()
    };
    let (near, far) = (rate(2_048), rate(1 << 24));
    assert!(near > 10.0 * far, "{near} writes/s within 8 MiB, {far} over the whole drive");
}

#[test]
fn write_waits_for_earlier_flush_but_read_does_not() {
    let mut device = build("mba3073");
    let mut rng = Rng::new(10);
    let written = drive(&mut device, 1, 40, Nanos::ZERO, |_| random(&mut rng, Op::Write));
    device.submit(100, FLUSH, written);
    device.submit(101, random(&mut rng, Op::Write), written);
    device.submit(102, random(&mut rng, Op::Read), written);
    let mut completed = Vec::new();
    while completed.len() < 3 {
        device.advance(device.next_event().unwrap(), &mut completed);
    }
    assert_eq!(completed, [102, 100, 101]);
}
