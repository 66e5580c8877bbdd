//! Confidence intervals of a mean latency, and of the difference of two, from batches of consecutive
//! requests.
//!
//! Two causes make the future differ from the forecast. The first is the load: its part is estimated from
//! batches. The second is a learning policy, which may end in one of several layouts by chance, and stay
//! there. Its part is estimated from *runs* that begin at other requests on devices of another seed, and
//! measure the same batches. (`equi` has 0.95 or 1.25 ms under a Zipf load of 1 MiB units, in every batch.)
//!
//! A batch's latency differs from the mean by chance and because the load changes. Neighbouring batches are
//! alike if the load has phases, which would make an interval too narrow. A second interval is therefore made
//! from batches of twice the length, and the wider of the two counts.

use crate::estimate::Estimate;
use crate::outcome::BatchSum;

/// Batches of an interval.
pub(crate) const BATCHES: usize = 16;
/// Fewest batches with requests for an interval.
const FEWEST: usize = 4;

/// Batches of each run.
pub(crate) type Runs = [Vec<BatchSum>];

/// Mean latency in nanoseconds, with an interval for one further run; `None` if there are too few batches
/// with requests.
pub(crate) fn latency(runs: &Runs) -> Option<Estimate> {
    together(wider(&all(runs), &[])?, &means(runs))
}

/// Mean latency of `one` minus that of `other`, in nanoseconds, batch by batch and run by run.
pub(crate) fn difference(one: &Runs, other: &Runs) -> Option<Estimate> {
    let by: Vec<f64> = means(one).iter().zip(means(other)).map(|(one, other)| one - other).collect();
    let runs = by.len();
    together(wider(&all(&one[..runs]), &all(&other[..runs]))?, &by)
}

/// Mean latency, with or without an interval.
pub(crate) fn mean(runs: &Runs) -> f64 {
    mean_of(&all(runs))
}

/// Combines the variation of the load and of runs, as independent variations.
fn together(load: Estimate, runs: &[f64]) -> Option<Estimate> {
    // For one further run: the half-width of the mean, times the root of the number of runs plus one.
    let of_runs = Estimate::of(runs).half_width() * (runs.len() as f64 + 1.0).sqrt();
    let half = load.half_width().hypot(of_runs);
    Some(Estimate { mean: load.mean, low: load.mean - half, high: load.mean + half })
}

fn means(runs: &Runs) -> Vec<f64> {
    runs.iter().map(|batches| mean_of(batches)).collect()
}

/// Batches of all runs together.
fn all(runs: &Runs) -> Vec<BatchSum> {
    let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
    let of_place = |place: usize| add(runs.iter().filter_map(move |batches| batches.get(place)));
    (0..longest).map(of_place).collect()
}

fn add<'a>(batches: impl Iterator<Item = &'a BatchSum>) -> BatchSum {
    batches.fold(BatchSum::default(), |sum, batch| BatchSum {
        requests: sum.requests + batch.requests,
        latency_ns_sum: sum.latency_ns_sum + batch.latency_ns_sum,
    })
}

fn mean_of(batches: &[BatchSum]) -> f64 {
    let (requests, time) = sums(batches);
    time / requests.max(1.0)
}

fn wider(one: &[BatchSum], other: &[BatchSum]) -> Option<Estimate> {
    let merged = of(&in_pairs(one), &in_pairs(other));
    let single = of(one, other)?;
    Some(merged.filter(|merged| merged.half_width() > single.half_width()).unwrap_or(single))
}

/// Interval of the mean of a ratio: a batch's latency in excess of the mean, divided by the requests of a
/// usual batch.
fn of(one: &[BatchSum], other: &[BatchSum]) -> Option<Estimate> {
    let deviations = |batches: &[BatchSum]| {
        let usual = sums(batches).0 / batches.len().max(1) as f64;
        let mean = mean_of(batches);
        let of =
            |batch: &BatchSum| (batch.latency_ns_sum as f64 - mean * batch.requests as f64) / usual.max(1.0);
        batches.iter().map(of).collect::<Vec<f64>>()
    };
    let filled = |batches: &[BatchSum]| batches.iter().filter(|batch| batch.requests > 0).count();
    if filled(one) < FEWEST || (!other.is_empty() && (filled(other) < FEWEST || other.len() != one.len())) {
        return None;
    }
    let (a, b) = (deviations(one), deviations(other));
    let centre = mean_of(one) - mean_of(other);
    let numbers: Vec<f64> =
        a.iter().enumerate().map(|(place, a)| centre + a - b.get(place).unwrap_or(&0.0)).collect();
    Some(Estimate::of(&numbers))
}

fn in_pairs(batches: &[BatchSum]) -> Vec<BatchSum> {
    batches.chunks(2).map(|pair| add(pair.iter())).collect()
}

fn sums(batches: &[BatchSum]) -> (f64, f64) {
    let add = |(requests, time): (f64, f64), batch: &BatchSum| {
        (requests + batch.requests as f64, time + batch.latency_ns_sum as f64)
    };
    batches.iter().fold((0.0, 0.0), add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    fn batch(requests: u64, mean: f64) -> BatchSum {
        BatchSum { requests, latency_ns_sum: (requests as f64 * mean) as u64 }
    }

    #[test]
    fn the_mean_counts_requests_and_not_batches() {
        let batches = [batch(100, 10.0), batch(100, 10.0), batch(100, 10.0), batch(700, 110.0)];
        let estimate = latency(&[batches.to_vec()]).unwrap();
        assert!((estimate.mean - 80.0).abs() < 1e-9 && estimate.half_width() > 10.0, "{estimate:?}");
    }

    /// The load is slow at times under both policies, which adds no uncertainty to the difference.
    #[test]
    fn common_load_variation_does_not_widen_the_difference() {
        let mut rng = Rng::new(3);
        let loads: Vec<f64> = (0..BATCHES).map(|_| 1000.0 + rng.below(100_000) as f64).collect();
        let one: Vec<BatchSum> = loads.iter().map(|&load| batch(100, load)).collect();
        let other: Vec<BatchSum> =
            loads.iter().map(|&load| batch(100, load + 500.0 + rng.below(10) as f64)).collect();
        let apart = latency(std::slice::from_ref(&one)).unwrap().half_width();
        let difference = difference(&[other], &[one]).unwrap();
        assert!((500.0..510.0).contains(&difference.mean), "{difference:?}");
        assert!(difference.half_width() < 10.0 && apart > 1000.0, "{difference:?} {apart}");
    }

    #[test]
    fn the_interval_contains_the_truth_about_19_times_in_20() {
        let mut rng = Rng::new(11);
        let mut draw = || (0..12).map(|_| rng.below(1000) as f64).sum::<f64>();
        let hits = (0..2000)
            .filter(|_| {
                let batches: Vec<BatchSum> = (0..BATCHES).map(|_| batch(100, draw())).collect();
                let estimate = latency(&[batches.to_vec()]).unwrap();
                (estimate.low..estimate.high).contains(&5994.0)
            })
            .count();
        assert!((1880..=1990).contains(&hits), "{hits} of 2000");
    }

    #[test]
    fn phases_longer_than_a_batch_widen_the_interval() {
        let phases: Vec<BatchSum> =
            (0..BATCHES).map(|n| batch(100, if n % 4 < 2 { 100.0 } else { 300.0 })).collect();
        let wide = latency(std::slice::from_ref(&phases)).unwrap().half_width();
        assert!(wide > of(&phases, &[]).unwrap().half_width() * 1.3, "{wide}");
    }

    #[test]
    fn spread_between_runs_widens_the_interval() {
        let run = |mean| vec![batch(100, mean); BATCHES];
        let alike = latency(&[run(100.0), run(100.0), run(100.0)]).unwrap();
        assert_eq!((alike.mean, alike.half_width()), (100.0, 0.0));
        let apart = latency(&[run(90.0), run(120.0), run(90.0)]).unwrap();
        // The next run may be at 120 again: 4.303 times the deviation, times the root of 1 + 1/3.
        let expected = 4.303 * 300_f64.sqrt() * (4.0 / 3.0_f64).sqrt();
        assert!(
            (apart.mean - 100.0).abs() < 1e-9 && (apart.half_width() - expected).abs() < 0.1,
            "{apart:?}"
        );
        // Variation common to a pair of runs is no uncertainty.
        let difference = difference(&[run(95.0), run(125.0)], &[run(90.0), run(120.0)]).unwrap();
        assert!((difference.mean - 5.0).abs() < 1e-9 && difference.half_width() < 1e-9, "{difference:?}");
        // With different numbers of runs, only the common runs count.
        let one = super::difference(&[run(95.0)], &[run(90.0), run(120.0)]).unwrap();
        assert!((one.mean - 5.0).abs() < 1e-9, "{one:?}");
    }

    #[test]
    fn few_batches_give_no_interval() {
        let few = [vec![batch(10, 1.0), batch(0, 0.0), batch(10, 1.0), batch(0, 0.0), batch(10, 1.0)]];
        assert_eq!((latency(&few), difference(&few, &few)), (None, None));
    }
}
