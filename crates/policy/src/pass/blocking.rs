//! Section IV.B: how long requests wait for duplications.
//!
//! ```text
//! α = outstanding duplications / threshold        blocking time = base time × min(α, N)
//! ```
//!
//! The duplication thread is awakened when the window is full. It "checks the number of outstanding
//! duplication operations first. If it exceeds a threshold, the I/O thread will be blocked" for the blocking
//! time: reads, too (`blocking=io-thread`). Outstanding is what earlier windows had and the disk has not. A
//! window that fills while the plan of an earlier one is carried out counts as submitted from then on, and is
//! a part of the next plan.
//!
//! By default (`blocking=writes`) only writes wait, each by what of the plan is outstanding when it comes: a
//! read gains the disk no time.

use super::settings::{Blocking, Constants};
use braid_base::{Bytes, Nanos, Op};

/// What of earlier windows is outstanding.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// Pieces of the plan that have not ended.
    planned: u64,
    /// Pieces of windows that have filled since the plan was made.
    queued: u64,
    /// What all of these hold: the rest of what is behind is the window.
    bytes: Bytes,
    /// The I/O thread is blocked until then.
    until: Nanos,
}

impl Outstanding {
    /// A plan of so many pieces; with them, so much is submitted.
    pub fn submit(&mut self, pieces: usize, bytes: Bytes) {
        (self.planned, self.queued, self.bytes) = (pieces as u64, 0, bytes);
    }

    /// A piece of the plan has ended.
    pub fn end(&mut self, len: Bytes) {
        self.planned = self.planned.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(len);
    }

    /// How many pieces of the plan have not ended.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// What is in the window, if so much is behind.
    pub fn in_window(&self, behind: Bytes) -> Bytes {
        behind.saturating_sub(self.bytes)
    }

    /// Whether a plan is being carried out.
    pub fn is_duplicating(&self) -> bool {
        self.planned > 0
    }

    /// The duplication thread is awakened while so much is behind, in so many pieces.
    pub fn awaken(&mut self, settings: &Constants, (behind, pieces): (Bytes, u64), now: Nanos) {
        let outstanding = self.planned + self.queued;
        if outstanding > settings.threshold {
            self.until = now + blocking_time(settings, outstanding);
        }
        (self.queued, self.bytes) = (pieces.saturating_sub(self.planned), behind);
    }

    /// How long a request waits that comes now.
    pub fn wait(&self, settings: &Constants, op: Op, now: Nanos) -> Nanos {
        match (settings.blocking, op) {
            (Blocking::IoThread, _) => self.until.saturating_sub(now),
            (Blocking::Writes, Op::Write) => blocking_time(settings, self.planned),
            (Blocking::Writes, Op::Read | Op::Flush | Op::Discard) => Nanos::ZERO,
        }
    }
}

fn blocking_time(settings: &Constants, outstanding: u64) -> Nanos {
    let Constants { base, threshold, levels, .. } = *settings;
    Nanos(base.0 * outstanding / threshold).min(Nanos(base.0 * levels))
}
