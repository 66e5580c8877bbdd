//! RAID 1: order of the writes of both copies, and choice of the copy to read.

use crate::volume::{HDD, SSD, Volume, devices};
use braid_base::{DeviceClass, KIB, MIB, Nanos, Op};
use braid_policy::{
    ByteRange, CopyKind, CurrentCopy, Direction, Flags, Move, Plan, Policy, Request, Second, parse,
};

fn pair() -> Volume {
    Volume::new(&devices(&[(DeviceClass::Ssd, 1000), (DeviceClass::Hdd, 1000)]), 800)
}

fn raid1(settings: &str, volume: &Volume) -> Box<dyn Policy> {
    parse(&format!("raid1{settings}"), &volume.devices).expect("the policy is right")
}

fn read_first(policy: &dyn Policy, volume: &Volume) -> braid_base::DeviceId {
    let copy = |device, kind| CurrentCopy { device, kind };
    let mut copies = [copy(HDD, CopyKind::Second), copy(SSD, CopyKind::Home)];
    policy.rank_reads(&mut copies, &volume.view());
    copies[0].device
}

#[test]
fn both_copies_are_written_and_faster_copy_is_read() {
    let mut volume = pair();
    let mut policy = raid1("", &volume);
    assert_eq!(volume.allocate(&mut *policy, 3), SSD);
    assert_eq!(volume.access(&mut *policy, 3, Direction::Write).second, Second::Sync(HDD));
    for (ssd, hdd, first) in [(1, 8, SSD), (8, 1, HDD)] {
        volume.devices[0].read_latency = Some(Nanos::from_millis(ssd));
        volume.devices[1].read_latency = Some(Nanos::from_millis(hdd));
        assert_eq!(read_first(&*policy, &volume), first);
    }
}

#[test]
fn md_reads_alternate_if_random_and_stay_if_sequential() {
    let volume = pair();
    let mut policy = raid1(",reads=md", &volume);
    assert!(policy.settings() == "reads=md" && policy.observes());
    let mut read = |start: u64| {
        let range = ByteRange::new(KIB * start, KIB * 4);
        policy.observe(&Request { op: Op::Read, range, flags: Flags::default() }, &volume.view());
        read_first(&*policy, &volume)
    };
    assert_eq!([100, 104, 500, 504, 100, 504].map(&mut read), [HDD, HDD, SSD, SSD, HDD, SSD]);
    assert!(parse("raid1,write-behind,reads=md", &volume.devices).is_err());
}

#[test]
fn a_write_behind_disk_is_written_at_once_as_far_as_the_limit_and_hardly_read() {
    let mut volume = pair();
    let mut policy = raid1(",write-behind", &volume);
    volume.allocate(&mut *policy, 3);
    let second = volume.access(&mut *policy, 3, Direction::Write).second;
    assert_eq!(second, Second::Behind { device: HDD, most: MIB * 8 });
    volume.devices[0].read_latency = Some(Nanos::from_millis(50));
    volume.devices[1].read_latency = Some(Nanos::from_millis(1));
    assert_eq!(read_first(&*policy, &volume), SSD, "write-mostly");
    let mut plan = Plan::default();
    policy.plan(&volume.view(), &mut plan);
    assert!(plan.moves.is_empty());
    let written = ByteRange::new(KIB * 256, KIB * 4);
    volume.lack([written]);
    policy.plan(&volume.view(), &mut plan);
    assert_eq!(plan.moves, [Move::Resync { range: written, gap: Move::GAP }]);
}

#[test]
fn raid1_writes_second_copy_of_disk_home_synchronously() {
    let mut volume = pair();
    let mut policy = raid1(",write-behind", &volume);
    volume.settle(5, HDD);
    assert!(matches!(volume.access(&mut *policy, 5, Direction::Write).second, Second::Sync(_)));
}

#[test]
fn same_class_mirror_refuses_write_behind() {
    let disks = devices(&[(DeviceClass::Hdd, 100), (DeviceClass::Hdd, 100)]);
    let mut volume = Volume::new(&disks, 80);
    let mut policy = raid1("", &volume);
    let home = volume.allocate(&mut *policy, 0);
    let second = volume.access(&mut *policy, 0, Direction::Write).second.device();
    assert!(second.is_some_and(|second| second != home));
    assert!(parse("raid1,write-behind", &disks).is_err());
}

#[test]
fn raid1_settings_survive_round_trip() {
    let volume = pair();
    for text in ["", ",write-behind", ",write-behind,limit=64KiB"] {
        let policy = raid1(text, &volume);
        let settings = policy.settings();
        let again = if settings.is_empty() { String::new() } else { format!(",{settings}") };
        assert_eq!(raid1(&again, &volume).settings(), settings);
    }
    assert_eq!(raid1(",write-behind,limit=64KiB", &volume).settings(), "write-behind,limit=65536B");
    for text in ["raid1,limit=1MiB", "raid1,write-behind,limit=0", "raid1,write-behind=1"] {
        assert!(parse(text, &volume.devices).is_err(), "{text}");
    }
}

#[test]
fn resync_is_not_planned_for_lost_disk() {
    let mut volume = pair();
    let mut policy = raid1(",write-behind", &volume);
    volume.lack([ByteRange::new(MIB, MIB)]);
    let planned = |policy: &mut dyn Policy, volume: &Volume| {
        let mut plan = Plan::default();
        let next = policy.plan(&volume.view(), &mut plan);
        (plan.moves.len(), next - volume.now)
    };
    assert_eq!(planned(&mut *policy, &volume), (1, Nanos::from_millis(1)));
    volume.lose_others();
    let (moves, rest) = planned(&mut *policy, &volume);
    assert!(moves == 0 && rest >= Nanos::from_millis(10), "{rest}");
}
