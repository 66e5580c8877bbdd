//! Section IV.B: how long requests wait for duplications.
//!
//! ```text
//! α = outstanding duplications / threshold        blocking time = base time × min(α, N)
//! ```
//!
//! The duplication thread is awakened when the window is full. It "checks the number of outstanding
//! duplication operations first. If it exceeds a threshold, the I/O thread will be blocked" for the blocking
//! time: reads, too (`blocking=io-thread`). Outstanding duplications are the writes of earlier windows still
//! missing on the disk. A window that fills during the plan of an earlier window counts as submitted from
//! then on, and is a part of the next plan.
//!
//! By default (`blocking=writes`) only writes wait, each according to the outstanding pieces of the plan at
//! arrival: a delayed read gains the disk no time.

use super::settings::{Blocking, Constants};
use braid_base::{Bytes, Nanos, Op};

/// Outstanding duplications of earlier windows.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// Pieces of the plan that have not ended.
    planned: u64,
    /// Pieces of windows that have filled since the plan was made.
    queued: u64,
    /// Bytes of planned and queued pieces: the other stale bytes are the window.
    bytes: Bytes,
    /// End of the block of the I/O thread.
    until: Nanos,
}

impl Outstanding {
    /// Begins a plan of `pieces` pieces. With the plan, `bytes` bytes are submitted.
    pub fn submit(&mut self, pieces: usize, bytes: Bytes) {
        (self.planned, self.queued, self.bytes) = (pieces as u64, 0, bytes);
    }

    /// Records the end of a piece of the plan.
    pub fn end(&mut self, len: Bytes) {
        self.planned = self.planned.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(len);
    }

    /// Number of pieces of the plan that have not ended.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Returns the bytes in the window, if `behind` bytes are stale.
    pub fn in_window(&self, behind: Bytes) -> Bytes {
        behind.saturating_sub(self.bytes)
    }

    /// True if a plan is being carried out.
    pub fn is_duplicating(&self) -> bool {
        self.planned > 0
    }

    /// Awakens the duplication thread while `behind` bytes are stale, in `pieces` pieces.
    pub fn awaken(&mut self, settings: &Constants, behind: Bytes, pieces: u64, now: Nanos) {
        let outstanding = self.planned + self.queued;
        if outstanding > settings.threshold {
            self.until = now + blocking_time(settings, outstanding);
        }
        (self.queued, self.bytes) = (pieces.saturating_sub(self.planned), behind);
    }

    /// Returns the delay of a request that arrives now.
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
