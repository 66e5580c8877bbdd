//! `colloid` with modelled devices.

use crate::volume::{HDD, SSD, Volume, complete, devices, figure};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId, Nanos};
use braid_policy::{Completion, Direction, Move, Origin, Policy, parse};

/// An SSD of `ssd_slots` slots and a disk of 400.
fn volume(ssd_slots: u32) -> (Volume, Box<dyn Policy>) {
    let devices = devices(&[(DeviceClass::Ssd, ssd_slots), (DeviceClass::Hdd, 400)]);
    let policy = parse("colloid,weight=1,latency=all", &devices).expect("it is right");
    (Volume::new(&devices, 400), policy)
}

fn read(volume: &Volume, policy: &mut dyn Policy, extent: u32, times: u32) {
    (0..times).for_each(|_| _ = volume.access(policy, extent, Direction::Read));
}

fn probed(policy: &mut dyn Policy, device: DeviceId, millis: u64) {
    let latency = Nanos::from_millis(millis);
    let len = Bytes(4096);
    policy.completed(&Completion { device, direction: Direction::Read, len, latency, origin: Origin::Probe });
}

fn migrate(extent: u32, target: DeviceId) -> Move {
    Move::Migrate { extent: ExtentId(extent), target }
}

/// All extents are on the SSD at 4 ms, and the disk would take 1 ms: half of the accesses shall move. Half of
/// 55 is 27.5: extents with 10, 9 and 8. Half of the demand of 100 requests of 8 KiB is 400 KiB, three
/// extents.
#[test]
fn the_hottest_extents_leave_the_slower_tier_as_far_as_the_shifted_demand_allows() {
    let (mut volume, mut policy) = volume(100);
    for extent in 0..10 {
        assert_eq!(volume.allocate(&mut *policy, extent), SSD);
        read(&volume, &mut *policy, extent, 10 - extent);
    }
    complete(&mut *policy, SSD, 100, 4.0);
    let probe = |moves: &[Move]| matches!(moves, [Move::Probe { device: HDD, .. }]);
    assert!(probe(&volume.tick(&mut *policy)), "nothing is known of the disk");
    probed(&mut *policy, HDD, 1);
    complete(&mut *policy, SSD, 100, 4.0);
    let moves = volume.tick(&mut *policy);
    let migrations: Vec<Move> =
        moves.iter().filter(|job| matches!(job, Move::Migrate { .. })).copied().collect();
    assert_eq!(migrations, [0, 1, 2].map(|extent| migrate(extent, HDD)));
    assert_eq!((figure(&*policy, SSD, "tier_latency_ms"), figure(&*policy, HDD, "tier_share")), (4.0, 0.0));
}

#[test]
fn tiers_with_equal_latency_exchange_nothing() {
    let (mut volume, mut policy) = volume(100);
    for (extent, device) in [(0, SSD), (1, HDD)] {
        volume.settle(extent, device);
        read(&volume, &mut *policy, extent, 10);
    }
    complete(&mut *policy, SSD, 100, 4.0);
    complete(&mut *policy, HDD, 100, 4.1);
    assert_eq!(volume.tick(&mut *policy), []);
}

/// The SSD has a single free slot, for exchanges: a hot extent is exchanged with an extent without requests.
#[test]
fn hot_extent_replaces_cold_extent_on_full_ssd() {
    let (mut volume, mut policy) = volume(10);
    (0..9).for_each(|extent| volume.settle(extent, SSD));
    (0..8).for_each(|extent| read(&volume, &mut *policy, extent, 5));
    volume.settle(20, HDD);
    read(&volume, &mut *policy, 20, 12);
    complete(&mut *policy, SSD, 100, 0.1);
    complete(&mut *policy, HDD, 100, 8.0);
    assert_eq!(volume.tick(&mut *policy), [migrate(8, HDD), migrate(20, SSD)]);
}

/// A quarter of the demand of six requests of 8 KiB shall move in each round, 12 KiB: eleven rounds make an
/// extent.
#[test]
fn bytes_of_slow_rounds_add_up_to_an_extent() {
    let (mut volume, mut policy) = volume(100);
    for (extent, device, times) in [(0, SSD, 6), (1, HDD, 1)] {
        volume.settle(extent, device);
        read(&volume, &mut *policy, extent, times);
    }
    for round in 1..=11 {
        complete(&mut *policy, SSD, 3, 0.1);
        complete(&mut *policy, HDD, 3, 8.0);
        let moves = volume.tick(&mut *policy);
        let expected = if round < 11 { vec![] } else { vec![migrate(1, SSD)] };
        assert_eq!(moves, expected, "round {round}");
    }
}
