//! The constants of `most`: constants of section 3 of the paper, of its implementation, and constants that
//! the paper leaves open.

use crate::{BadSetting, Settings};
use braid_base::{Bytes, KIB, Nanos};
use std::fmt;

/// Settings of the policy, each with its default.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// Time between two comparisons of latencies.
    pub round: Nanos,
    /// θ: latencies with a smaller relative difference are equal.
    pub theta: f64,
    /// Change of the offload ratio in a round.
    pub step: f64,
    /// Highest offload ratio: a bound for the tail of the latency.
    pub most: f64,
    /// Size of the mirrored class, as a share of all slots.
    pub mirror: f64,
    /// Share of free slots below which the mirrored class shrinks.
    pub free: f64,
    /// Bytes moved per second, at most.
    pub rate: Bytes,
    /// Weight of a round in the average latency.
    pub weight: f64,
    /// Reads between two writes from which an extent is cleaned.
    pub clean: f64,
}

impl Constants {
    /// Reads the settings: `round` (200ms), `theta` (0.05), `step` (2%), `offload` (100%), `mirror` (20%),
    /// `free` (2.5%), `rate` (100MB), `weight` (0.25), `clean` (4).
    pub fn read(settings: &mut Settings) -> Result<Constants, BadSetting> {
        let step = settings.take_share("step")?.unwrap_or(0.02);
        if step == 0.0 {
            return Err(settings.bad("step", "0", "a share above 0"));
        }
        Ok(Constants {
            round: settings.take_time(
                "round",
                Nanos::from_millis(200),
                Nanos::from_millis(10)..=Nanos::from_secs(3600),
            )?,
            theta: settings.take_within("theta", 0.05, 0.0, 1.0)?,
            step,
            most: settings.take_share("offload")?.unwrap_or(1.0),
            mirror: settings.take_share("mirror")?.unwrap_or(0.2),
            free: settings.take_share("free")?.unwrap_or(0.025),
            rate: settings.take_bytes("rate", Bytes(100_000_000), KIB..=KIB * (1 << 30))?,
            weight: settings.take_within("weight", 0.25, 1e-6, 1.0)?,
            clean: settings.take_within("clean", 4.0, 0.0, 255.0)?,
        })
    }
}

impl fmt::Display for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Constants { round, theta, step, most, mirror, free, rate, weight, clean } = self;
        write!(
            f,
            "round={}ns,theta={theta},step={}%,offload={}%,mirror={}%,free={}%,rate={}B,weight={weight},clean={clean}",
            round.0,
            step * 100.0,
            most * 100.0,
            mirror * 100.0,
            free * 100.0,
            rate.0
        )
    }
}
