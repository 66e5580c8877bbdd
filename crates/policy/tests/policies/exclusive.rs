//! `exclusive` and `inclusive`: pages of the SSD tier, rate of migration, and contents of the cache.

use crate::volume::{HDD, SSD, Volume, devices, extra_of};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, Nanos, Rng};
use braid_policy::{Direction, Home, LONGEST_STATE, Move, Outcome, Plan, Policy, parse};

/// Extents in a page of 512 KiB.
const PAGE: u32 = 4;
const EXTENTS: u32 = 400;
/// A rate that moves a page in one tick.
const SETTINGS: &str = "page=512KiB,period=10s,rate=100MB";

/// An SSD with room for 40 extents, and a disk with the whole volume.
fn volume() -> Volume {
    let classes = [(DeviceClass::Ssd, 40), (DeviceClass::Hdd, 2 * EXTENTS)];
    let mut volume = Volume::new(&devices(&classes), EXTENTS as usize);
    (0..EXTENTS).for_each(|extent| volume.settle(extent, HDD));
    volume
}

fn policy(volume: &Volume, text: &str) -> Box<dyn Policy> {
    parse(&format!("{text},{SETTINGS}"), &volume.devices).expect("the settings are right")
}

/// A policy that has seen the volume.
fn in_charge(volume: &mut Volume, text: &str) -> Box<dyn Policy> {
    let mut policy = policy(volume, text);
    volume.tick(&mut *policy);
    policy
}

fn read_page(volume: &Volume, policy: &mut dyn Policy, page: u32, times: u32) {
    (0..times).for_each(|time| {
        volume.access(policy, page * PAGE + time % PAGE, Direction::Read);
    });
}

/// Lets time pass and carries out all moves. Returns the moves.
fn run(volume: &mut Volume, policy: &mut dyn Policy, time: Nanos) -> Vec<Move> {
    let (end, mut all) = (volume.now + time, Vec::new());
    while volume.now < end {
        for job in volume.tick(policy) {
            if let Move::Migrate { extent, target } = job {
                assert!(volume.devices[target.index()].free > 0, "{job:?}");
                volume.settle(extent.0, target);
            }
            policy.done(&job, Outcome::Finished);
            all.push(job);
        }
    }
    all
}

/// Pages entirely on the SSD, and the number of extents on the SSD.
fn on_ssd(volume: &Volume) -> (Vec<u32>, usize) {
    let is_there = |extent: u32| volume.home(extent) == Some(SSD);
    let whole = |page: &u32| (page * PAGE..(page + 1) * PAGE).all(is_there);
    ((0..EXTENTS / PAGE).filter(whole).collect(), (0..EXTENTS).filter(|&extent| is_there(extent)).count())
}

const PERIOD: Nanos = Nanos::from_secs(10);

#[test]
fn busiest_pages_of_each_period_occupy_ssd_tier() {
    let mut volume = volume();
    let mut policy = in_charge(&mut volume, "exclusive,cache=0%");
    (0..20).for_each(|i| read_page(&volume, &mut *policy, 7 * i % 100, 1 + i));
    assert!(
        run(&mut volume, &mut *policy, PERIOD - Nanos::from_secs(2)).is_empty(),
        "the period is not over"
    );
    run(&mut volume, &mut *policy, Nanos::from_secs(4));
    let mut busiest: Vec<u32> = (10..20).map(|i| 7 * i % 100).collect();
    busiest.sort_unstable();
    assert_eq!(on_ssd(&volume), (busiest, 40));
    (50..60).for_each(|page| read_page(&volume, &mut *policy, page, 5));
    run(&mut volume, &mut *policy, PERIOD + Nanos::from_secs(2));
    assert_eq!(on_ssd(&volume), ((50..60).collect(), 40));
}

/// "All areas of this tier are allocated to pages" (2.2).
#[test]
fn fill_setting_decides_if_unread_pages_fill_tier() {
    for (fill, pages) in [("asked", 3), ("all", 10)] {
        let mut volume = volume();
        let mut policy = in_charge(&mut volume, &format!("exclusive,cache=0%,fill={fill}"));
        [50, 60, 70].into_iter().for_each(|page| read_page(&volume, &mut *policy, page, 2));
        run(&mut volume, &mut *policy, PERIOD + Nanos::from_secs(2));
        let (whole, extents) = on_ssd(&volume);
        assert_eq!((whole.len(), extents), (pages, pages * PAGE as usize));
        assert!([50, 60, 70].iter().all(|page| whole.contains(page)), "{whole:?}");
    }
}

#[test]
fn page_of_equal_rank_does_not_replace_resident_page() {
    let mut volume = volume();
    (200..240).for_each(|extent| volume.settle(extent, SSD));
    let mut policy = in_charge(&mut volume, "exclusive,cache=0%");
    (0..100).for_each(|page| read_page(&volume, &mut *policy, page, 3));
    assert!(run(&mut volume, &mut *policy, PERIOD + Nanos::from_secs(2)).is_empty());
}

#[test]
fn cache_share_of_ssd_is_withheld_from_tier() {
    let mut volume = volume();
    let mut policy = in_charge(&mut volume, "exclusive,cache=50%");
    assert_eq!(policy.extra_slots(&volume.devices[0]), 20);
    (0..100).for_each(|page| read_page(&volume, &mut *policy, page, 100 - page));
    run(&mut volume, &mut *policy, PERIOD + Nanos::from_secs(2));
    assert_eq!(on_ssd(&volume), ((0..5).collect(), 20));
}

/// The cache has taken its half of the SSD, as in the engine; another split then needs the half.
#[test]
fn changed_split_moves_pages_before_period_ends() {
    let mut volume = volume();
    let mut policy = in_charge(&mut volume, "exclusive,cache=50%");
    (0..100).for_each(|page| read_page(&volume, &mut *policy, page, 100 - page));
    run(&mut volume, &mut *policy, PERIOD + Nanos::from_secs(2));
    for (split, pages) in [("cache=90%", 1), ("cache=0%", 10), ("cache=100%", 0), ("cache=50%", 5)] {
        let learned = policy.save(&volume.view());
        policy = self::policy(&volume, &format!("exclusive,{split}"));
        policy.restore(&learned, &volume.view());
        run(&mut volume, &mut *policy, Nanos::from_secs(1));
        assert_eq!(on_ssd(&volume), ((0..pages).collect(), (pages * PAGE) as usize), "{split}");
    }
}

#[test]
fn migration_takes_the_rate_of_each_disk_and_no_more() {
    let classes = [(DeviceClass::Ssd, 400), (DeviceClass::Hdd, 800), (DeviceClass::Hdd, 800)];
    let mut volume = Volume::new(&devices(&classes), EXTENTS as usize);
    (0..EXTENTS).for_each(|extent| volume.settle(extent, DeviceId(1 + (extent / PAGE % 2) as u16)));
    let text = "exclusive,cache=0%,page=512KiB,period=10s,rate=1280KiB";
    let mut policy = parse(text, &volume.devices).unwrap();
    volume.tick(&mut *policy);
    (0..100).for_each(|page| read_page(&volume, &mut *policy, page, 100 - page));
    run(&mut volume, &mut *policy, PERIOD);
    let before = on_ssd(&volume).1;
    run(&mut volume, &mut *policy, Nanos::from_secs(5));
    let moved = on_ssd(&volume).1 - before;
    assert!((90..=102).contains(&moved), "10 extents a second from each of two disks: {moved} in 5 s");
}

#[test]
fn stopped_migration_is_retried() {
    let mut volume = volume();
    let mut policy = in_charge(&mut volume, "exclusive,cache=0%");
    read_page(&volume, &mut *policy, 3, 5);
    volume.now = PERIOD;
    let asked: Vec<Move> = (0..4).flat_map(|_| volume.tick(&mut *policy)).collect();
    let wanted: Vec<Move> = (12..16).map(|e| Move::Migrate { extent: ExtentId(e), target: SSD }).collect();
    assert_eq!(asked, wanted);
    policy.done(&asked[2], Outcome::Stopped);
    for job in [0, 1, 3] {
        volume.settle(12 + job, SSD);
        policy.done(&asked[job as usize], Outcome::Finished);
    }
    let again: Vec<Move> = (0..3)
        .flat_map(|_| volume.tick(&mut *policy))
        .filter(|job| matches!(job, Move::Migrate { .. }))
        .collect();
    assert_eq!(again, wanted[2..3]);
}

#[test]
fn exclusive_cache_admits_disk_blocks_only() {
    for (name, on_ssd) in [("exclusive", None), ("inclusive", Some(SSD))] {
        let mut volume = volume();
        volume.settle(0, SSD);
        let mut policy = in_charge(&mut volume, name);
        for direction in [Direction::Read, Direction::Write] {
            assert_eq!(volume.access(&mut *policy, 0, direction).promoted_to(), on_ssd, "{name}");
            assert_eq!(volume.access(&mut *policy, 1, direction).promoted_to(), Some(SSD), "{name}");
        }
        let mut through = in_charge(&mut volume, &format!("{name},mode=write-through"));
        assert_eq!(volume.access(&mut *through, 1, Direction::Write).promoted_to(), None);
        let mut none = in_charge(&mut volume, &format!("{name},cache=0%"));
        assert_eq!(volume.access(&mut *none, 1, Direction::Read).promoted_to(), None);
    }
}

/// Regression: a cached copy of an extent on the SSD tier caused a second write to the SSDs.
#[test]
fn a_write_to_the_ssd_tier_leaves_no_copy_in_the_exclusive_cache() {
    for (name, home) in [
        ("exclusive", Home::Alone),
        ("exclusive,mode=write-through", Home::Alone),
        ("inclusive,mode=write-through", Home::Keep),
    ] {
        let mut volume = volume();
        volume.settle(0, SSD);
        let mut policy = in_charge(&mut volume, name);
        let placed = volume.access(&mut *policy, 0, Direction::Write);
        assert_eq!((placed.home, placed.extra), (home, None), "{name}");
        // On a disk: written through to a copy, if any.
        let placed = volume.access(&mut *policy, 1, Direction::Write);
        assert_ne!(placed.home, Home::Alone, "{name}");
    }
}

#[test]
fn migrated_extent_is_written_back_and_evicted_first() {
    for (name, first) in [("exclusive", 3 * 4 * 32), ("inclusive", 7 * 32)] {
        let mut volume = volume();
        let mut policy = in_charge(&mut volume, name);
        for extent in [7u32, 12] {
            let block = BlockId(u64::from(extent) * 32);
            policy.extra_changed(block, None, Some(extra_of(block)));
        }
        let moved = Move::Migrate { extent: ExtentId(12), target: SSD };
        volume.settle(12, SSD);
        policy.done(&moved, Outcome::Finished);
        assert_eq!(policy.evict(SSD, &volume.view()), Some(BlockId(first)), "{name}");
        let written_back = volume
            .tick(&mut *policy)
            .contains(&Move::WriteBack { range: volume.view().range_of_extent(ExtentId(12)) });
        assert_eq!(written_back, name == "exclusive");
    }
}

#[test]
fn new_extents_fill_ssd_tier_before_disk() {
    let classes = [(DeviceClass::Ssd, 40), (DeviceClass::Hdd, 400)];
    let mut volume = Volume::new(&devices(&classes), EXTENTS as usize);
    let mut policy = policy(&volume, "exclusive,cache=25%");
    let homes: Vec<DeviceId> = (0..40).map(|extent| volume.allocate(&mut *policy, extent)).collect();
    assert_eq!(homes, [vec![SSD; 30], vec![HDD; 10]].concat());
}

#[test]
fn a_restart_keeps_the_counts_and_the_age_of_the_period() {
    let mut volume = volume();
    let mut policy = in_charge(&mut volume, "exclusive,cache=0%");
    (0..10).for_each(|page| read_page(&volume, &mut *policy, 40 + page, 2));
    volume.now = Nanos::from_secs(7);
    let learned = policy.save(&volume.view());
    // The clock restarts.
    volume.now = Nanos::ZERO;
    let mut policy = self::policy(&volume, "exclusive,cache=0%");
    policy.restore(&learned, &volume.view());
    assert!(run(&mut volume, &mut *policy, Nanos::from_secs(2)).is_empty());
    run(&mut volume, &mut *policy, Nanos::from_secs(3));
    assert_eq!(on_ssd(&volume), ((40..50).collect(), 40));
}

#[test]
fn restore_survives_damaged_state_and_large_state_is_bounded() {
    let (volume, mut rng) = (volume(), Rng::new(5));
    let valid = {
        let mut policy = policy(&volume, "exclusive");
        policy.plan(&volume.view(), &mut Plan::default());
        (0..100).for_each(|page| read_page(&volume, &mut *policy, page, 3));
        policy.save(&volume.view())
    };
    for _ in 0..2_000 {
        let mut bytes = valid.clone();
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        for _ in 0..rng.below(8) {
            let at = rng.below(valid.len() as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = rng.next_u64() as u8;
            }
        }
        let mut policy = policy(&volume, "exclusive");
        policy.restore(&bytes, &volume.view());
        policy.plan(&volume.view(), &mut Plan::default());
    }
    let large = Volume::new(&volume.devices, 200_000);
    let mut policy = parse("exclusive,page=4KiB", &large.devices).unwrap();
    policy.plan(&large.view(), &mut Plan::default());
    (0..200_000).for_each(|extent| {
        large.access(&mut *policy, extent, Direction::Read);
    });
    (0..50_000).map(BlockId).for_each(|block| policy.extra_changed(block, None, Some(extra_of(block))));
    assert_eq!(policy.save(&large.view()).len(), LONGEST_STATE.as_usize());
}

#[test]
fn wrong_exclusive_settings_are_refused_with_hint() {
    let volume = volume();
    let alone = Volume::new(&devices(&[(DeviceClass::Hdd, 10)]), 5);
    for (text, volume, hint) in [
        ("exclusive", &alone, "ssd"),
        ("exclusive,cache=120%", &volume, "80%"),
        ("inclusive,mode=fast", &volume, "write-through"),
        ("exclusive,period=1ms", &volume, "10 ms"),
        ("exclusive,page=1", &volume, "4 KiB"),
        ("exclusive,tier=50%", &volume, "cache"),
    ] {
        let error =
            parse(text, &volume.devices).err().unwrap_or_else(|| panic!("{text} is wrong")).to_string();
        assert!(error.contains(hint), "{text}: {error}");
    }
    let written = parse("exclusive,cache=33%,period=2min", &volume.devices).unwrap().settings();
    assert_eq!(parse(&format!("exclusive,{written}"), &volume.devices).unwrap().settings(), written);
}
