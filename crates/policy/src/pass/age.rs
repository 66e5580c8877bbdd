//! Ours: `max-lag-time`, how old the oldest write may be that the disks lack. That is known by rounds: what
//! was behind when one began has been copied once all of its pieces have ended, over one plan or several.

use crate::Outcome;
use braid_base::{Bytes, Nanos};

/// Up to when the disks have all that was written.
#[derive(Debug, Default)]
pub(super) struct Age {
    /// The disks have all that was written before this time.
    covered: Nanos,
    round: Option<Round>,
}

/// A duplication of all that was behind when it began.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Nanos,
    /// Where the next plan goes on; none if this one is the last.
    next: Option<Bytes>,
    /// Pieces of this plan that have not ended.
    left: usize,
    /// Whether those that have ended did all of their work.
    whole: bool,
}

/// A round of which a plan has left something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished(Round);

impl Unfinished {
    /// Where it goes on.
    pub fn next(&self) -> Bytes {
        self.0.next.unwrap_or_default()
    }
}

impl Age {
    /// Whether the oldest write that the disks lack is as old as `part` of what is allowed.
    pub fn is_late(&self, most: Option<Nanos>, part: u64, now: Nanos) -> bool {
        most.is_some_and(|most| now >= self.covered + most / part)
    }

    /// The disks lack nothing.
    pub fn catch_up(&mut self, now: Nanos) {
        self.covered = now;
    }

    /// Ends a plan. What it left of its round comes first in the next one, so that all of the volume has its
    /// turn.
    pub fn end_plan(&mut self) -> Option<Unfinished> {
        self.round.take().filter(|round| round.next.is_some()).map(Unfinished)
    }

    /// A plan of so many pieces begins, of a new round or of this one, which goes on at `next`.
    pub fn begin_plan(&mut self, from: Option<Unfinished>, pieces: usize, next: Option<Bytes>, now: Nanos) {
        let (began, whole) = from.map_or((now, true), |Unfinished(round)| (round.began, round.whole));
        if from.is_some() && pieces == 0 && whole {
            // Nothing that was left of the round is behind any more.
            self.covered = began;
        }
        self.round = Some(Round { began, next, left: pieces, whole });
    }

    /// A piece has ended.
    pub fn done(&mut self, outcome: Outcome) {
        let Some(round) = &mut self.round else { return };
        round.left = round.left.saturating_sub(1);
        round.whole &= outcome == Outcome::Finished;
        if round.left == 0 && round.next.is_none() && round.whole {
            self.covered = round.began;
        }
    }
}
