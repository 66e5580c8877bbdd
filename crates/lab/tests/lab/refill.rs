//! Loads that fill the SSD and discard: reallocation, cold data that leaves a full device, and a cache on a
//! full SSD.

use braid_base::{DeviceClass, Nanos};
use braid_lab::{DeviceSetup, Load, Outcome, Setup, WarmUp, simulate};

/// 512 MiB that are written, and from then on discarded and written anew, over an SSD of half the size.
const REFILL: &str = "refill,span=512MiB,unit=2MiB,size=64KiB,read=70%,empty=10%,clients=8,requests=endless";

fn run(policy: &str) -> Outcome {
    let device = |class, text: &str| DeviceSetup::parse(class, text).expect("a device");
    let devices =
        vec![device(DeviceClass::Ssd, "256MiB,model=x25-m"), device(DeviceClass::Hdd, "1GiB,model=mba3073")];
    let mut setup = Setup::new(devices, policy, Load::Workload(REFILL.to_owned()));
    (setup.verify, setup.cache_extents) = (true, 0);
    // All has been written once after some 20 s.
    (setup.warm_up, setup.duration) = (WarmUp::Time(Nanos::from_secs(40)), Some(Nanos::from_secs(40)));
    let outcome = simulate(&setup).expect("the load fits").outcome;
    // Room comes back: what is mapped is what is there, and extents of which some blocks are.
    assert!(outcome.discard.requests > 20 && outcome.verified_bytes > 0, "{policy}: {:?}", outcome.discard);
    let mapped = outcome.mapped_bytes >> 20;
    assert!((440..=475).contains(&mapped), "{policy}: {mapped} MiB of 461 are mapped");
    outcome
}

/// Bytes of guests that the SSD has taken, and its share of the data, in MiB.
fn ssd(outcome: &Outcome) -> (u64, f64) {
    let ssd = &outcome.devices[0];
    (ssd.guest_written_bytes >> 20, ssd.data_share * (outcome.mapped_bytes >> 20) as f64)
}

#[test]
fn discarded_room_of_a_full_ssd_is_allocated_again() {
    for policy in ["ssd-first,cache=0%", "static,ssd=40%", "wardrop", "equi"] {
        let outcome = run(policy);
        let (written, holds) = ssd(&outcome);
        println!("{policy}: {written} MiB written to the SSD, which holds {holds:.0}");
        assert!(written > 10, "{policy}: {written} MiB written to the SSD");
    }
}

#[test]
fn ssd_first_caches_reads_once_the_ssd_is_full() {
    let outcome = run("ssd-first");
    assert!(outcome.background.promoted_bytes > 10 << 20, "{:?}", outcome.background);
    let (_, holds) = ssd(&outcome);
    assert!(holds > 150.0, "{holds} MiB on the SSD");
}

#[test]
fn refill_load_migrates_extents_under_wardrop() {
    let outcome = run("wardrop");
    assert!(outcome.background.migrations > 50, "{:?}", outcome.background);
    let (_, holds) = ssd(&outcome);
    println!("{:?}, {holds} MiB on the SSD", outcome.background);
}
