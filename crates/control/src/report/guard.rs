//! The guard of `equi,mode=auto`, as status reports it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Findings of the simulations beside a volume about the modes of its policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GuardReport {
    /// The policy in the present mode.
    pub mode: String,
    /// Switches of the mode since the daemon started.
    pub switches: u64,
    /// Time since the last switch.
    pub switched_seconds_ago: Option<f64>,
    /// Mean time of the last batch's requests in the volume; a model is wrong if the mean is far from the
    /// present mode's simulation.
    pub measured_ns_mean: Option<u64>,
    /// All modes.
    pub modes: Vec<ModeReport>,
    /// Ghosts simulate one part in `one_in` of the volume; 0 if there are no ghosts.
    pub one_in: u32,
    /// Share of a processor used by the ghosts for the last batch.
    pub processor_share: f64,
    /// Devices without a model, which were measured while they served guests: mean factor by which the new
    /// model's response times are wrong.
    pub measured_models_off: BTreeMap<String, f64>,
    /// Why there are no ghosts, or not of all modes.
    pub problem: Option<String>,
}

/// A mode of a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModeReport {
    /// The policy in this mode.
    pub mode: String,
    /// Mean time of the last batch's requests in the simulation; null if unknown.
    pub latency_ns_mean: Option<u64>,
}
