//! PASS: placement, duplication of the window, and waits of guests.

use crate::volume::{HDD, SSD, Volume, devices};
use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos, Op};
use braid_policy::{
    ByteRange, Completion, CopyKind, CurrentCopy, Direction, Flags, Move, Origin, Outcome, Plan, Policy,
    Request, Second, parse,
};

pub fn pair() -> Volume {
    Volume::new(&devices(&[(DeviceClass::Ssd, 1000), (DeviceClass::Hdd, 1000)]), 800)
}

pub fn pass(settings: &str, volume: &Volume) -> Box<dyn Policy> {
    parse(&format!("pass,{settings}"), &volume.devices).expect("the policy is right")
}

pub fn request(op: Op) -> Request {
    Request { op, range: ByteRange::new(Bytes::ZERO, KIB * 4), flags: Flags::default() }
}

/// One block at the start of each of `count` extents.
fn scattered(count: u64) -> impl Iterator<Item = ByteRange> {
    (0..count).map(|extent| ByteRange::new(KIB * 128 * extent, KIB * 4))
}

fn plan(policy: &mut dyn Policy, volume: &Volume) -> Vec<ByteRange> {
    let mut plan = Plan::default();
    policy.plan(&volume.view(), &mut plan);
    let range = |job: &Move| match job {
        Move::Resync { range, .. } => *range,
        other => panic!("{other:?} is no duplication"),
    };
    plan.moves.iter().map(range).collect()
}

#[test]
fn reads_prefer_ssd_and_writes_leave_disk_stale() {
    let mut volume = pair();
    let mut policy = pass("max-lag=64KiB", &volume);
    assert_eq!(volume.allocate(&mut *policy, 3), SSD);
    let second = |policy: &mut dyn Policy, volume: &Volume| volume.access(policy, 3, Direction::Write).second;
    assert_eq!(second(&mut *policy, &volume), Second::Behind { device: HDD, most: KIB * 64 });
    let copy = |device, kind| CurrentCopy { device, kind };
    let mut copies = [copy(HDD, CopyKind::Home), copy(SSD, CopyKind::Second)];
    policy.rank_reads(&mut copies, &volume.view());
    assert_eq!(copies[0].device, SSD);
}

#[test]
fn pass_writes_second_copy_of_disk_home_synchronously() {
    let mut volume = pair();
    let mut policy = pass("window=1MiB", &volume);
    volume.settle(5, HDD);
    assert!(matches!(volume.access(&mut *policy, 5, Direction::Write).second, Second::Sync(_)));
}

#[test]
fn a_full_window_is_duplicated_in_the_order_of_addresses() {
    let mut volume = pair();
    let mut policy = pass("window=400sectors", &volume);
    policy.observe(&request(Op::Write), &volume.view());
    volume.lack(scattered(49));
    assert_eq!(plan(&mut *policy, &volume), []);
    volume.lack(scattered(50));
    let pieces = plan(&mut *policy, &volume);
    assert!(pieces.is_sorted_by(|one, next| one.end <= next.start), "{pieces:?}");
    assert!(pieces.iter().all(|piece| piece.len() <= KIB * 128), "{pieces:?}");
    let is_covered = |range: ByteRange| pieces.iter().any(|p| p.start <= range.start && range.end <= p.end);
    assert!(scattered(50).all(is_covered), "{pieces:?}");
}

#[test]
fn idle_time_duplicates_part_of_unfilled_window() {
    let mut volume = pair();
    let mut policy = pass("window=50%,idle=100ms", &volume);
    volume.lack(scattered(700));
    volume.now = Nanos::from_secs(1);
    policy.observe(&request(Op::Read), &volume.view());
    assert_eq!(plan(&mut *policy, &volume), []);
    volume.now = Nanos::from_millis(1_100);
    let some = plan(&mut *policy, &volume);
    assert_eq!(some.first().map(|piece| piece.start), Some(Bytes::ZERO));
    assert!(some.last().is_some_and(|piece| piece.end < KIB * 128 * 699), "guests may come back: {some:?}");
}

#[test]
fn write_delay_follows_outstanding_copies_up_to_top_level() {
    let mut volume = pair();
    let mut policy = pass("window=4KiB,max-lag=4KiB,base=1ms,threshold=2,levels=3", &volume);
    assert_eq!(policy.throttle(&request(Op::Write), &volume.view()), Nanos::ZERO);
    // 16 pieces, with a block in each.
    volume.lack(scattered(16));
    let outstanding = plan(&mut *policy, &volume);
    assert_eq!(outstanding.len(), 16);
    let waits = |policy: &mut dyn Policy| policy.throttle(&request(Op::Write), &volume.view());
    assert_eq!(waits(&mut *policy), Nanos::from_millis(3), "the most, N base times");
    assert_eq!(policy.throttle(&request(Op::Read), &volume.view()), Nanos::ZERO);
    for (ended, range) in (1..).zip(outstanding) {
        policy.done(&Move::Resync { range, gap: Move::GAP }, Outcome::Finished);
        let alpha_halves: u64 = 16 - ended;
        assert_eq!(waits(&mut *policy), Nanos::from_micros(500 * alpha_halves.min(6)));
    }
}

#[test]
fn a_window_is_given_in_sectors_bytes_or_as_a_share() {
    let volume = pair();
    let settings = |text: &str| pass(text, &volume).settings();
    assert!(settings("window=400Ksectors").contains("window=400Ksectors,"));
    assert!(
        settings("window=2MiB").contains("window=2097152B,max-lag=4194304B,"),
        "{}",
        settings("window=2MiB")
    );
    assert!(settings("window=2%").contains("window=2%,max-lag=4%,"));
    for text in
        ["window=0", "window=101%", "window=x", "max-lag=-1", "order=random", "threshold=0", "base=2s"]
    {
        assert!(parse(&format!("pass,{text}"), &volume.devices).is_err(), "{text}");
    }
    let again = format!("pass,{}", settings("window=1.5%,idle=7ms"));
    assert_eq!(parse(&again, &volume.devices).unwrap().settings(), settings("window=1.5%,idle=7ms"));
    let ssds = devices(&[(DeviceClass::Ssd, 10), (DeviceClass::Ssd, 10)]);
    assert!(parse("pass", &ssds).is_err());
}

#[test]
fn unbounded_lag_is_not_paced() {
    let mut volume = pair();
    let mut policy = pass("window=64KiB,max-lag=none,base=0us", &volume);
    volume.allocate(&mut *policy, 3);
    volume.lack(scattered(800));
    plan(&mut *policy, &volume);
    volume.now = Nanos::from_secs(1);
    copied(&mut *policy, KIB * 4);
    assert_eq!(policy.throttle(&request(Op::Write), &volume.view()), Nanos::ZERO);
    let placed = volume.access(&mut *policy, 3, Direction::Write);
    assert_eq!(placed.second, Second::Behind { device: HDD, most: Bytes(u64::MAX) });
    assert!(policy.figures(HDD).iter().all(|(name, _)| *name != "behind_bound_bytes"));
    let bounded = pass("window=64KiB,max-lag=1MiB,base=0us", &volume);
    assert_eq!(bounded.settings().split(',').nth(2), Some("max-lag=1048576B"));
}

#[test]
fn partial_window_is_not_duplicated_without_idle_time() {
    let mut volume = pair();
    for (idle, pieces) in [("none", 0), ("100ms", 10)] {
        let mut policy = pass(&format!("window=50%,idle={idle}"), &volume);
        volume.lack(scattered(10));
        volume.now += Nanos::from_secs(3600);
        assert_eq!(plan(&mut *policy, &volume).len(), pieces);
    }
}

/// Section IV.C merges only overlapping pieces.
#[test]
fn only_gaps_below_configured_length_are_duplicated() {
    let mut volume = pair();
    // Gaps of 4, 12 and 60 KiB.
    volume.lack([0, 8, 24, 88].map(|start| ByteRange::new(KIB * start, KIB * 4)));
    for (gap, pieces) in [("0B", 4), ("8KiB", 3), ("16KiB", 2), ("64KiB", 1)] {
        let mut policy = pass(&format!("window=4KiB,gap={gap}"), &volume);
        let mut plan = Plan::default();
        policy.plan(&volume.view(), &mut plan);
        assert_eq!(plan.moves.len(), pieces, "{gap}");
        let said = |job: &Move| matches!(job, Move::Resync { gap: said, .. } if *said == gap.parse().expect("a size"));
        assert!(plan.moves.iter().all(said), "{plan:?}");
    }
}

/// Section IV.A: the callback awakens the duplication thread. Regression: the policy polled every 10 ms.
#[test]
fn the_policy_is_awakened_by_a_full_window() {
    let mut volume = pair();
    for (settings, wake) in [("window=64KiB", Some(KIB * 64)), ("order=epoch,window=64KiB", None)] {
        let mut policy = pass(settings, &volume);
        volume.lack(scattered(3));
        let mut plan = Plan::default();
        policy.plan(&volume.view(), &mut plan);
        assert_eq!(plan.wake, wake);
    }
}

#[test]
fn failed_duplication_is_retried_after_delay() {
    let mut volume = pair();
    let mut policy = pass("window=64KiB", &volume);
    volume.lack(scattered(16));
    for (outcome, again) in
        [(Outcome::Stopped, 10), (Outcome::Failed, 10), (Outcome::Finished, 1), (Outcome::Finished, 1)]
    {
        let mut plan = Plan::default();
        policy.plan(&volume.view(), &mut plan);
        plan.moves.iter().for_each(|job| policy.done(job, outcome));
        let mut next = Plan::default();
        let asked = policy.plan(&volume.view(), &mut next);
        assert_eq!((asked, next.wake.is_some()), (Nanos::from_millis(again), again == 1), "{outcome:?}");
        next.moves.iter().for_each(|job| policy.done(job, Outcome::Finished));
    }
}

/// Section IV.B: when the duplication thread is awakened, the I/O thread is blocked, for reads too, if the
/// outstanding work exceeds the threshold.
#[test]
fn the_io_thread_is_blocked_at_an_awakening_if_more_than_the_threshold_is_outstanding() {
    let mut volume = pair();
    let settings =
        "max-lag=none,idle=none,gap=0B,window=64KiB,blocking=io-thread,base=1ms,threshold=20,levels=3";
    let mut policy = pass(settings, &volume);
    let ops = [Op::Read, Op::Write, Op::Flush];
    let waits = |policy: &mut dyn Policy, volume: &Volume| {
        policy.observe(&request(Op::Write), &volume.view());
        let [read, write, flush] = ops.map(|op| policy.throttle(&request(op), &volume.view()));
        assert!(read == write && write == flush);
        read
    };
    volume.lack(scattered(16));
    let first = plan(&mut *policy, &volume);
    assert_eq!(first.len(), 16);
    assert_eq!(waits(&mut *policy, &volume), Nanos::ZERO, "nothing was outstanding");
    volume.lack(scattered(31));
    assert_eq!(waits(&mut *policy, &volume), Nanos::ZERO, "the second window is not full");
    volume.lack(scattered(32));
    assert_eq!(waits(&mut *policy, &volume), Nanos::ZERO, "16 are outstanding, below the threshold");
    volume.now = Nanos::from_millis(10);
    volume.lack(scattered(48));
    // α is 32 / 20.
    assert_eq!(waits(&mut *policy, &volume), Nanos::from_micros(1600));
    volume.now += Nanos::from_micros(600);
    assert_eq!(waits(&mut *policy, &volume), Nanos::from_millis(1), "until the same instant");
    volume.now = Nanos::from_millis(20);
    assert_eq!(waits(&mut *policy, &volume), Nanos::ZERO, "it is not awakened again");
    // With half of the plan done, 8 pieces of the plan and 32 of later windows are outstanding; then α is
    // above N.
    first[..8]
        .iter()
        .for_each(|&range| policy.done(&Move::Resync { range, gap: Bytes::ZERO }, Outcome::Finished));
    volume.lack(scattered(64).skip(8));
    assert_eq!(waits(&mut *policy, &volume), Nanos::from_millis(2));
    volume.now = Nanos::from_millis(30);
    volume.lack(scattered(100).skip(8));
    assert_eq!(waits(&mut *policy, &volume), Nanos(56 * 1_000_000 / 20));
    volume.now = Nanos::from_millis(40);
    volume.lack(scattered(200).skip(8));
    assert_eq!(waits(&mut *policy, &volume), Nanos::from_millis(3), "N base times at most");
}

/// Completes a background write to the disk.
pub fn copied(policy: &mut dyn Policy, len: Bytes) {
    let (direction, origin) = (Direction::Write, Origin::Background);
    policy.completed(&Completion { device: HDD, direction, len, latency: Nanos::from_millis(1), origin });
}

#[test]
fn full_window_paces_writes_to_disk_copy_rate() {
    let mut volume = pair();
    let mut policy = pass("window=1MiB,max-lag=3MiB,base=0us", &volume);
    let write =
        |policy: &mut dyn Policy, volume: &Volume| policy.throttle(&request(Op::Write), &volume.view());
    volume.lack((0..512).map(|i| ByteRange::new(KIB * 8 * i, KIB * 4)));
    plan(&mut *policy, &volume);
    assert_eq!(write(&mut *policy, &volume), Nanos::ZERO, "the rate of the disk is not known yet");
    volume.now = Nanos::from_secs(1);
    copied(&mut *policy, MIB * 4);
    // Halfway to the bound: as fast as the disk, one guest after the other.
    let alone = Nanos(1_000_000_000 / 1024);
    for waiting in 1..=4 {
        let wait = write(&mut *policy, &volume);
        assert!(wait.0.abs_diff(alone.0 * waiting) < 1_000, "{wait}");
    }
    assert_eq!(policy.throttle(&request(Op::Read), &volume.view()), Nanos::ZERO);
    volume.now = Nanos::from_secs(2);
    copied(&mut *policy, MIB * 4);
    // Near the bound: slower.
    volume.lack((0..740).map(|i| ByteRange::new(KIB * 8 * i, KIB * 4)));
    assert!(write(&mut *policy, &volume) > Nanos(alone.0 * 3));
    // At the bound even the slow pace has a limit: the disk copies the excess over the window in half a
    // second.
    volume.lack((0..768).map(|i| ByteRange::new(KIB * 8 * i, KIB * 4)));
    let longest = (0..40).map(|_| write(&mut *policy, &volume)).max();
    assert_eq!(longest, Some(Nanos::from_millis(500)));
    // At most the window is stale: no wait.
    volume.now = Nanos::from_secs(3);
    volume.lack((0..256).map(|i| ByteRange::new(KIB * 8 * i, KIB * 4)));
    assert_eq!(write(&mut *policy, &volume), Nanos::ZERO);
}

#[test]
fn overdue_stale_write_makes_later_writes_synchronous() {
    let mut volume = pair();
    let mut policy = pass("window=50%,max-lag=60%,max-lag-time=2s,idle=1h", &volume);
    volume.allocate(&mut *policy, 3);
    let most =
        |policy: &mut dyn Policy, volume: &Volume| match volume.access(policy, 3, Direction::Write).second {
            Second::Behind { most, .. } => most,
            other => panic!("{other:?}"),
        };
    volume.now = Nanos::from_secs(10);
    assert_eq!(plan(&mut *policy, &volume), [], "nothing is behind");
    volume.lack(scattered(3));
    assert!(most(&mut *policy, &volume) > Bytes::ZERO);
    volume.now = Nanos::from_millis(10_900);
    assert_eq!(plan(&mut *policy, &volume), []);
    // Half of the time has passed: duplication begins, though the window is nearly empty and guests are
    // active.
    volume.now = Nanos::from_millis(11_100);
    let pieces = plan(&mut *policy, &volume);
    assert_eq!(pieces.len(), 3);
    volume.now = Nanos::from_millis(12_100);
    assert_eq!(most(&mut *policy, &volume), Bytes::ZERO);
    let ends = |policy: &mut dyn Policy, outcomes: [Outcome; 3]| {
        pieces
            .iter()
            .zip(outcomes)
            .for_each(|(&range, outcome)| policy.done(&Move::Resync { range, gap: Move::GAP }, outcome));
    };
    ends(&mut *policy, [Outcome::Finished, Outcome::Stopped, Outcome::Finished]);
    assert_eq!(most(&mut *policy, &volume), Bytes::ZERO, "a part of it may still be lacking");
    assert_eq!(plan(&mut *policy, &volume).len(), 3);
    ends(&mut *policy, [Outcome::Finished; 3]);
    assert!(most(&mut *policy, &volume) > Bytes::ZERO);
    for wrong in ["0s", "2h", "5"] {
        assert!(parse(&format!("pass,max-lag-time={wrong}"), &volume.devices).is_err(), "{wrong}");
    }
    assert!(policy.settings().contains("max-lag-time=2000000000ns,"), "{}", policy.settings());
    let again = format!("pass,{}", policy.settings());
    assert_eq!(parse(&again, &volume.devices).unwrap().settings(), policy.settings());
}

/// Regression: while a disk is lost, the stale data has no bound, and all of it was one plan with millions of
/// moves.
#[test]
fn plan_is_bounded_and_round_ends_with_last_plan() {
    let mut volume = pair();
    let mut policy = pass("window=64KiB,max-lag=60%,max-lag-time=2s,idle=1h", &volume);
    volume.allocate(&mut *policy, 3);
    let is_late = |policy: &mut dyn Policy, volume: &Volume| {
        volume.access(policy, 3, Direction::Write).second == Second::Behind { device: HDD, most: Bytes::ZERO }
    };
    let end = |policy: &mut dyn Policy, pieces: &[ByteRange]| {
        pieces
            .iter()
            .for_each(|&range| policy.done(&Move::Resync { range, gap: Move::GAP }, Outcome::Finished));
    };
    for left in [20_000, 0] {
        volume.now += Nanos::from_secs(100);
        let start = volume.now;
        volume.lack([]);
        assert_eq!(plan(&mut *policy, &volume), [], "the disk has all");
        volume.now = start + Nanos::from_millis(100);
        volume.lack(scattered(20_000));
        let first = plan(&mut *policy, &volume);
        assert!(first == scattered(8192).collect::<Vec<_>>());
        end(&mut *policy, &first);
        // The first plan has not copied all ranges that were stale at its start.
        volume.now = start + Nanos::from_millis(2_050);
        assert!(is_late(&mut *policy, &volume));
        // Ranges written by guests meanwhile are copied in the next round.
        volume.lack(scattered(1).chain(scattered(left).skip(8192)));
        for plan_len in [8192, 3616].into_iter().filter(|_| left > 0) {
            assert!(is_late(&mut *policy, &volume));
            let next = plan(&mut *policy, &volume);
            assert!(next.len() == plan_len && next[0].start > Bytes::ZERO, "{}", next.len());
            end(&mut *policy, &next);
        }
        if left == 0 {
            assert_eq!(plan(&mut *policy, &volume), [], "nothing is left of the round");
        }
        assert!(!is_late(&mut *policy, &volume), "all that was behind at the start of the round was copied");
        assert_eq!(plan(&mut *policy, &volume)[0].start, Bytes::ZERO, "a new round");
    }
}

#[test]
fn lost_disk_stops_duplication_and_pacing() {
    let mut volume = pair();
    let mut policy = pass("window=64KiB,base=1ms,threshold=1", &volume);
    volume.lack(scattered(600));
    assert_eq!(plan(&mut *policy, &volume).len(), 600);
    assert!(policy.throttle(&request(Op::Write), &volume.view()) > Nanos::ZERO);
    volume.lose_others();
    assert_eq!(plan(&mut *policy, &volume), []);
    assert_eq!(policy.throttle(&request(Op::Write), &volume.view()), Nanos::ZERO);
}

#[test]
fn epoch_ends_if_window_is_full_or_data_overdue() {
    let mut volume = pair();
    let mut policy = pass("order=epoch,window=64KiB,max-lag=1MiB,max-lag-time=2s,idle=1h", &volume);
    assert!(policy.keeps_epochs() && !pass("window=64KiB", &volume).keeps_epochs());
    assert_eq!(policy.epoch_bound(&volume.view()), MIB);
    assert_eq!(policy.longest_change(&volume.view()), MIB);
    let moves = |policy: &mut dyn Policy, volume: &Volume| {
        let mut plan = Plan::default();
        policy.plan(&volume.view(), &mut plan);
        plan.moves
    };
    assert_eq!(moves(&mut *policy, &volume), [], "nothing is behind");
    volume.lack(scattered(3));
    assert_eq!(moves(&mut *policy, &volume), [], "less than the window is");
    volume.lack(scattered(16));
    assert_eq!(moves(&mut *policy, &volume), [Move::EndEpoch]);
    volume.now = Nanos::from_secs(3);
    assert_eq!(
        policy.epoch_bound(&volume.view()),
        Bytes::ZERO,
        "the disk lacks what is older than it may be"
    );
    assert_eq!(policy.longest_change(&volume.view()), MIB);
    policy.done(&Move::EndEpoch, Outcome::Stopped);
    assert_eq!(policy.epoch_bound(&volume.view()), Bytes::ZERO);
    assert_eq!(moves(&mut *policy, &volume), [Move::EndEpoch]);
    policy.done(&Move::EndEpoch, Outcome::Finished);
    assert_eq!(policy.epoch_bound(&volume.view()), MIB);
    let again = format!("pass,{}", policy.settings());
    assert_eq!(parse(&again, &volume.devices).unwrap().settings(), policy.settings());
    assert!(parse("pass,order=random", &volume.devices).is_err());
}

/// Regression: by epochs the disk's data was as old as a load without pauses. The paper has no bound in time.
#[test]
fn epoch_order_bounds_lag_to_five_seconds_by_default() {
    let volume = pair();
    for (settings, bound) in [
        ("order=lba", None),
        ("max-lag-time=none", None),
        ("order=epoch", Some(5.0)),
        ("order=epoch,max-lag-time=2s", Some(2.0)),
        ("order=epoch,max-lag-time=none", None),
    ] {
        let policy = pass(settings, &volume);
        let again =
            parse(&format!("pass,{}", policy.settings()), &volume.devices).expect("these are settings");
        for policy in [&policy, &again] {
            let figures = policy.figures(HDD);
            let found = figures.iter().find(|(name, _)| *name == "behind_bound_seconds");
            assert_eq!(found.map(|figure| figure.1), bound, "{settings}");
        }
    }
}

/// Regression: the largest loss from a lost SSD was visible only in the policy's settings, in bytes or as a
/// share.
#[test]
fn lag_bounds_are_figures_of_disk() {
    let volume = pair();
    let mut policy = pass("max-lag=50%,max-lag-time=1500ms", &volume);
    plan(&mut *policy, &volume);
    assert_eq!(policy.figures(SSD), []);
    let size = (KIB * 128 * 800).0 as f64;
    let figures =
        [("behind_highest_bytes", 0.0), ("behind_bound_bytes", size / 2.0), ("behind_bound_seconds", 1.5)];
    assert_eq!(policy.figures(HDD), figures);
}
