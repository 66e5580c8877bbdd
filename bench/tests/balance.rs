//! What `wardrop` must reach against the baselines, in virtual time: the same figures on every machine.

use braid_bench::balance::{Phase, run};

fn phases(ssd: &str, policy: &str) -> [Phase; 2] {
    run(ssd, policy).expect("nothing fails in virtual time").try_into().expect("there are two phases")
}

#[test]
fn wardrop_keeps_up_with_the_best_split_and_balances_response_times() {
    let [one, ten] = phases("x25-m", "wardrop");
    let ssd_only = phases("x25-m", "ssd-only");
    let best_single =
        ssd_only[0].megabytes_per_second.max(phases("x25-m", "hdd-only")[0].megabytes_per_second);
    assert!(one.megabytes_per_second >= 0.97 * best_single, "one client: {one}\nagainst {best_single} MB/s");
    let mut best = 0.0f64;
    for percent in [100, 90, 80, 70, 60, 50] {
        let [_, split] = phases("x25-m", &format!("static,ssd={percent}%"));
        best = best.max(split.megabytes_per_second);
    }
    assert!(ten.megabytes_per_second >= 0.95 * best, "ten clients: {ten}\nagainst {best} MB/s");
    assert!(ten.megabytes_per_second > ssd_only[1].megabytes_per_second);
    assert!(ten.megabytes_per_second > phases("x25-m", "stripe")[1].megabytes_per_second);
    let [ssd, hdd] = ten.response_ms;
    assert!((ssd - hdd).abs() <= 0.2 * ssd.max(hdd), "60 s after the change from one client to ten: {ten}");
}

#[test]
fn a_disk_faster_than_the_ssd_gets_the_load_by_itself() {
    let [_, ten] = phases("transcend-16g", "wardrop");
    assert!(ten.requests[1] > 0.8 && ten.data[1] > 0.8, "{ten}");
    assert!(ten.megabytes_per_second > phases("transcend-16g", "ssd-only")[1].megabytes_per_second * 4.0);
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let text = |phases: [Phase; 2]| phases.map(|p| p.to_string());
    assert_eq!(text(phases("x25-m", "wardrop")), text(phases("x25-m", "wardrop")));
}
