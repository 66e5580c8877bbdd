//! What `wardrop` moves, where to, and when that pays.

use super::{end_period, one_and_one, two_periods, wardrop};
use crate::volume::{HDD, SSD, Volume, complete, devices, figure};
use braid_base::{DeviceClass, DeviceId, Nanos};
use braid_policy::{Completion, Direction, Move, Origin, Policy, WriteTarget};

#[test]
fn hot_extents_move_with_the_tokens_that_allocation_leaves() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    for extent in 0..200 {
        volume.settle(extent, if extent < 100 { SSD } else { HDD });
    }
    volume.tick(&mut *policy);
    let counts: Vec<_> = (90..130).map(|extent| (extent, 1)).collect();
    two_periods(&mut volume, &mut *policy, &counts, [(SSD, 50, 1.0), (HDD, 50, 9.0)]);
    let tokens = figure(&*policy, SSD, "tokens") as usize;
    let mut moved = Vec::new();
    for _ in 0..9 {
        moved.extend(volume.tick(&mut *policy));
    }
    assert!(!moved.is_empty() && moved.len() <= tokens, "{} of {tokens}", moved.len());
    for job in moved {
        let Move::Migrate { extent, target } = job else { panic!("{job:?}") };
        assert!(
            (100..130).contains(&extent.0) && target == SSD,
            "only hot extents of the disk move: {job:?}"
        );
    }
}

#[test]
fn the_hottest_extents_move_first_but_none_that_carries_more_than_the_tokens() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..20).for_each(|extent| volume.settle(extent, HDD));
    volume.settle(20, SSD);
    volume.tick(&mut *policy);
    // Of 100 requests extent 0 gets 45, each further one of the disk less than the one before.
    let counts: [usize; 7] = [45, 12, 9, 6, 4, 2, 2];
    let asked: Vec<_> = (0..).zip(counts).chain([(20, 20)]).collect();
    two_periods(&mut volume, &mut *policy, &asked, [(SSD, 20, 1.0), (HDD, 80, 9.0)]);
    let tokens = figure(&*policy, SSD, "tokens");
    assert!((13.0..25.0).contains(&tokens), "{tokens} tokens");
    let mut moved = Vec::new();
    for _ in 0..9 {
        for job in volume.tick(&mut *policy) {
            let Move::Migrate { extent, target: SSD } = job else { panic!("{job:?}") };
            moved.push(extent.0);
        }
    }
    assert_eq!(moved[0], 1, "{moved:?}");
    let load: usize = moved.iter().map(|&extent| counts[extent as usize]).sum();
    assert!(load as f64 <= tokens, "{load} % of the load moved for {tokens} tokens");
}

#[test]
fn no_more_extents_move_at_once_than_the_device_has_room_for() {
    let moved_at_once = |free: u32| {
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, ",free-low=0,free-high=0");
        (0..200).for_each(|extent| volume.settle(extent, if extent < 100 { SSD } else { HDD }));
        volume.tick(&mut *policy);
        let counts: Vec<_> = (0..200).map(|extent| (extent, 1)).collect();
        two_periods(&mut volume, &mut *policy, &counts, [(SSD, 50, 1.0), (HDD, 50, 9.0)]);
        volume.devices[SSD.index()].free = free;
        volume.tick(&mut *policy).len()
    };
    assert_eq!([0, 1, 2].map(moved_at_once), [0, 1, 2]);
    assert!(moved_at_once(100) > 2);
}

fn moves_in_a_period(volume: &mut Volume, policy: &mut dyn Policy) -> usize {
    (0..9).map(|_| volume.tick(policy).len()).sum()
}

#[test]
fn an_extent_moves_only_where_guests_save_more_than_the_copy_costs() {
    for (each, hdd_ms, payback, expected) in [
        // Saved within two periods: 40 x 2 x 0.5 ms. The copy takes 1 + 1.5 ms, as far as is known.
        (40, 1.5, "4s", true),
        (2, 1.5, "4s", false),
        (2, 1.5, "60s", true),
        (2, 9.0, "4s", true),
        (40, 1.5, "0s", false),
    ] {
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, &format!(",payback={payback}"));
        (0..50).for_each(|extent| volume.settle(extent, HDD));
        volume.tick(&mut *policy);
        let counts: Vec<_> = (0..50).map(|extent| (extent, each)).collect();
        two_periods(&mut volume, &mut *policy, &counts, [(SSD, 100, 1.0), (HDD, 900, hdd_ms)]);
        let moved = moves_in_a_period(&mut volume, &mut *policy);
        assert_eq!(moved > 0, expected, "{each} requests, {hdd_ms} ms, payback={payback}: {moved} moved");
    }
}

#[test]
fn what_does_not_pay_soon_moves_off_a_device_that_has_long_been_behind() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, ",payback=4s");
    (0..50).for_each(|extent| volume.settle(extent, HDD));
    volume.tick(&mut *policy);
    let counts: Vec<_> = (0..50).map(|extent| (extent, 2)).collect();
    // A period saves 2 x 0.5 ms, and a copy takes 2.5 ms.
    let moves = |volume: &mut Volume, policy: &mut dyn Policy, hdd_ms: f64| {
        two_periods(volume, policy, &counts, [(SSD, 100, 1.0), (HDD, 900, hdd_ms)]);
        moves_in_a_period(volume, policy)
    };
    let moved: Vec<usize> = (0..5).map(|_| moves(&mut volume, &mut *policy, 1.5)).collect();
    assert!(moved[..3] == [0; 3] && moved[4] > 0, "{moved:?}");
    // Once it has been ahead it is as any other.
    moves(&mut volume, &mut *policy, 0.2);
    assert_eq!(moves(&mut volume, &mut *policy, 1.5), 0);
}

#[test]
fn slow_copies_keep_extents_where_they_are() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..50).for_each(|extent| volume.settle(extent, HDD));
    volume.tick(&mut *policy);
    for _ in 0..200 {
        let (direction, latency) = (Direction::Write, Nanos::from_millis(100));
        let len = volume.view().extent_size;
        policy.completed(&Completion { device: SSD, direction, len, latency, origin: Origin::Background });
    }
    let counts: Vec<_> = (0..50).map(|extent| (extent, 40)).collect();
    two_periods(&mut volume, &mut *policy, &counts, [(SSD, 100, 1.0), (HDD, 900, 1.5)]);
    assert_eq!(moves_in_a_period(&mut volume, &mut *policy), 0);
}

#[test]
fn what_was_asked_for_once_does_not_move() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..200).for_each(|extent| volume.settle(extent, HDD));
    volume.tick(&mut *policy);
    for period in 0..2 {
        for extent in (period * 90..period * 90 + 90).chain(180..190) {
            for _ in 0..10 {
                volume.access(&mut *policy, extent, Direction::Write);
            }
        }
        complete(&mut *policy, SSD, 100, 1.0);
        complete(&mut *policy, HDD, 900, 1.4);
        end_period(&mut volume, &mut *policy);
    }
    let moved: Vec<Move> = (0..9).flat_map(|_| volume.tick(&mut *policy)).collect();
    assert!(!moved.is_empty());
    for job in moved {
        assert!(matches!(job, Move::Migrate { extent, .. } if extent.0 >= 180), "{job:?}");
    }
}

/// An SSD and two disks. With an SSD that is hardly slower than the mean, and a first disk that is much slower, of which all
/// copies seemed too dear, every token of the second disk was once spent on extents of the SSD: a fifth of the load left
/// it where a fortieth should.
#[test]
fn no_device_loses_more_than_it_shall() {
    let classes = [DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Hdd];
    let (slow, quick) = (DeviceId(1), DeviceId(2));
    let mut volume = Volume::new(&devices(&classes.map(|c| (c, 1000))), 1000);
    let mut policy = wardrop(&volume, "");
    (0..300).for_each(|extent| volume.settle(extent, DeviceId((extent % 3) as u16)));
    volume.tick(&mut *policy);
    for _ in 0..200 {
        policy.completed(&Completion {
            device: slow,
            direction: Direction::Read,
            len: volume.view().extent_size,
            latency: Nanos::from_secs(10),
            origin: Origin::Background,
        });
    }
    let counts: Vec<_> = (0..300).map(|extent| (extent, 4)).collect();
    two_periods(&mut volume, &mut *policy, &counts, [(SSD, 400, 6.0), (slow, 400, 9.0), (quick, 400, 1.0)]);
    let shall_leave = -figure(&*policy, SSD, "tokens");
    assert!(shall_leave >= 1.0 && figure(&*policy, quick, "tokens") >= 2.0 * shall_leave);
    let moved = moves_in_a_period(&mut volume, &mut *policy);
    let load = moved as f64 * 100.0 / 300.0;
    assert!(moved > 0 && load <= shall_leave, "{load} % of the load moved for {shall_leave} tokens");
}

#[test]
fn all_devices_that_gain_get_extents_in_the_same_tick() {
    let classes = [DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Hdd];
    let mut volume = Volume::new(&devices(&classes.map(|c| (c, 1000))), 1000);
    let mut policy = wardrop(&volume, "");
    (0..300).for_each(|extent| volume.settle(extent, SSD));
    volume.tick(&mut *policy);
    let counts: Vec<_> = (0..300).map(|extent| (extent, 4)).collect();
    let answers = [(SSD, 1000, 9.0), (DeviceId(1), 100, 1.0), (DeviceId(2), 100, 1.0)];
    two_periods(&mut volume, &mut *policy, &counts, answers);
    let moves = volume.tick(&mut *policy);
    for disk in [1, 2].map(DeviceId) {
        let to_it = |job: &Move| matches!(job, Move::Migrate { target, .. } if *target == disk);
        assert!(moves.iter().any(to_it), "nothing for {disk}: {moves:?}");
    }
}

#[test]
fn extents_of_large_requests_move_before_those_that_are_asked_for_somewhat_more_often() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..200).for_each(|extent| volume.settle(extent, HDD));
    volume.tick(&mut *policy);
    for _ in 0..2 {
        for extent in 0..200 {
            let (requests, blocks) = if extent < 180 { (12, 1) } else { (10, 32) };
            for _ in 0..requests {
                volume.access_blocks(&mut *policy, extent, blocks, Direction::Write);
            }
        }
        complete(&mut *policy, SSD, 500, 1.0);
        complete(&mut *policy, HDD, 2000, 9.0);
        end_period(&mut volume, &mut *policy);
    }
    let moved: Vec<Move> = (0..9).flat_map(|_| volume.tick(&mut *policy)).collect();
    let large = |job: &Move| matches!(job, Move::Migrate { extent, target: SSD } if extent.0 >= 180);
    assert!(moved.len() > 3 && moved.iter().take(10).all(large), "{moved:?}");
}

/// A file's extents that were moved as chance had made them hot lay scattered, and what a page cache wrote as one request was
/// many for the disk.
#[test]
fn of_extents_about_as_hot_neighbours_move_together() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..200).for_each(|extent| volume.settle(extent, HDD));
    volume.tick(&mut *policy);
    // From 9 to 15 requests, in no order; and a few with twice as many.
    let asked = |extent: u32| if extent % 50 == 49 { 30 } else { 9 + extent * 5 % 7 };
    let counts: Vec<_> = (0..200).map(|extent| (extent, asked(extent) as usize)).collect();
    two_periods(&mut volume, &mut *policy, &counts, [(SSD, 500, 1.0), (HDD, 2000, 9.0)]);
    let mut moved = Vec::new();
    for _ in 0..9 {
        for job in volume.tick(&mut *policy) {
            let Move::Migrate { extent, target: SSD } = job else { panic!("{job:?}") };
            moved.push(extent.0);
        }
    }
    assert_eq!(moved[..4], [49, 99, 149, 199]);
    let neighbours: Vec<u32> = (0..200).filter(|extent| extent % 50 != 49).take(moved.len() - 4).collect();
    assert!(moved.len() > 20 && moved[4..] == neighbours, "{moved:?}");
}

#[test]
fn a_write_to_a_cached_extent_of_the_loaded_device_takes_it_along() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    volume.settle(0, HDD);
    volume.settle(1, SSD);
    volume.settle(2, HDD);
    volume.tick(&mut *policy);
    let answers = [(SSD, 50, 1.0), (HDD, 50, 9.0)];
    two_periods(&mut volume, &mut *policy, &[(0, 20), (1, 20)], answers);
    let uncached = volume.access(&mut *policy, 0, Direction::Write);
    assert_eq!(uncached.write_target(), WriteTarget::Home);
    let mut write = |extent| volume.write_cached(&mut *policy, extent).write_target();
    assert_eq!(write(1), WriteTarget::Home);
    assert_eq!(write(2), WriteTarget::Home, "nobody asks for it");
    assert_eq!(write(0), WriteTarget::NewHome(SSD));
}

#[test]
fn cold_extents_leave_a_device_that_fills_up_until_there_is_room_again() {
    let mut volume = one_and_one();
    let mut policy = wardrop(&volume, "");
    (0..970).for_each(|e| volume.settle(e, SSD));
    for extent in 0..50 {
        volume.access(&mut *policy, extent, Direction::Read);
    }
    for _ in 0..2_000 {
        for job in volume.tick(&mut *policy) {
            let Move::Migrate { extent, target } = job else { continue };
            assert!(target == HDD && extent.0 >= 50, "{job:?}");
            volume.settle(extent.0, target);
        }
    }
    let free = volume.devices[SSD.index()].free;
    assert!((100..120).contains(&free), "{free} slots are free: 10 % were wanted");
    assert_eq!(volume.home(0), Some(SSD));
}

#[test]
fn under_load_as_many_cold_extents_leave_a_full_device_as_hot_ones_wait_for_its_room() {
    let leave = |hot: u32, each: usize, in_flight: u32| {
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, "");
        (0..1_000).for_each(|extent| volume.settle(extent, SSD));
        (1_000..1_100).for_each(|extent| volume.settle(extent, HDD));
        volume.tick(&mut *policy);
        let counts: Vec<_> = (1_000..1_000 + hot).map(|extent| (extent, each)).collect();
        two_periods(&mut volume, &mut *policy, &counts, [(SSD, 50, 1.0), (HDD, 50, 9.0)]);
        volume.devices[HDD.index()].in_flight = in_flight;
        let moves = volume.tick(&mut *policy);
        assert!(
            moves.iter().all(|job| matches!(job, Move::Migrate { extent, target: HDD } if extent.0 < 1_000))
        );
        moves.len()
    };
    assert_eq!([leave(0, 0, 1), leave(10, 1, 1), leave(10, 3, 1), leave(100, 3, 1)], [1, 1, 10, 16]);
    assert_eq!(leave(0, 0, 0), 16);
}
