//! Goals that an owner may set for `equi`.

use crate::volume::{HDD, SSD, Volume, complete_write, devices, extra_of, figure};
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use braid_policy::{Completion, Direction, ExtraCopy, Move, Origin, Placement, Plan, Policy, parse, written};

/// An SSD of 128 MiB, and a disk with all extents.
fn on_disk() -> Volume {
    let mut volume = Volume::new(&devices(&[(DeviceClass::Ssd, 1024), (DeviceClass::Hdd, 4000)]), 2000);
    (0..2000).for_each(|extent| volume.settle(extent, HDD));
    volume
}

/// Returns the policy after its first plan.
fn begun(text: &str, volume: &mut Volume) -> Box<dyn Policy> {
    let mut policy = parse(text, &volume.devices).expect(text);
    pass(volume, &mut *policy, Nanos::from_secs(1));
    policy
}

fn pass(volume: &mut Volume, policy: &mut dyn Policy, time: Nanos) -> Vec<Move> {
    volume.now += time;
    let mut plan = Plan::default();
    policy.plan(&volume.view(), &mut plan);
    plan.moves
}

/// Completes a guest's request of 4 KiB.
fn ends(policy: &mut dyn Policy, device: DeviceId, direction: Direction, millis: f64) {
    let latency = Nanos((millis * 1e6) as u64);
    policy.completed(&Completion { device, direction, len: KIB * 4, latency, origin: Origin::Guest });
}

/// Bytes per hour of one drive write per day.
const HOURLY: u64 = (128 << 20) / 24;

#[test]
fn goals_survive_round_trip_and_bad_goals_are_refused() {
    let devices = on_disk().devices;
    for (wish, shown) in [
        ("wear=0.3DWPD", "wear=0.3DWPD"),
        ("wear=2", "wear=2DWPD"),
        ("wear=1dwpd", "wear=1DWPD"),
        ("slo=p99<5000us", "slo=p99<5ms"),
        ("slo=p99.9<1s", "slo=p999<1s"),
        ("slo=p50<1500us", "slo=p50<1500us"),
        ("quiet=20/day", "quiet=20/day"),
        ("quiet=0", "quiet=0/day"),
    ] {
        let policy = parse(&format!("equi,{wish}"), &devices).expect(wish);
        assert_eq!(written(&*policy), format!("equi,{shown}"));
        assert_eq!(written(&*parse(&written(&*policy), &devices).expect(shown)), written(&*policy));
    }
    let ghosts = parse("equi,mode=auto,slo=p99<5ms,wear=0.3DWPD", &devices).expect("it is right").modes(1);
    let has_both = |mode: &String| mode.contains(",wear=0.3DWPD,slo=p99<5ms");
    assert!(ghosts.len() == 3 && ghosts.iter().all(has_both), "{ghosts:?}");
    for bad in
        ["wear=", "wear=0", "wear=-1DWPD", "wear=0.3TBW", "wear=DWPD", "wear=inf", "wear=NaN", "wear=1µDWP"]
    {
        let error = parse(&format!("equi,{bad}"), &devices).err().expect(bad).to_string();
        assert!(error.contains(bad) && error.contains("0.3DWPD"), "{error}");
    }
    for bad in [
        "slo=",
        "slo=p99",
        "slo=p99<5",
        "slo=p99<0s",
        "slo=p9<5ms",
        "slo=p49<5ms",
        "slo=99<5ms",
        "slo=p99>5ms",
        "slo=p9999<1s",
        "slo=p99<2min",
        "slo=p1e5<5ms",
    ] {
        let error = parse(&format!("equi,{bad}"), &devices).err().expect(bad).to_string();
        assert!(error.contains(bad) && error.contains("use a percentile"), "{error}");
    }
    for bad in ["quiet=", "quiet=/day", "quiet=-1/day", "quiet=1001/day", "quiet=0.5/day", "quiet=20/h"] {
        let error = parse(&format!("equi,{bad}"), &devices).err().expect(bad).to_string();
        assert!(error.contains(bad) && error.contains("20/day"), "{error}");
    }
    assert!(parse("equi,wear=1", &devices[1..]).is_err(), "writes cannot go anywhere else");
    assert!(parse("equi,quiet=1", &devices[1..]).is_err(), "there is nothing to use meanwhile");
}

/// The initial credit is an hour of drive writes, and the largest debt a day of drive writes.
#[test]
fn all_writes_consume_wear_credit_and_time_restores_credit() {
    let mut volume = on_disk();
    let mut policy = begun("equi,mode=cache,wear=1DWPD", &mut volume);
    let left = |policy: &dyn Policy| figure(policy, SSD, "wear_left_bytes").round() as i64;
    assert_eq!(left(&*policy), HOURLY as i64);
    complete_write(&mut *policy, SSD, 1, KIB * 64, 0.1);
    assert_eq!(left(&*policy), HOURLY as i64 - (64 << 10));
    // The device has written twice as much: the rest is metadata.
    volume.devices[SSD.index()].written = KIB * 128;
    volume.now += Nanos(1);
    policy.plan(&volume.view(), &mut Plan::default());
    assert_eq!(left(&*policy), HOURLY as i64 - (128 << 10));
    complete_write(&mut *policy, HDD, 1, KIB * 64, 0.1);
    complete_write(&mut *policy, SSD, 1, Bytes(1 << 40), 0.1);
    pass(&mut volume, &mut *policy, Nanos(1));
    assert_eq!(left(&*policy), -(128 << 20));
    pass(&mut volume, &mut *policy, Nanos::from_secs(12 * 3600));
    assert_eq!(left(&*policy), -(64 << 20));
    assert!(policy.figures(HDD).iter().all(|(name, _)| !name.starts_with("wear")));
}

/// Regression: a restarted daemon had an hour of writes again, regardless of earlier writes.
#[test]
fn debt_outlasts_a_restart() {
    let mut volume = on_disk();
    let mut policy = begun("equi,wear=1DWPD", &mut volume);
    complete_write(&mut *policy, SSD, 1, Bytes(HOURLY * 3), 0.1);
    let state = policy.save(&volume.view());
    let restored = |text: &str, state: &[u8]| {
        let mut volume = on_disk();
        let mut policy = parse(text, &volume.devices).expect(text);
        policy.restore(state, &volume.view());
        pass(&mut volume, &mut *policy, Nanos(1));
        (figure(&*policy, SSD, "wear_left_bytes") / HOURLY as f64).round()
    };
    assert_eq!(restored("equi,wear=1DWPD", &state), -2.0);
    assert_eq!(restored("equi,wear=2DWPD", &state), -2.0);
    for nonsense in [&[][..], &[0xff; 8], &[0xff; 400], &state[..7]] {
        assert_eq!(restored("equi,wear=1DWPD", nonsense), 1.0, "{nonsense:?}");
    }
    assert!(begun("equi", &mut volume).save(&volume.view()).is_empty());
}

#[test]
fn an_ssd_in_debt_gets_no_copy_no_new_home_and_no_move_and_says_why() {
    let mut volume = on_disk();
    let mut policy = begun("equi,mode=mixed,wear=1DWPD", &mut volume);
    let read = |volume: &Volume, policy: &mut dyn Policy| volume.access(policy, 7, Direction::Read);
    let write = |volume: &Volume, policy: &mut dyn Policy| volume.access(policy, 9, Direction::Write);
    assert_eq!(read(&volume, &mut *policy), Placement::cached(Some(SSD)));
    assert_eq!(write(&volume, &mut *policy), Placement::write_back(SSD));
    assert!(!policy.explain(ExtentId(7), &volume.view()).contains("wear=1DWPD"));
    complete_write(&mut *policy, SSD, 1, Bytes(HOURLY + 1), 0.1);
    assert_eq!(read(&volume, &mut *policy), Placement::cached(None));
    assert_eq!(write(&volume, &mut *policy), Placement::ALONE);
    assert!(policy.explain(ExtentId(7), &volume.view()).contains("wear=1DWPD"));
    let mut fresh = Volume::new(&volume.devices, 2000);
    fresh.now = volume.now;
    assert!((0..20).all(|extent| fresh.allocate(&mut *policy, extent) == HDD));
    pass(&mut volume, &mut *policy, Nanos::from_secs(60));
    assert_eq!(write(&volume, &mut *policy), Placement::write_back(SSD), "time has repaid it");
}

/// Returns the extents moved by ten plans of a second each. Twenty extents are read five times; `written` of
/// them are written, too.
fn moved(policy: &str, written: u32) -> Vec<u32> {
    let mut volume = on_disk();
    let mut policy = begun(policy, &mut volume);
    let mut all = Vec::new();
    for _ in 0..10 {
        // In turns: sequential requests in the same place cost a disk nothing.
        for extent in (0..100).map(|n| n % 20 * 97) {
            let times = if extent < written * 97 { 2 } else { 1 };
            for direction in [Direction::Read, Direction::Write].into_iter().take(times) {
                volume.access(&mut *policy, extent, direction);
                ends(&mut *policy, HDD, direction, 8.0);
            }
        }
        let moves = pass(&mut volume, &mut *policy, Nanos::from_secs(1));
        all.extend(moves.iter().filter_map(|job| match job {
            Move::Migrate { extent, target } if *target == SSD => Some(extent.0 / 97),
            _ => None,
        }));
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn wear_budget_limits_moves_and_excludes_written_extents() {
    assert_eq!(moved("equi", 5), (0..20).collect::<Vec<_>>());
    assert_eq!(moved("equi,wear=2DWPD", 5), (5..20).collect::<Vec<_>>());
    // An hour of drive writes is four extents.
    let some = moved("equi,wear=0.1DWPD", 0);
    assert!(some.len() <= 4 && !some.is_empty(), "{some:?}");
}

/// Extents with many writes leave an SSD in debt; extents with reads only stay, though the disk would serve
/// both.
#[test]
fn written_homes_leave_ssd_in_wear_debt() {
    for (text, leave) in [("equi", false), ("equi,wear=0.01DWPD", true)] {
        let mut volume = on_disk();
        (0..40).for_each(|n| volume.settle(n * 31, SSD));
        let mut policy = begun(text, &mut volume);
        let mut left = Vec::new();
        for _ in 0..40 {
            for n in 0..40 {
                let direction = if n < 20 { Direction::Write } else { Direction::Read };
                volume.access(&mut *policy, n * 31, direction);
                let home = volume.home(n * 31).expect("it was settled");
                ends(&mut *policy, home, direction, if home == SSD { 0.1 } else { 8.0 });
            }
            for job in pass(&mut volume, &mut *policy, Nanos::from_secs(1)) {
                if let Move::Migrate { extent, target: HDD } = job {
                    volume.settle(extent.0, HDD);
                    left.push(extent.0 / 31);
                }
            }
        }
        left.sort_unstable();
        assert_eq!(left, if leave { (0..20).collect() } else { vec![] }, "{text}");
    }
}

/// Reads distant extents; the last `slow` requests are slow.
fn ask(volume: &mut Volume, policy: &mut dyn Policy, requests: u32, slow: u32) {
    for request in 0..requests {
        volume.access(policy, request % 20 * 97, Direction::Read);
        ends(policy, HDD, Direction::Read, if request + slow < requests { 4.0 } else { 6.0 });
    }
}

/// Runs a plan half a second later. Returns whether there are moves, and whether the moves yield to guests.
fn planned(volume: &mut Volume, policy: &mut dyn Policy) -> (bool, bool) {
    volume.now += Nanos::from_millis(500);
    let mut plan = Plan::default();
    policy.plan(&volume.view(), &mut plan);
    (!plan.moves.is_empty(), plan.yields)
}

#[test]
fn moves_wait_for_slack_and_resume_in_a_pause() {
    let mut volume = on_disk();
    let mut policy = begun("equi,slo=p90<5ms", &mut volume);
    let policy = &mut *policy;
    ask(&mut volume, policy, 50, 0);
    assert_eq!(planned(&mut volume, policy), (true, false), "of 50 requests 5 may be slow");
    ask(&mut volume, policy, 50, 2);
    assert_eq!(planned(&mut volume, policy), (true, false), "there is some slack left");
    ask(&mut volume, policy, 50, 30);
    assert_eq!(planned(&mut volume, policy), (false, false));
    assert!(policy.explain(ExtentId(0), &volume.view()).contains("slo=p90<5ms"));
    ask(&mut volume, policy, 100, 0);
    assert_eq!(planned(&mut volume, policy), (false, false), "the debt is not repaid yet");
    volume.devices[HDD.index()].in_flight = 1;
    volume.now += Nanos::from_secs(2);
    assert_eq!(planned(&mut volume, policy), (false, false), "a request has waited for two seconds");
    volume.devices[HDD.index()].in_flight = 0;
    assert_eq!(planned(&mut volume, policy), (true, true), "nobody asks for anything");
    ask(&mut volume, policy, 1, 0);
    assert_eq!(planned(&mut volume, policy), (false, false));
    for _ in 0..10 {
        ask(&mut volume, policy, 50, 0);
        planned(&mut volume, policy);
    }
    assert_eq!(planned(&mut volume, policy), (true, false));
    assert!(!policy.explain(ExtentId(0), &volume.view()).contains("slo="));
}

/// A cache of 1024 extents, with a share `dirty` of dirty blocks and no write-back in progress. A slow load
/// continues if `goes_on`.
fn written_back(dirty: f64, goes_on: bool) -> usize {
    let mut volume = on_disk();
    let mut policy = begun("equi,mode=cache,slo=p90<5ms", &mut volume);
    volume.devices[SSD.index()].free = 0;
    for block in (0..1024 * 32).map(BlockId) {
        let dirty = (block.0 as f64) < 1024.0 * 32.0 * dirty;
        policy.extra_changed(block, None, Some(ExtraCopy { dirty, ..extra_of(block) }));
    }
    ask(&mut volume, &mut *policy, 50, 50);
    if !goes_on {
        // This plan records the end of the last request.
        pass(&mut volume, &mut *policy, Nanos::from_millis(500));
        volume.now += Nanos::from_millis(500);
    }
    let moves = pass(&mut volume, &mut *policy, Nanos::from_millis(500));
    moves.iter().filter(|job| matches!(job, Move::WriteBack { .. })).count()
}

#[test]
fn dirty_blocks_are_written_back_when_room_lacks_however_slow_requests_are() {
    assert_eq!(written_back(0.7, true), 0);
    assert!(written_back(0.8, true) > 0, "beyond the high mark");
    assert!(written_back(0.7, false) > 0, "nobody asks for anything");
}

#[test]
fn read_is_cached_only_if_latency_target_has_slack() {
    let mut volume = on_disk();
    let mut policy = begun("equi,mode=cache,slo=p90<5ms", &mut volume);
    let read = |volume: &Volume, policy: &mut dyn Policy| volume.access(policy, 7, Direction::Read);
    assert_eq!(read(&volume, &mut *policy), Placement::cached(None), "nothing is known yet");
    ask(&mut volume, &mut *policy, 50, 0);
    pass(&mut volume, &mut *policy, Nanos::from_millis(500));
    assert_eq!(read(&volume, &mut *policy), Placement::cached(Some(SSD)));
    ask(&mut volume, &mut *policy, 50, 50);
    assert_eq!(read(&volume, &mut *policy), Placement::cached(None));
}

const MINUTE: Nanos = Nanos::from_secs(60);

/// Runs ten plans in each of `count` minutes.
fn minutes(count: u64, volume: &mut Volume, policy: &mut dyn Policy) -> Vec<Move> {
    (0..count * 10).flat_map(|_| pass(volume, policy, MINUTE / 10)).collect()
}

/// True if the disk is left alone.
fn rests(policy: &dyn Policy, volume: &Volume) -> bool {
    policy.explain(ExtentId(1), &volume.view()).contains("leaves d1 alone")
}

fn spin_ups(policy: &dyn Policy) -> f64 {
    figure(policy, HDD, "spin_ups_per_day")
}

#[test]
fn idle_disk_rests_until_guests_use_disk() {
    let mut volume = Volume::new(&on_disk().devices, 2400);
    (0..2000).for_each(|extent| volume.settle(extent, HDD));
    let mut policy = begun("equi,quiet=20/day", &mut volume);
    minutes(1, &mut volume, &mut *policy);
    // The requested extents would fill the idle SSD.
    let ask = |volume: &mut Volume, policy: &mut dyn Policy| {
        for extent in 0..400 {
            volume.access(policy, extent * 5, Direction::Read);
            ends(policy, HDD, Direction::Read, 8.0);
        }
        pass(volume, policy, Nanos::from_secs(1))
    };
    let moves = |moves: Vec<Move>| moves.iter().filter(|job| matches!(job, Move::Migrate { .. })).count();
    assert!(moves(ask(&mut volume, &mut *policy)) > 0 && !rests(&*policy, &volume));
    minutes(11, &mut volume, &mut *policy);
    assert!(rests(&*policy, &volume) && spin_ups(&*policy) == 0.0);
    // New extents do not wake the disk, nor do requests to the SSD.
    for extent in 2000..2400 {
        volume.allocate(&mut *policy, extent);
    }
    assert!(volume.devices[SSD.index()].free < 700, "{:?}", volume.devices);
    ends(&mut *policy, SSD, Direction::Read, 0.1);
    let planned = minutes(1, &mut volume, &mut *policy);
    let uses_disk = |job: &Move| !matches!(job, Move::Probe { device: SSD, .. });
    assert!(!planned.iter().any(uses_disk) && rests(&*policy, &volume), "{planned:?}");
    assert!(moves(ask(&mut volume, &mut *policy)) > 0 && !rests(&*policy, &volume));
    assert_eq!(spin_ups(&*policy), 1.0);
}

#[test]
fn disk_at_spin_up_limit_is_kept_awake() {
    let mut volume = on_disk();
    let mut policy = begun("equi,quiet=2/day", &mut volume);
    let read = Move::Probe { device: HDD, direction: Direction::Read, len: KIB * 4 };
    let reads = |moves: &[Move]| moves.iter().filter(|job| **job == read).count();
    // The disk's latency is known.
    let (direction, len, latency) = (Direction::Read, KIB * 4, Nanos::from_millis(8));
    let probe = Completion { device: HDD, direction, len, latency, origin: Origin::Probe };
    (0..100).for_each(|_| policy.completed(&probe));
    let mut times = Vec::new();
    for woken in 1..=2 {
        minutes(60, &mut volume, &mut *policy);
        assert!(rests(&*policy, &volume));
        times.push(volume.now);
        ends(&mut *policy, HDD, Direction::Read, 8000.0);
        minutes(5, &mut volume, &mut *policy);
        assert_eq!(spin_ups(&*policy), f64::from(woken));
    }
    // The first keep-awake read falls within these minutes.
    let hour = minutes(60, &mut volume, &mut *policy);
    assert!((14..=15).contains(&reads(&hour)), "{}", reads(&hour));
    assert!(!rests(&*policy, &volume), "it turns anyway");
    // The engine writes metadata: one read less.
    policy.completed(&Completion { direction: Direction::Write, origin: Origin::Background, ..probe });
    assert_eq!(reads(&minutes(3, &mut volume, &mut *policy)), 0);
    // A day after the first spin-up the disk may stop once more.
    let left = times[0] + Nanos::from_secs(86_400) - volume.now;
    minutes(left.0 / MINUTE.0 + 1, &mut volume, &mut *policy);
    assert!(rests(&*policy, &volume) && spin_ups(&*policy) == 1.0);
}

/// A metadata write wakes a disk, but is not a reason for moves.
#[test]
fn engine_request_counts_as_spin_up_not_use() {
    let mut volume = on_disk();
    let mut policy = begun("equi,quiet=20/day", &mut volume);
    minutes(30, &mut volume, &mut *policy);
    let (latency, origin) = (Nanos::from_millis(8), Origin::Background);
    policy.completed(&Completion { device: HDD, direction: Direction::Write, len: KIB * 4, latency, origin });
    minutes(1, &mut volume, &mut *policy);
    assert!(rests(&*policy, &volume) && spin_ups(&*policy) == 1.0);
}

/// An extent requested once would not pay for its move.
#[test]
fn requested_extents_of_quiet_disk_move_to_free_ssd() {
    let fetched = |text: &str, free: u32| {
        let mut volume = on_disk();
        let mut policy = begun(text, &mut volume);
        volume.devices[SSD.index()].free = free;
        for extent in [3, 700, 3] {
            volume.access(&mut *policy, extent, Direction::Read);
        }
        let mut moves = pass(&mut volume, &mut *policy, Nanos::from_secs(1));
        moves.retain(|job| matches!(job, Move::Migrate { .. }));
        moves
    };
    let move_of = |extent| Move::Migrate { extent: ExtentId(extent), target: SSD };
    assert_eq!(fetched("equi,quiet=20/day", 1000)[..2], [move_of(3), move_of(700)]);
    assert_eq!(fetched("equi,quiet=20/day", 1), [move_of(3)]);
    assert_eq!(fetched("equi,quiet=20/day,mode=cache", 1000), [], "room for copies");
}
