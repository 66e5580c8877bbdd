//! Rules for every workload: requests lie within the span, the seed determines the requests, settings have
//! limits.

use crate::measure::requests;
use braid_base::{Bytes, Op, SECTOR};
use braid_workload::{Load, names, parse};
use proptest::prelude::*;

const MOST: usize = 50_000;

#[test]
fn every_request_lies_within_the_span_in_whole_sectors_and_is_not_empty() {
    for about in names() {
        for seed in [1, 2] {
            let workload = parse(about.name, seed).expect(about.name);
            let all = requests(&workload, MOST);
            assert!(!all.is_empty(), "{}", about.name);
            for (_, _, request) in all {
                let (offset, len) = (request.offset, request.len);
                match request.op {
                    Op::Flush => assert_eq!((offset, len), (Bytes::ZERO, Bytes::ZERO), "{}", about.name),
                    _ => assert!(
                        len > Bytes::ZERO
                            && offset.is_aligned(SECTOR)
                            && len.is_aligned(SECTOR)
                            && offset + len <= workload.span(),
                        "{}: {request:?} in {}",
                        about.name,
                        workload.span()
                    ),
                }
            }
        }
    }
}

#[test]
fn seed_determines_the_requests() {
    for about in names() {
        let stream = |seed| requests(&parse(about.name, seed).expect(about.name), MOST);
        let workload = parse(about.name, 7).expect(about.name);
        assert!(requests(&workload, MOST) == requests(&workload, MOST), "{} starts anew", about.name);
        assert!(stream(7) == stream(7), "{}", about.name);
        let is_without_chance = ["sequential", "checkpoint", "tpch-q1-like"].contains(&about.name);
        assert!(is_without_chance || stream(7) != stream(8), "{}", about.name);
    }
}

#[test]
fn documented_defaults_are_the_actual_defaults() {
    for about in names() {
        let plain = requests(&parse(about.name, 3).expect(about.name), 2_000);
        for setting in about.settings().filter(|setting| !setting.default.is_empty()) {
            let text = format!("{},{}={}", about.name, setting.key, setting.default);
            let told = requests(&parse(&text, 3).unwrap_or_else(|error| panic!("{error}")), 2_000);
            assert!(plain == told, "{text} changes the requests");
        }
    }
}

#[test]
fn as_many_requests_come_as_are_announced() {
    for about in names().filter(|about| about.settings().any(|setting| setting.key == "requests")) {
        let text = format!("{},requests=12345", about.name);
        let workload = parse(&text, 1).expect(&text);
        assert_eq!(workload.requests(), Some(12_345), "{text}");
        assert_eq!(requests(&workload, usize::MAX).len(), 12_345, "{text}");
        let endless = parse(&format!("{},requests=endless", about.name), 1).expect("endless is a number");
        assert_eq!(endless.requests(), None, "{text}");
    }
}

#[test]
fn filled_ranges_lie_in_the_span_in_order() {
    for about in names() {
        let workload = parse(about.name, 1).expect(about.name);
        let mut end = Bytes::ZERO;
        for range in workload.filled() {
            assert!(end <= range.start && range.start < range.end, "{}: {range:?}", about.name);
            end = range.end;
        }
        assert!(end <= workload.span(), "{}", about.name);
    }
}

#[test]
fn arrivals_never_go_back_in_time() {
    for text in ["random,rate=1000,requests=10K", "zipf,rate=1M,requests=10K"] {
        let workload = parse(text, 1).expect(text);
        assert!(matches!(workload.start(), Load::Open(_)), "{text}");
        let times: Vec<_> = requests(&workload, MOST).into_iter().map(|(at, ..)| at).collect();
        assert!(times.is_sorted(), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any text, the answer is a workload with sound first requests, or an error with the accepted
    /// values.
    #[test]
    fn hostile_settings_end_in_an_error_or_in_sound_requests(
        which in any::<prop::sample::Index>(),
        chosen in prop::collection::vec((any::<prop::sample::Index>(), value()), 0..4),
        seed in any::<u64>(),
    ) {
        let abouts: Vec<_> = names().collect();
        let about = abouts[which.index(abouts.len())];
        let settings: Vec<_> = about.settings().collect();
        let mut text = about.name.to_owned();
        for (setting, value) in chosen {
            text += &format!(",{}={value}", settings[setting.index(settings.len())].key);
        }
        match parse(&text, seed) {
            Err(error) => prop_assert!(error.to_string().contains(about.name), "{text}: {error}"),
            Ok(workload) => {
                for (_, _, request) in requests(&workload, 300) {
                    let is_sound = request.op == Op::Flush
                        || request.len > Bytes::ZERO
                            && (request.offset + request.len) <= workload.span()
                            && request.offset.is_aligned(SECTOR)
                            && request.len.is_aligned(SECTOR);
                    prop_assert!(is_sound, "{text}: {request:?} in {}", workload.span());
                }
            }
        }
    }

    #[test]
    fn any_text_is_parsed_without_panic(text in ".{0,60}", seed in any::<u64>()) {
        let _ = parse(&text, seed);
    }
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(ODD).prop_map(str::to_owned),
        1 => "[0-9]{1,20}(KiB|MiB|GiB|TiB|ms|s|%)?",
        1 => "[a-z=]{0,8}",
    ]
}

const ODD: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "NaN",
    "inf",
    "1e308",
    "-0.0",
    "",
    "endless",
    "100%",
    "0%",
    "50%",
    "-5%",
    "1e-320",
    "18446744073709551615",
    "512",
    "513",
    "4KiB",
    "1MiB",
    "64MiB",
    "1GiB",
    "16TiB",
    "256TiB",
    "16777215TiB",
    "0ns",
    "1ns",
    "5ms",
    "1h",
    "24h",
    "99999h",
    "scattered",
    "packed",
    "65536",
    "0.5",
    "3",
    "100",
];
