//! The settings of `working-set`.

use super::TWO_AND_TWO;
use crate::volume::devices;
use braid_policy::parse;

#[test]
fn settings_are_written_as_they_are_read_and_wrong_ones_are_refused() {
    let devices = devices(&TWO_AND_TWO);
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
