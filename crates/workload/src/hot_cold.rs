//! `hot-cold`: a hot set gets most requests, the rest of the span gets the others. The hot set moves from
//! time to time.
//!
//! The span is divided into units, and the seed chooses an order of the units. The hot set is a run of units
//! in this order, so hot units are scattered over the volume. After every `every` requests the run moves on
//! by `shift` of its length: 100 % replaces the whole set, 10 % a tenth of the set. The order is circular. No
//! published workload. The mix of 90 % of requests to 10 % of the span is common in file-system studies
//! (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System", section 3.5).
//!
//! In a closed loop each client counts its own requests: `every` is divided by the number of clients.

use crate::draw::Scatter;
use crate::target::{self, Target};
use crate::{About, Setting, Workload, pace};
use braid_base::{BadSetting, MIB, Request, Rng, Settings};

pub(crate) const ABOUT: About = About {
    name: "hot-cold",
    summary: "a hot set gets most requests, and moves from time to time",
    groups: &[OWN, target::SETTINGS, pace::SETTINGS],
};

const OWN: &[Setting] = &[
    Setting { key: "hot", default: "10%", meaning: "share of the span that is hot" },
    Setting { key: "to-hot", default: "90%", meaning: "share of requests that go to the hot set" },
    Setting { key: "every", default: "250K", meaning: "requests after which the hot set moves, or `never`" },
    Setting { key: "shift", default: "100%", meaning: "share of the hot set that is replaced when it moves" },
    Setting { key: "unit", default: "1MiB", meaning: "unit of the hot set: a multiple of size" },
];

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let hot = settings.take_share("hot")?.unwrap_or(0.1);
    let to_hot = settings.take_share("to-hot")?.unwrap_or(0.9);
    let every = match settings.take_text("every").as_deref() {
        None => 250_000,
        Some("never") => u64::MAX,
        Some(text) => settings.read_count("every", text, 1..=u64::MAX / 2)?,
    };
    let shift = settings.take_share("shift")?.unwrap_or(1.0);
    let mut target = Target::take(settings)?;
    let unit =
        settings.take_bytes("unit", MIB.max(target.size).min(target.span), target.size..=target.span)?;
    let pace = pace::Pace::take(settings)?;
    if !unit.is_aligned(target.size) {
        return Err(settings.bad("unit", &unit.to_string(), &format!("a multiple of size, {}", target.size)));
    }
    target.span = target.span.align_down(unit);
    let units = target.span / unit;
    let hot_units = ((units as f64 * hot).round() as u64).clamp(1, units);
    let sets = Sets {
        per_unit: unit / target.size,
        units,
        hot_units,
        to_hot,
        every: (every / pace.streams()).max(1),
        step: (hot_units as f64 * shift).round() as u64 % units,
    };
    let load = move || {
        let order = Scatter::new(units, &mut Rng::new(!seed));
        pace.load(seed, |_, rng| HotCold {
            target,
            sets,
            order: order.clone(),
            first: 0,
            left: sets.every,
            rng,
        })
    };
    Ok(Workload::new(ABOUT.name, target.span, pace.requests, load))
}

#[derive(Clone, Copy)]
struct Sets {
    /// Requests that fit in a unit.
    per_unit: u64,
    units: u64,
    hot_units: u64,
    to_hot: f64,
    /// Requests of one client between moves.
    every: u64,
    /// Units by which the run moves on, below `units`.
    step: u64,
}

struct HotCold {
    target: Target,
    sets: Sets,
    order: Scatter,
    /// Start of the hot run in the order.
    first: u64,
    /// Requests until the next move.
    left: u64,
    rng: Rng,
}

impl Iterator for HotCold {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let sets = self.sets;
        if self.left == 0 {
            self.first = (self.first + sets.step) % sets.units;
            self.left = sets.every;
        }
        self.left -= 1;
        let is_hot = self.rng.chance(sets.to_hot) || sets.hot_units == sets.units;
        let in_order = match is_hot {
            true => self.rng.below(sets.hot_units),
            false => self.rng.between(sets.hot_units, sets.units),
        };
        let turned = self.first + in_order;
        let unit = self.order.place(if turned < sets.units { turned } else { turned - sets.units });
        let within = self.rng.below(sets.per_unit);
        Some(self.target.request(unit * sets.per_unit + within, &mut self.rng))
    }
}
