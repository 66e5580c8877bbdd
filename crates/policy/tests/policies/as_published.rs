//! `as-published`: a preset of each of the five systems, spelled out, and overridden by explicit settings.

use crate::volume::devices;
use braid_base::DeviceClass;
use braid_policy::{DeviceView, parse, parse_with_keys, written};

fn pair() -> Vec<DeviceView> {
    devices(&[(DeviceClass::Ssd, 1000), (DeviceClass::Hdd, 4000)])
}

/// Published values that differ from the default, or are published as numbers.
const PUBLISHED: [(&str, &[&str]); 6] = [
    ("wardrop", &["period=2s", "alpha=10", "beta=100", "weight=0.01"]),
    ("working-set", &["threshold-h=3", "threshold-l=2", "cold=marked", "stripe=even", "both=hdd"]),
    (
        "pass",
        &[
            "order=lba",
            "max-lag=none",
            "max-lag-time=none",
            "idle=none",
            "gap=0B",
            "blocking=io-thread",
            "base=500ms",
        ],
    ),
    ("hystor", &["write-back=20%", "budget=100%", "bypass=off", "part-writes=cache"]),
    ("exclusive", &["rate=12MB", "fill=all", "dirty-until=purge", "bypass=off", "part-writes=cache"]),
    ("inclusive", &["rate=12MB", "fill=all", "dirty-until=purge", "bypass=off", "part-writes=cache"]),
];

#[test]
fn the_preset_is_spelled_out_and_read_again() {
    for (name, settings) in PUBLISHED {
        let text = format!("{name},as-published");
        let (policy, keys) = parse_with_keys(&text, &pair()).expect(&text);
        assert!(keys.contains(&"as-published"));
        let shown = written(&*policy);
        for setting in settings {
            assert!(shown.split(',').any(|part| part == *setting), "{setting} is not in {shown}");
        }
        let again = parse(&shown, &pair()).unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(written(&*again), shown);
        if name != "wardrop" {
            let default = written(&*parse(name, &pair()).expect(name));
            assert_ne!(shown, default, "what is ours stays the default");
        }
    }
}

#[test]
fn explicit_setting_overrides_preset_in_either_order() {
    for (name, setting) in [
        ("wardrop", "alpha=5"),
        ("working-set", "cold=unread"),
        ("working-set", "stripe=bandwidth"),
        ("pass", "max-lag=2%"),
        ("pass", "idle=100ms"),
        ("pass", "gap=16KiB"),
        ("hystor", "budget=20%"),
        ("hystor", "bypass=4MiB"),
        ("exclusive", "mode=write-through"),
        ("exclusive", "rate=24MB"),
        ("inclusive", "dirty-until=mark"),
    ] {
        let of =
            |text: &str| written(&*parse(text, &pair()).unwrap_or_else(|error| panic!("{text}: {error}")));
        let (after, before) =
            (of(&format!("{name},as-published,{setting}")), of(&format!("{name},{setting},as-published")));
        assert_eq!(after, before);
        let is_shown = after.split(',').any(|part| part == setting);
        // Defaults of some settings are not shown.
        let published = of(&format!("{name},as-published"));
        assert!(
            is_shown || setting == "dirty-until=mark" && !after.contains("dirty-until"),
            "{setting} is not in {after}"
        );
        assert_ne!(after, published);
    }
}

#[test]
fn setting_in_conflict_with_preset_is_refused_with_remedy() {
    for (text, remedy) in [
        ("exclusive,as-published,evict=s3-fifo", "dirty-until=mark"),
        ("pass,as-published,order=epoch", "max-lag="),
    ] {
        let error = parse(text, &pair()).err().expect(text).to_string();
        assert!(error.contains(remedy), "{error}");
    }
}
