//! `diurnal`: an open loop. The rate follows the time of day, and the popularity of places follows Zipf's
//! law.
//!
//! The workload begins at midnight, with a rate of `low` times the peak. The rate rises to the peak at noon
//! and falls again, as a smooth step (3x² − 2x³). Studies of servers see ratios of 2 to 10 between day and
//! night [memory]. `low=20%` is in the middle. `day` may be shorter than 24 h, so that a simulation covers
//! several days.

use crate::draw::{Scatter, Zipf};
use crate::pace::{DAY, Pace, take_requests};
use crate::target::{self, Target};
use crate::times::{Day, Times};
use crate::zipf::Popular;
use crate::{About, Setting, Workload};
use braid_base::{BadSetting, Nanos, Rng, Settings};

pub(crate) const ABOUT: About = About {
    name: "diurnal",
    summary: "open loop whose rate follows the day; popularity of places by Zipf's law",
    groups: &[OWN, target::SETTINGS],
};

const OWN: &[Setting] = &[
    Setting { key: "requests", default: "1M", meaning: "requests in all, or `endless`" },
    Setting { key: "rate", default: "500", meaning: "requests per second at noon" },
    Setting { key: "low", default: "20%", meaning: "rate at midnight as a share of the peak, at least 1%" },
    Setting { key: "day", default: "24h", meaning: "how long a day is" },
    Setting { key: "theta", default: "0.99", meaning: "exponent of Zipf's law, 0 (all alike) to 4" },
];

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let target = Target::take(settings)?;
    let requests = take_requests(settings, Some(1_000_000))?;
    let rate = settings.take_count("rate", 500, 1..=1_000_000_000)?;
    let low = settings.take_share("low")?.unwrap_or(0.2);
    let day = settings.take_time("day", DAY, Nanos::from_secs(1)..=DAY * 366)?;
    let theta = settings.take_within("theta", 0.99, 0.0, 4.0)?;
    if low < 0.01 {
        return Err(settings.bad("low", &low.to_string(), "at least 1%"));
    }
    let pace = Pace::open(requests, Times::new(rate as f64).with_day(Day { length: day.0 as f64, low }));
    let ranks = Zipf::new(target.pieces(), theta);
    let load = move || {
        let scatter = Scatter::new(target.pieces(), &mut Rng::new(!seed));
        pace.load(seed, |_, rng| Popular::new(target, ranks.clone(), Some(scatter.clone()), 1, rng))
    };
    Ok(Workload::new(ABOUT.name, target.span, pace.requests, load))
}
