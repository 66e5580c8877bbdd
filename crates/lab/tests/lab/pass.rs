//! What the studies of PASS measure: the discrepancy of a mirror, the time of a terminal's transaction, and
//! burstiness.

use braid_base::{DeviceClass, Nanos};
use braid_lab::{DeviceSetup, Load, Outcome, Setup, WarmUp, simulate};

const WINDOW: u64 = 8 << 20;

fn run(policy: &str, load: &str, seconds: u64) -> Outcome {
    let device = |class, text| DeviceSetup::parse(class, text).expect("the device is right");
    let ssd = device(DeviceClass::Ssd, "8GB,model=x25-e");
    let hdd = device(DeviceClass::Hdd, "8GB,model=barracuda-7200.12");
    let copies = if policy == "ssd-only" { 1 } else { 2 };
    let devices = if copies == 1 { vec![ssd] } else { vec![ssd, hdd] };
    let setup = Setup {
        copies,
        cache_extents: 0,
        burstiness: true,
        prefill_policy: Some(if copies == 1 { "ssd-only" } else { "raid1" }.to_owned()),
        warm_up: WarmUp::Time(Nanos::from_secs(5)),
        duration: Some(Nanos::from_secs(seconds)),
        ..Setup::new(devices, policy, Load::Workload(load.to_owned()))
    };
    simulate(&setup).expect("the load fits").outcome
}

#[test]
fn pass_discrepancy_stays_within_twice_the_window() {
    let load = "iometer-like,spec=pass-50,span=256MiB,requests=endless";
    let pass = run("pass,window=8MiB", load, 20);
    let (mean, highest) = (pass.behind_mean_bytes, pass.behind_highest_bytes);
    println!("pass: {mean} on average, {highest} at most; {} requests a second", pass.requests_per_second);
    assert!(mean > WINDOW as f64 / 8.0 && mean < highest as f64);
    assert!((WINDOW / 2..=WINDOW * 2).contains(&highest));
    for policy in ["raid1", "raid1,reads=md", "ssd-only"] {
        let other = run(policy, load, 10);
        assert_eq!((other.behind_mean_bytes, other.behind_highest_bytes), (0.0, 0), "{policy}");
        assert!(
            other.requests_per_second * 1.2 < pass.requests_per_second || policy == "ssd-only",
            "{policy}"
        );
    }
}

/// Linux md of PASS's time took an SSD and a disk to be alike: half of all random reads came from the disk.
#[test]
fn md_style_mirror_reads_half_from_the_disk() {
    let load = "random,read=100%,span=256MiB,size=4KiB,requests=endless";
    let share = |policy| {
        let outcome = run(policy, load, 10);
        outcome.devices[1].guest_read_requests as f64 / outcome.read.requests as f64
    };
    let (md, fastest) = (share("raid1,reads=md"), share("raid1"));
    assert!((0.45..0.55).contains(&md) && fastest < 0.05, "{md} and {fastest}");
}

/// Waits of the largest requests for a window that is as small as they are once grew without end, with both
/// devices idle.
#[test]
fn a_window_as_small_as_a_request_leaves_the_disk_busy() {
    let load = "sequential,read=0%,size=128KiB,span=1GiB";
    let tiny = run("pass,window=256sectors", load, 10);
    let sync = run("raid1", load, 10);
    println!(
        "{} and {} MB/s",
        tiny.throughput_bytes_per_second / 1e6,
        sync.throughput_bytes_per_second / 1e6
    );
    assert!(tiny.throughput_bytes_per_second * 4.0 > sync.throughput_bytes_per_second);
}

/// Keying and thinking take 23 s on average, and are no part of the answer.
#[test]
fn new_order_time_excludes_think_time() {
    let outcome = run("ssd-only", "tpcc-like,transactions=endless", 60);
    let programme = outcome.programme.expect("New-Orders are counted");
    let per_minute = programme.operations as f64 / outcome.measured_seconds * 60.0;
    assert!((100.0..160.0).contains(&per_minute), "{per_minute}");
    let times = programme.operation;
    assert!(times.p50 <= programme.operation_ns_p90 && programme.operation_ns_p90 <= times.p99, "{times:?}");
    assert!(times.max < 100_000_000, "{times:?}");
    assert!(outcome.think_seconds > 60.0 * 99.0, "a hundred terminals wait: {}", outcome.think_seconds);
}

#[test]
fn client_without_pauses_is_less_bursty_than_terminals() {
    let entropy = |load: &str| {
        let burstiness = run("ssd-only", load, 30).burstiness.expect("it was asked for");
        burstiness.entropy_bits[10]
    };
    let steady = entropy("random,span=256MiB,requests=endless");
    let terminals = entropy("tpcc-like,transactions=endless");
    assert!(steady > 9.9 && terminals < 9.7, "{steady} and {terminals} of 10 bits");
}
