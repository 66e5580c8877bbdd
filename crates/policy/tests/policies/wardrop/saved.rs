//! What `wardrop` takes over a restart.

use super::{end_period, one_and_one, wardrop};
use crate::volume::{HDD, SSD, Volume, complete, devices, figure};
use braid_base::{DeviceClass, Rng};
use braid_policy::{Direction, LONGEST_STATE, Policy};
use std::ops::Range;

/// One that has seen some periods of a load on the first `extents` extents, the first ones most.
fn learned(volume: &mut Volume, extents: u32) -> Box<dyn Policy> {
    let mut policy = wardrop(volume, "");
    let mut rng = Rng::new(7);
    for _ in 0..3 {
        for extent in 0..extents {
            for _ in 0..=rng.below(3) {
                volume.access(&mut *policy, extent, Direction::Read);
            }
        }
        complete(&mut *policy, SSD, 100, 0.5);
        complete(&mut *policy, HDD, 20, 3.0);
        end_period(volume, &mut *policy);
    }
    policy
}

#[test]
fn what_is_restored_is_saved_as_it_was() {
    let mut volume = one_and_one();
    let before = learned(&mut volume, 900);
    let saved = before.save(&volume.view());
    let volume = one_and_one();
    let mut after = wardrop(&volume, "");
    after.restore(&saved, &volume.view());
    assert!(after.save(&volume.view()) == saved);
    for (device, name) in [(SSD, "target_share"), (HDD, "target_share"), (SSD, "response_ms"), (HDD, "share")]
    {
        let (before, after) = (figure(&*before, device, name), figure(&*after, device, name));
        assert!((before - after).abs() < 1e-6, "{name} of {device}: {before}, {after}");
    }
}

#[test]
fn a_restarted_policy_moves_what_was_hot_before() {
    let mut volume = one_and_one();
    (0..1_000).for_each(|extent| volume.settle(extent, if extent < 500 { HDD } else { SSD }));
    let load = |volume: &mut Volume, policy: &mut dyn Policy, extents: Range<u32>| {
        for _ in 0..10 {
            extents.clone().for_each(|extent| _ = volume.access(policy, extent, Direction::Read));
        }
        complete(policy, SSD, 500, 0.2);
        complete(policy, HDD, 500, 8.0);
    };
    let mut policy = wardrop(&volume, "");
    for _ in 0..4 {
        load(&mut volume, &mut *policy, 0..50);
        end_period(&mut volume, &mut *policy);
    }
    let saved = policy.save(&volume.view());
    // One period of a load on extents of the SSD: only a policy that remembers knows what to move there.
    let moved = |state: &[u8]| {
        let mut volume = one_and_one();
        (0..1_000).for_each(|extent| volume.settle(extent, if extent < 500 { HDD } else { SSD }));
        let mut policy = wardrop(&volume, "");
        policy.restore(state, &volume.view());
        volume.tick(&mut *policy);
        load(&mut volume, &mut *policy, 900..950);
        end_period(&mut volume, &mut *policy);
        (0..9).map(|_| volume.tick(&mut *policy).len()).sum::<usize>()
    };
    assert_eq!(moved(&[]), 0);
    assert!(moved(&saved) > 0);
}

#[test]
fn a_state_never_exceeds_its_limit_and_extents_that_are_no_more_are_forgotten() {
    let many = devices(&[(DeviceClass::Ssd, 400_000), (DeviceClass::Hdd, 400_000)]);
    let mut volume = Volume::new(&many, 300_000);
    let mut before = wardrop(&volume, ",hot=200000");
    for extent in 0..300_000 {
        volume.access(&mut *before, extent, Direction::Read);
    }
    let saved = before.save(&volume.view());
    assert!(
        (LONGEST_STATE.as_usize() - 5..=LONGEST_STATE.as_usize()).contains(&saved.len()),
        "{}",
        saved.len()
    );
    volume = one_and_one();
    let mut after = wardrop(&volume, ",hot=200000");
    after.restore(&saved, &volume.view());
    let extents = (volume.view().homes.extents() as usize).next_power_of_two();
    assert!(after.memory() < extents * 100, "{}", after.memory());
}

#[test]
fn hostile_bytes_neither_panic_nor_take_memory_nor_spoil_the_figures() {
    let mut volume = one_and_one();
    let good = learned(&mut volume, 300).save(&volume.view());
    let mut rng = Rng::new(11);
    for round in 0..3_000 {
        let mut bytes = match round % 3 {
            0 => vec![0; rng.below(400) as usize],
            _ => good.clone(),
        };
        match round % 3 {
            0 => rng.fill(&mut bytes),
            1 => (0..rng.between(1, 40)).for_each(|_| {
                let place = rng.below(bytes.len() as u64) as usize;
                bytes[place] = rng.next_u64() as u8;
            }),
            _ => {
                rng.fill(&mut bytes[8..80]);
                bytes.truncate(rng.below(good.len() as u64) as usize);
            }
        }
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        let mut volume = one_and_one();
        let mut policy = wardrop(&volume, "");
        policy.restore(&bytes, &volume.view());
        assert!(policy.memory() < 1 << 18, "{}", policy.memory());
        for extent in 0..50 {
            volume.allocate(&mut *policy, extent);
        }
        complete(&mut *policy, SSD, 10, 0.5);
        complete(&mut *policy, HDD, 10, 3.0);
        for _ in 0..2 {
            end_period(&mut volume, &mut *policy);
        }
        let shares = [SSD, HDD].map(|device| figure(&*policy, device, "target_share"));
        assert!((shares[0] + shares[1] - 1.0).abs() < 1e-6, "{shares:?}");
        assert!(policy.save(&volume.view()).len() <= LONGEST_STATE.as_usize());
    }
}
