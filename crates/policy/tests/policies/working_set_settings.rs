//! Settings of `working-set`.

use crate::volume::devices;
use crate::working_set::{Rig, with_mark};
use braid_base::DeviceClass;
use braid_policy::parse;

#[test]
fn working_set_settings_survive_round_trip_and_have_bounds() {
    let devices = devices(&[(DeviceClass::Ssd, 100), (DeviceClass::Ssd, 100), (DeviceClass::Hdd, 400)]);
    for text in [
        "working-set",
        "working-set,window=10%,threshold-h=5,threshold-l=1,count=extent,both=ssd,stripe=even,water-mark=20GB",
        "working-set,window=90s,water-mark=12.5%,idle=20ms,new-data=64MiB,change=5%,rows=1K,reorganizations=2",
    ] {
        let written = parse(text, &devices).expect(text).settings();
        let again = parse(&format!("working-set,{written}"), &devices).expect(&written).settings();
        assert_eq!(written, again);
    }
    for (wrong, part) in [
        ("window=0%", "window"),
        ("window=101%", "window"),
        ("threshold-l=4", "threshold-h"),
        ("threshold-h=255", "254"),
        ("water-mark=101%", "water-mark"),
        ("both=all", "hdd or ssd"),
        ("count=all", "block or extent"),
        ("rows=0", "rows"),
    ] {
        let error = parse(&format!("working-set,{wrong}"), &devices).err().expect(wrong).to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(parse("working-set", &devices[..2]).is_err(), "it needs a disk");
}

/// Algorithm 2 finds cold items in the table of reads, marks them, and moves them once an SSD is below its
/// mark.
#[test]
fn only_extents_marked_by_reorganization_are_cold_as_published() {
    let cold = |settings: &str| {
        let mut rig = Rig::new(
            &format!("{},{settings}", with_mark("60%")),
            &[(DeviceClass::Ssd, 100), (DeviceClass::Hdd, 400)],
            200,
        );
        // The SSD is full of extents without requests, except for ten extents that were read once.
        rig.read((0..20).filter(|extent| extent % 2 == 0), 1);
        let moved = rig.reorganize();
        let again = {
            rig.read([1], 1);
            // None of the extents marked before is cold any more, and five other extents have been read once.
            rig.read((20..30).filter(|extent| extent % 2 == 0), 1);
            rig.reorganize()
        };
        (moved.len(), again.len())
    };
    assert_eq!(cold("cold=unread"), (60, 0));
    assert_eq!(cold("cold=marked,new-data=0B"), (10, 5));
}
