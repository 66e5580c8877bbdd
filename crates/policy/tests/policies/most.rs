//! `most` with modelled devices: the offload ratio, routing, the mirrored class and its cleaning.

use crate::caching::{Cache, piece};
use crate::volume::{HDD, SSD, Volume, complete, devices, extra_of, figure};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, Nanos};
use braid_policy::{Direction, Move, Occasion, Outcome, Placement, Plan, Policy, WriteTarget, parse};

fn volume(settings: &str) -> (Volume, Box<dyn Policy>) {
    let devices = devices(&[(DeviceClass::Ssd, 100), (DeviceClass::Hdd, 400)]);
    let policy = parse(&format!("most,weight=1{settings}"), &devices).expect("it is right");
    (Volume::new(&devices, 400), policy)
}

/// A round in which the SSD and the disk have the latencies `millis`.
fn round(volume: &mut Volume, policy: &mut dyn Policy, millis: [f64; 2]) -> Vec<Move> {
    complete(policy, SSD, 100, millis[0]);
    complete(policy, HDD, 100, millis[1]);
    volume.tick(policy)
}

fn read(volume: &Volume, policy: &mut dyn Policy, extent: u32, times: u32) {
    (0..times).for_each(|_| _ = volume.access(policy, extent, Direction::Read));
}

fn migrate(extent: u32, target: DeviceId) -> Move {
    Move::Migrate { extent: ExtentId(extent), target }
}

#[test]
fn the_offload_ratio_follows_the_slower_device_by_steps() {
    let (mut volume, mut policy) = volume("");
    let ratio = |policy: &dyn Policy| (figure(policy, SSD, "offload_ratio") * 100.0).round();
    (0..3).for_each(|_| assert_eq!(round(&mut volume, &mut *policy, [4.0, 1.0]), []));
    assert_eq!(ratio(&*policy), 6.0);
    round(&mut volume, &mut *policy, [1.04, 1.0]);
    assert_eq!(ratio(&*policy), 6.0, "4 % are equal");
    (0..2).for_each(|_| assert_eq!(round(&mut volume, &mut *policy, [1.0, 4.0]), []));
    assert_eq!(ratio(&*policy), 2.0);
    (0..60).for_each(|_| _ = round(&mut volume, &mut *policy, [4.0, 1.0]));
    assert_eq!(ratio(&*policy), 100.0);
}

/// Extents on the disk have clean extra copies here.
#[test]
fn ratio_sends_mirrored_reads_and_writes_to_disk() {
    let (mut volume, mut policy) = volume(",step=25%");
    volume.settle(0, SSD);
    volume.settle(1, HDD);
    for block in 32..64 {
        policy.extra_changed(BlockId(block), None, Some(extra_of(BlockId(block))));
    }
    round(&mut volume, &mut *policy, [1.0, 1.0]);
    assert_eq!(figure(&*policy, SSD, "mirrored_extents"), 1.0);
    assert_eq!(volume.access(&mut *policy, 1, Direction::Read), Placement::KEEP);
    assert_eq!(volume.access(&mut *policy, 1, Direction::Write).write_target(), WriteTarget::Extra(SSD));
    round(&mut volume, &mut *policy, [4.0, 1.0]);
    let mut alone = |extent, direction| {
        (0..100).filter(|_| volume.access(&mut *policy, extent, direction) == Placement::ALONE).count()
    };
    assert_eq!([alone(1, Direction::Read), alone(1, Direction::Write)], [25, 25], "a step");
    assert_eq!([alone(0, Direction::Read), alone(0, Direction::Write)], [0, 0], "it is tiered");
}

#[test]
fn new_extents_go_to_the_disk_by_the_ratio() {
    let (mut volume, mut policy) = volume("");
    assert!((0..10).all(|extent| volume.allocate(&mut *policy, extent) == SSD));
    (0..25).for_each(|_| _ = round(&mut volume, &mut *policy, [4.0, 1.0]));
    let disk = (10..50).filter(|&extent| volume.allocate(&mut *policy, extent) == HDD).count();
    assert_eq!(disk, 20);
}

/// The highest ratio is one step, so data has to move afterwards. The hottest extent of the SSD gets a home
/// on the disk, and then its copies.
#[test]
fn at_the_highest_ratio_the_hottest_extents_of_the_ssd_are_mirrored() {
    let (mut volume, mut policy) = volume(",offload=2%,rate=1MB");
    (0..4).for_each(|extent| volume.settle(extent, SSD));
    (0..4).for_each(|extent| read(&volume, &mut *policy, extent, 20 + extent));
    assert_eq!(round(&mut volume, &mut *policy, [4.0, 1.0]), [], "the ratio first");
    // 200 KB per round: an extent is moved and copied, 256 KiB.
    let moves = round(&mut volume, &mut *policy, [4.0, 1.0]);
    assert_eq!(moves, [migrate(3, HDD)]);
    volume.settle(3, HDD);
    policy.done(&moves[0], Outcome::Finished);
    let range = volume.view().range_of_extent(ExtentId(3));
    let moves = round(&mut volume, &mut *policy, [4.0, 1.0]);
    assert_eq!(moves, [Move::Promote { range, target: SSD }, migrate(2, HDD)]);
    assert_eq!(round(&mut volume, &mut *policy, [1.0, 1.0]), [], "equal: nothing moves");
}

/// The class has room for one extent: a hotter extent replaces the mirrored extent.
#[test]
fn a_full_mirrored_class_gets_hotter() {
    let (mut volume, mut policy) = volume(",offload=2%,mirror=0.2%");
    volume.settle(0, SSD);
    volume.settle(1, HDD);
    for block in 32..64 {
        policy.extra_changed(BlockId(block), None, Some(extra_of(BlockId(block))));
    }
    read(&volume, &mut *policy, 1, 5);
    read(&volume, &mut *policy, 0, 4);
    round(&mut volume, &mut *policy, [4.0, 1.0]);
    assert_eq!(round(&mut volume, &mut *policy, [4.0, 1.0]), [], "what is mirrored is hotter");
    read(&volume, &mut *policy, 0, 4);
    let range = volume.view().range_of_extent(ExtentId(1));
    let moves = round(&mut volume, &mut *policy, [4.0, 1.0]);
    assert_eq!(moves, [Move::Demote { range }, migrate(0, HDD)]);
}

#[test]
fn at_ratio_zero_hot_extents_come_to_a_faster_ssd() {
    let (mut volume, mut policy) = volume("");
    volume.settle(7, HDD);
    read(&volume, &mut *policy, 7, 7);
    assert_eq!(round(&mut volume, &mut *policy, [1.0, 4.0]), [], "7 requests are not hot");
    read(&volume, &mut *policy, 7, 1);
    assert_eq!(round(&mut volume, &mut *policy, [1.0, 4.0]), [migrate(7, SSD)]);
}

/// 12 of 500 slots are 2.4 %: less than 2.5 % free.
#[test]
fn the_mirrored_class_shrinks_when_little_is_free() {
    let (mut volume, mut policy) = volume("");
    (0..394).for_each(|extent| volume.settle(extent, HDD));
    for block in 0..64 {
        policy.extra_changed(BlockId(block), None, Some(extra_of(BlockId(block))));
    }
    read(&volume, &mut *policy, 0, 9);
    assert_eq!(round(&mut volume, &mut *policy, [1.0, 1.0]), []);
    volume.devices[SSD.index()].free = 6;
    let range = volume.view().range_of_extent(ExtentId(1));
    assert_eq!(round(&mut volume, &mut *policy, [1.0, 1.0]), [Move::Demote { range }], "the colder one");
}

fn plan(cache: &mut Cache) -> Vec<Move> {
    let mut plan = Plan::default();
    cache.now = cache.ask(|policy, view| policy.plan(view, &mut plan));
    plan.moves
}

/// Extent 0 is mirrored, and block 5 is written only on the SSD. After four reads for the write the extent is
/// cleaned, and the blocks valid only on the disk get copies.
#[test]
fn mirrored_extent_is_cleaned_after_enough_reads_per_write() {
    let mut cache = Cache::new("most");
    (0..20).for_each(|block| _ = cache.set(block, Some(false)));
    plan(&mut cache);
    assert!(cache.write(5), "the ratio is 0");
    assert_eq!(plan(&mut cache), [], "it may be written again soon");
    let read = |cache: &mut Cache| {
        cache.ask(|policy, view| policy.place(&Occasion::ReadMiss(piece(6)), view));
    };
    (0..3).for_each(|_| read(&mut cache));
    assert_eq!(plan(&mut cache), []);
    read(&mut cache);
    let range = cache.ask(|_, view| view.range_of_extent(ExtentId(0)));
    assert_eq!(plan(&mut cache), [Move::WriteBack { range }, Move::Promote { range, target: SSD }]);
    assert!(cache.now > Nanos::ZERO);
}
