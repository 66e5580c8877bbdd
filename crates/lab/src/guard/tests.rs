use crate::{DeviceSetup, Load, Outcome, Setup, WarmUp, simulate};
use braid_base::{DeviceClass, Nanos};

/// Small writes and reads of 64 MiB here and there by two clients, which a write-back cache on a tenth of it serves best.
fn scattered(policy: &str, disk: &str) -> Setup {
    let load = "zipf,theta=1.0,unit=16KiB,size=8KiB,read=30%,span=64MiB,clients=2,think=4ms";
    let devices = [(DeviceClass::Ssd, "20%,model=x25-m"), (DeviceClass::Hdd, disk)]
        .map(|(class, text)| DeviceSetup::parse(class, text).expect("it is a device"));
    Setup {
        warm_up: WarmUp::Time(Nanos::from_secs(60)),
        duration: Some(Nanos::from_secs(30)),
        ..Setup::new(devices.to_vec(), policy, Load::Workload(load.to_owned()))
    }
}

fn run(policy: &str) -> Outcome {
    simulate(&scattered(policy, "140%,model=barracuda-7200.12")).expect("it runs").outcome
}

#[test]
fn the_mode_is_the_best_one_for_the_load_and_the_same_each_time() {
    let [tier, cache, auto] = ["tier", "cache", "auto"].map(|mode| run(&format!("equi,mode={mode}")));
    let mean = |outcome: &Outcome| outcome.all.latency.mean;
    assert!(mean(&cache) < 0.8 * mean(&tier), "the load tells modes apart");
    let last = auto.mode_switches.last().expect("it was switched");
    assert!(last.policy.ends_with("mode=cache") && last.seconds < 60.0, "{last:?}");
    assert!(mean(&auto) < (mean(&cache) * mean(&tier)).sqrt(), "{} {}", mean(&auto), mean(&cache));
    assert!(tier.mode_switches.is_empty() && cache.mode_switches.is_empty());
    assert_eq!(run("equi,mode=auto"), auto);
}

/// The disk has no room for all homes.
#[test]
fn a_mode_that_does_not_fit_the_devices_is_left_out() {
    let run = simulate(&scattered("equi,mode=auto", "95%,model=barracuda-7200.12")).expect("it runs");
    let left_out = |mode: &str| run.outcome.notes.iter().any(|note| note.contains(mode));
    assert!(left_out("mode=cache") && !left_out("mode=mixed"), "{:?}", run.outcome.notes);
    assert!(run.outcome.mode_switches.iter().all(|to| !to.policy.ends_with("mode=cache")));
}

/// What is dirty would be on one SSD alone.
#[test]
fn a_volume_of_two_copies_stays_in_its_mode() {
    let setup = Setup { copies: 2, ..scattered("equi,mode=auto", "200%,model=barracuda-7200.12") };
    let devices = setup.devices.iter().map(|device| DeviceSetup { count: 2, ..device.clone() }).collect();
    let outcome = simulate(&Setup { devices, ..setup }).expect("it runs").outcome;
    assert!(outcome.mode_switches.is_empty(), "{:?}", outcome.mode_switches);
}
