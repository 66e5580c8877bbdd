use super::{Ghosts, Homes, Like, LikeDevice, Scale, Verdict, Watch};
use crate::{DeviceSetup, Load, Outcome, Readahead, Setup, Size, WarmUp, simulate};
use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos, Op, Request, Rng};

/// Small scattered writes and reads of 64 MiB by two clients; a write-back cache on a tenth of the data
/// serves them best.
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
fn guard_switches_to_the_best_mode_reproducibly() {
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
fn mode_too_large_for_the_devices_is_left_out() {
    let run = simulate(&scattered("equi,mode=auto", "95%,model=barracuda-7200.12")).expect("it runs");
    let left_out = |mode: &str| run.outcome.notes.iter().any(|note| note.contains(mode));
    assert!(left_out("mode=cache") && !left_out("mode=mixed"), "{:?}", run.outcome.notes);
    assert!(run.outcome.mode_switches.iter().all(|to| !to.policy.ends_with("mode=cache")));
}

/// Dirty blocks would be on one SSD alone.
#[test]
fn two_copy_volume_never_switches_mode() {
    let setup = Setup { copies: 2, ..scattered("equi,mode=auto", "200%,model=barracuda-7200.12") };
    let devices = setup.devices.iter().map(|device| DeviceSetup { count: 2, ..device.clone() }).collect();
    let outcome = simulate(&Setup { devices, ..setup }).expect("it runs").outcome;
    assert!(outcome.mode_switches.is_empty(), "{:?}", outcome.mode_switches);
}

/// Verdicts of ghosts of `tier` and `cache`, every 5 s for `seconds`, with one piece in `one_in` of the
/// volume. Load: 120 requests/s, most to one of eight places of 8 KiB; each took the volume `took`.
fn verdicts(one_in: u64, is_measured: bool, took: Nanos, seconds: u64) -> Vec<Verdict> {
    let (size, extent_size) = (MIB * 2048, KIB * 128);
    let scale = Scale::of(one_in, size, extent_size);
    let image = scale.image(size);
    assert_eq!((u64::from(scale.one_in()), image), (one_in, size / one_in));
    let device = |(class, model, share): (DeviceClass, &str, f64)| LikeDevice {
        class,
        spec: braid_model::by_name(model).expect("it is in the library").clone(),
        size: Size::Share(share),
    };
    let devices =
        [(DeviceClass::Ssd, "x25-m", 0.15), (DeviceClass::Hdd, "barracuda-7200.12", 1.2)].map(device).into();
    let mut homes = Homes::default();
    homes.add(Bytes::ZERO..image, DeviceClass::Hdd);
    let like = Like {
        scale,
        size,
        extent_size,
        block_size: KIB * 4,
        cache_extents: 0,
        readahead: Readahead::Off,
        ahead: Bytes::ZERO,
        devices,
        is_measured,
        homes,
        seed: 1,
    };
    let horizon = Nanos::from_secs(10) / one_in;
    let modes = ["tier", "cache"].map(|mode| format!("equi,research.horizon={}ns,mode={mode}", horizon.0));
    let mut ghosts = Ghosts::new(&like, &modes, || std::time::Duration::ZERO);
    let (mut rng, mut at) = (Rng::new(4), Nanos::ZERO);
    let mut watch = Watch::new(at, 0, scale, 10_000);
    let (mut verdicts, mut batch_end) = (Vec::new(), Nanos::from_secs(5));
    while at < Nanos::from_secs(seconds) {
        at += Nanos(rng.below(16_666_666));
        let place = rng.below(size / (KIB * 8));
        let place = if rng.below(10) > 0 { place / 8 * 8 } else { place };
        let op = if rng.below(3) == 0 { Op::Write } else { Op::Read };
        watch.asks(at, Request { op, offset: KIB * 8 * place, len: KIB * 8 });
        watch.begins();
        watch.ends(Some(took));
        if at >= batch_end {
            batch_end += Nanos::from_secs(5);
            let Some(batch) = watch.take(at) else { continue };
            let verdict = ghosts.serve(&batch, 0);
            assert!(verdict.left_out.is_empty(), "{}", verdict.left_out[0].1);
            verdicts.push(verdict);
        }
    }
    verdicts
}

#[test]
fn partial_ghosts_compare_modes_like_whole_ghosts() {
    let ratio = |one_in: u64| {
        let after_20_s = verdicts(one_in, false, Nanos::from_millis(1), 60).split_off(4);
        let sum =
            |mode: usize| after_20_s.iter().map(move |verdict| verdict.means[mode].expect("it is known"));
        sum(1).sum::<f64>() / sum(0).sum::<f64>()
    };
    let (whole, part) = (ratio(1), ratio(4));
    assert!(whole < 0.9, "the load tells modes apart: {whole}");
    assert!((part / whole).ln().abs() < 0.25, "{part} {whole}");
}

/// The ghost of the present mode takes some 8 ms; the volume takes 1 ms.
#[test]
fn wrong_measured_models_turn_switching_off() {
    let switches = |is_measured: bool, took: u64| {
        let verdicts = verdicts(1, is_measured, Nanos::from_millis(took), 300);
        let switches = verdicts.iter().filter(|verdict| verdict.switch == Some(1)).count();
        (switches > 0, verdicts.iter().all(|verdict| verdict.is_off))
    };
    assert_eq!(switches(false, 1), (true, false), "models that were given are believed");
    assert_eq!(switches(true, 1), (false, true));
}
