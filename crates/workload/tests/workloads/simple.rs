//! `random`, `sequential` and `zipf` match their settings.

use crate::measure::{assert_near, figures, requests, share_of_busiest};
use braid_base::{KIB, Nanos, Request};
use braid_workload::parse;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

#[test]
fn random_has_the_share_of_reads_size_and_rate_asked_for() {
    let f = figures("random,read=30%,size=8KiB,rate=500,requests=200K", 200_000);
    assert_near("read share", f.read, 0.3, 0.02);
    assert_near("mean size", f.mean, 8192.0, 0.0);
    assert_near("requests per second", f.requests / f.seconds, 500.0, 0.01);
    assert!(f.sequential < 0.001, "{f:?}");
}

#[test]
fn random_hits_all_places_equally() {
    let workload = parse("random,span=4MiB", 1).expect("sound");
    let all = requests(&workload, 200_000);
    let busiest = share_of_busiest(&all, workload.span(), KIB * 4, 0.2);
    assert!((0.2..0.23).contains(&busiest), "{busiest}");
}

#[test]
fn sequential_is_sequential_for_every_client() {
    let f = figures("sequential,clients=7,span=1GiB,size=64KiB,read=100%", 50_000);
    assert!(f.sequential > 0.99 && f.read == 1.0, "{f:?}");
}

#[test]
fn think_time_has_the_configured_mean() {
    let f = figures("random,think=5ms,requests=100K", 100_000);
    assert_near("seconds", f.seconds, 500.0, 0.02);
}

/// Exact by the sums: with exponent 0.99 over 65,536 units the first fifth gets 84.9 %.
#[test]
fn zipf_gives_the_popular_fifth_the_exact_share() {
    let exact = {
        let sum = |m: u64| (1..=m).map(|k| (k as f64).powf(-0.99)).sum::<f64>();
        sum(13_107) / sum(65_536)
    };
    for placement in ["scattered", "packed"] {
        let workload = parse(&format!("zipf,span=256MiB,placement={placement}"), 1).expect("sound");
        let share = share_of_busiest(&requests(&workload, 1_000_000), workload.span(), KIB * 4, 0.2);
        // By chance, the busiest fifth of a sample is slightly busier than the fifth of the law.
        assert!((exact - 0.002..exact + 0.02).contains(&share), "{placement}: {share}, by the law {exact}");
    }
}

/// A move acts like another seed: formerly popular places are requested as rarely as all other places.
#[test]
fn every_setting_moves_the_popular_places() {
    let workload = parse("zipf,span=16MiB,theta=1.1,clients=4,every=40K", 1).expect("sound");
    let all = requests(&workload, 80_000);
    let busiest = |part: &[(Nanos, u64, Request)]| {
        let mut counts = HashMap::new();
        part.iter().for_each(|(_, _, r)| *counts.entry(r.offset).or_insert(0) += 1);
        let mut places: Vec<_> = counts.into_iter().collect();
        places.sort_by_key(|&(offset, count)| (Reverse(count), offset));
        places.into_iter().take(100).map(|(offset, _)| offset).collect::<HashSet<_>>()
    };
    let (first, second) = (busiest(&all[..40_000]), busiest(&all[40_000..]));
    assert!(first.intersection(&second).count() < 20, "of 4,096 places, 2 of 100 by chance");
    assert!(busiest(&all[..20_000]).intersection(&first).count() > 60, "and much the same before that");
    assert!(parse("zipf,placement=packed,every=10K", 1).is_err());
}

#[test]
fn popular_places_lie_apart_unless_asked_otherwise() {
    let first_mib = |placement: &str| {
        let workload = parse(&format!("zipf,span=256MiB,placement={placement}"), 1).expect("sound");
        let all = requests(&workload, 100_000);
        all.iter().filter(|(_, _, r)| r.offset < KIB * 1024).count() as f64 / all.len() as f64
    };
    assert!(first_mib("packed") > 0.45, "{}", first_mib("packed"));
    assert!(first_mib("scattered") < 0.15, "{}", first_mib("scattered"));
}

#[test]
fn a_share_of_the_busiest_fifth_can_be_asked_for() {
    for (text, wanted) in [("57%", 0.57), ("84%", 0.84)] {
        let workload = parse(&format!("zipf,span=64MiB,hot20={text}"), 1).expect("sound");
        let share = share_of_busiest(&requests(&workload, 1_000_000), workload.span(), KIB * 4, 0.2);
        assert!((wanted - 0.005..wanted + 0.02).contains(&share), "{text}: {share}");
    }
}

#[test]
fn hot_set_gets_the_configured_share_and_moves() {
    let text = "hot-cold,span=64MiB,unit=64KiB,every=100K,requests=200K";
    let workload = parse(text, 1).expect("sound");
    let all = requests(&workload, usize::MAX);
    let busiest = |part: &[_]| share_of_busiest(part, workload.span(), KIB * 64, 0.1);
    assert_near("share of the first hot set", busiest(&all[..100_000]), 0.9, 0.01);
    assert_near("share of the second", busiest(&all[100_000..]), 0.9, 0.01);
    assert_near("share of any tenth over both", busiest(&all), 0.475, 0.05);
    let stays = requests(&parse(&text.replace("100K", "never"), 1).expect("sound"), usize::MAX);
    assert_near("share where it stays", busiest(&stays), 0.9, 0.01);
}

#[test]
fn shift_replaces_a_tenth_of_the_hot_set() {
    let hot_units = |requests: &[(_, _, braid_base::Request)]| {
        let mut counts = vec![0; 1024];
        requests.iter().for_each(|(_, _, r)| counts[(r.offset / (KIB * 64)) as usize] += 1);
        (0..1024).filter(|&unit| counts[unit] > 100).collect::<std::collections::BTreeSet<usize>>()
    };
    let text = "hot-cold,span=64MiB,unit=64KiB,every=50K,shift=10%,requests=100K";
    let all = requests(&parse(text, 1).expect("sound"), usize::MAX);
    let (before, after) = (hot_units(&all[..50_000]), hot_units(&all[50_000..]));
    assert_eq!((before.len(), after.len(), before.intersection(&after).count()), (102, 102, 92));
}

#[test]
fn the_rate_of_diurnal_follows_the_day() {
    let f = figures("diurnal,rate=1000,low=20%,day=100s,requests=60K", usize::MAX);
    assert_near("seconds for the requests of a day", f.seconds, 100.0, 0.05);
}
