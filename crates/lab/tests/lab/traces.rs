//! A recorded load in place of a generated one.

use braid_base::{Bytes, DeviceClass, GIB, Nanos};
use braid_lab::{Beyond, DeviceSetup, ErrorKind, Load, Outcome, Setup, Size, Trace, WarmUp, simulate};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const REQUESTS: u64 = 200;

fn devices() -> Vec<DeviceSetup> {
    let device = |class, model: &str| DeviceSetup {
        class,
        size: Size::Bytes(GIB),
        model: model.to_owned(),
        lower: false,
        write_cache: true,
        count: 1,
        nodes: None,
        group: None,
    };
    vec![device(DeviceClass::Ssd, "x25-m"), device(DeviceClass::Hdd, "mba3073")]
}

/// A trace in the text of the Storage Performance Council: two units, a request every 10 ms, every fourth a
/// write.
fn spc(folder: &Path, more: &str) -> PathBuf {
    let mut text = String::new();
    for number in 0..REQUESTS {
        let (unit, op) = (number % 2, if number % 4 == 0 { 'w' } else { 'r' });
        let (block, at) = (number * 7919 % 50_000 * 8, number as f64 / 100.0);
        writeln!(text, "{unit},{block},4096,{op},{at:.6}").expect("a string takes text");
    }
    let path = folder.join("trace.spc");
    std::fs::write(&path, text + more).expect("a temporary folder can be written");
    path
}

fn replay(path: PathBuf, clients: Option<usize>) -> Setup {
    let trace = Trace { clients, ..Trace::new(path) };
    let mut setup = Setup::new(devices(), "wardrop", Load::Trace(trace));
    setup.verify = true;
    setup
}

#[test]
fn trace_is_replayed_on_time_and_reads_reach_devices() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setup = replay(spc(folder.path(), ""), None);
    let outcome = simulate(&setup).expect("the trace is in order").outcome;
    assert_eq!((outcome.read.requests, outcome.write.requests), (REQUESTS * 3 / 4, REQUESTS / 4));
    // The last request comes after 1.99 s.
    assert!((1.98..2.05).contains(&outcome.measured_seconds), "{} s", outcome.measured_seconds);
    let reads: u64 = outcome.devices.iter().map(|device| device.device_read_bytes).sum();
    assert!(reads > 0, "what is read was filled before");

    let mut faster = setup.clone();
    faster.speed = 4.0;
    let outcome = simulate(&faster).expect("the trace is in order").outcome;
    assert!((0.49..0.55).contains(&outcome.measured_seconds), "{} s", outcome.measured_seconds);
}

#[test]
fn clients_replay_a_trace_as_fast_as_the_volume_allows() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let outcome = simulate(&replay(spc(folder.path(), ""), Some(4))).expect("the trace is in order").outcome;
    assert_eq!(outcome.all.requests, REQUESTS);
    assert!(outcome.measured_seconds < 1.0, "{} s", outcome.measured_seconds);
}

#[test]
fn bad_lines_are_counted_and_end_a_strict_simulation() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut setup = replay(spc(folder.path(), "0,17,4096,r,what\n"), None);
    assert_eq!(simulate(&setup).expect("the rest is in order").outcome.bad_records, 1);
    let Load::Trace(trace) = &mut setup.load else { panic!("a trace") };
    trace.options.strict = true;
    let error = simulate(&setup).expect_err("the last line is bad");
    assert_eq!(error.kind(), ErrorKind::Trace);
    assert!(error.to_string().contains("201"), "{error}");
}

#[test]
fn requests_beyond_the_volume_are_rejected_wrapped_or_dropped() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Both units use 200 MB; the volume holds 100 MB.
    let mut setup = replay(spc(folder.path(), ""), Some(1));
    let Load::Trace(trace) = &mut setup.load else { panic!("a trace") };
    trace.compact = false;
    setup.size = Some(Bytes(100 << 20));
    let error = simulate(&setup).expect_err("a request lies beyond the end");
    assert!(error.to_string().contains("--beyond"), "{error}");
    setup.beyond = Beyond::Drop;
    let dropped = simulate(&setup).expect("the rest fits").outcome;
    assert!(dropped.dropped_requests > 0 && dropped.all.requests + dropped.dropped_requests == REQUESTS);
    setup.beyond = Beyond::Wrap;
    assert_eq!(simulate(&setup).expect("all fits").outcome.all.requests, REQUESTS);
}

/// A disk of 8 TB of which some extents are touched had to be simulated as a disk of 8 TB.
#[test]
fn compacted_trace_needs_room_only_for_touched_extents() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sparse.spc");
    // 40 extents, 200 GB apart; then a read that crosses from one extent into the next.
    let mut text: String = (0..40)
        .map(|n| format!("0,{},4096,{},{n}\n", n * 400_000_000u64, if n % 2 == 0 { 'r' } else { 'w' }))
        .collect();
    text += "0,252,4096,r,41\n";
    std::fs::write(&path, text).expect("a temporary folder can be written");
    let mut setup = replay(path, None);
    let outcome = simulate(&setup).expect("the extents fit").outcome;
    let extents = 41 * setup.extent_size.0;
    let trace = outcome.trace.expect("it is a trace");
    assert_eq!(
        (outcome.volume_bytes, trace.compacted_bytes, outcome.mapped_bytes),
        (extents, Some(extents), extents)
    );
    assert!(trace.span_bytes > 7_000_000_000_000, "{} bytes", trace.span_bytes);
    assert_eq!((outcome.read.requests, outcome.write.requests), (21, 20));
    assert!(outcome.verified_bytes > 0);

    let Load::Trace(trace) = &mut setup.load else { panic!("a trace") };
    trace.compact = false;
    let error = simulate(&setup).expect_err("the devices have 2 GiB");
    assert!(error.to_string().contains("--beyond"), "{error}");
}

#[test]
fn ssd_share_is_a_share_of_touched_extents() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut setup = replay(spc(folder.path(), ""), Some(1));
    setup.policy = "static,ssd=100%".to_owned();
    let whole = simulate(&setup).expect("the extents fit").outcome;
    let extents = whole.volume_bytes / setup.extent_size.0;
    assert_eq!(whole.devices[0].data_share, 1.0);

    setup.devices[0].size = Size::Share(0.3);
    let outcome = simulate(&setup).expect("the disk holds the rest").outcome;
    // All goes to the SSD as long as it has room.
    let on_ssd = (outcome.devices[0].data_share * extents as f64).round();
    assert_eq!(on_ssd, (extents as f64 * 0.3).ceil());
    assert!(outcome.devices[0].size_bytes < whole.volume_bytes, "metadata included");

    let Load::Trace(trace) = &mut setup.load else { panic!("a trace") };
    trace.compact = false;
    setup.size = Some(GIB / 2);
    let scattered = simulate(&setup).expect("all addresses fit").outcome;
    let filled = (scattered.mapped_bytes / setup.extent_size.0) as f64;
    assert_eq!(
        (scattered.devices[0].data_share * filled).round(),
        on_ssd,
        "filled up to the end of all addresses"
    );
}

#[test]
fn impossible_ssd_share_is_rejected_with_a_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setup = replay(spc(folder.path(), ""), Some(1));
    let refused = |shares: [f64; 2], expected: &str| {
        let mut setup = setup.clone();
        for (kind, share) in setup.devices.iter_mut().zip(shares) {
            kind.size = Size::Share(share);
        }
        let error = simulate(&setup).expect_err("it does not fit").to_string();
        assert!(error.contains(expected), "'{error}' does not say '{expected}'");
    };
    refused([0.001, 2.0], "%");
    refused([0.2, 0.5], "MiB");
    let mut empty = setup.clone();
    empty.load = Load::Trace(Trace::new(folder.path().join("flush.iolog")));
    empty.devices[0].size = Size::Share(0.2);
    std::fs::write(
        folder.path().join("flush.iolog"),
        "fio version 3 iolog\n0 f add\n1 f open\n2 f sync 0 0\n",
    )
    .expect("a temporary folder can be written");
    let error = simulate(&empty).expect_err("a share of nothing").to_string();
    assert!(error.contains("20%"), "{error}");
}

#[test]
fn last_pass_of_a_repeated_trace_is_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut setup = replay(spc(folder.path(), ""), None);
    let once = simulate(&setup).expect("the trace is in order").outcome;
    let Load::Trace(trace) = &mut setup.load else { panic!("a trace") };
    trace.repeat = 3;
    let last = simulate(&setup).expect("the trace is in order").outcome;
    let requests = |outcome: &Outcome| (outcome.read.requests, outcome.write.requests);
    assert_eq!(requests(&last), requests(&once));
    assert_eq!((last.warm_up_requests, last.trace.expect("it is a trace").passes), (2 * REQUESTS, 3));
    // Each time takes 1.99 s, and begins where the one before ended.
    assert!((3.97..3.99).contains(&last.warm_up_seconds), "{} s", last.warm_up_seconds);
    assert!((1.98..2.05).contains(&last.measured_seconds), "{} s", last.measured_seconds);

    let with = |change: fn(&mut Setup)| {
        let mut setup = setup.clone();
        change(&mut setup);
        simulate(&setup).expect_err("it asks for what cannot be").to_string()
    };
    assert!(with(|setup| setup.warm_up = WarmUp::Share(0.5)).contains("--warm-up"));
    assert!(with(|setup| setup.requests = Some(2 * REQUESTS)).contains("--repeat"));
}

#[test]
fn gaps_above_the_maximum_are_cut() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut setup = replay(spc(folder.path(), "0,8,4096,r,1000000\n0,8,4096,r,1000000.5\n"), None);
    let Load::Trace(trace) = &mut setup.load else { panic!("a trace") };
    trace.max_gap = Some(Nanos::from_secs(1));
    let outcome = simulate(&setup).expect("the trace is in order").outcome;
    assert_eq!(outcome.all.requests, REQUESTS + 2);
    assert!((3.48..3.55).contains(&outcome.measured_seconds), "{} s", outcome.measured_seconds);
}

#[test]
fn trace_without_the_chosen_event_is_empty_and_noted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("trace.blkparse");
    let text = "8,0 0 1 0.0 1 D R 8 + 8 [x]\n8,0 0 2 0.1 1 C R 8 + 8 [0]\n8,0 0 3 0.2 1 D W 8 + 8 [0]\n";
    std::fs::write(&path, text).expect("a temporary folder can be written");
    let mut setup = replay(path, None);
    let empty = simulate(&setup).expect("an empty load is one").outcome;
    assert_eq!((empty.all.requests, empty.notes.len()), (0, 1));
    assert!(empty.notes[0].contains("--event issue"), "{:?}", empty.notes);
    let Load::Trace(trace) = &mut setup.load else { panic!("a trace") };
    trace.options.event = braid_trace::Event::Issue;
    let outcome = simulate(&setup).expect("the trace has two requests").outcome;
    assert_eq!((outcome.all.requests, outcome.notes.len()), (2, 0));
}

#[test]
fn folder_of_parts_replays_as_one_trace() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = spc(folder.path(), "");
    let text = std::fs::read_to_string(&whole).expect("it was just written");
    let parts = folder.path().join("parts");
    std::fs::create_dir(&parts).expect("a temporary folder can be written");
    for unit in ["0", "1"] {
        let of_unit = |line: &&str| line.starts_with(unit);
        let lines: String = text.lines().filter(of_unit).map(|line| format!("{line}\n")).collect();
        std::fs::write(parts.join(unit), lines).expect("a temporary folder can be written");
    }
    let of = |path: PathBuf| {
        let outcome = simulate(&replay(path, None)).expect("the trace is in order").outcome;
        Outcome { load: String::new(), ..outcome }
    };
    assert_eq!(of(parts), of(whole));
}
