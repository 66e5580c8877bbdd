//! Declaration of a campaign: seeds, states, disks, guests, disturbances, and their legal consequences.

use crate::campaign::Disturbance;
use crate::{DiskOptions, Workload};
use braid_engine::ErrorKind;
use std::ops::Range;

/// Runs of a workload, each with many crash states.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The campaign's name in the list of regressions.
    pub name: &'static str,
    /// Command that runs the test of this campaign; a failure prints the command with its trial.
    pub command: String,
    /// Each seed is another run: another workload, schedule and configuration.
    pub seeds: Range<u64>,
    /// The crash states of a run.
    pub states: States,
    /// The volume and its surroundings.
    pub setup: Setup,
    /// Trials that failed once, and run first. Each line holds the campaign's name and the trial; `#` begins
    /// a comment.
    pub regressions: &'static str,
    /// Maximum number of trials spent on shortening a failure.
    pub shortening: u64,
}

/// Number and kinds of crash states of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct States {
    /// The mean distance between two snapshots, in cut points; 1 for a snapshot at each.
    pub every: u64,
    /// Number of outcomes drawn from each snapshot.
    pub outcomes: u64,
    /// Share of outcomes with killed software and without a power cut: nothing is lost.
    pub killed: f64,
    /// Share of outcomes with a death of the software that leaves lasting memory ([`crate::LastingBytes`]):
    /// all acknowledged writes are then read again. Worlds have lasting memory only if the share is not 0.
    pub deaths: f64,
    /// Share of outcomes with further lives after the recovery.
    pub go_on: f64,
}

/// The surroundings of a run. A subject may change them for each seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The disks of a new volume.
    pub disks: Vec<DiskOptions>,
    /// The load of the guests in the first life; later lives do a quarter.
    pub workload: Workload,
    /// Disturbances of the disks while guests work.
    pub disturbances: Vec<Disturbance>,
    /// Kinds of error with which an undisturbed opening may be refused for good: the trial ends then. A
    /// disturbed opening may be refused with any kind of error, and is repeated undisturbed.
    pub refusals: Vec<ErrorKind>,
    /// Minimum number of openings that an old copy of a device has missed.
    pub stale_openings: usize,
    /// True if an old copy of a device must be refused. A volume that can resynchronise the copy may accept
    /// it.
    pub refuses_stale: bool,
    /// Possible numbers of extents in a span: each seed draws one of these numbers.
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
    /// Creates a setup with these disks, the default workload, and no disturbance.
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

    /// Number of extents in a span of this seed.
    pub fn span(&self) -> u64 {
        self.spans[0]
    }
}

impl Campaign {
    /// Creates a campaign on these disks, with one seed and the default states.
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
