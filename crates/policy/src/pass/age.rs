//! Braid's own: `max-lag-time`, the largest age of a write missing on the disks. The age is tracked by
//! rounds: all data stale at the begin of a round is copied once all pieces of the round have ended, over one
//! plan or several.

use crate::Outcome;
use braid_base::{Bytes, Nanos};

/// Time up to which the disks have all writes.
#[derive(Debug, Default)]
pub(super) struct Age {
    /// The disks have all data written before this time.
    covered: Nanos,
    round: Option<Round>,
}

/// Duplication of all data stale at the begin of the round.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Nanos,
    /// Start of the next plan; none if this plan is the last of the round.
    next: Option<Bytes>,
    /// Pieces of this plan that have not ended.
    left: usize,
    /// True if all ended pieces did all of their work.
    whole: bool,
}

/// Round with work left by a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished(Round);

impl Unfinished {
    /// Returns the start of the next plan.
    pub fn next(&self) -> Bytes {
        self.0.next.unwrap_or_default()
    }
}

impl Age {
    /// True if the oldest write missing on the disks may be as old as the allowed age divided by `part`.
    pub fn is_late(&self, most: Option<Nanos>, part: u64, now: Nanos) -> bool {
        most.is_some_and(|most| now >= self.covered + most / part)
    }

    /// Records that the disks lack nothing.
    pub fn catch_up(&mut self, now: Nanos) {
        self.covered = now;
    }

    /// Ends a plan. Work left of the round comes first in the next plan, so that the whole volume has its
    /// turn.
    pub fn end_plan(&mut self) -> Option<Unfinished> {
        self.round.take().filter(|round| round.next.is_some()).map(Unfinished)
    }

    /// Begins a plan of `pieces` pieces, of a new round or of the round `from`. The plan after it starts at
    /// `next`.
    pub fn begin_plan(&mut self, from: Option<Unfinished>, pieces: usize, next: Option<Bytes>, now: Nanos) {
        let (began, whole) = from.map_or((now, true), |Unfinished(round)| (round.began, round.whole));
        if from.is_some() && pieces == 0 && whole {
            // No range left of the round is stale any more.
            self.covered = began;
        }
        self.round = Some(Round { began, next, left: pieces, whole });
    }

    /// Records the end of a piece.
    pub fn done(&mut self, outcome: Outcome) {
        let Some(round) = &mut self.round else { return };
        round.left = round.left.saturating_sub(1);
        round.whole &= outcome == Outcome::Finished;
        if round.left == 0 && round.next.is_none() && round.whole {
            self.covered = round.began;
        }
    }
}
