//! Braid's own: the cost of `max-lag` for guests. The paper leaves open how much data may enter the window
//! during a duplication. Here the window is bounded. Beyond the bound writes wait for both copies, and the
//! disk seeks between guests' writes and the duplication. To keep the bound an exception, guests are held to
//! the disk's copy rate before the bound is reached. Without a bound no write waits.
//!
//! The rate covers only the time in which the disk had work. A rate over all time fell with the guests'
//! writes, and guests were held to the fallen rate, until under a small window all devices were idle.

use super::settings::Constants;
use crate::View;
use braid_base::{Bytes, Nanos};

/// Copy rate of the disks, and the resulting pace of guests' writes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Start of the duplication of a full window.
    since: Option<Nanos>,
    /// Time of duplication, and bytes copied to the disks in the time.
    worked: Nanos,
    copied: u64,
    /// Earliest start of the next write.
    next: Nanos,
}

/// Longest delay of a write for pacing: the lag may be much smaller by then.
const LONGEST: Nanos = Nanos::from_millis(500);
/// Time of measurement until the rate counts, …
const MEASURED: Nanos = Nanos::from_millis(200);
/// … and time after which the older half is forgotten.
const REMEMBERED: Nanos = Nanos::from_secs(1);

impl Pace {
    /// Ends the last plan, and begins another if a full window is duplicated.
    pub fn begin(&mut self, full: bool, now: Nanos) {
        if let Some(since) = self.since.take() {
            self.worked += now.saturating_sub(since);
        }
        if self.worked >= REMEMBERED {
            (self.worked, self.copied) = (self.worked / 2, self.copied / 2);
        }
        self.since = full.then_some(now);
    }

    /// Records bytes copied to the disks.
    pub fn copied(&mut self, len: Bytes) {
        if self.since.is_some() {
            self.copied += len.0;
        }
    }

    /// Returns bytes a second, if measured.
    fn rate(&self, now: Nanos) -> Option<f64> {
        let worked = self.worked + self.since.map_or(Nanos::ZERO, |since| now.saturating_sub(since));
        let rate = self.copied as f64 / worked.as_secs_f64();
        (worked >= MEASURED && rate > 0.0).then_some(rate)
    }

    /// Returns the delay of a write. Guests get up to twice the rate of the disks while the lag is little
    /// above the window, and less and less towards the bound, one after the other. No write waits longer than
    /// the disks take for the surplus over the window.
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

/// Returns the lag beyond the window, and that surplus as a fraction of the range from window to bound. With
/// epochs the measure is the use of the journal, from one half on. None without a bound, or without a disk:
/// waiting would be useless.
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
