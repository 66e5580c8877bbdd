//! Settings of `pass`. The paper describes base time, threshold and N, but not the values of its own runs:
//! the defaults are Braid's. If each write waits, the base time is short. If the I/O thread waits once per
//! window, the base time is the disk's time for as many pieces as the threshold, about 2 ms each in the order
//! of addresses. The outstanding duplications then do not grow from window to window. Small windows, which
//! make guests wait more often, are slower, as in the paper.

use super::amount::VolumePart;
use crate::{BadSetting, Move, Settings, View};
use braid_base::{Bytes, MIB, Nanos};
use std::fmt;
use std::ops::RangeInclusive;

/// Values of all settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    pub order: DuplicationOrder,
    /// Lag at which duplication begins.
    pub window: VolumePart,
    /// Largest lag, if bounded.
    pub max_lag: Option<VolumePart>,
    /// Largest age of the oldest write missing on the disks.
    pub max_lag_time: Option<Nanos>,
    /// Shorter gaps between stale ranges are duplicated with the ranges.
    pub gap: Bytes,
    pub blocking: Blocking,
    /// Delay of a request for each `threshold` outstanding duplications.
    pub base: Nanos,
    pub threshold: u64,
    /// N: largest delay of a request, in base times.
    pub levels: u64,
    /// Time without a request after which stale ranges are duplicated.
    pub idle: Option<Nanos>,
    /// True if writes of guests fail while a disk has failed.
    pub stops: bool,
}

/// Order of duplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DuplicationOrder {
    /// By address.
    Lba,
    /// All writes up to an instant, as a whole.
    Epoch,
}

/// Requests that wait for duplications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocking {
    /// Each write, according to the outstanding duplications at arrival.
    Writes,
    /// Every request, once the duplication thread is awakened and finds more outstanding duplications than
    /// the threshold: section IV.B.
    IoThread,
}

/// The policy as published.
const AS_PUBLISHED: &str = "order=lba,max-lag=none,max-lag-time=none,gap=0B,blocking=io-thread,idle=none";
/// Default age of the oldest write missing on the disks, with epochs. Without the age, a load without a
/// pause, far below the bound in bytes, would keep an epoch open for as long as the load lasts.
const OLDEST_EPOCH: Nanos = Nanos::from_secs(5);
const OLDEST: RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(3600);
const IDLE: RangeInclusive<Nanos> = Nanos(1)..=Nanos::from_secs(3600);
const LONGEST_BASE: Nanos = Nanos::from_secs(1);

impl Constants {
    /// Reads the settings: `order` (lba, or epoch), `window` (400Ksectors), `max-lag` (twice the window, or
    /// none), `max-lag-time` (none; 5s with epochs), `gap` (64KiB), `blocking` (writes, or io-thread), `base`
    /// (100us; 500ms for the I/O thread), `threshold` (256), `levels` (4, the paper's N), `idle` (100ms, or
    /// none), `on-disk-failure` (continue, or stop), and `as-published`, which sets the paper's values.
    ///
    /// Fails if a setting is invalid, or if `order=epoch` is combined with `max-lag=none` or
    /// `blocking=io-thread`.
    pub fn read(settings: &mut Settings) -> Result<Constants, BadSetting> {
        settings.take_preset("as-published", AS_PUBLISHED)?;
        let order = match settings.take_text("order").as_deref() {
            None | Some("lba") => DuplicationOrder::Lba,
            Some("epoch") => DuplicationOrder::Epoch,
            Some(other) => return Err(settings.bad("order", other, "lba or epoch")),
        };
        let window = VolumePart::take(settings, "window")?.unwrap_or(VolumePart::Sectors(400 * 1024));
        let max_lag = match settings.is("max-lag", "none") {
            true => None,
            false => Some(VolumePart::take(settings, "max-lag")?.unwrap_or(window.twice())),
        };
        let blocking = match settings.take_text("blocking").as_deref() {
            None | Some("writes") => Blocking::Writes,
            Some("io-thread") => Blocking::IoThread,
            Some(other) => return Err(settings.bad("blocking", other, "writes or io-thread")),
        };
        if order == DuplicationOrder::Epoch && (max_lag.is_none() || blocking == Blocking::IoThread) {
            let needed =
                "lba, or set max-lag=2% or another bound and blocking=writes, both required by epochs";
            return Err(settings.bad("order", "epoch", needed));
        }
        let max_lag_time = match take_time_or_none(settings, "max-lag-time", OLDEST)? {
            // The paper has no bound in time.
            None => (order == DuplicationOrder::Epoch).then_some(OLDEST_EPOCH),
            Some(time) => time,
        };
        let stops = match settings.take_text("on-disk-failure").as_deref() {
            None | Some("continue") => false,
            Some("stop") => true,
            Some(other) => return Err(settings.bad("on-disk-failure", other, "continue or stop")),
        };
        let base = match blocking {
            Blocking::Writes => Nanos::from_micros(100),
            Blocking::IoThread => Nanos::from_millis(500),
        };
        Ok(Constants {
            order,
            window,
            max_lag,
            max_lag_time,
            gap: settings.take_bytes("gap", Move::GAP, Bytes::ZERO..=MIB)?,
            blocking,
            base: settings.take_time("base", base, Nanos::ZERO..=LONGEST_BASE)?,
            threshold: settings.take_count("threshold", 256, 1..=1 << 20)?,
            levels: settings.take_count("levels", 4, 0..=1000)?,
            idle: take_time_or_none(settings, "idle", IDLE)?.unwrap_or(Some(Nanos::from_millis(100))),
            stops,
        })
    }
}

impl Constants {
    /// Returns the lag at which duplication begins. With epochs: at most half of the bound and half of the
    /// journal.
    pub fn window_of(&self, view: &View) -> Bytes {
        let window = self.window.of(volume_size(view));
        match view.homes.epoch_journal() {
            None => window,
            Some((_, all)) => window.min(Bytes(self.most_behind(view).min(all).0 / 2)),
        }
    }

    /// Returns the largest lag: without a bound, unlimited.
    pub fn most_behind(&self, view: &View) -> Bytes {
        self.max_lag.map_or(Bytes(u64::MAX), |most| most.of(volume_size(view)))
    }
}

fn volume_size(view: &View) -> Bytes {
    view.extent_size * u64::from(view.homes.extents())
}

/// Reads a time, or `none`; returns nothing if the key is not set. Fails outside the limits.
fn take_time_or_none(
    settings: &mut Settings,
    key: &'static str,
    times: RangeInclusive<Nanos>,
) -> Result<Option<Option<Nanos>>, BadSetting> {
    let Some(text) = settings.take_text(key) else { return Ok(None) };
    if text == "none" {
        return Ok(Some(None));
    }
    let time = text.parse().ok().filter(|time| times.contains(time));
    let expected = || format!("a time from {} to {}, such as 5s, or none", times.start(), times.end());
    time.map(|time| Some(Some(time))).ok_or_else(|| settings.bad(key, &text, &expected()))
}

impl fmt::Display for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Constants { window, base, threshold, levels, .. } = self;
        let order = match self.order {
            DuplicationOrder::Lba => "lba",
            DuplicationOrder::Epoch => "epoch",
        };
        let blocking = match self.blocking {
            Blocking::Writes => "writes",
            Blocking::IoThread => "io-thread",
        };
        let max_lag = self.max_lag.map_or_else(|| "none".to_owned(), |amount| amount.to_string());
        let time =
            |time: Option<Nanos>| time.map_or_else(|| "none".to_owned(), |time| format!("{}ns", time.0));
        let failure = if self.stops { "stop" } else { "continue" };
        write!(
            f,
            "order={order},window={window},max-lag={max_lag},max-lag-time={}",
            time(self.max_lag_time)
        )?;
        write!(f, ",gap={}B,blocking={blocking},base={}ns", self.gap.0, base.0)?;
        write!(f, ",threshold={threshold},levels={levels},idle={},on-disk-failure={failure}", time(self.idle))
    }
}
