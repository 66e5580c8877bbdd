//! Figures that `wardrop` must reach against the baselines, in virtual time: the same on every machine.

use crate::balance::{Phase, run};

/// Number of seeds, one after the other: near equilibrium single runs scatter.
const SEEDS: u64 = 3;

fn phases(ssd: &str, policy: &str, seed: u64) -> [Phase; 2] {
    run(ssd, policy, seed).expect("nothing fails in virtual time").try_into().expect("there are two phases")
}

fn runs(policy: &str) -> Vec<[Phase; 2]> {
    (1..=SEEDS).map(|seed| phases("x25-m", policy, seed)).collect()
}

fn mean(runs: &[[Phase; 2]], figure: impl Fn(&[Phase; 2]) -> f64) -> f64 {
    runs.iter().map(figure).sum::<f64>() / runs.len() as f64
}

fn one_client([one, _]: &[Phase; 2]) -> f64 {
    one.megabytes_per_second
}

fn ten_clients([_, ten]: &[Phase; 2]) -> f64 {
    ten.megabytes_per_second
}

#[test]
fn wardrop_keeps_up_with_the_best_split() {
    let wardrop = runs("wardrop");
    let (one, ten) = (mean(&wardrop, one_client), mean(&wardrop, ten_clients));
    let best_single = mean(&runs("ssd-only"), one_client).max(mean(&runs("hdd-only"), one_client));
    assert!(one >= 0.97 * best_single, "one client: {one} against {best_single} MB/s");
    let splits =
        [100, 90, 80, 70, 60, 50].map(|percent| mean(&runs(&format!("static,ssd={percent}%")), ten_clients));
    let best = splits.into_iter().fold(0.0, f64::max);
    assert!(ten >= 0.95 * best, "ten clients: {ten} against {best} MB/s");
    assert!(ten > splits[0] && ten > mean(&runs("stripe"), ten_clients));
}

/// Response times do not become equal on this load: P moves from one bound to the other, and the disk's
/// response times are twice the SSD's on average.
#[test]
fn the_disk_gets_more_of_the_load_when_clients_become_more() {
    let wardrop = runs("wardrop");
    let on_disk = |phase: &Phase| (phase.requests[1], phase.data[1]);
    for [one, ten] in &wardrop {
        let (before, after) = (on_disk(one), on_disk(ten));
        assert!(after.0 > 2.0 * before.0 && after.1 > before.1, "{before:?} {after:?}");
    }
}

#[test]
fn a_disk_faster_than_the_ssd_gets_the_load_by_itself() {
    let [_, ten] = phases("transcend-16g", "wardrop", 1);
    assert!(ten.requests[1] > 0.8 && ten.data[1] > 0.8, "{ten}");
    assert!(ten.megabytes_per_second > phases("transcend-16g", "ssd-only", 1)[1].megabytes_per_second * 4.0);
}

#[test]
fn same_seed_gives_same_figures() {
    let text = |phases: [Phase; 2]| phases.map(|p| p.to_string());
    assert_eq!(text(phases("x25-m", "wardrop", 1)), text(phases("x25-m", "wardrop", 1)));
}
