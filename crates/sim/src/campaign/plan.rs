//! What a campaign declares: seeds, states, disks, guests, disturbances, and what these may lead to.

use crate::campaign::Disturbance;
use crate::{DiskOptions, Workload};
use braid_engine::ErrorKind;
use std::ops::Range;

/// Runs of a workload, each with many crash states.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Its name in the list of regressions.
    pub name: &'static str,
    /// The command that runs the test which owns this campaign; a failure prints it with its trial.
    pub command: String,
    /// Each seed is another run: another workload, schedule and configuration.
    pub seeds: Range<u64>,
    /// The crash states of a run.
    pub states: States,
    /// The volume and its surroundings.
    pub setup: Setup,
    /// Trials that failed once, and run first: a line for each, with the campaign's name and the trial. `#`
    /// begins a comment.
    pub regressions: &'static str,
    /// How many trials are spent on shortening a failure.
    pub shortening: u64,
}

/// How many crash states are made of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct States {
    /// The mean distance between two snapshots, in cut points; 1 for a snapshot at each.
    pub every: u64,
    /// Outcomes that are drawn from each snapshot.
    pub outcomes: u64,
    /// Of these, the share that is killed instead of losing power: nothing is lost then.
    pub killed: f64,
    /// The share whose software dies, and leaves memory that lasts ([`crate::LastingBytes`]): then all that
    /// was acknowledged is read again. Not 0: worlds have such memory.
    pub deaths: f64,
    /// The share that goes on to further lives after its recovery.
    pub go_on: f64,
}

/// The surroundings of a run. A subject may change them for each seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The disks of a new volume.
    pub disks: Vec<DiskOptions>,
    /// What guests do in the first life; later lives do a quarter of it.
    pub workload: Workload,
    /// What happens to the disks while guests work.
    pub disturbances: Vec<Disturbance>,
    /// The kinds of error with which opening may be refused for good, with nothing disturbing it any more:
    /// the trial ends then. An opening that is disturbed may be refused with any kind, and is repeated
    /// undisturbed.
    pub refusals: Vec<ErrorKind>,
    /// How many openings an old copy of a device has missed at least.
    pub stale_openings: usize,
    /// Whether an old copy of a device must be refused. A volume that can bring it up to date may take it.
    pub refuses_stale: bool,
    /// How many extents a span may have: each seed draws one of these numbers.
    pub spans: Vec<u64>,
}

/// One extent, a few, and as many as a small volume has. A volume of the daemon has at least 128.
const SPANS: [u64; 4] = [1, 2, 8, 64];

impl Default for States {
    fn default() -> States {
        States { every: 20, outcomes: 3, killed: 0.15, deaths: 0.0, go_on: 0.1 }
    }
}

impl Setup {
    /// These disks, the default workload, and no disturbance.
    pub fn new(disks: Vec<DiskOptions>) -> Setup {
        Setup {
            disks,
            workload: Workload::default(),
            disturbances: Vec::new(),
            refusals: Vec::new(),
            stale_openings: 1,
            refuses_stale: true,
            spans: SPANS.to_vec(),
        }
    }

    /// How many extents a span of this seed has.
    pub fn span(&self) -> u64 {
        self.spans[0]
    }
}

impl Campaign {
    /// A campaign on these disks, of one seed, with the default states.
    pub fn new(name: &'static str, command: impl Into<String>, disks: Vec<DiskOptions>) -> Campaign {
        Campaign {
            name,
            command: command.into(),
            seeds: 0..1,
            states: States::default(),
            setup: Setup::new(disks),
            regressions: "",
            shortening: 100,
        }
    }
}
