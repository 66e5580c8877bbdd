//! `refill`: fills its span, then endlessly discards the oldest data and writes new data in its place. Reads
//! go to existing data, mostly to new data. The pattern of a volume of virtual machines or of a log, when the
//! oldest parts are deleted.
//!
//! The workload covers states that other workloads leave out: a full volume, space freed by discards, and new
//! allocations while older data lies on the fast device.
//!
//! Units are written one after the other, in an order unrelated to their addresses. After the first fill, the
//! share `empty` of the units is always discarded and not yet rewritten. Each client has its own units.

use crate::draw::Scatter;
use crate::target::{self, Target};
use crate::{About, Setting, Workload, pace};
use braid_base::{BadSetting, MIB, Op, Request, Rng, Settings};

pub(crate) const ABOUT: About = About {
    name: "refill",
    summary: "fills its span, then discards and rewrites the oldest units, and reads the new ones",
    groups: &[OWN, target::SETTINGS, pace::SETTINGS],
};

const OWN: &[Setting] = &[
    Setting { key: "unit", default: "4MiB", meaning: "unit of a discard: a multiple of size" },
    Setting { key: "empty", default: "10%", meaning: "share of the span that is discarded and not written" },
    Setting { key: "to-new", default: "80%", meaning: "share of reads that go to the newest fifth" },
];

/// Divisor: a fifth of the existing units counts as new.
const NEW: u64 = 5;
/// Minimum of units of a client.
const FEWEST: u64 = 2;

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let empty = settings.take_share("empty")?.unwrap_or(0.1);
    let to_new = settings.take_share("to-new")?.unwrap_or(0.8);
    let mut target = Target::take(settings)?;
    let unit = settings.take_bytes(
        "unit",
        (MIB * 4).align_down(target.size).max(target.size).min(target.span),
        target.size..=target.span,
    )?;
    let pace = pace::Pace::take(settings)?;
    if !unit.is_aligned(target.size) {
        return Err(settings.bad("unit", &unit.to_string(), &format!("a multiple of size, {}", target.size)));
    }
    target.span = target.span.align_down(unit);
    let (all, clients) = (target.span / unit, pace.streams());
    if all < FEWEST * clients {
        let expected = format!("at most {}, with {FEWEST} units each", all / FEWEST);
        return Err(settings.bad("clients", &clients.to_string(), &expected));
    }
    let load = move || {
        pace.load(seed, |client, mut rng| {
            let first = all * client / clients;
            let units = all * (client + 1) / clients - first;
            // At least one unit exists.
            let empty = ((units as f64 * empty).round() as u64).min(units - 1);
            let order = Scatter::new(units, &mut rng);
            let per_unit = unit / target.size;
            let plan = Plan { target, to_new, first, units, empty, per_unit };
            Refill { plan, order, written: 0, pieces: 0, discarded: 0, rng }
        })
    };
    Ok(Workload::new(ABOUT.name, target.span, pace.requests, load).with_filled(Vec::new()))
}

#[derive(Clone, Copy)]
struct Plan {
    target: Target,
    to_new: f64,
    /// Units of this client: the first unit, and their number.
    first: u64,
    units: u64,
    /// Units of this client that are discarded and not rewritten.
    empty: u64,
    /// Requests that fit in a unit.
    per_unit: u64,
}

/// One client. Units are numbered endlessly in the order of writing. The units from `discarded` up to
/// `written` exist.
struct Refill {
    plan: Plan,
    order: Scatter,
    /// The unit being written, and the number of its pieces already written.
    written: u64,
    pieces: u64,
    discarded: u64,
    rng: Rng,
}

impl Iterator for Refill {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let Plan { target, units, empty, per_unit, .. } = self.plan;
        let is_full = self.written >= units;
        if is_full && self.discarded + units <= self.written + empty {
            let offset = target.size * self.piece(self.discarded, 0);
            self.discarded += 1;
            return Some(Request { op: Op::Discard, offset, len: target.size * per_unit });
        }
        if is_full && self.written > self.discarded && self.rng.chance(target.read) {
            let (unit, within) = (self.unit_to_read(), self.rng.below(per_unit));
            let offset = target.size * self.piece(unit, within);
            return Some(Request { op: Op::Read, offset, len: target.size });
        }
        let offset = target.size * self.piece(self.written, self.pieces);
        self.pieces += 1;
        if self.pieces == per_unit {
            (self.written, self.pieces) = (self.written + 1, 0);
        }
        Some(Request { op: Op::Write, offset, len: target.size })
    }
}

impl Refill {
    /// Draws an existing unit.
    fn unit_to_read(&mut self) -> u64 {
        let there = self.written - self.discarded;
        let new = there.div_ceil(NEW);
        let from = if self.rng.chance(self.plan.to_new) { self.written - new } else { self.discarded };
        self.rng.between(from, self.written)
    }

    /// Returns the place of a piece of a unit in the span.
    fn piece(&self, unit: u64, within: u64) -> u64 {
        let Plan { first, units, per_unit, .. } = self.plan;
        (first + self.order.place(unit % units)) * per_unit + within
    }
}
