//! `equi`: moves, extents left alone, and the end of moves.

use crate::volume::{HDD, SSD, Volume, complete_write, devices, extra_of};
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use braid_policy::{
    Completion, Direction, Equi, Move, Occasion, Origin, Outcome, Piece, Placement, Policy, Settings, parse,
    written,
};

const EXTENTS: u32 = 4000;

fn equi(volume: &Volume, text: &str) -> Equi {
    let mut settings = Settings::parse("policy", text).expect("a name and settings");
    Equi::new(&mut settings, &volume.devices).expect("the settings are right")
}

/// An SSD of `ssd` slots and a disk with all extents.
fn on_disk(ssd: u32) -> Volume {
    let mut volume =
        Volume::new(&devices(&[(DeviceClass::Ssd, ssd), (DeviceClass::Hdd, 2 * EXTENTS)]), EXTENTS as usize);
    (0..EXTENTS).for_each(|extent| volume.settle(extent, HDD));
    volume
}

/// Completes a guest's read.
fn has_read(policy: &mut dyn Policy, device: DeviceId, len: Bytes, millis: f64) {
    let latency = Nanos((millis * 1e6) as u64);
    policy.completed(&Completion { device, direction: Direction::Read, len, latency, origin: Origin::Guest });
}

/// Reads of 4 KiB from distant extents, each with its device's usual latency.
fn scattered(volume: &Volume, policy: &mut dyn Policy, extents: &[u32]) {
    for &extent in extents {
        volume.access(policy, extent, Direction::Read);
        let home = volume.home(extent).expect("it was settled");
        has_read(policy, home, KIB * 4, if home == SSD { 0.12 } else { 8.0 });
    }
}

/// Sequential reads of whole extents.
fn in_a_row(volume: &Volume, policy: &mut dyn Policy, extents: std::ops::Range<u32>) {
    for extent in extents {
        volume.access_blocks(policy, extent, 32, Direction::Read);
        has_read(policy, HDD, KIB * 128, 1.25);
    }
}

/// Runs one tick. Returns the extents moved, after probes, with their targets.
fn moved(volume: &mut Volume, policy: &mut dyn Policy) -> Vec<(u32, DeviceId)> {
    let mut all = Vec::new();
    for job in volume.tick(policy) {
        if let Move::Migrate { extent, target } = job {
            if volume.devices[target.index()].free == 0 {
                policy.done(&job, Outcome::Stopped);
                continue;
            }
            volume.settle(extent.0, target);
            policy.done(&job, Outcome::Finished);
            all.push((extent.0, target));
        }
    }
    all
}

#[test]
fn randomly_read_extents_win_ssd_over_sequential_extents() {
    // One slot more: the disk seeks to the first extent of a sequential run.
    let mut volume = on_disk(21);
    let mut policy = equi(&volume, "equi");
    let hot: Vec<u32> = (0..20).map(|i| i * 97).collect();
    let mut all = Vec::new();
    for _ in 0..200 {
        scattered(&volume, &mut policy, &hot);
        in_a_row(&volume, &mut policy, 3000..3020);
        all.extend(moved(&mut volume, &mut policy));
    }
    assert!(hot.iter().all(|&extent| volume.home(extent) == Some(SSD)), "{all:?}");
    assert!((3001..3020).all(|extent| volume.home(extent) == Some(HDD)), "{all:?}");
}

/// Every extent is read once: past reads do not predict future reads.
#[test]
fn load_without_repeats_causes_ever_fewer_moves() {
    let mut volume = on_disk(EXTENTS);
    let mut policy = equi(&volume, "equi");
    let (mut next, mut by_round) = (0, Vec::new());
    for _ in 0..20 {
        let mut count = 0;
        for _ in 0..20 {
            // 31 and the number of extents have no common divisor.
            let extents: Vec<u32> = (next..next + 8).map(|i| i * 31 % EXTENTS).collect();
            next += 8;
            scattered(&volume, &mut policy, &extents);
            count += moved(&mut volume, &mut policy).len();
        }
        by_round.push(count);
    }
    let (first, last): (usize, usize) = (by_round[..3].iter().sum(), by_round[17..].iter().sum());
    assert!(first > 0, "at first it cannot know: {by_round:?}");
    assert!(last * 4 < first, "{by_round:?}");
}

/// Every extent is read again, but so seldom that no move pays within the horizon. On a saturated disk there
/// is no pause for filling the free room of an SSD: without this rule the room would stay empty for ever.
#[test]
fn free_room_is_filled_once_a_disk_has_been_saturated_for_long() {
    let mut volume = on_disk(EXTENTS);
    let mut policy = equi(&volume, "equi");
    volume.devices[HDD.index()].in_flight = 8;
    let (mut next, mut filled) = (0, Vec::new());
    // 8 extents in half a second, each once in 250 s, for 20 minutes. 7 of 8 requests wait.
    for _ in 0..20 {
        for _ in 0..120 {
            for extent in (next..next + 8).map(|i| i * 31 % EXTENTS) {
                volume.access(&mut policy, extent, Direction::Read);
                let home = volume.home(extent).expect("it was settled");
                has_read(&mut policy, home, KIB * 4, if home == SSD { 0.12 } else { 64.0 });
            }
            next += 8;
            moved(&mut volume, &mut policy);
        }
        filled.push((0..EXTENTS).filter(|&extent| volume.home(extent) == Some(SSD)).count());
    }
    assert!(filled[0] < 500 && filled[19] > 2000, "by minutes: {filled:?}");
}

#[test]
fn cold_extents_leave_full_ssd_but_equally_hot_stay() {
    let mut volume = on_disk(20);
    (0..20).for_each(|extent| volume.settle(extent * 50, SSD));
    let mut policy = equi(&volume, "equi");
    // Ten extents on the SSD are as hot as twenty on the disk.
    let hot: Vec<u32> = (0..10).map(|i| i * 50).chain((0..20).map(|i| 1500 + i * 50)).collect();
    for _ in 0..200 {
        scattered(&volume, &mut policy, &hot);
        moved(&mut volume, &mut policy);
    }
    assert!((0..10).all(|i| volume.home(i * 50) == Some(SSD)), "those that are as hot stay");
    assert!((10..20).all(|i| volume.home(i * 50) == Some(HDD)), "those that nobody asks for leave");
    let come = (0..20).filter(|i| volume.home(1500 + i * 50) == Some(SSD)).count();
    assert_eq!((come, volume.devices[0].free), (10, 0));
}

/// Writes 200 extents on the SSD again and again: a write takes `millis` on the SSD, and 8 ms on the disk.
/// Returns the extents left on the SSD, by plan.
fn left_on_ssd(in_flight: u32, millis: f64) -> Vec<usize> {
    let mut volume = on_disk(1000);
    let hot: Vec<u32> = (0..200).map(|i| i * 19).collect();
    hot.iter().for_each(|&extent| volume.settle(extent, SSD));
    let mut policy = equi(&volume, "equi");
    let mut left = Vec::new();
    for _ in 0..200 {
        volume.devices[0].in_flight = in_flight;
        for &extent in &hot {
            volume.access(&mut policy, extent, Direction::Write);
            let (device, millis) = if volume.home(extent) == Some(SSD) { (SSD, millis) } else { (HDD, 8.0) };
            complete_write(&mut policy, device, 1, KIB * 4, millis);
        }
        moved(&mut volume, &mut policy);
        left.push(hot.iter().filter(|&&extent| volume.home(extent) == Some(SSD)).count());
    }
    left
}

#[test]
fn ssd_sheds_load_to_disk_if_requests_queue() {
    assert_eq!(left_on_ssd(0, 16.0).last(), Some(&200), "it bears the load");
    assert!(left_on_ssd(20, 60.0).last().is_some_and(|&left| left < 200));
}

/// An SSD slower than the disk by nature, without a queue.
#[test]
fn slow_ssd_sheds_extents_in_small_steps() {
    let left = left_on_ssd(0, 60.0);
    assert!(left.last().is_some_and(|&left| left < 20), "{left:?}");
    let steps = left.windows(2).map(|pair| pair[0] - pair[1]);
    assert!(steps.clone().max().is_some_and(|most| most <= 20), "a tenth in a plan at most: {left:?}");
}

/// Two disks and two SSDs: hot extents go to both SSDs, and no extent moves from disk to disk, though one
/// disk is always a little slower by chance.
#[test]
fn devices_of_same_class_share_hot_extents_without_exchange() {
    let ssd = (DeviceClass::Ssd, 100);
    let mut volume = Volume::new(
        &devices(&[ssd, ssd, (DeviceClass::Hdd, 2 * EXTENTS), (DeviceClass::Hdd, 2 * EXTENTS)]),
        EXTENTS as usize,
    );
    (0..EXTENTS).for_each(|extent| volume.settle(extent, DeviceId(2 + (extent % 2) as u16)));
    let mut policy = equi(&volume, "equi");
    let (mut hot, mut to) = ((0..80).map(|i| i * 37).collect::<Vec<u32>>(), [0; 4]);
    hot.sort_unstable();
    for _ in 0..100 {
        for &extent in &hot {
            volume.access(&mut policy, extent, Direction::Read);
            let home = volume.home(extent).expect("it was settled");
            has_read(&mut policy, home, KIB * 4, [0.1, 0.11, 8.0, 9.0][home.index()]);
        }
        moved(&mut volume, &mut policy).into_iter().for_each(|(_, target)| to[target.index()] += 1);
    }
    assert_eq!((to[0] + to[1], to[2], to[3]), (80, 0, 0));
    assert!(to[0] >= 30 && to[1] >= 30, "{to:?}");
}

/// The SSD is missing: it has no room, and never answers. A full SSD that answers gets hot extents in
/// exchange for cold extents.
#[test]
fn silent_full_ssd_gets_no_extents_in_exchange() {
    for answers in [false, true] {
        let mut volume = on_disk(10);
        (0..10).for_each(|extent| volume.settle(extent * 50, SSD));
        let mut policy = equi(&volume, "equi");
        let hot: Vec<u32> = (0..10).map(|i| 1500 + i * 50).collect();
        let mut planned = 0;
        for _ in 0..40 {
            scattered(&volume, &mut policy, &hot);
            if answers {
                scattered(&volume, &mut policy, &[0]);
            }
            let moves = volume.tick(&mut policy);
            planned += moves.iter().filter(|job| matches!(job, Move::Migrate { .. })).count();
        }
        assert_eq!(planned > 0, answers);
    }
}

#[test]
fn moved_extent_rests_before_next_move() {
    let mut volume = on_disk(1000);
    let mut policy = equi(&volume, "equi");
    let mut moves: Vec<(Nanos, u32)> = Vec::new();
    for round in 0..400 {
        // The SSD and the disk are slow in turns.
        volume.devices[0].in_flight = if round / 20 % 2 == 0 { 0 } else { 30 };
        for extent in (0..10).map(|i| i * 100) {
            volume.access(&mut policy, extent, Direction::Read);
            let is_on_ssd = volume.home(extent) == Some(SSD);
            let slow = is_on_ssd == (round / 20 % 2 == 1);
            has_read(&mut policy, if is_on_ssd { SSD } else { HDD }, KIB * 4, if slow { 100.0 } else { 0.2 });
        }
        let now = volume.now;
        moves.extend(moved(&mut volume, &mut policy).into_iter().map(|(extent, _)| (now, extent)));
    }
    assert!(!moves.is_empty());
    for extent in (0..10).map(|i| i * 100) {
        let times: Vec<Nanos> = moves.iter().filter(|(_, e)| *e == extent).map(|(at, _)| *at).collect();
        assert!(
            times.windows(2).all(|pair| pair[1] - pair[0] >= Nanos::from_secs(20)),
            "{extent}: {times:?}"
        );
    }
}

#[test]
fn new_extents_go_to_device_with_lower_latency() {
    let mut volume =
        Volume::new(&devices(&[(DeviceClass::Ssd, 4000), (DeviceClass::Hdd, 4000)]), EXTENTS as usize);
    let mut policy = equi(&volume, "equi");
    let mut counts = [[0; 2]; 4];
    let mut next = 0;
    for (phase, counts) in counts.iter_mut().enumerate() {
        // In the first two phases the SSD is fast, then slow; the disk's cache takes writes.
        for _ in 0..100 {
            for _ in 0..8 {
                let piece = Piece {
                    extent: ExtentId(next),
                    range: Bytes::ZERO..KIB * 16,
                    first_block: braid_base::BlockId(u64::from(next) * 32),
                    blocks: 4,
                    request: braid_policy::ByteRange::new(KIB * 128 * u64::from(next), KIB * 16),
                    whole: None,
                };
                let occasion = Occasion::New { extent: ExtentId(next), write: Some(piece) };
                let home = policy.place(&occasion, &volume.view()).new_home().expect("there is room");
                volume.settle(next, home);
                next += 1;
                let millis = if home == HDD {
                    2.0
                } else if phase < 2 {
                    0.3
                } else {
                    20.0
                };
                complete_write(&mut policy, home, 1, KIB * 16, millis);
                counts[home.index()] += 1;
            }
            volume.tick(&mut policy);
        }
    }
    assert!(counts[1][0] > 700, "{counts:?}");
    assert!(counts[3][1] > 700, "{counts:?}");
}

#[test]
fn equi_settings_are_bounded_and_survive_round_trip() {
    let volume = on_disk(10);
    for text in
        ["equi,research.memory=1ms", "equi,research.horizon=0s", "equi,research.horizon=2h", "equi,pace=1"]
    {
        assert!(parse(text, &volume.devices).is_err(), "{text}");
    }
    let policy =
        parse("equi,research.memory=30s,research.horizon=50ms", &volume.devices).expect("they are right");
    assert_eq!(written(&*policy), "equi,research.memory=30s,research.horizon=50ms");
    assert!(parse(&format!("equi,{}", policy.settings()), &volume.devices).is_ok());
    // A constant is a setting too, and is shown if different from its default.
    let shown = |text: &str| written(&*parse(text, &volume.devices).expect("they are right"));
    assert_eq!(shown("equi,research.group=16,research.margin=2"), "equi,research.group=16");
    // The form in volumes of earlier versions.
    assert_eq!(shown("equi,memory=16s,horizon=9s,group=16"), "equi,research.horizon=9s,research.group=16");
    assert!(parse("equi,memory=20s,research.memory=30s", &volume.devices).is_err());
}

/// An SSD filled by 2000 extents.
fn full_ssd() -> Volume {
    let mut volume = on_disk(2000);
    (0..2000).for_each(|extent| volume.settle(extent, SSD));
    volume
}

/// Adds copies while there is room, with a plan each time. Returns the slots of the SSD that hold homes.
fn homes_beside_copies(volume: &mut Volume, policy: &mut dyn Policy) -> u32 {
    let mut copies = 0;
    loop {
        scattered(volume, policy, &[0]);
        moved(volume, policy);
        let ssd = volume.devices[SSD.index()];
        if ssd.free == 0 || copies == policy.extra_slots(&ssd) {
            return ssd.slots - ssd.free - copies;
        }
        let blocks = (0..32).map(|block| BlockId(u64::from(copies) * 32 + block));
        blocks.for_each(|block| policy.extra_changed(block, None, Some(extra_of(block))));
        volume.devices[SSD.index()].free -= 1;
        copies += 1;
    }
}

#[test]
fn homes_leave_the_ssd_as_copies_come_as_far_as_the_mode_says() {
    for (mode, left) in [("tier", 2000), ("mixed", 1600), ("cache", 0)] {
        let mut volume = full_ssd();
        let mut policy = equi(&volume, &format!("equi,mode={mode}"));
        assert_eq!(homes_beside_copies(&mut volume, &mut policy), left, "{mode}");
    }
}

/// A change of the mode does not move hot extents away.
#[test]
fn cold_homes_leave_ssd_gradually_in_cache_mode() {
    let mut volume = full_ssd();
    let mut policy = equi(&volume, "equi,mode=cache");
    let hot: Vec<u32> = (0..1000).map(|n| 2 * n).collect();
    let mut all = Vec::new();
    for _ in 0..50 {
        scattered(&volume, &mut policy, &hot);
        all.extend(moved(&mut volume, &mut policy));
    }
    assert_eq!(all.len(), 20, "a hundredth of the slots is made free");
    assert!(all.iter().all(|(extent, to)| extent % 2 == 1 && *to == HDD), "{all:?}");
}

#[test]
fn auto_policy_switches_modes_and_fixed_mode_has_none() {
    let mut volume = full_ssd();
    let mut policy = equi(&volume, "equi,research.horizon=9s,mode=auto");
    let modes = policy.modes(1);
    assert_eq!(
        modes.iter().map(|mode| mode.split("mode=").nth(1)).collect::<Vec<_>>(),
        [None, Some("mixed"), Some("cache")]
    );
    for (place, mode) in modes.iter().enumerate() {
        assert!(mode.starts_with("equi,research.horizon=9s"), "{mode}");
        let alone = equi(&volume, mode);
        assert!(alone.modes(1).is_empty(), "{mode}");
        policy.switch(place);
        let ssd = &volume.devices[SSD.index()];
        assert_eq!((policy.mode(), policy.extra_slots(ssd)), (place, alone.extra_slots(ssd)), "{mode}");
        assert_eq!(written(&policy), "equi,research.horizon=9s,mode=auto");
    }
    let hasty = policy.modes(1 << 20);
    assert_eq!(
        hasty[2], "equi,research.memory=20ms,research.horizon=20ms,mode=cache",
        "the shortest that there are"
    );
    assert!(
        policy.modes(8)[0].starts_with("equi,research.memory=2s,research.horizon=1125ms"),
        "{:?}",
        policy.modes(8)
    );
    policy.switch(1);
    assert_eq!(homes_beside_copies(&mut volume, &mut policy), 1600, "what it asks for follows the mode");
}

#[test]
fn mode_found_by_guard_is_restored_at_opening() {
    let volume = full_ssd();
    let mut policy = equi(&volume, "equi,mode=auto");
    policy.switch(2);
    let saved = policy.save(&volume.view());
    let mut again = equi(&volume, "equi,mode=auto");
    again.restore(&saved, &volume.view());
    assert_eq!((again.mode(), written(&again)), (2, written(&policy)));
    let mut fixed = equi(&volume, "equi,mode=mixed");
    fixed.restore(&saved, &volume.view());
    assert_eq!(written(&fixed), "equi,mode=mixed", "what was asked for counts");
    for strange in [&b"caches"[..], b"", &[0xff; 4096]] {
        again.restore(strange, &volume.view());
        assert_eq!(again.mode(), 2, "{strange:?}");
    }
}

/// `equi,mode=auto` is the default, and also valid for a volume without SSDs.
#[test]
fn single_class_volume_has_no_modes() {
    for class in [DeviceClass::Ssd, DeviceClass::Hdd] {
        let volume = Volume::new(&devices(&[(class, 100), (class, 100)]), 100);
        let mut policy = equi(&volume, "equi,mode=auto");
        policy.restore(&[2], &volume.view());
        assert_eq!((policy.modes(1).len(), policy.mode(), policy.observes()), (0, 0, false));
        assert!(written(&policy).ends_with("mode=auto"));
        assert!(braid_policy::parse("equi,mode=cache", &volume.devices).is_err());
    }
}

#[test]
fn disk_blocks_are_cached_and_streams_bypass() {
    let mut volume = on_disk(100);
    volume.settle(7, SSD);
    let mut policy = equi(&volume, "equi,mode=mixed");
    let write = |policy: &mut Equi, extent| volume.access(policy, extent, Direction::Write);
    assert_eq!(write(&mut policy, 100), Placement::write_back(SSD));
    assert_eq!(write(&mut policy, 7), Placement::ALONE, "its home is on the SSD");
    assert_eq!(volume.access(&mut policy, 300, Direction::Read), Placement::cached(Some(SSD)));
    let stream = (500..520).map(|extent| volume.access_blocks(&mut policy, extent, 32, Direction::Write));
    assert_eq!(stream.last(), Some(Placement::ALONE));
    let mut tier = equi(&volume, "equi");
    assert_eq!(write(&mut tier, 100), Placement::KEEP);
}

/// All blocks have copies on the SSD here, which serve all reads: hot extents stay.
#[test]
fn home_stays_if_cached_copy_serves_reads() {
    for (mode, moves) in [("tier", true), ("mixed", false)] {
        let mut volume = on_disk(100);
        let mut policy = equi(&volume, &format!("equi,mode={mode}"));
        let mut all = Vec::new();
        for _ in 0..20 {
            scattered(&volume, &mut policy, &(0..20).map(|n| n * 100).collect::<Vec<_>>());
            all.extend(moved(&mut volume, &mut policy));
        }
        assert_eq!(!all.is_empty(), moves, "{mode}: {all:?}");
    }
}

#[test]
fn modes_with_copies_need_both_classes() {
    let disks = devices(&[(DeviceClass::Hdd, 100), (DeviceClass::Hdd, 100)]);
    for mode in ["mixed", "cache"] {
        assert!(parse(&format!("equi,mode={mode}"), &disks).is_err(), "{mode}");
    }
    assert!(parse("equi,mode=tier", &disks).is_ok() && parse("equi,mode=fast", &disks).is_err());
}
