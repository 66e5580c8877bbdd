//! `--policy best-static`: the best of nine static splits, by mean latency.
//!
//! A static split is the best placement without moving data, if the load is known beforehand. Policies that
//! learn are therefore compared with `best-static`. The split is found by trying all nine, which is
//! impossible on a volume in use.

use braid_lab::{Error, Run};
use serde::Serialize;

/// Name on the command line.
pub const NAME: &str = "best-static";

/// The best split, and all tried splits.
#[derive(Serialize)]
pub struct Best {
    /// Best split, as a policy.
    pub policy: String,
    /// All tried splits, in order.
    pub tried: Vec<Tried>,
}

/// A tried split.
#[derive(Serialize)]
pub struct Tried {
    policy: String,
    /// None if the simulation failed.
    latency_ns_mean: Option<f64>,
}

/// Returns the policies to simulate for one given policy.
pub fn policies(given: &str) -> Vec<String> {
    match given {
        NAME => (1..=9).map(|tenths| format!("static,ssd={tenths}0%")).collect(),
        other => vec![other.to_owned()],
    }
}

/// Returns the result with the lowest mean latency, or the first error if all simulations failed.
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
