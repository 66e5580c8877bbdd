//! `wardrop` against the equations of Wu and Reddy, section II, and against what this implementation adds.

mod migration;
mod saved;

use crate::volume::{HDD, SSD, Volume, complete, complete_write, devices, figure};
use braid_base::{DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use braid_policy::{Completion, Direction, Move, Origin, Policy, parse};

fn one_and_one() -> Volume {
    Volume::new(&devices(&[(DeviceClass::Ssd, 1000), (DeviceClass::Hdd, 1000)]), 1500)
}

fn wardrop(volume: &Volume, settings: &str) -> Box<dyn Policy> {
    parse(&format!("wardrop{settings}"), &volume.devices).expect("the settings are right")
}

/// Ticks to the end of the present period.
fn end_period(volume: &mut Volume, policy: &mut dyn Policy) -> Vec<Move> {
    let ends = Nanos((volume.now.0 / 2_000_000_000 + 1) * 2_000_000_000);
    while volume.now < ends {
        volume.tick(policy);
    }
    volume.tick(policy)
}

#[test]
fn shares_and_tokens_follow_equation_1() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, ",step=1,weight=1");
    volume.tick(&mut *policy);
    // Q = 0.7 and 0.3, R = 0.50 and 0.51 ms: within the range in which α = 10 per ms needs no clamp.
    complete(&mut *policy, SSD, 70, 0.50);
    complete(&mut *policy, HDD, 30, 0.51);
    end_period(&mut volume, &mut *policy);
    let mean = 0.7 * 0.50 + 0.3 * 0.51;
    let (ssd, hdd) = (0.7 + 10.0 * (mean - 0.50) * 0.7, 0.3 + 10.0 * (mean - 0.51) * 0.3);
    assert!((figure(&*policy, SSD, "share") - 0.7).abs() < 1e-9);
    assert!((figure(&*policy, SSD, "target_share") - ssd).abs() < 1e-6);
    assert!((figure(&*policy, HDD, "target_share") - hdd).abs() < 1e-6);
    let tokens = ((ssd - 0.7) * 100.0).round();
    assert_eq!((figure(&*policy, SSD, "tokens"), figure(&*policy, HDD, "tokens")), (tokens, -tokens));
}

#[test]
fn a_response_time_is_an_average_that_takes_a_hundredth_of_each_sample() {
    let volume = one_and_one();
    let mut policy = wardrop(&volume, ",step=1");
    complete(&mut *policy, SSD, 1, 2.0);
    complete(&mut *policy, SSD, 1, 4.0);
    assert!((figure(&*policy, SSD, "response_ms") - (0.99 * 2.0 + 0.01 * 4.0)).abs() < 1e-9);
}

#[test]
fn many_requests_of_a_period_count_alike_and_few_change_little() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    volume.tick(&mut *policy);
    // The last hundred are not what the period was like.
    complete(&mut *policy, SSD, 900, 1.0);
    complete(&mut *policy, SSD, 100, 4.0);
    end_period(&mut volume, &mut *policy);
    assert!((figure(&*policy, SSD, "response_ms") - 1.3).abs() < 0.001);
    complete(&mut *policy, SSD, 1, 50.0);
    end_period(&mut volume, &mut *policy);
    let response_ms = figure(&*policy, SSD, "response_ms");
    assert!(response_ms > 1.3 && response_ms < 1.3 + 0.01 * 48.7, "{response_ms}");
}

#[test]
fn a_device_is_not_slower_for_being_asked_for_more() {
    for slowness in [1.0, 2.0] {
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, "");
        volume.tick(&mut *policy);
        for kib in [4, 8, 16, 32, 64] {
            let millis = 0.1 + 0.01 * kib as f64;
            complete_write(&mut *policy, SSD, 128_000 / kib, KIB * u64::from(kib), millis);
            complete_write(&mut *policy, HDD, kib * 1_000, KIB * u64::from(kib), slowness * millis);
        }
        end_period(&mut volume, &mut *policy);
        let measured = figure(&*policy, HDD, "response_ms") / figure(&*policy, SSD, "response_ms");
        assert!((measured - slowness).abs() < 1e-3, "{measured} for {slowness}");
    }
}

#[test]
fn new_extents_take_the_tokens_first_and_then_follow_the_target() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    volume.tick(&mut *policy);
    complete(&mut *policy, SSD, 60, 1.0);
    complete(&mut *policy, HDD, 40, 2.0);
    end_period(&mut volume, &mut *policy);
    let (tokens, target) = (figure(&*policy, SSD, "tokens") as u32, figure(&*policy, SSD, "target_share"));
    assert_eq!(tokens, ((target - 0.6) * 100.0).round() as u32, "target {target}");
    assert!((0.7..0.8).contains(&target), "target {target}");
    let first: Vec<DeviceId> = (0..tokens).map(|e| volume.allocate(&mut *policy, e)).collect();
    assert!(first.iter().all(|&d| d == SSD));
    let later = (tokens..tokens + 200).filter(|&e| volume.allocate(&mut *policy, e) == SSD).count();
    assert!((later as f64 / 200.0 - target).abs() < 0.02, "{later} of 200");
}

#[test]
fn small_differences_that_last_come_to_whole_tokens() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    volume.tick(&mut *policy);
    let mut tokens = |hdd_ms: f64| {
        complete(&mut *policy, SSD, 500, 1.0);
        complete(&mut *policy, HDD, 500, hdd_ms);
        end_period(&mut volume, &mut *policy);
        (figure(&*policy, SSD, "tokens"), figure(&*policy, HDD, "tokens"))
    };
    // The first step of 0.25 x 1.5 for a hundredth of difference from the mean is worth 0.37 tokens.
    let taken: Vec<(f64, f64)> = (0..11).map(|_| tokens(1.02)).collect();
    assert_eq!(taken[..3], [(0.0, 0.0), (1.0, -1.0), (0.0, 0.0)], "{taken:?}");
    assert_eq!(taken.iter().map(|(ssd, _)| ssd).sum::<f64>(), 4.0, "{taken:?}");
}

#[test]
fn where_more_guests_come_new_extents_go_at_once_where_they_will_be_served_alike() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    volume.tick(&mut *policy);
    let mut period = |hdd_ms: f64| {
        complete(&mut *policy, SSD, 20, 0.3);
        complete(&mut *policy, HDD, 4_980, hdd_ms);
        end_period(&mut volume, &mut *policy);
        figure(&*policy, SSD, "target_share")
    };
    // Half a request is in flight; the disk is quicker, and has all.
    let before = (0..20).map(|_| period(0.2)).last();
    assert!(before.is_some_and(|target| target < 0.011), "{before:?}");
    // 3.5 requests: S = 0.3 and 1.4 / 4.5 = 0.31 ms, so that about half may go to either; a quarter is the most at once.
    let after = period(1.4);
    assert!((0.25..0.26).contains(&after), "{after}");
}

#[test]
fn tokens_that_are_left_do_not_roll_over() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    volume.tick(&mut *policy);
    complete(&mut *policy, SSD, 50, 1.0);
    complete(&mut *policy, HDD, 50, 9.0);
    end_period(&mut volume, &mut *policy);
    assert!(figure(&*policy, SSD, "tokens") > 0.0);
    end_period(&mut volume, &mut *policy);
    assert_eq!(figure(&*policy, SSD, "tokens"), 0.0);
}

/// Two periods in which guests ask for every one of these extents so often. Devices answer in the second one only, so that
/// nothing moves before.
fn two_periods(
    volume: &mut Volume,
    policy: &mut dyn Policy,
    counts: &[(u32, usize)],
    answers: impl IntoIterator<Item = (DeviceId, u32, f64)> + Clone,
) {
    for period in 0..2 {
        for &(extent, count) in counts {
            for _ in 0..count {
                volume.access(policy, extent, Direction::Write);
            }
        }
        if period == 1 {
            for (device, requests, millis) in answers.clone() {
                complete(policy, device, requests, millis);
            }
        }
        end_period(volume, policy);
    }
}

/// Where moves do not pay for a while, P goes ahead of Q, for allocations; once one paid, a quarter of the load moved at once.
#[test]
fn what_did_not_move_is_no_debt() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, ",payback=0s");
    volume.tick(&mut *policy);
    for _ in 0..8 {
        complete(&mut *policy, SSD, 500, 1.0);
        complete(&mut *policy, HDD, 500, 1.5);
        end_period(&mut volume, &mut *policy);
    }
    let (target, tokens) = (figure(&*policy, SSD, "target_share"), figure(&*policy, SSD, "tokens"));
    assert!(target > 0.7 && (1.0..10.0).contains(&tokens), "target {target}, {tokens} tokens");
}

#[test]
fn half_a_token_is_none() {
    for (hdd_ms, expected) in [(1.01, 0.0), (1.1, 2.0)] {
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, "");
        volume.tick(&mut *policy);
        complete(&mut *policy, SSD, 500, 1.0);
        complete(&mut *policy, HDD, 500, hdd_ms);
        end_period(&mut volume, &mut *policy);
        let tokens = [SSD, HDD].map(|device| figure(&*policy, device, "tokens"));
        assert_eq!(tokens, [expected, -expected], "{hdd_ms} ms");
    }
}

#[test]
fn the_first_half_of_a_period_counts_where_nothing_moves() {
    for (payback, expected) in [("0s", 0.9), ("60s", 0.5)] {
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, &format!(",payback={payback}"));
        (0..100).for_each(|extent| volume.settle(extent, HDD));
        volume.tick(&mut *policy);
        let counts: Vec<_> = (0..100).map(|extent| (extent, 10)).collect();
        two_periods(&mut volume, &mut *policy, &counts, [(SSD, 500, 1.0), (HDD, 500, 3.0)]);
        volume.tick(&mut *policy);
        complete(&mut *policy, SSD, 800, 1.0);
        for _ in 0..7 {
            volume.tick(&mut *policy);
        }
        complete(&mut *policy, SSD, 100, 1.0);
        complete(&mut *policy, HDD, 100, 3.0);
        end_period(&mut volume, &mut *policy);
        assert!((figure(&*policy, SSD, "share") - expected).abs() < 1e-9, "payback={payback}");
    }
}

#[test]
fn a_device_without_guests_is_probed_as_guests_would_use_it_and_gets_nothing_else() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    let first = volume.tick(&mut *policy);
    let probed = |moves: &[Move], device| {
        moves.iter().any(|m| matches!(m, Move::Probe { device: d, .. } if *d == device))
    };
    assert!(probed(&first, SSD) && probed(&first, HDD), "nothing is known yet: {first:?}");
    // What the probes found: a disk far slower than the SSD.
    for (device, millis) in [(SSD, 0.2), (HDD, 8.0)] {
        policy.completed(&Completion {
            device,
            direction: Direction::Read,
            len: braid_base::Bytes(4096),
            latency: Nanos::from_micros((millis * 1000.0) as u64),
            origin: Origin::Probe,
        });
    }
    let mut extent = 0;
    for period in 0..20 {
        complete(&mut *policy, SSD, 1000, 0.2);
        let moves = end_period(&mut volume, &mut *policy);
        assert_eq!((probed(&moves, SSD), probed(&moves, HDD)), (false, true), "period {period}");
        if period >= 5 {
            for _ in 0..20 {
                assert_eq!(volume.allocate(&mut *policy, extent), SSD, "period {period}");
                extent += 1;
            }
        }
    }
    // The SSD is overloaded now: the disk, known from its probes, begins to gain.
    for _ in 0..5 {
        complete(&mut *policy, SSD, 1000, 40.0);
        end_period(&mut volume, &mut *policy);
    }
    assert!(figure(&*policy, HDD, "target_share") > 0.02 && figure(&*policy, HDD, "tokens") > 0.0);
}

#[test]
fn an_idle_volume_is_left_alone() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    complete(&mut *policy, SSD, 10, 1.0);
    complete(&mut *policy, HDD, 10, 9.0);
    end_period(&mut volume, &mut *policy);
    for _ in 0..5 {
        assert_eq!(end_period(&mut volume, &mut *policy), []);
    }
}

#[test]
fn any_number_of_devices_share_without_a_sum_above_one() {
    let classes = [DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Hdd, DeviceClass::Hdd, DeviceClass::Hdd];
    let mut volume = Volume::new(&devices(&classes.map(|c| (c, 1000))), 100);
    let mut policy = wardrop(&volume, "");
    volume.tick(&mut *policy);
    for round in 1..50u32 {
        for device in 0..5u16 {
            let millis = f64::from((round * 7 + u32::from(device) * 13) % 29 + 1);
            complete(&mut *policy, DeviceId(device), 10 * u32::from(device) + 1, millis);
        }
        end_period(&mut volume, &mut *policy);
        let targets: Vec<f64> = (0..5).map(|d| figure(&*policy, DeviceId(d), "target_share")).collect();
        assert!(
            (targets.iter().sum::<f64>() - 1.0).abs() < 1e-9 && targets.iter().all(|&t| t >= 0.0099),
            "{targets:?}"
        );
    }
}

#[test]
fn an_explanation_names_numbers_and_what_may_happen_next() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    for (extent, device) in [(3, HDD), (4, HDD), (5, SSD)] {
        volume.settle(extent, device);
    }
    volume.tick(&mut *policy);
    volume.access(&mut *policy, 3, Direction::Read);
    complete(&mut *policy, SSD, 50, 1.0);
    complete(&mut *policy, HDD, 50, 9.0);
    end_period(&mut volume, &mut *policy);
    for (extent, parts) in [
        (
            3,
            &["d0 response time 1.00 ms", "share 50.0 %", "is hot", "d1 shall lose load, so it may migrate"]
                [..],
        ),
        (4, &["is not hot", "it stays: d1 shall lose load, but only hot extents move"]),
        (5, &["it stays: d0 sheds no load"]),
    ] {
        let text = policy.explain(ExtentId(extent), &volume.view());
        for part in parts {
            assert!(text.contains(part), "'{part}' is missing for extent {extent}: {text}");
        }
    }
}
