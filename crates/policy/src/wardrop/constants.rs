//! The constants of `wardrop`: those of section III-B of the paper, and ours.

use crate::{BadSetting, Settings};
use braid_base::Nanos;
use std::fmt;

/// Settings of the policy, each with its default.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// Length of the sample period.
    pub period: Nanos,
    /// α, per millisecond.
    pub alpha: f64,
    /// β: how many tokens the whole load is.
    pub beta: f64,
    /// Weight of one completed request in the average response time.
    pub weight: f64,
    /// Least share of a device.
    pub floor: f64,
    /// Change of a share within a period, for response times that differ without bound; 1 is the paper's rule instead.
    pub step: f64,
    /// The time in which the move of a hot extent must have saved guests more than it cost.
    pub payback: Nanos,
    /// Length of the list of hot extents.
    pub hot: usize,
    /// Below this share of free slots a device sheds cold extents …
    pub free_low: f64,
    /// … until it has this share.
    pub free_high: f64,
}

impl Constants {
    /// Settings: `period` (2s), `alpha` (10 per ms), `beta` (100), `weight` (0.01), `floor` (0.01), `step` (0.25),
    /// `payback` (8s), `hot` (4096), `free-low` (0.05), `free-high` (0.1). The paper's hot list has 100 extents.
    pub fn read(settings: &mut Settings, devices: usize) -> Result<Constants, BadSetting> {
        let constants = Constants {
            period: settings.take("period", Nanos::from_secs(2), "a time such as 2s")?,
            alpha: settings.take_within("alpha", 10.0, 0.0, 1e6)?,
            beta: settings.take_within("beta", 100.0, 0.0, 1e6)?,
            weight: settings.take_within("weight", 0.01, 1e-6, 1.0)?,
            floor: settings.take_within("floor", 0.01, 1e-4, 0.5)?,
            step: settings.take_within("step", 0.25, 0.0, 1.0)?,
            payback: settings.take("payback", Nanos::from_secs(8), "a time such as 8s")?,
            hot: settings.take("hot", 4096, "a number of extents such as 4096")?,
            free_low: settings.take_within("free-low", 0.05, 0.0, 1.0)?,
            free_high: settings.take_within("free-high", 0.1, 0.0, 1.0)?,
        };
        if constants.period < Nanos::from_millis(10) {
            return Err(BadSetting::new("setting period of policy wardrop: use at least 10ms"));
        }
        if constants.floor * devices as f64 > 1.0 {
            return Err(BadSetting::new(format!(
                "setting floor={} of policy wardrop: {} devices cannot all have that share; use less",
                constants.floor, devices
            )));
        }
        Ok(constants)
    }

    /// Whether equation (1) and the tokens are the paper's own.
    pub fn as_in_the_paper(&self) -> bool {
        self.step >= 1.0
    }
}

impl fmt::Display for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Constants { period, alpha, beta, weight, floor, step, payback, hot, free_low, free_high } = self;
        write!(
            f,
            "period={}ms,alpha={alpha},beta={beta},weight={weight},floor={floor},step={step},payback={}ms,hot={hot},\
             free-low={free_low},free-high={free_high}",
            period.0 / 1_000_000,
            payback.0 / 1_000_000
        )
    }
}
