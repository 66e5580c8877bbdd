//! What advice forecasts is what comes: a load is recorded, a volume goes on with the rest of it under the
//! policy that was advised, from the layout that it has by then, on devices of another seed.

use braid_base::{Arrival, Bytes, DeviceClass, KIB};
use braid_lab::advice::{Advice, ChoiceRuling, Forecast, InUse, Question, Window, advise};
use braid_lab::{DeviceSetup, Load, Outcome, Recorded, Setup, WarmUp, simulate};
use braid_trace::{BlockCompression, CompactWriter, Header, Options};
use braid_workload::Load as Requests;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

const EXTENT: Bytes = Bytes(128 * KIB.0);
const SPAN: Bytes = Bytes(256 << 20);
/// Requests that are recorded, and as many that follow.
const RECORDED: usize = 24_000;

/// Load, present policy.
const LOADS: [(&str, &str); 8] = [
    ("zipf,span=256MiB,read=70%,rate=150", "equi"),
    ("zipf,span=256MiB,read=100%,rate=200,unit=1MiB", "hdd-only"),
    ("random,span=256MiB,read=60%,rate=80", "equi"),
    ("hot-cold,span=256MiB,read=80%,rate=150,every=never", "hdd-only"),
    ("sequential,span=256MiB,size=64KiB,read=90%,rate=100", "equi"),
    ("financial1-like,span=256MiB,rate=120", "wardrop"),
    ("financial2-like,span=256MiB,rate=90", "hdd-only"),
    ("websearch-like,span=256MiB,rate=80", "stripe"),
];

fn arrivals(load: &str) -> Vec<Arrival> {
    match braid_workload::parse(load, 7).expect("the load is right").start() {
        Requests::Open(arrivals) => arrivals.take(2 * RECORDED).collect(),
        Requests::Closed(_) => panic!("{load} has no times of its own"),
    }
}

fn devices() -> Vec<DeviceSetup> {
    let device = |class, text| DeviceSetup::parse(class, text).expect("the device is right");
    vec![device(DeviceClass::Ssd, "96MiB,model=x25-m"), device(DeviceClass::Hdd, "320MiB,model=mba3073")]
}

fn recorded(arrivals: &[Arrival]) -> Load {
    let start = arrivals[0].at;
    let arrivals = arrivals.iter().map(|arrival| Arrival { at: arrival.at - start, ..*arrival }).collect();
    Load::Recorded(Arc::new(Recorded {
        name: "rest".into(),
        arrivals,
        span: SPAN,
        filled: vec![Bytes::ZERO..SPAN],
    }))
}

fn run(policy: &str, load: Load, seed: u64, on_ssd: Option<Vec<Range<Bytes>>>) -> Outcome {
    let warm_up = if on_ssd.is_some() { WarmUp::Share(0.5) } else { WarmUp::NONE };
    let setup = Setup {
        size: Some(SPAN),
        prefill_ssd: on_ssd,
        list_homes: true,
        warm_up,
        seed,
        ..Setup::new(devices(), policy, load)
    };
    simulate(&setup).unwrap_or_else(|error| panic!("{policy}: {error}")).outcome
}

fn numbers(ranges: &[Range<Bytes>]) -> Vec<u64> {
    ranges.iter().flat_map(|range| range.start / EXTENT..range.end / EXTENT).collect()
}

fn question(window: Window, present: &str, on_ssd: &[Range<Bytes>]) -> Question {
    let extents = numbers(on_ssd);
    let on_ssd = EXTENT * extents.len() as u64;
    let touched = window.touched().expect("there is one device").to_vec();
    let touched_on_ssd = extents.into_iter().filter(|extent| touched.binary_search(extent).is_ok()).collect();
    Question {
        window,
        devices: devices(),
        present_policy: present.to_owned(),
        policies: Vec::new(),
        volume: Some(InUse {
            size: SPAN,
            mapped: SPAN,
            on_ssd,
            touched_on_ssd: Some(touched_on_ssd),
            touched_empty: Vec::new(),
            chooses_mode: false,
        }),
        other_ssds: Vec::new(),
        block_size: KIB * 4,
        copies: 1,
        cache_extents: 100,
        endurance: None,
        sizes: false,
        seed: 1,
        threads: None,
    }
}

fn window(arrivals: &[Arrival]) -> Window {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    let mut writer =
        CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None).expect("memory");
    arrivals.iter().for_each(|arrival| writer.push(arrival).expect("memory"));
    std::fs::write(&path, writer.finish(0).expect("memory")).expect("a file");
    Window::read(&path, &Options::default(), EXTENT, usize::MAX).expect("a recording")
}

fn row<'a>(advice: &'a Advice, policy: &str) -> &'a Forecast {
    advice.rows.iter().find(|row| row.policy == policy).expect("each policy has a row")
}

/// Three loads, of which two want another policy.
#[test]
fn measured_latency_is_near_forecast_or_within_interval() {
    let (near, changes) = forecast([LOADS[1], LOADS[3], LOADS[5]]);
    assert!(near >= 2, "{near} of 3 are within a tenth");
    assert!(changes >= 2, "{changes} loads want another policy");
}

#[test]
#[ignore = "takes two minutes of a processor: make bench-check"]
fn measured_latency_of_all_loads_is_near_forecast_or_within_interval() {
    let (near, changes) = forecast(LOADS);
    assert!(near >= 7, "{near} of 8 are within a tenth");
    assert!(changes >= 3, "{changes} loads want another policy");
}

/// Compares forecasts with what comes. Returns the number of loads with a forecast within a tenth, and the
/// number of loads that want another policy. What comes is one run. Under the second load `equi` ends in one
/// of two layouts, by chance: at 0.95 or 1.25 ms.
fn forecast<const N: usize>(loads: [(&str, &str); N]) -> (u32, u32) {
    let (mut changes, mut near) = (0, 0);
    let mut wrong = Vec::new();
    for (load, present) in loads {
        let all = arrivals(load);
        let (before, after) = all.split_at(RECORDED);
        let homes = run(present, recorded(before), 1, None).ssd_homes.unwrap();
        let advice =
            advise(&question(window(before), present, &homes), |_| ControlFlow::Continue(())).unwrap();
        changes += u32::from(advice.choice.ruling == ChoiceRuling::Change);
        let policy = &advice.choice.advised_policy;
        let outcome = run(policy, recorded(after), 2, Some(homes));
        let advised = row(&advice, policy);
        let (forecast, came) = (advised.latency_ns_mean, outcome.all.latency.mean);
        let interval = advised.latency_ns_low.unwrap()..advised.latency_ns_high.unwrap();
        println!(
            "{load}: {present} {:.3} ms, {:?} {policy}: forecast {:.3} ({:.3} to {:.3}) ms, came {:.3} ms, {:+.1} %",
            row(&advice, present).latency_ns_mean / 1e6,
            advice.choice.ruling,
            forecast / 1e6,
            interval.start / 1e6,
            interval.end / 1e6,
            came / 1e6,
            100.0 * (forecast / came - 1.0)
        );
        let is_near = (forecast / came - 1.0).abs() <= 0.1;
        near += u32::from(is_near);
        wrong.extend((!is_near && !interval.contains(&came)).then_some(load));
    }
    assert!(wrong.is_empty(), "beyond a tenth and the interval: {wrong:?}");
    (near, changes)
}

/// `mode=auto` takes the best mode by itself: another mode is no advice.
#[test]
fn auto_mode_volume_is_compared_only_across_policies() {
    let all = arrivals(LOADS[0].0);
    let modes = |chooses_mode: bool| {
        let mut question = question(window(&all[..1000]), "equi,mode=cache", &[]);
        question.volume.as_mut().expect("it is in use").chooses_mode = chooses_mode;
        let advice = advise(&question, |_| ControlFlow::Continue(())).unwrap();
        let others: Vec<String> = advice.rows.into_iter().map(|row| row.policy).collect();
        assert!(others.iter().any(|policy| policy.starts_with("wardrop")), "{others:?}");
        others.iter().filter(|policy| policy.starts_with("equi")).count()
    };
    assert_eq!(modes(true), 1);
    assert!(modes(false) > 1);
}

#[test]
fn advice_does_not_depend_on_the_number_of_threads() {
    let all = arrivals(LOADS[0].0);
    let question = Question {
        policies: vec!["wardrop".into(), "ssd-first".into()],
        endurance: Some(Bytes(1 << 40)),
        ..question(window(&all[..4000]), "hdd-only", &[])
    };
    let answer = |threads| {
        advise(&Question { threads: Some(threads), ..question.clone() }, |_| ControlFlow::Continue(()))
            .unwrap()
    };
    let advice = answer(1);
    assert_eq!(advice, answer(2));
    assert_eq!((advice.rows.len(), advice.simulated_requests, advice.measured_requests), (3, 4000, 2000));
    for row in &advice.rows {
        let written = row.ssd_written_bytes_per_day;
        let life = (written > 0.0).then(|| (1_u64 << 40) as f64 / written);
        assert_eq!(row.ssd_life_days, life, "{row:?}");
    }
}

#[test]
fn size_curves_of_all_models_have_rising_sizes() {
    let all = arrivals(LOADS[1].0);
    let question = Question {
        policies: vec!["hdd-only".into()],
        sizes: true,
        other_ssds: vec!["sata-ssd".into()],
        ..question(window(&all[..6000]), "ssd-first", &[])
    };
    let advice = advise(&question, |_| ControlFlow::Continue(())).unwrap();
    let models: Vec<&str> = advice.curves.iter().map(|curve| &*curve.ssd_models).collect();
    assert_eq!(models, ["x25-m", "sata-ssd"]);
    for curve in &advice.curves {
        assert!(curve.points.len() >= 4, "{curve:?}");
        assert!(curve.points.windows(2).all(|pair| pair[0].ssd_bytes < pair[1].ssd_bytes), "{curve:?}");
        // What is popular fits the largest.
        let ends = [&curve.points[0], &curve.points[curve.points.len() - 1]];
        assert!(ends[1].latency_ns_mean < 0.5 * ends[0].latency_ns_mean, "{curve:?}");
    }
}

#[test]
fn advice_stops_on_request() {
    let question = question(window(&arrivals(LOADS[0].0)[..4000]), "hdd-only", &[]);
    let error = advise(&question, |_| ControlFlow::Break(())).unwrap_err();
    assert_eq!(error.kind(), braid_lab::ErrorKind::Stopped);
}

#[test]
fn recording_of_a_different_volume_is_rejected() {
    let all = arrivals(LOADS[0].0);
    let mut question = question(window(&all[..1000]), "equi", &[]);
    question.volume.as_mut().unwrap().size = Bytes(64 << 20);
    let error = advise(&question, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.kind() == braid_lab::ErrorKind::Setup && error.to_string().contains("--hdd"), "{error}");
}
