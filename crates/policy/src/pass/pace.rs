//! Ours: what `max-lag` costs guests. The paper leaves open how much comes into the window while it is being
//! duplicated. Here that has an end, from which on writes wait for both copies, between which and what is
//! being duplicated the disk seeks. So that this stays an exception, guests are held before to the rate at
//! which the disk gets its copies. Without a bound none waits.
//!
//! That rate is what the disk got in the time in which it was given something. Measured by the clock it fell
//! with what guests wrote, and guests were held to that, until under a small window all devices were idle.

use super::settings::Constants;
use crate::View;
use braid_base::{Bytes, Nanos};

/// How fast the disks get their copies, and how fast guests may write for that.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Since when a full window is being duplicated.
    since: Option<Nanos>,
    /// For how long, and how many bytes the disks got meanwhile.
    worked: Nanos,
    copied: u64,
    /// When the next write may begin.
    next: Nanos,
}

/// No write waits longer for that: what is behind may be much less by then.
const LONGEST: Nanos = Nanos::from_millis(500);
/// So long the disks are watched before their rate is believed, …
const MEASURED: Nanos = Nanos::from_millis(200);
/// … and after so long the older half is forgotten.
const REMEMBERED: Nanos = Nanos::from_secs(1);

impl Pace {
    /// The last plan has ended, and another one begins if a full window is duplicated.
    pub fn begin(&mut self, full: bool, now: Nanos) {
        if let Some(since) = self.since.take() {
            self.worked += now.saturating_sub(since);
        }
        if self.worked >= REMEMBERED {
            (self.worked, self.copied) = (self.worked / 2, self.copied / 2);
        }
        self.since = full.then_some(now);
    }

    /// The disks got so many bytes.
    pub fn copied(&mut self, len: Bytes) {
        if self.since.is_some() {
            self.copied += len.0;
        }
    }

    /// Bytes a second, as far as known.
    fn rate(&self, now: Nanos) -> Option<f64> {
        let worked = self.worked + self.since.map_or(Nanos::ZERO, |since| now.saturating_sub(since));
        let rate = self.copied as f64 / worked.as_secs_f64();
        (worked >= MEASURED && rate > 0.0).then_some(rate)
    }

    /// How long a write waits. Guests get up to twice the rate of the disks while little more than the window
    /// is behind, and less and less of it towards the bound, one after the other; and none waits for longer
    /// than the disks take for the surplus over the window.
    pub fn wait(&mut self, len: Bytes, settings: &Constants, view: &View) -> Nanos {
        let Some((surplus, over)) = surplus(settings, view) else { return Nanos::ZERO };
        let Some(rate) = self.rate(view.now) else { return Nanos::ZERO };
        let allowed = rate * 2.0 * (1.0 - over).max(0.01);
        let takes = |len: Bytes, rate: f64| Nanos((len.0 as f64 / rate * 1e9) as u64);
        let longest = takes(surplus, rate).min(LONGEST);
        self.next = (self.next.max(view.now) + takes(len, allowed)).min(view.now + longest);
        self.next.saturating_sub(view.now)
    }
}

/// How much more is behind than the window, and which part of what lies between that and its bound; with
/// epochs, how much more of their journal is in use than half of it. None without a bound, or without a disk,
/// for which it would be of no use to wait.
fn surplus(settings: &Constants, view: &View) -> Option<(Bytes, f64)> {
    if settings.max_lag.is_none() || !view.homes.can_resync() {
        return None;
    }
    let (is, from, to) = match view.homes.epoch_journal() {
        None => (view.homes.behind(), settings.window_of(view), settings.most_behind(view)),
        Some((used, all)) => (used, Bytes(all.0 / 2), all),
    };
    let surplus = (is > from && to > from).then(|| is - from)?;
    Some((surplus, (surplus.0 as f64 / (to - from).0 as f64).min(1.0)))
}
