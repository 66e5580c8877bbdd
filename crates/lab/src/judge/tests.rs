//! Rulings, and planted lies: wrong claims that the judge must refuse, each beside a true claim that must
//! hold.

use super::Ruling::{Fails, Holds, OneSeed, OtherMargin, Tie, TooShort, Undecided, Untestable};
use super::*;
use crate::experiment::{Axis, Measure, Series};

const SSD: &str = "SSD only";
const HDD: &str = "disk only";
const POLICY: &str = "policy";
const STRIPE: &str = "stripe";
const VARIANT: &str = "policy, another setting";
const PLACES: [u32; 4] = [1, 2, 4, 8];
/// Throughput of each series at each place, without the seeds' noise.
const TRUTH: [[f64; 4]; 5] = [
    [20.0, 22.0, 24.0, 23.0],
    [10.0, 12.0, 13.0, 12.0],
    [18.0, 22.0, 30.0, 36.0],
    [15.0, 20.0, 25.0, 30.0],
    [18.0, 22.0, 30.0, 20.0],
];
const RATIO: Quantity = ratio(POLICY, &[STRIPE], 8);

const fn ratio(of: &'static str, to: &'static [&'static str], at: u32) -> Quantity {
    Quantity::Ratio { measure: Measure::Throughput, of, to, at }
}

fn experiment() -> Experiment {
    let any = *crate::experiments::all()[0];
    let one = |label, policy| Series { label, policy, variant_of: None, ..any.series[0] };
    let series = vec![
        one(SSD, "ssd-only"),
        one(HDD, "hdd-only"),
        one(POLICY, "wardrop"),
        one(STRIPE, "stripe"),
        Series { variant_of: Some(POLICY), ..one(VARIANT, "wardrop,no-migration") },
    ];
    Experiment {
        axis: Axis::Numbers { label: "processes", places: &PLACES },
        series: series.leak(),
        measures: &[Measure::Throughput],
        claims: &[],
        baselines: &[],
        ..any
    }
}

fn table(values: impl Fn(usize, usize) -> Option<f64>) -> Vec<Table> {
    let row = |series: usize| (0..PLACES.len()).map(|place| values(series, place)).collect();
    vec![Table {
        measure: "throughput".to_owned(),
        unit: "MB/s".to_owned(),
        more_is_better: true,
        values: (0..TRUTH.len()).map(row).collect(),
        half_widths: Vec::new(),
        seeds_without: Vec::new(),
        paper_values: Vec::new(),
        of: Some(Measure::Throughput),
    }]
}

/// Noise of up to 0.2 % in either direction, different for each seed, series and place.
fn noise(seed: usize, series: usize, place: usize) -> f64 {
    1.0 + ((seed * 7 + series * 3 + place * 5) % 5) as f64 / 1000.0 - 0.002
}

fn seeds(count: usize, truth: [[f64; 4]; 5]) -> Vec<Vec<Table>> {
    (0..count)
        .map(|seed| table(|series, place| Some(truth[series][place] * noise(seed, series, place))))
        .collect()
}

const fn claim(tests: &'static [Test], origin: Origin) -> Claim {
    Claim { sentence: "A claim.", place: "somewhere", origin, tests, why: "a reason", instead: &[] }
}

fn test(quantity: Quantity, published: Published, bound: Bound) -> Test {
    Test { quantity, published, bound }
}

fn judged_of(experiment: Experiment, test: Test, origin: Origin, seeds: &[Vec<Table>]) -> Judged {
    let claims = vec![claim(vec![test].leak(), origin)].leak();
    let experiment = Experiment { claims, ..experiment };
    judge(&experiment, seeds, false).1.remove(0)
}

/// Ruling on a claim of the paper, over five seeds of the truth.
fn ruled(quantity: Quantity, published: Published, bound: Bound) -> Ruling {
    ruled_over(&seeds(5, TRUTH), quantity, published, bound)
}

fn ruled_over(seeds: &[Vec<Table>], quantity: Quantity, published: Published, bound: Bound) -> Ruling {
    let judged = judged_of(experiment(), test(quantity, published, bound), Origin::Paper, seeds);
    judged.verdicts[0].ruling.expect("it is not only shown")
}

/// Ruling on a single number: a ratio that can take any value.
fn of_numbers(published: Published, bound: Bound, numbers: &[f64]) -> Option<Ruling> {
    test(RATIO, published, bound).ruling(&crate::estimate::Estimate::of(numbers))
}

const WORDS: Published = Published::Words;
const AHEAD: Bound = Bound::MoreThan(1.0);

#[test]
fn swapping_policy_and_rival_reverses_the_ruling() {
    assert_eq!(ruled(ratio(POLICY, &[STRIPE], 8), WORDS, AHEAD), Holds);
    assert_eq!(ruled(ratio(STRIPE, &[POLICY], 8), WORDS, AHEAD), Fails);
    // The best of several is the rival: beating one series is not enough.
    assert_eq!(ruled(ratio(POLICY, &[HDD, SSD], 1), WORDS, AHEAD), Fails);
}

#[test]
fn lie_a_bound_turned_round() {
    // Published: 2 to 5 % slower. Our number is 19 % faster.
    let published = Published::Range(1.02, 1.05);
    assert_eq!(of_numbers(published, Bound::AtMost(1.05), &[0.81]), Some(Fails));
    assert_eq!(of_numbers(published, Bound::AtMost(1.05), &[1.03]), Some(Holds));
    assert_eq!(of_numbers(Published::Number(0.72), Bound::AtLeast(0.7), &[1.3]), Some(Fails));
}

#[test]
fn range_bound_checks_both_ends() {
    let published = Published::Range(1.02, 1.05);
    let between = |ours: f64| of_numbers(published, Bound::Between(1.02, 1.05), &[ours]).unwrap();
    assert_eq!([0.81, 1.0, 1.03, 1.19].map(between), [Fails, Fails, Holds, Fails]);
}

#[test]
fn lie_a_tie_is_a_gain_or_a_loss() {
    let ahead = |ours: f64| of_numbers(WORDS, AHEAD, &[ours]).unwrap();
    assert_eq!([0.98, 0.9995, 1.0, 1.0005, 1.02].map(ahead), [Fails, Tie, Tie, Tie, Holds]);
    let shorter = |ours: f64| of_numbers(WORDS, Bound::LessThan(1.0), &[ours]).unwrap();
    assert_eq!([0.98, 0.9995, 1.0005, 1.02].map(shorter), [Holds, Tie, Tie, Fails]);
    // A tie counts as "at least as much", but 9.95 is not "at least 10".
    let level = |ours: f64| of_numbers(WORDS, Bound::AtLeast(1.0), &[ours]).unwrap();
    assert_eq!([0.98, 0.995, 1.0].map(level), [Fails, Holds, Holds]);
    let ten = |ours: f64| of_numbers(WORDS, Bound::AtLeast(10.0), &[ours]).unwrap();
    assert_eq!([9.8, 9.95, 10.0].map(ten), [Fails, Tie, Holds]);
}

#[test]
fn lie_the_peak_is_elsewhere() {
    let peak = |from, to| Quantity::Peak { measure: Measure::Throughput, series: SSD, from, to };
    assert_eq!(ruled(peak(4, 4), WORDS, AHEAD), Holds);
    assert_eq!(ruled(peak(2, 2), WORDS, AHEAD), Fails);
    // A plateau has no peak.
    let mut level = TRUTH;
    level[0] = [20.0, 24.0, 24.02, 24.0];
    assert_eq!(ruled_over(&seeds(5, level), peak(4, 4), WORDS, AHEAD), Tie);
}

#[test]
fn most_saving_fails_if_a_rival_pair_saves_more() {
    let most = |of, others| Quantity::Most { measure: Measure::Throughput, of, others };
    // 1.57 times the SSD, and 3.0 times the disk.
    assert_eq!(ruled(most((POLICY, SSD), &[(POLICY, HDD)]), WORDS, AHEAD), Fails);
    assert_eq!(ruled(most((POLICY, HDD), &[(POLICY, SSD), (STRIPE, HDD)]), WORDS, AHEAD), Holds);
}

#[test]
fn one_seed_gives_no_verdict() {
    let one = seeds(1, TRUTH);
    assert_eq!(ruled_over(&one, RATIO, WORDS, AHEAD), OneSeed);
    assert_eq!(ruled_over(&one, RATIO, WORDS, Bound::LessThan(1.0)), OneSeed);
    // Two seeds are enough only if the seeds agree to the per mille.
    assert_eq!(ruled_over(&seeds(SEEDS_NEEDED as usize, TRUTH), RATIO, WORDS, AHEAD), Holds);
    assert_eq!(of_numbers(WORDS, AHEAD, &[1.1, 1.3]), Some(Undecided));
}

#[test]
fn seed_independent_runs_count_as_one_seed() {
    let same: Vec<Vec<Table>> = (0..10).map(|_| seeds(1, TRUTH).remove(0)).collect();
    assert_eq!(ruled_over(&same, RATIO, WORDS, AHEAD), OneSeed);
    // Another series may follow the seed.
    let mut some = seeds(10, TRUTH);
    for seed in &mut some {
        seed[0].values[0] = TRUTH[0].map(Some).to_vec();
    }
    assert_eq!(ruled_over(&some, RATIO, WORDS, AHEAD), Holds);
    let of_ssd = Quantity::Change { measure: Measure::Throughput, series: SSD, at: 4, from: 1 };
    assert_eq!(ruled_over(&some, of_ssd, WORDS, AHEAD), OneSeed);
}

#[test]
fn policy_claim_is_untestable_if_ssd_differs_from_paper() {
    const OFF: &[Baseline] = &[
        Baseline {
            quantity: Quantity::Value { measure: Measure::Throughput, series: HDD, at: 8 },
            published: 13.0,
        },
        Baseline {
            quantity: Quantity::Value { measure: Measure::Throughput, series: SSD, at: 8 },
            published: 11.0,
        },
    ];
    let with = |baselines| Experiment { baselines, ..experiment() };
    let ahead = test(ratio(POLICY, &[SSD], 8), WORDS, AHEAD);
    let five = seeds(5, TRUTH);
    let judged = judged_of(with(OFF), ahead, Origin::Paper, &five);
    assert_eq!(judged.verdicts.iter().map(|v| v.ruling).collect::<Vec<_>>(), [Some(Untestable); 2]);
    assert!(judged.verdicts[0].numbers[0].ours > 1.5, "the number is shown");
    assert_eq!(judged.untestable.len(), 1, "the SSD alone: {:?}", judged.untestable);
    assert!(judged.untestable[0].contains(SSD) && judged.untestable[0].contains("2.09"));
    assert_eq!(judged.why, None);
    // A failure is no more to be trusted than a success. An aim of Braid does not need the paper's devices.
    let behind = test(ratio(POLICY, &[SSD], 8), WORDS, Bound::LessThan(1.0));
    assert_eq!(judged_of(with(OFF), behind, Origin::Paper, &five).verdicts[0].ruling, Some(Untestable));
    assert_eq!(judged_of(with(OFF), ahead, Origin::Aim, &five).verdicts[0].ruling, Some(Holds));
    // Claims about devices alone are judged.
    let devices = test(ratio(SSD, &[HDD], 8), WORDS, AHEAD);
    assert_eq!(judged_of(with(OFF), devices, Origin::Paper, &five).verdicts[0].ruling, Some(Holds));
    assert_eq!(judged_of(with(&OFF[..1]), ahead, Origin::Paper, &five).verdicts[0].ruling, Some(Holds));
    let (rows, _) = judge(&with(OFF), &five, false);
    assert_eq!(rows.iter().map(|row| row.ruling).collect::<Vec<_>>(), [Some(Holds), Some(Fails)]);
}

#[test]
fn result_far_from_published_number_does_not_hold() {
    let at_least_one = |published, ours: f64| {
        of_numbers(Published::Number(published), Bound::AtLeast(1.0), &[ours]).unwrap()
    };
    // The logarithms were compared: 26 for 11, and 28 for 7.7, were ruled plain.
    assert_eq!(
        [5.4, 9.0, 16.0, 26.0].map(|ours| at_least_one(11.0, ours)),
        [OtherMargin, Holds, Holds, OtherMargin]
    );
    assert_eq!(at_least_one(7.7, 28.0), OtherMargin);
    // A gain of 5 % instead of 42 %.
    assert_eq!([1.05, 1.3, 1.9].map(|ours| at_least_one(1.42, ours)), [OtherMargin, Holds, OtherMargin]);
    // Twice a negligible gain is still negligible.
    assert_eq!(at_least_one(1.01, 1.05), Holds);
    let value = Quantity::Value { measure: Measure::Throughput, series: POLICY, at: 8 };
    let at_least = |published| ruled(value, Published::Number(published), Bound::AtLeast(1.0));
    assert_eq!([17.0, 20.0, 70.0, 80.0].map(at_least), [OtherMargin, Holds, Holds, OtherMargin]);
}

/// Each seed has its best place elsewhere, by chance: on average the places are equal.
#[test]
fn lie_the_mean_of_each_seeds_own_extreme() {
    let lucky = |seed: usize, series: usize, place: usize| {
        let luck = if series == 2 && place == seed % 4 { 1.2 } else { 1.0 };
        Some(20.0 * luck * noise(seed, series, place))
    };
    let by_chance: Vec<Vec<Table>> =
        (0..8).map(|seed| table(|series, place| lucky(seed, series, place))).collect();
    let best = Quantity::BestRatio { measure: Measure::Throughput, of: POLICY, to: &[STRIPE] };
    let ours = Results { experiment: &experiment(), seeds: &by_chance }.estimate(&best, &[]);
    assert!(ours.mean < 1.06, "each seed's own best has a mean of 1.2, the mean is {ours:?}");
    assert_ne!(ruled_over(&by_chance, best, WORDS, Bound::AtLeast(1.1)), Holds);
    let worst = Quantity::WorstRatio { measure: Measure::Throughput, of: STRIPE, to: &[POLICY], from: 1 };
    assert_ne!(ruled_over(&by_chance, worst, WORDS, Bound::AtMost(0.9)), Holds);
}

#[test]
fn dip_between_end_points_refutes_a_rise() {
    let rise = |series| Quantity::Rise { measure: Measure::Throughput, series, from: 1, to: 8 };
    let fall = |series, from| Quantity::Fall { measure: Measure::Throughput, series, from, to: 8 };
    assert_eq!(ruled(rise(POLICY), WORDS, AHEAD), Holds);
    assert_eq!(ruled(rise(SSD), WORDS, AHEAD), Fails);
    assert_eq!(ruled(fall(SSD, 4), WORDS, Bound::LessThan(1.0)), Holds);
    assert_eq!(ruled(fall(SSD, 2), WORDS, Bound::LessThan(1.0)), Fails);
    let ends = Quantity::Change { measure: Measure::Throughput, series: SSD, at: 8, from: 1 };
    assert_eq!(ruled(ends, WORDS, AHEAD), Holds, "what the ends alone say");
}

#[test]
fn lie_a_parameter_was_chosen_for_the_claim() {
    let fitted = test(RATIO, Published::Number(1.2), Bound::Near(0.05));
    let of = |origin| judged_of(experiment(), fitted, origin, &seeds(5, TRUTH));
    assert_eq!(of(Origin::Paper).verdicts[0].ruling, Some(Holds));
    let judged = of(Origin::Fitted);
    assert_eq!((judged.verdicts[0].ruling, judged.untestable.len()), (Some(Untestable), 1));
}

#[test]
fn lie_a_row_of_a_table_is_only_shown() {
    let row = |series, published| {
        let value = Quantity::Value { measure: Measure::Throughput, series, at: 8 };
        ruled(value, Published::Number(published), Bound::Near(Baseline::TOLERANCE))
    };
    assert_eq!((row(SSD, 23.7), row(SSD, 11.0), row(HDD, 26.0)), (Holds, Fails, Fails));
}

#[test]
fn lie_a_place_without_a_value_was_not_the_worst() {
    let mut five = seeds(5, TRUTH);
    five[3][0].values[2][0] = None;
    let worst = Quantity::WorstRatio { measure: Measure::Throughput, of: POLICY, to: &[HDD], from: 1 };
    assert_eq!(ruled(worst, WORDS, AHEAD), Holds);
    assert_eq!(ruled_over(&five, worst, WORDS, AHEAD), Fails);
}

#[test]
fn disagreeing_seeds_leave_the_claim_undecided() {
    assert_eq!(of_numbers(WORDS, AHEAD, &[1.2, 1.3, 1.25]), Some(Holds));
    assert_eq!(of_numbers(WORDS, AHEAD, &[0.8, 1.4, 1.25]), Some(Undecided));
    assert_eq!(of_numbers(WORDS, AHEAD, &[0.8, 0.7, 0.75]), Some(Fails));
    assert_eq!(of_numbers(WORDS, AHEAD, &[f64::NAN, 1.2]), Some(Fails));
}

#[test]
fn variant_of_a_policy_is_judged_separately() {
    let ahead = test(ratio(POLICY, &[SSD], 8), WORDS, AHEAD);
    let judged = judged_of(experiment(), ahead, Origin::Paper, &seeds(5, TRUTH));
    let of = |verdict: &ClaimVerdict| (verdict.of.clone().unwrap(), verdict.ruling.unwrap());
    let verdicts: Vec<(String, Ruling)> = judged.verdicts.iter().map(of).collect();
    assert_eq!(verdicts, [(POLICY.to_owned(), Holds), (VARIANT.to_owned(), Fails)]);
    assert_eq!(judged.why.as_deref(), Some("a reason"));
}

#[test]
fn lie_a_twentieth_of_a_run_is_a_run() {
    let claims = vec![claim(vec![test(RATIO, WORDS, AHEAD)].leak(), Origin::Paper)].leak();
    let experiment = Experiment { claims, ..experiment() };
    let (_, judged) = judge(&experiment, &seeds(5, TRUTH), true);
    assert_eq!(judged[0].verdicts[0].ruling, Some(TooShort));
    assert_eq!(judged[0].why, None);
}

/// A constant sentence is no reason: the run with the reason changed is made with the other runs.
#[test]
fn failed_claim_reports_the_alternative_run() {
    const OTHER: &[Quantity] = &[ratio(POLICY, &[HDD], 8)];
    let with = |bound| {
        let claims =
            vec![Claim { instead: OTHER, ..claim(vec![test(RATIO, WORDS, bound)].leak(), Origin::Paper) }];
        let experiment =
            Experiment { claims: claims.leak(), series: &experiment().series[..4], ..experiment() };
        judge(&experiment, &seeds(5, TRUTH), false).1.remove(0)
    };
    let (holds, fails) = (with(AHEAD), with(Bound::LessThan(1.0)));
    assert_eq!((holds.verdicts[0].ruling, holds.instead.len()), (Some(Holds), 0));
    assert_eq!((fails.verdicts[0].ruling, fails.instead.len()), (Some(Fails), 1));
    assert!((fails.instead[0].ours - 3.0).abs() < 0.01 && fails.instead[0].ruling.is_none());
}

#[test]
fn best_place_range_covers_indistinguishable_places() {
    let mut level = TRUTH;
    level[0] = [20.0, 24.05, 24.1, 23.0];
    let place = Quantity::BestPlace { measure: Measure::Throughput, series: SSD };
    let of = |truth| {
        let (experiment, seeds) = (experiment(), seeds(5, truth));
        let ours = Results { experiment: &experiment, seeds: &seeds }.estimate(&place, &[]);
        (ours.mean, ours.low, ours.high)
    };
    assert_eq!(of(TRUTH), (4.0, 4.0, 4.0));
    assert_eq!(of(level), (4.0, 2.0, 4.0));
}

#[test]
fn worst_test_ruling_decides_the_claim() {
    let by_weight = [Holds, OtherMargin, Tie, Undecided, Fails, Untestable, OneSeed, TooShort];
    assert!(by_weight.is_sorted());
    let mut tests = vec![test(RATIO, WORDS, AHEAD), test(ratio(HDD, &[SSD], 8), WORDS, AHEAD)];
    tests.push(test(RATIO, Published::Number(9.0), Bound::Shown));
    let claims = vec![claim(tests.leak(), Origin::Paper)].leak();
    let (_, judged) = judge(&Experiment { claims, ..experiment() }, &seeds(5, TRUTH), false);
    let numbers = &judged[0].verdicts[0].numbers;
    assert_eq!(numbers.iter().map(|n| n.ruling).collect::<Vec<_>>(), [Some(Holds), Some(Fails), None]);
    assert_eq!(judged[0].verdicts[0].ruling, Some(Fails));
}
