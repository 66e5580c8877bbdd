//! Several devices as one: what a group adds to its members, and what not.

use braid_base::{Bytes, GIB, KIB, MIB, Nanos, Rng};
use braid_model::{Op, Request, Spec, by_name, drive};

const SIZE: Bytes = Bytes(64 << 30);

fn disk() -> &'static Spec {
    by_name("cheetah-15k5").unwrap()
}

/// Requests per second of random access of `len`, `depth` outstanding.
fn random(spec: &Spec, op: Op, len: Bytes, depth: usize) -> f64 {
    let mut rng = Rng::new(3);
    let mut next = |_| Request { op, offset: len * rng.below(SIZE / len), len };
    let mut device = spec.build(SIZE, 1);
    let start = drive(&mut device, depth, 1_000, Nanos::ZERO, &mut next);
    let end = drive(&mut device, depth, 4_000, start, next);
    4_000.0 / (end - start).as_secs_f64()
}

/// MB/s of sequential access in requests of 1 MiB.
fn sequential(spec: &Spec, op: Op, depth: usize) -> f64 {
    let end = drive(&mut spec.build(SIZE, 1), depth, 2_000, Nanos::ZERO, |at| Request {
        op,
        offset: MIB * at,
        len: MIB,
    });
    2_000.0 * MIB.0 as f64 / 1e6 / end.as_secs_f64()
}

#[test]
fn four_striped_disks_stream_and_seek_nearly_four_times_as_fast() {
    let group = disk().raid0(4, KIB * 64).unwrap();
    for op in [Op::Read, Op::Write] {
        let (one, four) = (sequential(disk(), op, 8), sequential(&group, op, 8));
        assert!(four > 3.4 * one, "{op:?}: {one} MB/s alone, {four} MB/s striped");
    }
    let (one, four) = (random(disk(), Op::Read, KIB * 4, 8), random(&group, Op::Read, KIB * 4, 32));
    assert!((3.0..4.5).contains(&(four / one)), "{one} reads/s alone, {four} striped");
}

#[test]
fn mirror_reads_from_both_members_and_writes_slower() {
    let mirror = disk().raid1(2).unwrap();
    let (one, both) = (random(disk(), Op::Read, KIB * 4, 8), random(&mirror, Op::Read, KIB * 4, 16));
    assert!(both > 1.7 * one, "{one} reads/s alone, {both} mirrored");
    let without_cache = |spec: &Spec| random(&spec.clone().with_write_cache(false), Op::Write, KIB * 4, 1);
    let (one, both) = (without_cache(disk()), without_cache(&mirror));
    assert!((0.75..0.98).contains(&(both / one)), "{one} writes/s alone, {both} mirrored");
}

#[test]
fn mirror_speeds_up_single_random_reader_but_not_streams() {
    let mirror = disk().raid1(2).unwrap();
    let (one, both) = (random(disk(), Op::Read, KIB * 4, 1), random(&mirror, Op::Read, KIB * 4, 1));
    assert!((1.03..1.35).contains(&(both / one)), "{one} reads/s alone, {both} mirrored");
    let (one, both) = (sequential(disk(), Op::Read, 1), sequential(&mirror, Op::Read, 1));
    assert!((both / one - 1.0).abs() < 0.05, "{one} MB/s alone, {both} mirrored");
}

#[test]
fn group_capacity_follows_member_capacity() {
    let disk = disk();
    assert_eq!(disk.raid0(4, KIB * 64).unwrap().capacity, disk.capacity * 4);
    assert_eq!(disk.raid1(3).unwrap().capacity, disk.capacity);
    // The last byte of an odd size lies somewhere.
    let size = GIB + Bytes(512);
    let last = Request { op: Op::Write, offset: GIB, len: Bytes(512) };
    drive(&mut disk.raid0(3, KIB * 64).unwrap().build(size, 1), 1, 1, Nanos::ZERO, |_| last);
}

#[test]
fn group_outside_limits_is_refused_with_limits() {
    for (error, expected) in [
        (disk().raid0(0, KIB * 64), "1 to 64"),
        (disk().raid1(65), "1 to 64"),
        (disk().raid0(2, KIB * 3), "4KiB"),
        (disk().raid0(2, GIB), "64MiB"),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
