//! `financial1-like`, `financial2-like` and `websearch-like` against the published statistics of the traces.

use crate::measure::{assert_near, of, requests, share_of_busiest};
use braid_base::{KIB, MIB, Nanos, Request};
use braid_workload::parse;
use std::collections::BTreeSet;

type Requests = Vec<(Nanos, u64, Request)>;

fn whole(name: &str) -> Requests {
    requests(&parse(name, 1).expect(name), usize::MAX)
}

fn places(all: &Requests) -> f64 {
    all.iter().map(|(_, _, r)| r.offset.0).collect::<BTreeSet<u64>>().len() as f64
}

#[test]
fn financial1_like_has_the_statistics_of_the_trace() {
    let all = whole("financial1-like");
    let f = of(&all);
    assert_near("requests", f.requests, 5_334_987.0, 0.0);
    assert_near("read share", f.read, 0.2316, 0.01);
    assert_near("mean size", f.mean, 3.4 * 1024.0, 0.01);
    assert_near("duration", f.seconds, 43_712.0, 0.04);
    assert_near("different places", places(&all), 710_908.0, 0.05);
    let busiest = share_of_busiest(&all, MIB * 8010, MIB * 10, 0.2);
    assert_near("requests to the busiest fifth", busiest, 0.57, 0.01);
    assert!(f.sequential < 0.03, "DFTL counts 2 % in its part of the trace: {f:?}");
}

#[test]
fn financial2_like_has_the_statistics_of_the_trace() {
    let all = whole("financial2-like");
    let f = of(&all);
    assert_near("requests", f.requests, 3_699_194.0, 0.0);
    assert_near("read share", f.read, 0.8235, 0.01);
    assert_near("mean size", f.mean, 2.4 * 1024.0, 0.01);
    assert_near("duration", f.seconds, 41_100.0, 0.04);
    assert_near("different places", places(&all), 296_072.0, 0.05);
    let busiest = share_of_busiest(&all, MIB * 8010, MIB * 10, 0.2);
    assert_near("requests to the busiest fifth", busiest, 0.84, 0.01);
}

#[test]
fn financial_traces_offer_the_hayashi_figures() {
    for (name, rate, read, kib) in
        [("financial1-like", 825.0, 0.154, 16.1), ("financial2-like", 431.0, 0.785, 18.8)]
    {
        let f = of(&whole(&format!("{name},figures=hayashi,burst=1,requests=1M")));
        assert_near("read share", f.read, read, 0.01);
        assert_near("mean size", f.mean, kib * 1024.0, 0.01);
        // A million requests cover the quiet beginning of the day.
        assert!(f.requests / f.seconds < rate, "{name}: {f:?}");
    }
}

/// As in Hayashi and Komoda: a trace for each RAID group, with a separate share of reads.
#[test]
fn side_by_side_volumes_each_have_a_full_load() {
    let text = "financial2-like,figures=hayashi,span=420MiB,day=100s,grid=8KiB,read=21.5%,requests=40K";
    let one = requests(&parse(text, 1).expect(text), usize::MAX);
    let four = format!("{text},volumes=4,stripe=20MiB");
    let workload = parse(&four, 1).expect(&four);
    let all = requests(&workload, usize::MAX);
    assert_eq!((all.len(), workload.span()), (4 * one.len(), MIB * 1680));
    assert_near("read share", of(&all).read, 0.215, 0.02);
    assert!(all.is_sorted_by_key(|(at, ..)| *at) && all.iter().all(|(.., r)| r.offset.is_aligned(KIB * 8)));
    let of_volume = |number: u64| {
        let places = all.iter().map(|(.., r)| r.offset / (MIB * 20)).filter(|stripe| stripe % 4 == number);
        places.map(|stripe| stripe / 4).collect::<Vec<u64>>()
    };
    let first: Vec<u64> = one.iter().map(|(.., r)| r.offset / (MIB * 20)).collect();
    assert_eq!(of_volume(0), first);
    assert!((1..4).all(|number| of_volume(number).len() == one.len() && of_volume(number) != first));
}

/// The rate triples within the day. The counts of single seconds show bursts.
#[test]
fn financial1_like_comes_in_bursts_and_triples_within_the_day() {
    let all = whole("financial1-like");
    let mut seconds = vec![0.0; 50_000];
    all.iter().for_each(|(at, ..)| seconds[at.as_secs_f64() as usize] += 1.0);
    let mean =
        |range: std::ops::Range<usize>| seconds[range.clone()].iter().sum::<f64>() / range.len() as f64;
    assert_near("noon against midnight", mean(20_000..24_000) / mean(0..2000), 3.0, 0.1);
    let noon = &seconds[20_000..24_000];
    let m = mean(20_000..24_000);
    let dispersion = noon.iter().map(|c| (c - m).powi(2)).sum::<f64>() / noon.len() as f64 / m;
    assert!(dispersion > 20.0, "a Poisson process has 1, here {dispersion}");
}

#[test]
fn websearch_like_has_the_statistics_of_the_trace() {
    let all = whole("websearch-like");
    let f = of(&all);
    assert_near("requests", f.requests, 1_055_448.0, 0.0);
    assert_near("writes", (1.0 - f.read) * f.requests, 212.0, 0.25);
    assert_near("mean size", f.mean, 15.05 * 1024.0, 0.01);
    assert_near("rate", f.requests / f.seconds, 335.0, 0.01);
    assert_near("different places", places(&all), 480_446.0, 0.01);
}

/// The most popular areas of each quarter of the requests: constant without drift, changing with drift.
/// Locality within a short time is the same.
#[test]
fn drift_moves_popular_areas_but_keeps_popularity() {
    let busiest = |all: &[(Nanos, u64, Request)]| {
        let mut counts = std::collections::BTreeMap::<u64, usize>::new();
        all.iter().for_each(|(.., r)| *counts.entry(r.offset / (MIB * 10)).or_default() += 1);
        let mut sorted: Vec<(usize, u64)> = counts.into_iter().map(|(area, count)| (count, area)).collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        let share = sorted.iter().take(10).map(|(count, _)| count).sum::<usize>() as f64 / all.len() as f64;
        (sorted.into_iter().take(10).map(|(_, area)| area).collect::<BTreeSet<u64>>(), share)
    };
    let quarters = |drift: &str| {
        // 400,000 requests take 3,280 s at 122 a second.
        let text = format!("financial1-like,span=500MiB,requests=400K,burst=1,drift={drift}");
        let all = requests(&parse(&text, 1).expect(&text), usize::MAX);
        let quarter = all.len() / 4;
        [busiest(&all[..quarter]), busiest(&all[3 * quarter..])]
    };
    let [still_first, still_last] = quarters("0");
    let common = |one: &BTreeSet<u64>, other: &BTreeSet<u64>| one.intersection(other).count();
    assert!(common(&still_first.0, &still_last.0) >= 9, "{still_first:?} {still_last:?}");
    // Between the middles of the first and the last quarter, 25 of 50 areas have become the most popular.
    let [moved_first, moved_last] = quarters("36");
    assert!(common(&moved_first.0, &moved_last.0) <= 3, "{moved_first:?} {moved_last:?}");
    assert!(
        moved_first.1 > 0.8 * still_first.1,
        "within a quarter 9 areas move: {moved_first:?} {still_first:?}"
    );
    assert!(
        ["-1", "2e6", "much"]
            .iter()
            .all(|drift| parse(&format!("financial1-like,drift={drift}"), 1).is_err())
    );
}
