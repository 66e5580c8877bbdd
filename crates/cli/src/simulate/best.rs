//! `--policy best-static`: of nine static splits, the one with the lowest mean latency.
//!
//! A split is the best that can be done without moving data, if the load is known beforehand. So it is what a
//! policy that learns is compared with: it is found by trying, which cannot be done with a volume in use.

use braid_lab::{Error, Run};
use serde::Serialize;

/// What it is called on the command line.
pub const NAME: &str = "best-static";

/// The split that was the best, and all that were tried.
#[derive(Serialize)]
pub struct Best {
    /// The best, as a policy.
    pub policy: String,
    /// All of them, in order.
    pub tried: Vec<Tried>,
}

/// A split that was tried.
#[derive(Serialize)]
pub struct Tried {
    policy: String,
    /// None if it could not be simulated.
    latency_ns_mean: Option<f64>,
}

/// The policies to be simulated for what was given as one.
pub fn policies(given: &str) -> Vec<String> {
    match given {
        NAME => (1..=9).map(|tenths| format!("static,ssd={tenths}0%")).collect(),
        other => vec![other.to_owned()],
    }
}

/// The best of these splits, or why the first failed if all did.
pub fn best(policies: Vec<String>, results: Vec<Result<Run, Error>>) -> (Result<Run, Error>, Best) {
    let latency = |result: &Result<Run, Error>| result.as_ref().ok().map(|run| run.outcome.all.latency.mean);
    let tried = policies.iter().zip(&results);
    let tried =
        tried.map(|(policy, result)| Tried { policy: policy.clone(), latency_ns_mean: latency(result) });
    let tried: Vec<Tried> = tried.collect();
    let mut found = policies.into_iter().zip(results);
    let (mut policy, mut result) = found.next().expect("nine splits are tried");
    for (other, its) in found {
        if latency(&its).is_some_and(|its| latency(&result).is_none_or(|best| its < best)) {
            (policy, result) = (other, its);
        }
    }
    (result, Best { policy, tried })
}
