//! The baselines: their placements, and invalid settings.

use crate::volume::{HDD, SSD, Volume, devices, extra_of};
use braid_base::{BlockId, DeviceClass, DeviceId, Nanos};
use braid_policy::{Direction, LONGEST_STATE, Policy, parse};

fn mixed(hdds: usize) -> Volume {
    let mut classes = vec![(DeviceClass::Ssd, 1000)];
    classes.extend(vec![(DeviceClass::Hdd, 1000); hdds]);
    Volume::new(&devices(&classes), 1000)
}

fn place(policy: &str, volume: &mut Volume, count: u32) -> Vec<u32> {
    let mut policy = parse(policy, &volume.devices).expect("the policy is right");
    let mut counts = vec![0; volume.devices.len()];
    for extent in 0..count {
        counts[volume.allocate(&mut *policy, extent).index()] += 1;
    }
    counts
}

#[test]
fn baselines_split_extents_by_configured_shares() {
    assert_eq!(place("ssd-only", &mut mixed(2), 100), [100, 0, 0]);
    assert_eq!(place("hdd-only", &mut mixed(2), 100), [0, 50, 50]);
    assert_eq!(place("stripe", &mut mixed(3), 100), [25, 25, 25, 25]);
    assert_eq!(place("static,ssd=80%", &mut mixed(1), 100), [80, 20]);
    assert_eq!(place("static,ssd=80%", &mut mixed(4), 100), [80, 5, 5, 5, 5]);
    assert_eq!(place("static,d0=50%,d1=30%", &mut mixed(2), 100), [50, 30, 20]);
    assert_eq!(place("static,ssd=0%", &mut mixed(1), 100), [0, 100]);
}

/// Regression: removed devices, and devices about to be removed, counted in their class. The only SSD could
/// be removed, and new extents were placed on a removed device in turn.
#[test]
fn devices_without_slots_are_not_used() {
    let of = |classes: &[(DeviceClass, u32)]| Volume::new(&devices(classes), 1000);
    let (ssd, hdd) = (DeviceClass::Ssd, DeviceClass::Hdd);
    let without_ssd = of(&[(ssd, 0), (hdd, 1000)]);
    for policy in ["ssd-only", "static,ssd=80%", "ssd-first", "cache", "exclusive", "inclusive", "hystor"] {
        assert!(parse(policy, &without_ssd.devices).is_err(), "{policy}");
    }
    let without_disk = of(&[(ssd, 1000), (hdd, 0)]);
    for policy in ["hdd-only", "static,ssd=80%", "cache", "exclusive", "inclusive", "hystor"] {
        assert!(parse(policy, &without_disk.devices).is_err(), "{policy}");
    }
    let with_gone = || of(&[(ssd, 0), (ssd, 1000), (hdd, 1000), (hdd, 0), (hdd, 1000)]);
    assert_eq!(place("ssd-only", &mut with_gone(), 100), [0, 100, 0, 0, 0]);
    assert_eq!(place("hdd-only", &mut with_gone(), 100), [0, 0, 50, 0, 50]);
    assert_eq!(place("stripe", &mut with_gone(), 99), [0, 33, 33, 0, 33]);
    assert_eq!(place("static,ssd=80%", &mut with_gone(), 100), [0, 80, 10, 0, 10]);
    assert_eq!(place("exclusive,cache=0%", &mut with_gone(), 100), [0, 100, 0, 0, 0]);
    // The cache for extents on a disk is on the SSD that has slots.
    for policy in ["cache", "exclusive", "inclusive"] {
        let mut volume = with_gone();
        volume.settle(0, DeviceId(2));
        let mut policy = parse(policy, &volume.devices).unwrap();
        for _ in 0..4 {
            assert_eq!(volume.access(&mut *policy, 0, Direction::Read).extra, Some(DeviceId(1)));
        }
    }
}

/// Regression: a share by name for each device caused a panic with more devices than names.
#[test]
fn a_split_over_many_devices_is_by_class_and_can_be_read_again() {
    let many = mixed(39);
    let policy = parse("static,ssd=50%", &many.devices).unwrap();
    assert_eq!(policy.settings(), "ssd=50%");
    let again = parse(&format!("static,{}", policy.settings()), &many.devices).unwrap();
    assert_eq!(again.settings(), policy.settings());
    assert!(parse("static,d0=50%", &many.devices).is_err());
    assert_eq!(place("static,ssd=80%", &mut mixed(39), 100)[0], 80);
}

#[test]
fn every_prefix_of_a_static_split_is_split_as_well_as_whole_extents_allow() {
    for percent in [10, 30, 55, 90] {
        let mut volume = mixed(1);
        let mut policy = parse(&format!("static,ssd={percent}%"), &volume.devices).unwrap();
        let mut on_ssd = 0.0;
        for extent in 0..300u32 {
            on_ssd += f64::from(volume.allocate(&mut *policy, extent) == SSD);
            let wanted = f64::from(percent) / 100.0 * f64::from(extent + 1);
            assert!((on_ssd - wanted).abs() <= 1.0, "{percent} %: {on_ssd} of {}", extent + 1);
        }
    }
}

#[test]
fn ssd_first_caches_only_extents_beyond_ssd_homes() {
    let mut volume = mixed(1);
    let mut policy = parse("ssd-first,cache=20%", &volume.devices).unwrap();
    for extent in 0..800 {
        assert_eq!(volume.allocate(&mut *policy, extent), SSD);
        assert_eq!(volume.access(&mut *policy, extent, Direction::Read).promoted_to(), None);
    }
    assert_eq!(volume.allocate(&mut *policy, 800), HDD);
    assert_eq!(volume.access(&mut *policy, 800, Direction::Read).promoted_to(), Some(SSD));
    assert_eq!(policy.extra_slots(&volume.devices[0]), 200);
    for block in [1, 2, 800 * 32].map(BlockId) {
        policy.extra_changed(block, None, Some(extra_of(block)));
    }
    assert_eq!(policy.evict(SSD, &volume.view()), Some(BlockId(1)));
    policy.extra_changed(BlockId(1), Some(extra_of(BlockId(1))), None);
    assert_eq!(policy.evict(SSD, &volume.view()), Some(BlockId(2)));
    policy.extra_changed(BlockId(2), Some(extra_of(BlockId(2))), None);
    policy.extra_changed(BlockId(2), None, Some(extra_of(BlockId(2))));
    volume.access(&mut *policy, 800, Direction::Read);
    assert_eq!(policy.evict(SSD, &volume.view()), Some(BlockId(2)), "a block that is read is the last to go");
}

#[test]
fn ssd_first_keeps_eviction_order_after_restart() {
    let volume = mixed(1);
    let cache = |policy: &mut dyn Policy, block: u64| {
        policy.extra_changed(BlockId(block), None, Some(extra_of(BlockId(block))));
    };
    let mut before = parse("ssd-first", &volume.devices).unwrap();
    [5, 3, 9, 1].into_iter().for_each(|block| cache(&mut *before, block));
    let saved = before.save(&volume.view());
    // One block is gone, one block is new, and the rest arrive in another order.
    let restarted = |state: &[u8]| {
        let mut after = parse("ssd-first", &volume.devices).unwrap();
        [1, 5, 7, 9].into_iter().for_each(|block| cache(&mut *after, block));
        after.restore(state, &volume.view());
        let evict = |_| {
            let block = after.evict(SSD, &volume.view()).unwrap();
            after.extra_changed(block, Some(extra_of(block)), None);
            block.0
        };
        [0; 4].map(evict)
    };
    assert_eq!(restarted(&saved), [7, 5, 9, 1]);
    assert_eq!(restarted(&[]), [1, 5, 7, 9]);
    assert_eq!(restarted(&saved[..20]), [5, 7, 9, 1], "cut short: only the latest two are known");
    for version in 2..=255 {
        assert_eq!(restarted(&[&[version], &saved[1..]].concat()), [1, 5, 7, 9]);
    }
}

#[test]
fn ssd_first_saves_latest_blocks_up_to_state_limit() {
    let volume = mixed(1);
    let mut policy = parse("ssd-first", &volume.devices).unwrap();
    (0..50_000).map(BlockId).for_each(|block| policy.extra_changed(block, None, Some(extra_of(block))));
    let saved = policy.save(&volume.view());
    assert!((LONGEST_STATE.as_usize() - 8..=LONGEST_STATE.as_usize()).contains(&saved.len()));
    assert_eq!(saved[1..9], 49_999u64.to_le_bytes(), "the latest come first");
}

#[test]
fn baselines_plan_no_moves() {
    for name in ["ssd-only", "hdd-only", "stripe", "static,ssd=80%"] {
        let mut volume = mixed(1);
        let mut policy = parse(name, &volume.devices).unwrap();
        assert!(volume.tick(&mut *policy).is_empty() && volume.now > Nanos::from_secs(60));
    }
}

#[test]
fn baseline_settings_survive_round_trip() {
    let volume = mixed(2);
    for text in [
        "wardrop,average=period,no-migration",
        "wardrop,allocation-only",
        "static,ssd=80%",
        "ssd-first,cache=5%",
        "ssd-first,cache=5%,evict=s3-fifo,threshold=1,bypass=1MiB",
        "cache",
        "cache,cache=20%,mode=write-back,dirty-high=30%,dirty-low=20%,evict=s3-fifo,bypass=64KiB",
        "stripe",
    ] {
        let settings = |p: &dyn Policy| match p.settings() {
            s if s.is_empty() => p.name().to_owned(),
            s => format!("{},{s}", p.name()),
        };
        let once = settings(&*parse(text, &volume.devices).unwrap());
        assert_eq!(settings(&*parse(&once, &volume.devices).unwrap()), once);
    }
}

/// Regression: a third of nine tenths was 30.000000000000004 %, with all digits in tables and in the
/// superblock.
#[test]
fn shares_are_written_short_and_survive_round_trip() {
    let volume = mixed(3);
    let written = |text: &str| parse(text, &volume.devices).unwrap().settings();
    for (text, expected) in [
        ("static,ssd=80%", "d0=80%,d1=6.6666666667%,d2=6.6666666667%,d3=6.6666666667%"),
        ("static,ssd=10%", "d0=10%,d1=30%,d2=30%,d3=30%"),
        ("static,hdd=0.9", "d0=10%,d1=30%,d2=30%,d3=30%"),
        ("static,ssd=100%", "d0=100%,d1=0%,d2=0%,d3=0%"),
        ("static,d0=0.125%,d1=70.7%", "d0=0.125%,d1=70.7%,d2=14.5875%,d3=14.5875%"),
    ] {
        assert_eq!(written(text), expected, "{text}");
    }
    for share in 0..=1000 {
        let once = written(&format!("static,ssd={}", f64::from(share) / 1000.0));
        assert_eq!(written(&format!("static,{once}")), once);
        let whole = format!("d0={}%,", f64::from(share) / 10.0);
        assert!(once.starts_with(&whole), "{once} is not {whole}");
    }
}

#[test]
fn wrong_baseline_settings_are_refused_with_hint() {
    let volume = mixed(1);
    let ssd_only = Volume::new(&devices(&[(DeviceClass::Ssd, 10)]), 5);
    let cases = [
        ("tiering", &volume, "wardrop"),
        ("wardrop,alpa=3", &volume, "alpha"),
        ("wardrop,floor=x", &volume, "0.0001 to 0.5"),
        ("wardrop,period=2", &volume, "2s"),
        ("wardrop,beta=1,beta=2", &volume, "beta"),
        ("wardrop,beta", &volume, "beta"),
        ("wardrop,step=0.25", &volume, "step"),
        ("wardrop,average=minute", &volume, "minute"),
        ("wardrop,allocation-only=1", &volume, "allocation-only"),
        ("wardrop,free-low=0.2", &volume, "free-high"),
        ("static", &volume, "ssd=80%"),
        ("static,ssd=120%", &volume, "80%"),
        ("static,ssd=80%,hdd=80%", &volume, "100 %"),
        ("static,d0=80%", &ssd_only, "100 %"),
        ("hdd-only", &ssd_only, "hdd-only"),
        ("cache", &ssd_only, "disk"),
        ("cache,mode=write-around", &volume, "write-through"),
        ("cache,mode=write-back,dirty-high=20%,dirty-low=30%", &volume, "dirty-high"),
        ("cache,dirty-high=20%", &volume, "only with mode=write-back"),
        ("cache,threshold=2", &volume, "only with evict=s3-fifo"),
        ("raid1,limit=1MiB", &volume, "only with write-behind"),
        ("cache,evict=fifo", &volume, "s3-fifo"),
        ("cache,threshold=1", &volume, "threshold"),
        ("cache,evict=s3-fifo,threshold=4", &volume, "1 to 3"),
        ("cache,bypass=4KiB", &volume, "64"),
    ];
    for (text, volume, hint) in cases {
        let error =
            parse(text, &volume.devices).err().unwrap_or_else(|| panic!("{text} is wrong")).to_string();
        assert!(error.contains(hint), "{text}: {error}");
    }
}
