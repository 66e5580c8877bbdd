//! `wardrop` compared with the sentences of Wu and Reddy, section II.

use crate::volume::{HDD, SSD, Volume, complete, devices, figure};
use braid_base::{DeviceClass, DeviceId, ExtentId, KIB, Nanos, Rng};
use braid_policy::{Completion, Direction, Move, Origin, Policy, WriteTarget, parse};

/// An SSD and a disk of 1,000 slots, and a volume of 1,500 extents.
fn one_and_one() -> Volume {
    Volume::new(&devices(&[(DeviceClass::Ssd, 1000), (DeviceClass::Hdd, 1000)]), 1500)
}

fn wardrop(volume: &Volume, settings: &str) -> Box<dyn Policy> {
    parse(&format!("wardrop{settings}"), &volume.devices).expect("the settings are right")
}

fn tokens(policy: &dyn Policy) -> [f64; 2] {
    [SSD, HDD].map(|device| figure(policy, device, "tokens"))
}

fn targets(policy: &dyn Policy, devices: u16) -> Vec<f64> {
    (0..devices).map(|device| figure(policy, DeviceId(device), "target_share")).collect()
}

fn migrated(moves: &[Move]) -> Vec<(u32, DeviceId)> {
    let migration = |job: &Move| match job {
        Move::Migrate { extent, target } => (extent.0, *target),
        other => panic!("{other:?} was not expected"),
    };
    moves.iter().map(migration).collect()
}

/// A period with a slower disk, so that 30 tokens go from the disk to the SSD: Q is 0.5, R 0.10 and 0.22 ms,
/// α (R̄ − R) Q is 0.3.
fn thirty_tokens_to_the_ssd(volume: &mut Volume, policy: &mut dyn Policy) -> Vec<Move> {
    complete(policy, SSD, 500, 0.10);
    complete(policy, HDD, 500, 0.22);
    let moves = volume.tick(policy);
    assert_eq!(tokens(policy), [30.0, -30.0]);
    moves
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn two_devices_follow_equation_1() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    complete(&mut *policy, SSD, 70, 0.50);
    complete(&mut *policy, HDD, 30, 0.52);
    volume.tick(&mut *policy);
    // R̄ = 0.506; P_s = 0.7 + 10 · 0.006 · 0.7; P_h = 0.3 − 10 · 0.014 · 0.3; 0.042 · 100 tokens.
    assert!(close(figure(&*policy, SSD, "share"), 0.7) && close(figure(&*policy, HDD, "share"), 0.3));
    let [ssd, hdd] = targets(&*policy, 2).try_into().expect("there are two");
    assert!(close(ssd, 0.742) && close(hdd, 0.258), "{ssd} {hdd}");
    assert_eq!(tokens(&*policy), [4.0, -4.0]);
}

#[test]
fn equation_1_holds_for_four_devices() {
    let classes = [DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Hdd, DeviceClass::Hdd];
    let mut volume = Volume::new(&devices(&classes.map(|class| (class, 1000))), 100);
    let mut policy = wardrop(&volume, "");
    for (device, (requests, millis)) in [(400, 0.5), (300, 0.52), (200, 0.53), (100, 0.48)].iter().enumerate()
    {
        complete(&mut *policy, DeviceId(device as u16), *requests, *millis);
    }
    volume.tick(&mut *policy);
    // R̄ = 0.51: the differences are 0.01, −0.01, −0.02 and 0.03 ms, times ten times Q.
    let expected = [0.44, 0.27, 0.16, 0.13];
    let found = targets(&*policy, 4);
    assert!(found.iter().zip(expected).all(|(a, b)| close(*a, b)), "{found:?}");
    let tokens: Vec<f64> = (0..4).map(|device| figure(&*policy, DeviceId(device), "tokens")).collect();
    assert_eq!(tokens, [4.0, -3.0, -4.0, 3.0]);
}

#[test]
fn alpha_and_beta_scale_the_step_and_the_tokens() {
    for (settings, expected) in
        [(",alpha=5", [15.0, -15.0]), (",beta=200", [60.0, -60.0]), (",alpha=0", [0.0, 0.0])]
    {
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, settings);
        complete(&mut *policy, SSD, 500, 0.10);
        complete(&mut *policy, HDD, 500, 0.22);
        volume.tick(&mut *policy);
        assert_eq!(tokens(&*policy), expected, "{settings}");
    }
}

#[test]
fn an_average_takes_a_hundredth_of_each_request_or_of_each_period() {
    for (settings, expected) in [
        ("", 0.99 * (0.99 * 2.0 + 0.01 * 4.0) + 0.01 * 4.0),
        (",average=period", 0.99 * 2.0 + 0.01 * 4.0),
        (",average=period,weight=0.5", 3.0),
    ] {
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, settings);
        complete(&mut *policy, SSD, 1, 2.0);
        volume.tick(&mut *policy);
        complete(&mut *policy, SSD, 2, 4.0);
        volume.tick(&mut *policy);
        assert!(close(figure(&*policy, SSD, "response_ms"), expected), "{settings}");
    }
}

#[test]
fn background_requests_and_flushes_are_not_measured() {
    let volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    for (direction, origin) in [
        (Direction::Read, Origin::Background),
        (Direction::Write, Origin::Probe),
        (Direction::Flush, Origin::Guest),
    ] {
        let (len, latency) = (KIB * 4, Nanos::from_millis(9));
        policy.completed(&Completion { device: SSD, direction, len, latency, origin });
    }
    assert!(policy.figures(SSD).iter().all(|(name, _)| *name != "response_ms"));
}

#[test]
fn new_extents_take_tokens_then_follow_target() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    assert!((0..30).all(|extent| volume.allocate(&mut *policy, extent) == SSD));
    assert_eq!(tokens(&*policy), [0.0, -30.0]);
    // P is 0.8 now.
    let later = (30..230).filter(|&extent| volume.allocate(&mut *policy, extent) == SSD).count();
    assert_eq!(later, 160);
}

#[test]
fn latest_hot_extents_get_tokens_left_by_allocation() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..100).for_each(|extent| volume.settle(extent, if extent % 10 == 0 { SSD } else { HDD }));
    volume.remember(51..100);
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    (100..125).for_each(|extent| assert_eq!(volume.allocate(&mut *policy, extent), SSD));
    let moves = migrated(&volume.tick(&mut *policy));
    assert_eq!(moves, [51, 52, 53, 54, 55].map(|extent| (extent, SSD)));
}

#[test]
fn only_extents_in_memory_are_hot() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..100).for_each(|extent| volume.settle(extent, HDD));
    for extent in 0..100 {
        volume.access(&mut *policy, extent, Direction::Write);
    }
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    volume.remember([7]);
    assert_eq!(migrated(&volume.tick(&mut *policy)), [(7, SSD)]);
}

#[test]
fn moves_are_limited_by_free_slots() {
    let mut volume = Volume::new(&devices(&[(DeviceClass::Ssd, 12), (DeviceClass::Hdd, 1000)]), 100);
    let mut policy = wardrop(&volume, ",free-low=0,free-high=0");
    (0..10).for_each(|extent| volume.settle(extent, SSD));
    (10..60).for_each(|extent| volume.settle(extent, HDD));
    volume.remember(10..60);
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    assert_eq!(migrated(&volume.tick(&mut *policy)).len(), 2);
}

#[test]
fn unspent_tokens_do_not_carry_over() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    assert_eq!(migrated(&volume.tick(&mut *policy)), []);
    assert_eq!(tokens(&*policy), [0.0, 0.0]);
    // P stays the same without requests.
    assert!(close(targets(&*policy, 2)[0], 0.8));
}

#[test]
fn the_first_extents_go_to_the_ssds_but_for_the_lower_bound() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    let first: Vec<DeviceId> = (0..1000).map(|extent| volume.allocate(&mut *policy, extent)).collect();
    assert_eq!(first.iter().filter(|&&device| device == HDD).count(), 10);
    let disks = devices(&[(DeviceClass::Hdd, 100), (DeviceClass::Hdd, 100)]);
    assert_eq!(targets(&*wardrop(&Volume::new(&disks, 100), ""), 2), [0.5, 0.5]);
}

#[test]
fn device_at_lower_bound_keeps_getting_new_extents() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, ",floor=0.05");
    for period in 0..5u32 {
        complete(&mut *policy, SSD, 950, 0.1);
        if period > 0 {
            complete(&mut *policy, HDD, 50, 9.0);
        }
        volume.tick(&mut *policy);
        assert!(close(targets(&*policy, 2)[1], 0.05));
        let place = |extent| volume.allocate(&mut *policy, period * 100 + extent);
        assert!((0..100).map(place).filter(|&device| device == HDD).count() >= 5);
    }
}

#[test]
fn targets_stay_within_bounds_for_any_response_times() {
    let mut rng = Rng::new(1);
    let classes = [DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Hdd, DeviceClass::Hdd, DeviceClass::Hdd];
    let mut volume = Volume::new(&devices(&classes.map(|class| (class, 1000))), 100);
    let mut policy = wardrop(&volume, "");
    for _ in 0..200 {
        for device in 0..5 {
            let (requests, millis) = (rng.below(20) as u32, rng.below(30_000) as f64 / 1e3);
            complete(&mut *policy, DeviceId(device), requests, millis);
        }
        volume.tick(&mut *policy);
        let targets = targets(&*policy, 5);
        assert!(close(targets.iter().sum::<f64>(), 1.0), "{targets:?}");
        assert!(targets.iter().all(|&target| target >= 0.01 - 1e-12), "{targets:?}");
    }
}

#[test]
fn a_write_takes_a_cached_extent_along_from_the_heavier_loaded_device() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..100).for_each(|extent| volume.settle(extent, if extent < 50 { SSD } else { HDD }));
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    assert_eq!(volume.write_cached(&mut *policy, 3).write_target(), WriteTarget::Home, "it is on the SSD");
    let not_cached = volume.access(&mut *policy, 60, Direction::Write);
    assert_eq!(not_cached.write_target(), WriteTarget::Home);
    for extent in 60..90 {
        let placed = volume.write_cached(&mut *policy, extent);
        assert_eq!(placed.write_target(), WriteTarget::NewHome(SSD));
        volume.settle(extent, SSD);
    }
    assert_eq!(tokens(&*policy), [0.0, 0.0]);
    assert_eq!(volume.write_cached(&mut *policy, 95).write_target(), WriteTarget::Home);
}

/// An SSD with `used` of its 1,000 slots in use, and three disks.
fn filling(used: u32) -> Volume {
    let disk = (DeviceClass::Hdd, 2000);
    let mut volume = Volume::new(&devices(&[(DeviceClass::Ssd, 1000), disk, disk, disk]), 6000);
    (0..used).for_each(|extent| volume.settle(extent, SSD));
    volume
}

/// Carries out all moves of the next plan.
fn carry_out(volume: &mut Volume, policy: &mut dyn Policy) -> Vec<(u32, DeviceId)> {
    let moves = migrated(&volume.tick(policy));
    moves.iter().for_each(|&(extent, target)| volume.settle(extent, target));
    moves
}

#[test]
fn filling_device_sheds_cold_extents_to_least_loaded_device() {
    let mut volume = filling(960);
    let mut policy = wardrop(&volume, "");
    // The second disk is the fastest, but nearly full; the third is next.
    (1000..2890).for_each(|extent| volume.settle(extent, DeviceId(2)));
    volume.remember(0..500);
    for (device, millis) in [(1, 9.0), (2, 3.0), (3, 5.0)] {
        complete(&mut *policy, DeviceId(device), 10, millis);
    }
    assert_eq!(carry_out(&mut volume, &mut *policy).len(), 60);
    let mut shed: Vec<u32> = (0..960).filter(|&extent| volume.home(extent) == Some(DeviceId(3))).collect();
    shed.retain(|extent| *extent >= 500);
    assert_eq!(shed.len(), 60, "what memory holds is hot, and stays");
    assert_eq!(volume.devices[0].free, 100);
    assert_eq!(carry_out(&mut volume, &mut *policy), []);
}

#[test]
fn shedding_runs_from_low_mark_to_high_mark() {
    let mut volume = filling(950);
    let mut policy = wardrop(&volume, "");
    assert_eq!(carry_out(&mut volume, &mut *policy), [], "5 % are free, and that is enough");
    volume.settle(950, SSD);
    assert_eq!(carry_out(&mut volume, &mut *policy).len(), 51);
    // Between the marks the result depends on the previous state.
    (951..991).for_each(|extent| volume.settle(extent, SSD));
    assert_eq!(volume.devices[0].free, 60);
    assert_eq!(
        carry_out(&mut volume, &mut *policy).len(),
        40,
        "it has just shed, and has not seen that it may stop"
    );
    assert_eq!(carry_out(&mut volume, &mut *policy), []);
    (991..1031).for_each(|extent| volume.settle(extent, SSD));
    assert_eq!(carry_out(&mut volume, &mut *policy), []);
}

#[test]
fn nothing_is_shed_if_all_devices_fill_up() {
    let mut volume = Volume::new(&devices(&[(DeviceClass::Ssd, 100), (DeviceClass::Hdd, 100)]), 200);
    (0..192).for_each(|extent| volume.settle(extent, if extent < 96 { SSD } else { HDD }));
    let mut policy = wardrop(&volume, "");
    assert_eq!(carry_out(&mut volume, &mut *policy), []);
}

#[test]
fn full_device_gets_no_new_extents() {
    let mut volume = Volume::new(&devices(&[(DeviceClass::Ssd, 10), (DeviceClass::Hdd, 20)]), 40);
    let mut policy = wardrop(&volume, "");
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    let places: Vec<DeviceId> = (0..30).map(|extent| volume.allocate(&mut *policy, extent)).collect();
    assert!(
        places[..10].iter().all(|&device| device == SSD) && places[10..].iter().all(|&device| device == HDD)
    );
    let occasion = braid_policy::Occasion::New { extent: ExtentId(30), write: None };
    assert_eq!(policy.place(&occasion, &volume.view()).new_home(), None);
}

#[test]
fn ablations_plan_no_background_moves() {
    for (settings, on_write) in
        [(",no-migration", WriteTarget::NewHome(SSD)), (",allocation-only", WriteTarget::Home)]
    {
        let mut volume = filling(960);
        let mut policy = wardrop(&volume, settings);
        (1000..1100).for_each(|extent| volume.settle(extent, HDD));
        volume.remember(1000..1100);
        assert_eq!(thirty_tokens_to_the_ssd_of_four(&mut volume, &mut *policy), []);
        assert_eq!(volume.write_cached(&mut *policy, 1000).write_target(), on_write, "{settings}");
        assert_eq!(volume.tick(&mut *policy), []);
        // Allocation continues as before.
        assert_eq!(volume.allocate(&mut *policy, 2000), SSD);
    }
}

/// As `thirty_tokens_to_the_ssd`, with two more devices without requests.
fn thirty_tokens_to_the_ssd_of_four(volume: &mut Volume, policy: &mut dyn Policy) -> Vec<Move> {
    complete(policy, SSD, 500, 0.10);
    complete(policy, HDD, 500, 0.22);
    let moves = volume.tick(policy);
    assert!(tokens(policy)[0] > 20.0 && tokens(policy)[1] < -20.0);
    moves
}

#[test]
fn saved_targets_survive_restart_and_damaged_state_is_harmless() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    let saved = policy.save(&volume.view());
    let mut other = wardrop(&volume, ",period=1s");
    other.restore(&saved, &volume.view());
    for device in [SSD, HDD] {
        for name in ["target_share", "response_ms"] {
            assert!(close(figure(&*other, device, name), figure(&*policy, device, name)), "{name}");
        }
    }
    let mut rng = Rng::new(7);
    for _ in 0..2_000 {
        let mut bytes = saved.clone();
        bytes.truncate(rng.below(40) as usize);
        for _ in 0..rng.below(20) {
            let at = rng.below(bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = rng.next_u64() as u8;
            }
        }
        let mut fresh = wardrop(&volume, "");
        fresh.restore(&bytes, &volume.view());
        let targets = targets(&*fresh, 2);
        assert!(close(targets.iter().sum::<f64>(), 1.0) && targets.iter().all(|t| *t >= 0.01 - 1e-12));
        complete(&mut *fresh, SSD, 5, 1.0);
        volume.tick(&mut *fresh);
        assert!(tokens(&*fresh).iter().all(|tokens| tokens.abs() <= 100.0));
    }
}

#[test]
fn an_idle_volume_is_left_alone() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..100).for_each(|extent| volume.settle(extent, HDD));
    volume.remember(0..100);
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    assert_eq!(volume.tick(&mut *policy).len(), 30);
    for _ in 0..5 {
        assert_eq!(volume.tick(&mut *policy), []);
    }
}

#[test]
fn explanation_names_numbers_and_differs_by_situation() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    for (extent, device) in [(3, HDD), (4, HDD), (5, SSD)] {
        volume.settle(extent, device);
    }
    volume.remember([3]);
    thirty_tokens_to_the_ssd(&mut volume, &mut *policy);
    let explained = |extent| policy.explain(ExtentId(extent), &volume.view());
    let texts: Vec<String> = [3, 4, 5, 6].map(explained).to_vec();
    assert!(
        texts
            .iter()
            .all(|text| text.contains("d1 response time 0.22 ms, share 50.0 %, target 20.0 %, -30 token(s)"))
    );
    let distinct: std::collections::HashSet<&String> = texts.iter().collect();
    assert_eq!(
        distinct.len(),
        4,
        "hot on a device that loses, cold there, on one that gains, and without a home: {texts:?}"
    );
}
