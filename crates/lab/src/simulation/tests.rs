//! Simulations with results known beforehand.

use super::*;
use crate::{DeviceSetup, ErrorKind, Load, Prefill, Progress, sweep, sweep_while};
use braid_base::{Bytes, DeviceClass};
use braid_model::{DeviceModel, Model, Request};
use std::ops::ControlFlow;

fn devices() -> Vec<DeviceSetup> {
    vec![
        DeviceSetup::parse(DeviceClass::Ssd, "1GiB,model=x25-m").unwrap(),
        DeviceSetup::parse(DeviceClass::Hdd, "4GiB,model=mba3073,count=2").unwrap(),
    ]
}

fn setup(policy: &str, workload: &str) -> Setup {
    Setup { verify: true, ..Setup::new(devices(), policy, Load::Workload(workload.to_owned())) }
}

const MIXED: &str = "random,span=256MiB,size=4KiB,read=60%,clients=6,requests=4000";

#[test]
fn outcome_does_not_depend_on_the_number_of_threads() {
    let policies = ["wardrop", "stripe", "ssd-first", "ssd-only", "static,ssd=50%", "wardrop,beta=50"];
    let setups: Vec<Setup> = policies.iter().map(|policy| setup(policy, MIXED)).collect();
    let outcomes = |threads| -> Vec<Outcome> {
        let runs = sweep(&setups, Some(threads), |_: &Progress| {});
        runs.into_iter().map(|run| run.unwrap().outcome).collect()
    };
    let alone = outcomes(1);
    assert!(alone.iter().all(|outcome| outcome.all.requests == 4000 && outcome.verified_bytes > 0));
    assert_ne!(alone[0].all, alone[1].all, "policies differ");
    for threads in [2, 4] {
        assert_eq!(outcomes(threads), alone, "{threads} threads");
    }
}

#[test]
fn verification_changes_no_figures() {
    let with = simulate(&setup("wardrop", MIXED)).unwrap().outcome;
    let without = simulate(&Setup { verify: false, ..setup("wardrop", MIXED) }).unwrap().outcome;
    assert_eq!(without, Outcome { verified_bytes: 0, ..with });
}

#[test]
fn stopped_sweep_ends_early() {
    let long = setup("stripe", "random,span=256MiB,requests=100000000000");
    let filling = Setup { prefill: Prefill::All, size: Some(Bytes(1 << 40)), ..long.clone() };
    let filling = Setup {
        devices: vec![DeviceSetup::parse(DeviceClass::Hdd, "20TB,model=exos-x20").unwrap()],
        ..filling
    };
    let never_begun = setup("wardrop", MIXED);
    let setups = [long, filling, never_begun];
    let mut looks = 0;
    let results = sweep_while(&setups, Some(2), |_| {
        looks += 1;
        if looks < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let kinds: Vec<_> = results.iter().map(|result| result.as_ref().map_err(Error::kind).err()).collect();
    assert_eq!(kinds, [Some(ErrorKind::Stopped); 3]);
}

#[test]
fn different_seeds_have_different_outcomes() {
    let [one, two] = [1, 2].map(|seed| simulate(&Setup { seed, ..setup("stripe", MIXED) }).unwrap().outcome);
    assert_ne!(one.all, two.all);
}

#[test]
fn verification_detects_one_lost_write() {
    let hot = "random,span=8MiB,size=4KiB,read=95%,clients=4,requests=20000";
    let setup = Setup { cache_extents: 0, ..setup("ssd-only", hot) };
    assert!(run_on(&setup, &Arc::default(), |_| ()).is_ok());
    let error = run_on(&setup, &Arc::default(), |device| device.lose_write(300)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongData, "{error}");
}

#[test]
fn a_closed_loop_obeys_littles_law() {
    for clients in [1, 4, 16] {
        let workload =
            format!("random,span=256MiB,size=4KiB,read=100%,clients={clients},think=2ms,requests=endless");
        let duration = Some(Nanos::from_secs(60));
        let setup = Setup { cache_extents: 0, duration, ..setup("stripe", &workload) };
        let outcome = simulate(&setup).unwrap().outcome;
        let in_system = outcome.requests_per_second * (outcome.all.latency.mean / 1e9 + 2e-3);
        let off = in_system / f64::from(clients) - 1.0;
        assert!(off.abs() < 0.02, "{clients} clients: {in_system:.3} in thought or in the volume");
        let in_devices: f64 = outcome.devices.iter().map(|device| device.queue_depth_mean).sum();
        let in_volume = outcome.requests_per_second * outcome.all.latency.mean / 1e9;
        assert!((in_devices / in_volume - 1.0).abs() < 0.02, "{in_devices:.3} in devices of {in_volume:.3}");
    }
}

#[test]
fn listed_ranges_are_placed_on_the_ssd() {
    let extent = braid_base::KIB * 128;
    let listed = vec![extent * 3..extent * 40, extent * 100..extent * 103];
    let with = |policy: &str, list| Setup { prefill_ssd: list, ..setup(policy, MIXED) };
    let outcome = simulate(&with("ssd-only", Some(listed))).unwrap().outcome;
    let extents = outcome.mapped_bytes / extent.0;
    assert_eq!((outcome.devices[0].data_share * extents as f64).round(), 40.0);
    assert_eq!(outcome.prefill_policy.as_deref(), Some("listed"));
    let none = simulate(&with("ssd-only", Some(Vec::new()))).unwrap().outcome;
    assert_eq!(none.devices[0].data_share, 0.0);
}

/// Processes of dbench, measured for 20 s.
fn processes(workload: &str, processors: Option<usize>) -> Outcome {
    let workload = format!("dbench-like,think=100us,requests=endless,{workload}");
    let (warm_up, duration) = (WarmUp::Time(Nanos::from_secs(5)), Some(Nanos::from_secs(20)));
    let setup = Setup { warm_up, duration, processors, verify: false, ..setup("stripe", &workload) };
    simulate(&setup).unwrap().outcome
}

/// Latency was derived from throughput. Now each operation is timed, and Little's law is a test of the times.
#[test]
fn operation_times_obey_littles_law() {
    for (clients, processors) in [(1, None), (6, None), (6, Some(2))] {
        let outcome = processes(&format!("clients={clients}"), processors);
        let programme = outcome.programme.expect("dbench counts what it does");
        let rate = programme.operations as f64 / outcome.measured_seconds;
        let in_system = rate * programme.operation.mean / 1e9;
        assert!((in_system / f64::from(clients) - 1.0).abs() < 0.01, "{clients} clients: {in_system:.3}");
        let (waiting, most) = (outcome.write.latency.max, programme.operation.max);
        assert!(most >= waiting, "an operation contains its requests: {most} and {waiting} ns");
    }
}

/// A page cache that holds all files and writes nothing back leaves the processor's time: 36 us,
/// exponentially distributed.
#[test]
fn operations_without_requests_take_processor_time() {
    let outcome = processes("clients=2,short-lived=99%", None);
    let operation = outcome.programme.expect("dbench counts what it does").operation;
    let mean = 100e3 * (5_315_377.0 + 1_690_616.0) / 19_615_625.0;
    assert!((operation.mean / mean - 1.0).abs() < 0.02, "{} ns, {mean}", operation.mean);
    let p99 = mean * 100_f64.ln();
    assert!((operation.p99 as f64 / p99 - 1.0).abs() < 0.03, "{} ns, {p99}", operation.p99);
}

#[test]
fn process_throughput_is_limited_by_shared_processors() {
    let rate = |clients: u32, processors| {
        let outcome = processes(&format!("clients={clients},short-lived=99%"), processors);
        outcome.programme.expect("dbench counts what it does").operations as f64 / outcome.measured_seconds
    };
    let one = rate(1, None);
    for (clients, processors, expected) in [(8, None, 8.0), (8, Some(4), 4.0), (3, Some(4), 3.0)] {
        let times = rate(clients, processors) / one;
        assert!((times / expected - 1.0).abs() < 0.03, "{clients} on {processors:?}: {times:.2} times");
    }
    let none = Setup { processors: Some(0), ..setup("stripe", MIXED) };
    assert_eq!(simulate(&none).unwrap_err().kind(), ErrorKind::Setup);
}

/// Mean service time of the SSD's model for one random read of 4 KiB on an idle device.
fn service_time() -> f64 {
    let spec = braid_model::by_name("x25-m").unwrap();
    let mut model: DeviceModel = spec.build(braid_base::GIB, 1);
    let (mut now, mut sum) = (Nanos::ZERO, Nanos::ZERO);
    let mut rng = braid_base::Rng::new(1);
    for _ in 0..1000 {
        let offset = Bytes(4096 * rng.below(1 << 17));
        model.submit(0, Request { op: Op::Read, offset, len: Bytes(4096) }, now);
        let (begun, mut completed) = (now, Vec::new());
        while completed.is_empty() {
            now = model.next_event().unwrap();
            model.advance(now, &mut completed);
        }
        sum += now - begun;
        now += Nanos::from_millis(20);
    }
    sum.0 as f64 / 1000.0
}

#[test]
fn open_loop_at_low_rate_matches_the_model() {
    let workload = "random,span=512MiB,size=4KiB,read=100%,rate=20,requests=2000";
    let setup = Setup { cache_extents: 0, ..setup("ssd-only", workload) };
    let outcome = simulate(&setup).unwrap().outcome;
    let (simulated, model) = (outcome.all.latency.mean, service_time());
    assert!((simulated / model - 1.0).abs() < 0.02, "{simulated} ns simulated, {model} ns by the model");
    assert_eq!(outcome.all.queue.max, 0);
    assert!((outcome.requests_per_second / 20.0 - 1.0).abs() < 0.1, "{}", outcome.requests_per_second);
}

#[test]
fn an_overloaded_open_loop_queues_outside_the_volume() {
    let workload = "random,span=512MiB,size=4KiB,read=100%,rate=2000,requests=4000";
    let overloaded = Setup { outstanding: 8, cache_extents: 0, ..setup("hdd-only", workload) };
    let slow = simulate(&overloaded).unwrap().outcome;
    assert!(slow.all.queue.mean > 10.0 * slow.all.service.mean, "{:?}", slow.all);
    assert!(slow.requests_per_second < 1000.0);
    let sum = slow.all.queue.mean + slow.all.service.mean;
    assert!((sum / slow.all.latency.mean - 1.0).abs() < 1e-9);
    let relaxed = simulate(&Setup { speed: 0.05, ..overloaded }).unwrap().outcome;
    assert!(relaxed.all.queue.mean < relaxed.all.service.mean, "{:?}", relaxed.all);
    let overloads = |outcome: &Outcome| outcome.notes.iter().filter(|note| note.contains("--speed")).count();
    assert_eq!((overloads(&slow), overloads(&relaxed)), (1, 0));
}

#[test]
fn invalid_setup_is_rejected_with_a_remedy() {
    let base = setup("stripe", MIXED);
    let disk = |text: &str| vec![DeviceSetup::parse(DeviceClass::Hdd, text).unwrap()];
    let cases = [
        (Setup { devices: vec![], ..base.clone() }, "--ssd"),
        (Setup { devices: disk("1GiB,model=x26-m"), ..base.clone() }, "x25-m"),
        (Setup { devices: disk("1GiB,model=x25-m"), ..base.clone() }, "--ssd"),
        (Setup { policy: "balance".into(), ..base.clone() }, "wardrop"),
        (Setup { load: Load::Workload("randam".into()), ..base.clone() }, "random"),
        (Setup { size: Some(Bytes(1 << 40)), ..base.clone() }, "1 TiB"),
        (Setup { size: Some(Bytes(1 << 20)), ..base.clone() }, "1 MiB"),
        (Setup { warm_up: WarmUp::Time(Nanos::from_secs(3600)), ..base.clone() }, "3600 s"),
        (Setup { warm_up: WarmUp::Requests(4000), ..base.clone() }, "4000 requests"),
        (Setup { speed: 0.0, ..base.clone() }, "speed"),
        (Setup { requests: Some(0), ..base }, "0"),
    ];
    for (setup, expected) in cases {
        let error = simulate(&setup).unwrap_err().to_string();
        assert!(error.contains(expected), "'{error}' does not say '{expected}'");
    }
}

#[test]
fn warm_up_and_duration_bound_the_measurement() {
    let endless = "random,span=256MiB,size=4KiB,read=60%,clients=4,requests=endless";
    let interval = Some(Nanos::from_millis(500));
    let whole = Setup { duration: Some(Nanos::from_secs(3)), interval, ..setup("stripe", endless) };
    let tail = Setup {
        warm_up: WarmUp::Time(Nanos::from_secs(2)),
        duration: Some(Nanos::from_secs(1)),
        ..whole.clone()
    };
    let [whole, tail] = [whole, tail].map(|setup| simulate(&setup).unwrap().outcome);
    assert_eq!((whole.measured_seconds, tail.measured_seconds), (3.0, 1.0));
    assert_eq!((whole.intervals.len(), tail.intervals.len()), (6, 2));
    let counted: u64 = whole.intervals.iter().map(|interval| interval.requests).sum();
    assert_eq!(counted, whole.all.requests);
    let late: u64 = whole.intervals.iter().filter(|i| i.start_seconds > 1.999).map(|i| i.requests).sum();
    assert!(late.abs_diff(tail.all.requests) <= 1, "{late} and {}", tail.all.requests);
}

#[test]
fn warm_up_excludes_exactly_the_given_requests() {
    let run = |warm_up, requests: Option<u64>| {
        let endless = "random,span=256MiB,size=4KiB,read=60%,clients=4,requests=endless";
        simulate(&Setup { warm_up, requests, ..setup("stripe", endless) })
    };
    let whole = run(WarmUp::NONE, Some(4000)).unwrap().outcome;
    let half = run(WarmUp::Share(0.5), Some(4000)).unwrap().outcome;
    let rest = run(WarmUp::Requests(2000), Some(4000)).unwrap().outcome;
    assert_eq!((whole.all.requests, half.all.requests, half.warm_up_requests), (4000, 2000, 2000));
    assert_eq!(half, rest);
    let sum = half.warm_up_seconds + half.measured_seconds;
    assert!((sum / whole.measured_seconds - 1.0).abs() < 1e-9 && half.warm_up_seconds > 0.0, "{sum}");
    assert!(run(WarmUp::Share(0.5), None).unwrap_err().to_string().contains("--requests"));
}

#[test]
fn reads_of_unfilled_extents_cost_no_device_time() {
    let reads = "random,span=256MiB,size=4KiB,read=100%,clients=4,requests=2000";
    let empty = Setup { prefill: crate::Prefill::None, ..setup("stripe", reads) };
    let outcome = simulate(&empty).unwrap().outcome;
    assert_eq!((outcome.all.latency.max, outcome.mapped_bytes), (0, 0));
    assert_eq!(outcome.prefill_policy, None);
    assert!(outcome.notes.iter().any(|note| note.contains("2000 reads")), "{:?}", outcome.notes);
}

#[test]
fn fill_can_be_placed_by_a_different_policy() {
    let placed = Setup { prefill_policy: Some("hdd-only".into()), ..setup("ssd-only", MIXED) };
    let outcome = simulate(&placed).unwrap().outcome;
    assert!(outcome.policy.starts_with("ssd-only"));
    assert_eq!(outcome.devices[0].data_share, 0.0);
}

#[test]
fn policies_start_with_equal_ssd_data_except_static_rules() {
    // The data is four times as large as the SSD.
    let run = |policy: &str, prefill_policy: Option<&str>| {
        let load = "random,span=256MiB,size=4KiB,read=100%,requests=10";
        let mut setup = Setup { prefill_policy: prefill_policy.map(str::to_owned), ..setup(policy, load) };
        setup.devices[0].size = crate::Size::Share(0.25);
        let outcome = simulate(&setup).unwrap().outcome;
        (outcome.prefill_policy.unwrap(), outcome.devices[0].data_share)
    };
    // Nine tenths of a quarter of 2048 extents.
    let same = [run("wardrop", None), run("ssd-first", None)];
    // A block cached afterwards takes a slot, too.
    assert!(same[0].0 == same[1].0 && (same[0].1 - same[1].1).abs() < 0.005, "{same:?}");
    assert!((same[0].1 - 0.225).abs() < 0.005, "{same:?}");
    assert!(same[0].0.starts_with("static,"), "{same:?}");
    for (rule, share) in [("hdd-only", 0.0), ("ssd-only", 0.25), ("static,ssd=10%", 0.1)] {
        let (by, found) = run(rule, None);
        assert!(
            by.starts_with(rule.split(',').next().unwrap()) && (found - share).abs() < 0.001,
            "{rule}: {by} {found}"
        );
    }
    let (by, share) = run("ssd-first", Some("own"));
    assert!(by.starts_with("ssd-first") && (share - 0.225).abs() < 0.005, "{by} {share}");
    assert_eq!(run("wardrop", Some("hdd-only")), ("hdd-only".to_owned(), 0.0));
}

#[test]
fn spill_and_oversized_device_are_noted() {
    let load = "random,span=1200MiB,size=4KiB,read=100%,requests=10";
    let notes = |policy: &str| simulate(&setup(policy, load)).unwrap().outcome.notes;
    assert!(notes("ssd-only").iter().any(|note| note.contains("hdd")), "{:?}", notes("ssd-only"));
    assert!(notes("hdd-only").is_empty(), "{:?}", notes("hdd-only"));
    assert!(notes("static,ssd=20%").is_empty(), "{:?}", notes("static,ssd=20%"));
    assert!(notes("static,ssd=95%")[0].contains("95.0 %"), "{:?}", notes("static,ssd=95%"));
    let mut large = setup("hdd-only", load);
    large.devices[0].size = crate::Size::Bytes(braid_base::GIB * 100);
    let notes = simulate(&large).unwrap().outcome.notes;
    assert!(notes.iter().any(|note| note.contains("d0") && note.contains("x25-m")), "{notes:?}");
}

/// With an extent too few on the SSD, the policy waited for more homes for ever, and cached nothing.
#[test]
fn ssd_first_caches_from_the_beginning_whatever_the_share_of_the_ssd_is() {
    for share in [0.05, 0.11, 0.2, 0.37, 0.5] {
        let load = "zipf,span=400MiB,size=4KiB,read=100%,clients=4,requests=3000";
        let mut setup = Setup { cache_extents: 0, ..setup("ssd-first", load) };
        setup.devices[0].size = crate::Size::Share(share);
        let outcome = simulate(&setup).unwrap().outcome;
        assert!(outcome.background.promoted_bytes > 0, "{share}: {:?}", outcome.prefill_policy);
    }
}

#[test]
fn four_striped_disks_stream_about_four_times_as_fast() {
    let stream = |device: &str| {
        let disk = vec![DeviceSetup::parse(DeviceClass::Hdd, device).unwrap()];
        let load = Load::Workload("sequential,span=512MiB,size=4MiB,read=100%,clients=1,requests=500".into());
        let outcome =
            simulate(&Setup { cache_extents: 0, ..Setup::new(disk, "stripe", load) }).unwrap().outcome;
        (outcome.throughput_bytes_per_second / 1e6, outcome.devices[0].model.clone())
    };
    let (one, _) = stream("4GiB,model=mba3073");
    let (striped, name) = stream("16GiB,model=mba3073,raid0=4");
    assert_eq!(name, "raid0 of 4 mba3073");
    assert!((3.4..4.3).contains(&(striped / one)), "{one} MB/s alone, {striped} MB/s striped");
    let (mirrored, name) = stream("4GiB,model=mba3073,raid1=2");
    assert_eq!(name, "raid1 of 2 mba3073");
    assert!((0.9..2.1).contains(&(mirrored / one)), "{one} MB/s alone, {mirrored} MB/s mirrored");
}

#[test]
fn raid_groups_of_any_device_kind_can_be_simulated() {
    let models =
        [(DeviceClass::Ssd, "transcend-16g"), (DeviceClass::Ssd, "dram"), (DeviceClass::Hdd, "mba3073")];
    for (class, model) in models {
        for group in ["raid0=64,unit=4KiB", "raid0=3,unit=64MiB", "raid1=5", "raid0=1"] {
            let text = format!("300MiB,model={model},{group},count=2");
            let devices = vec![DeviceSetup::parse(class, &text).unwrap()];
            let load = Load::Workload("random,span=100MiB,size=64KiB,read=50%,clients=8,requests=500".into());
            let setup = Setup { verify: true, ..Setup::new(devices, "stripe", load) };
            let outcome = simulate(&setup).unwrap_or_else(|error| panic!("{text}: {error}")).outcome;
            assert_eq!((outcome.all.requests, outcome.devices.len()), (500, 2), "{text}");
        }
    }
}

/// A file of 64 MiB has 16 indirect blocks of the first level and one of the second. A run reads each
/// indirect block once, and 1,024 blocks of the file.
const LARGE_FILE: &str = "ext3-file-like,file=64MiB,read=4MiB,clients=2,runs=3,pause=1s";

#[test]
fn metadata_requests_reach_the_policy() {
    for verify in [true, false] {
        let blocks = |policy| {
            let setup = Setup { verify, cache_extents: 0, ..setup(policy, LARGE_FILE) };
            let outcome = simulate(&setup).unwrap().outcome;
            let figures = &outcome.devices[0].policy_figures;
            figures.iter().find(|(name, _)| name == "metadata_blocks").map(|(_, blocks)| *blocks)
        };
        assert_eq!(blocks("hystor"), Some(17.0), "verified: {verify}");
        assert_eq!(blocks("hystor,metadata=off"), Some(0.0), "verified: {verify}");
    }
}

#[test]
fn earlier_runs_of_a_workload_are_not_measured() {
    let outcome = simulate(&setup("hystor", LARGE_FILE)).unwrap().outcome;
    assert_eq!((outcome.warm_up_requests, outcome.all.requests), (2 * 1041, 1041));
    assert!(outcome.warm_up_seconds > 2.0, "with a second before each later run");
    let warm = Setup { warm_up: WarmUp::Requests(10), ..setup("hystor", LARGE_FILE) };
    assert_eq!(simulate(&warm).unwrap_err().kind(), ErrorKind::Setup);
    let short = Setup { requests: Some(1000), ..setup("hystor", LARGE_FILE) };
    assert_eq!(simulate(&short).unwrap_err().kind(), ErrorKind::Setup);
}

/// A memory as large as the requested data answers all reads of a block except the first, and keeps written
/// data.
#[test]
fn dram_cache_answers_held_blocks_and_purges_excess() {
    let run = |dram: u64, load: &str| {
        let load = format!("random,span=8MiB,{load}");
        let setup =
            Setup { dram: Bytes(dram << 20), cache_extents: 0, verify: false, ..setup("hdd-only", &load) };
        simulate(&setup).unwrap().outcome
    };
    let disk_writes = |outcome: &Outcome| outcome.devices.iter().map(|d| d.guest_write_requests).sum::<u64>();
    let disk_reads = |outcome: &Outcome| outcome.devices.iter().map(|d| d.guest_read_requests).sum::<u64>();
    let written = run(8, "size=4KiB,clients=4,read=0%,requests=6000");
    assert_eq!((written.write.requests, disk_writes(&written)), (6000, 0));
    assert!((9_431..20_000).contains(&written.write.latency.max), "{:?}", written.write.latency);
    let read = run(8, "size=4KiB,clients=1,read=100%,requests=20000");
    assert!(disk_reads(&read) <= 2048 && read.read.latency.p50 < 20_000, "2,048 blocks: {:?}", read.read);
    // With room for a quarter, three of four writes purge another block once the room is full.
    let small = run(2, "size=4KiB,clients=4,read=0%,requests=40000");
    let purged = disk_writes(&small) as f64 / 40_000.0;
    assert!((0.7..0.76).contains(&purged), "{purged}");
    // Writes of half a block pass on: the memory has the rest of no block.
    let halves = run(8, "size=2KiB,clients=4,read=0%,requests=500");
    assert_eq!(disk_writes(&halves), 500, "each once");
    let mixed = || run(2, "size=4KiB,clients=4,read=50%,requests=6000");
    assert_eq!(mixed(), mixed(), "the same each time");
}

#[test]
fn dram_cache_rejects_verification_and_sizes_below_a_block() {
    let kind = |setup: Setup| simulate(&setup).unwrap_err().kind();
    assert_eq!(kind(Setup { dram: Bytes(1 << 20), ..setup("stripe", MIXED) }), ErrorKind::Setup);
    assert_eq!(kind(Setup { dram: Bytes(512), verify: false, ..setup("stripe", MIXED) }), ErrorKind::Setup);
}

/// An SSD with pages overwritten at random collects garbage: more bytes are programmed into flash than
/// written to the SSD.
#[test]
fn ssd_reports_flash_writes_and_amplification() {
    let load = "random,span=1900MiB,size=4KiB,read=0%,clients=4,requests=60000";
    let ssd = DeviceSetup::parse(DeviceClass::Ssd, "2GiB,model=x25-m").unwrap();
    let all = Setup { devices: vec![ssd], verify: false, ..setup("ssd-only", load) };
    let ran = simulate(&all).unwrap().outcome;
    let [ssd] = &ran.devices[..] else { panic!("one device") };
    let amplification = ssd.write_amplification.unwrap();
    assert!(amplification > 1.2, "{amplification}");
    let flash = ssd.flash_written_bytes.unwrap();
    assert!(ssd.erases.unwrap().abs_diff(flash / (512 << 10)) <= 1, "in erase blocks");
    let disk = simulate(&Setup { verify: false, ..setup("hdd-only", MIXED) }).unwrap().outcome;
    assert!(
        disk.devices.iter().all(|device| device.write_amplification.is_none() && device.erases.is_none())
    );
}
