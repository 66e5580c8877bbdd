//! The settings of `hystor`. A setting without a value in the paper says so.

use crate::{BadSetting, Settings};
use braid_base::{Bytes, GIB, KIB, MIB, Nanos};
use std::fmt;

/// The policy's settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// `write-back` (20%, as in the paper's chunk-size test): share of each SSD for the write-back area.
    pub write_back: f64,
    /// `dirty-high` and `dirty-low` (75%, 50%; the paper has none): dirty shares of the write-back area at
    /// which writing back begins and ends.
    pub high: f64,
    pub low: f64,
    /// `period` (10s; the paper has none): time from one search for candidates to the next.
    pub period: Nanos,
    /// `quota` (100%): share of the remap area for which a search chooses blocks.
    pub quota: f64,
    /// `budget` (1%; the paper has none): share of a busy disk's time for reading chosen blocks.
    pub budget: f64,
    /// `metadata` (on): true if metadata blocks go to the remap area at the first access.
    pub metadata: bool,
    /// `memory` (16MiB): memory of the block table for each TiB of the volume, rounded up.
    pub memory: Bytes,
}

/// Settings of the policy as presented. Settings without a number in the talk keep their defaults.
pub(super) const AS_PUBLISHED: &str =
    "write-back=20%,quota=100%,metadata=on,budget=100%,bypass=off,part-writes=cache";

impl Constants {
    /// Reads the settings.
    pub fn read(settings: &mut Settings) -> Result<Constants, BadSetting> {
        let mut share = |key, default| Ok(settings.take_share(key)?.unwrap_or(default));
        let (write_back, high, low) =
            (share("write-back", 0.2)?, share("dirty-high", 0.75)?, share("dirty-low", 0.5)?);
        let (quota, budget) = (share("quota", 1.0)?, share("budget", 0.01)?);
        if low > high {
            return Err(settings.bad(
                "dirty-low",
                &percent(low),
                &format!("at most dirty-high, {}", percent(high)),
            ));
        }
        let (short, long) = (Nanos::from_millis(1), Nanos::from_secs(24 * 3600));
        let period = settings.take_time("period", Nanos::from_secs(10), short..=long)?;
        let metadata = match settings.take_text("metadata").as_deref() {
            None | Some("on") => true,
            Some("off") => false,
            Some(other) => return Err(settings.bad("metadata", other, "on or off")),
        };
        let memory = settings.take_bytes("memory", MIB * 16, KIB * 64..=GIB * 16)?;
        Ok(Constants { write_back, high, low, period, quota, budget, metadata, memory })
    }
}

impl fmt::Display for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Constants { write_back, high, low, period, quota, budget, metadata, memory } = *self;
        let (period, metadata) = (period.0, if metadata { "on" } else { "off" });
        write!(
            f,
            "write-back={},dirty-high={},dirty-low={}",
            percent(write_back),
            percent(high),
            percent(low)
        )?;
        write!(f, ",period={period}ns,quota={},budget={}", percent(quota), percent(budget))?;
        write!(f, ",metadata={metadata},memory={}B", memory.0)
    }
}

/// Formats a share as `take_share` reads it: rounded, because 0.07 × 100 is not 7.
fn percent(share: f64) -> String {
    format!("{}%", (share * 1e8).round() / 1e6)
}
