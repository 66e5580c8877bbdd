//! Counts of a campaign's events by kind, and the failure found.

use crate::Faults;
use crate::campaign::{Disturbance, TrialId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::rc::Rc;

/// Counts of the events of a campaign without a failure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Runs of a workload on a new volume.
    pub runs: u64,
    /// Cut points passed in these runs.
    pub points_passed: u64,
    /// Crash states that were recovered and verified.
    pub states: u64,
    /// Times that a volume was opened, or began to be opened.
    pub lives: u64,
    /// Lives that a power cut ended.
    pub power_cuts: u64,
    /// Lives that were killed without a power cut.
    pub kills: u64,
    /// Lives whose software died and left memory.
    pub deaths: u64,
    /// Lives that ended with a clean shutdown.
    pub closings: u64,
    /// Lives that ended within opening and recovery, before the verification of all bytes.
    pub cuts_in_recovery: u64,
    /// Openings that were refused because of a disturbance, and repeated undisturbed.
    pub refused_for_a_while: u64,
    /// Openings that were refused for good, as the campaign allows.
    pub refused_for_good: u64,
    /// Disturbances that struck, by kind.
    pub disturbances: BTreeMap<Disturbance, u64>,
}

/// Counts the disturbances of a life. Cheap to clone: a handle.
#[derive(Clone, Default)]
pub(super) struct Tally {
    counts: Rc<RefCell<BTreeMap<Disturbance, u64>>>,
    /// The current episode: a life may end within an episode.
    episode: Rc<RefCell<Option<Episode>>>,
}

struct Episode {
    kind: Disturbance,
    faults: Faults,
    /// Faults injected before the episode.
    before: u64,
}

impl Tally {
    pub(super) fn count(&self, kind: Disturbance) {
        *self.counts.borrow_mut().entry(kind).or_default() += 1;
    }

    /// An episode begins.
    pub(super) fn begin(&self, kind: Disturbance, faults: &Faults) {
        self.end();
        let episode = Episode { kind, before: faults.injected(), faults: faults.clone() };
        self.episode.replace(Some(episode));
    }

    /// Ends the current episode, if any, and counts the episode if a fault struck.
    pub(super) fn end(&self) {
        let Some(Episode { kind, faults, before }) = self.episode.take() else { return };
        if faults.injected() > before || matches!(kind, Disturbance::Deaths | Disturbance::Hangs) {
            self.count(kind);
        }
    }
}

/// A failure with the command for its replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The failed trial.
    pub trial: TrialId,
    /// Number of the failed life; the first is 0.
    pub life: u64,
    /// Description of the failure.
    pub message: String,
    /// The trial found first, if `trial` is a shortened form.
    pub found_by: Option<TrialId>,
    /// Command that replays `trial`.
    pub command: String,
}

impl Report {
    pub(super) fn add(&mut self, tally: &Tally) {
        tally.end();
        for (kind, count) in tally.counts.borrow().iter() {
            *self.disturbances.entry(*kind).or_default() += count;
        }
    }

    /// The counts by name.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = vec![
            ("runs", self.runs),
            ("cut points passed", self.points_passed),
            ("crash states", self.states),
            ("lives", self.lives),
            ("power cuts", self.power_cuts),
            ("kills", self.kills),
            ("deaths", self.deaths),
            ("closings", self.closings),
            ("cuts in recovery", self.cuts_in_recovery),
            ("refused for a while", self.refused_for_a_while),
            ("refused for good", self.refused_for_good),
        ];
        counts.extend(self.disturbances.iter().map(|(kind, count)| (kind.name(), *count)));
        counts
    }
}

impl AddAssign<Report> for Report {
    fn add_assign(&mut self, other: Report) {
        self.runs += other.runs;
        self.points_passed += other.points_passed;
        self.states += other.states;
        self.lives += other.lives;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.deaths += other.deaths;
        self.closings += other.closings;
        self.cuts_in_recovery += other.cuts_in_recovery;
        self.refused_for_a_while += other.refused_for_a_while;
        self.refused_for_good += other.refused_for_good;
        for (kind, count) in other.disturbances {
            *self.disturbances.entry(kind).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts().into_iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(&counts.join(", "))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { trial, life, message, found_by, command } = self;
        write!(f, "{trial}, life {life}: {message}\nreplay: {command}")?;
        found_by.as_ref().map_or(Ok(()), |found_by| write!(f, "\nshortened from {found_by}"))
    }
}

impl std::error::Error for Failure {}
