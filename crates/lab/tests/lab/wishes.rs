//! Wishes of an owner (`equi,wear=…,slo=…`), on simulated devices.

use braid_base::{DeviceClass, MIB, Nanos};
use braid_lab::{DeviceOutcome, DeviceSetup, Load, Outcome, Setup, WarmUp, simulate};

const MINUTES: u64 = 20;

fn setup(policy: &str, workload: &str) -> Setup {
    let device = |class, text: &str| DeviceSetup::parse(class, text).expect("a device");
    let devices =
        vec![device(DeviceClass::Ssd, "256MiB,model=x25-m"), device(DeviceClass::Hdd, "1GiB,model=mba3073")];
    let mut setup = Setup::new(devices, policy, Load::Workload(workload.to_owned()));
    (setup.verify, setup.cache_extents) = (true, 0);
    setup.prefill_policy = Some("hdd-only".to_owned());
    setup
}

/// Minutes of a load of which the hot part fits the SSD, and which writes 15 GiB a day.
fn worn(policy: &str) -> Outcome {
    let mut setup =
        setup(policy, "zipf,span=512MiB,unit=64KiB,size=64KiB,theta=1.1,read=70%,rate=10,requests=endless");
    setup.duration = Some(Nanos::from_secs(MINUTES * 60));
    simulate(&setup).expect("the load fits").outcome
}

/// Bytes written to the SSD, in MiB, and the share of reads that the SSD served.
fn of_ssd(outcome: &Outcome) -> (u64, f64) {
    let reads = |device: &DeviceOutcome| device.guest_read_requests as f64;
    let all: f64 = outcome.devices.iter().map(reads).sum();
    (outcome.devices[0].device_written_bytes / MIB.0, reads(&outcome.devices[0]) / all)
}

#[test]
fn wear_wish_bounds_writes_to_the_ssd() {
    for mode in ["tier", "mixed", "cache"] {
        // Drive writes of 32 MiB in an hour, and an hour more, which the bucket holds at first.
        let most = 3 * 256 * (MINUTES + 60) / (24 * 60);
        let spared = worn(&format!("equi,mode={mode},wear=3DWPD"));
        let free = worn(&format!("equi,mode={mode}"));
        let ((written, reads), (unbounded, reads_of_free)) = (of_ssd(&spared), of_ssd(&free));
        println!(
            "{mode}: {written} MiB of {most}, {reads:.2} of the reads; without {unbounded}, {reads_of_free:.2}"
        );
        assert!(written <= most, "{mode}: {written} MiB written, {most} are allowed");
        assert!(unbounded > 3 * most, "{mode}: {unbounded} MiB without a bound");
        assert!(spared.verified_bytes > 0 && reads > 0.0, "{mode}: {reads}");
    }
}

/// Ten minutes of a load of which other places are popular every half minute. An owner who hopes for more
/// than that (`horizon`) has much moved.
fn restless(policy: &str) -> Outcome {
    let mut setup =
        setup(policy, "zipf,span=512MiB,theta=0.9,read=100%,rate=200,every=6000,requests=endless");
    setup.duration = Some(Nanos::from_secs(600));
    simulate(&setup).expect("the load fits").outcome
}

#[test]
fn moves_make_no_more_requests_slow_than_the_owner_wishes() {
    let (free, bounded) =
        (restless("equi,research.horizon=60s"), restless("equi,research.horizon=60s,slo=p99<30ms"));
    let [without, with] =
        [&free, &bounded].map(|run| (run.all.latency.p99 as f64 / 1e6, run.background.migrations));
    println!("p99 in ms and moves: {without:?}, with the wish {with:?}");
    assert!(without.0 > 33.0 && with.0 <= 30.0, "{without:?} {with:?}");
    assert!(with.1 > 1000, "there is slack for moves: {with:?}");
    // The load alone has 27 ms.
    let none = restless("equi,research.horizon=60s,slo=p99<20ms");
    assert_eq!(none.background.migrations, 0, "the load alone is slower");
}

/// Two hours of reads and overwrites of what the SSD has copies of by then, with pauses of a second.
fn cached(policy: &str) -> Outcome {
    let mut setup = setup(policy, "random,span=4MiB,size=4KiB,read=80%,rate=1,requests=endless");
    setup.warm_up = WarmUp::Time(Nanos::from_secs(18 * 3600));
    setup.duration = Some(Nanos::from_secs(7200));
    simulate(&setup).expect("the load fits").outcome
}

#[test]
fn quiet_wish_leaves_an_unneeded_disk_idle() {
    let used = |outcome: &Outcome| {
        let disk = &outcome.devices[1];
        (disk.guest_read_requests + disk.guest_write_requests, disk.background_bytes)
    };
    let (free, quiet) = (used(&cached("equi,mode=cache")), used(&cached("equi,mode=cache,quiet=20/day")));
    println!("requests of guests and other bytes: {free:?}, with the wish {quiet:?}");
    assert!(free.0 == 0 && free.1 > 0, "what is dirty is written back: {free:?}");
    assert_eq!(quiet, (0, 0));
}
