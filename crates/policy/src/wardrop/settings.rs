//! The constants of `wardrop`: constants of sections II and III-B of the paper, constants that the paper
//! leaves open, and ablations.

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
    /// β: tokens for a difference of 1 between P and Q.
    pub beta: f64,
    /// Weight of one sample in the average response time.
    pub weight: f64,
    /// Unit of a sample.
    pub average: Average,
    /// Least P of a device.
    pub floor: f64,
    /// Share of free slots below which a device starts to shed cold extents.
    pub free_low: f64,
    /// Share of free slots at which a device stops shedding cold extents.
    pub free_high: f64,
    /// Extents that may move after their allocation.
    pub moves: Moves,
}

/// A sample of the response time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// Response time of one request.
    Request,
    /// Mean response time of a period.
    Period,
}

/// Allocated extents that may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// All, as in the paper.
    All,
    /// Extents in memory, together with a write to the extent.
    OnWrite,
    /// None: only allocation balances.
    None,
}

/// The policy as published: its defaults. Constants that the paper leaves open keep their defaults.
const AS_PUBLISHED: &str = "period=2s,alpha=10,beta=100,weight=0.01";

impl Constants {
    /// Reads the settings: `period` (2s), `alpha` (10 per ms), `beta` (100), `weight` (0.01), `average`
    /// (request; or period), `floor` (0.01), `free-low` (0.05), `free-high` (0.1).
    ///
    /// Flags: `as-published` (sets the published constants), `no-migration` (no moves in the background),
    /// `allocation-only` (no moves of allocated extents).
    pub fn read(settings: &mut Settings, devices: usize) -> Result<Constants, BadSetting> {
        settings.take_preset("as-published", AS_PUBLISHED)?;
        let constants = Constants {
            period: settings.take("period", Nanos::from_secs(2), "a time such as 2s")?,
            alpha: settings.take_within("alpha", 10.0, 0.0, 1e6)?,
            beta: settings.take_within("beta", 100.0, 0.0, 1e6)?,
            weight: settings.take_within("weight", 0.01, 1e-6, 1.0)?,
            average: match settings.take_text("average").as_deref() {
                None | Some("request") => Average::Request,
                Some("period") => Average::Period,
                Some(other) => return Err(settings.bad("average", other, "request or period")),
            },
            floor: settings.take_within("floor", 0.01, 1e-4, 0.5)?,
            free_low: settings.take_within("free-low", 0.05, 0.0, 1.0)?,
            free_high: settings.take_within("free-high", 0.1, 0.0, 1.0)?,
            moves: match (settings.take_flag("allocation-only")?, settings.take_flag("no-migration")?) {
                (true, _) => Moves::None,
                (false, true) => Moves::OnWrite,
                (false, false) => Moves::All,
            },
        };
        let Constants { period, floor, free_low, free_high, .. } = constants;
        if period < Nanos::from_millis(10) {
            return Err(BadSetting::new("setting period of policy wardrop: use at least 10ms"));
        }
        if floor * devices as f64 > 1.0 {
            return Err(BadSetting::new(format!(
                "setting floor={floor} of policy wardrop: {devices} devices cannot all have that share; use less"
            )));
        }
        if free_low > free_high {
            return Err(BadSetting::new(format!(
                "setting free-low={free_low} of policy wardrop: use at most free-high, which is {free_high}"
            )));
        }
        Ok(constants)
    }
}

impl fmt::Display for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Constants { period, alpha, beta, weight, average, floor, free_low, free_high, moves } = self;
        let average = match average {
            Average::Request => "request",
            Average::Period => "period",
        };
        let flag = match moves {
            Moves::All => "",
            Moves::OnWrite => ",no-migration",
            Moves::None => ",allocation-only",
        };
        write!(
            f,
            "period={}ns,alpha={alpha},beta={beta},weight={weight},average={average},floor={floor},\
             free-low={free_low},free-high={free_high}{flag}",
            period.0
        )
    }
}
