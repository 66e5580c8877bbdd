//! `zipf`: some places are far more popular than others, by Zipf's law.
//!
//! The span is divided into units. The k-th most popular unit gets a share proportional to 1 / k^theta. With
//! `placement=scattered`, the seed chooses the unit of each rank, so popular units are scattered. With
//! `placement=packed`, units lie in order of popularity from the start of the span. With `every`, other units
//! become popular after `every` requests: the whole hot set moves at once. Within a unit of several requests,
//! every place is equally likely. `theta=0.99` is the skew of YCSB (Cooper et al., SoCC 2010). Known
//! exponents of storage traces are 0.6 to 1.2 [memory].

use crate::draw::{Scatter, Zipf};
use crate::target::{self, Target};
use crate::{About, Setting, Workload, pace};
use braid_base::{BadSetting, Request, Rng, Settings};

pub(crate) const ABOUT: About = About {
    name: "zipf",
    summary: "reads and writes of one size; popularity of places by Zipf's law",
    groups: &[OWN, target::SETTINGS, pace::SETTINGS],
};

const OWN: &[Setting] = &[
    Setting { key: "theta", default: "0.99", meaning: "exponent of the law, 0 (all alike) to 4" },
    Setting {
        key: "hot20",
        default: "",
        meaning: "share of requests for the most popular fifth, 20% to 99.9%, instead of theta",
    },
    Setting { key: "unit", default: "", meaning: "unit of popularity: a multiple of size; size itself" },
    Setting {
        key: "placement",
        default: "scattered",
        meaning: "`scattered`: popular units are scattered; `packed`: side by side",
    },
    Setting {
        key: "every",
        default: "never",
        meaning: "requests of all clients after which other units are popular (placement=scattered)",
    },
];

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let mut target = Target::take(settings)?;
    let has_theta = settings.is_set("theta");
    let theta = settings.take_within("theta", 0.99, 0.0, 4.0)?;
    let hot = settings.take_share("hot20")?;
    let unit = settings.take_bytes("unit", target.size, target.size..=target.span)?;
    let placement = settings.take("placement", Placement::Scattered, "scattered or packed")?;
    let every = match settings.take_text("every").as_deref() {
        None | Some("never") => None,
        Some(text) => Some(settings.read_count("every", text, 1..=u64::MAX / 2)?),
    };
    if let Some(every) = every
        && placement == Placement::Packed
    {
        return Err(settings.bad("every", &every.to_string(), "it with placement=scattered"));
    }
    let pace = pace::Pace::take(settings)?;
    if !unit.is_aligned(target.size) {
        return Err(settings.bad("unit", &unit.to_string(), &format!("a multiple of size, {}", target.size)));
    }
    target.span = target.span.align_down(unit);
    let units = target.span / unit;
    let per_unit = unit / target.size;
    let every = every.map(|every| (every / pace.streams()).max(1));
    let ranks = match hot {
        None => Zipf::new(units, theta),
        Some(share) if has_theta || !(0.2..=0.999).contains(&share) => {
            return Err(settings.bad("hot20", &share.to_string(), "20% to 99.9%, and no theta beside it"));
        }
        Some(share) => Zipf::new(units, Zipf::exponent_for(units, 0.2, share)),
    };
    let load = move || {
        // The same units are popular for all clients.
        let order = Rng::new(!seed);
        pace.load(seed, |_, rng| {
            let mut order = order.clone();
            let scatter = (placement == Placement::Scattered).then(|| Scatter::new(units, &mut order));
            let popular = Popular::new(target, ranks.clone(), scatter, per_unit, rng);
            Popular { moves: every.map(|every| Moves { every, left: every, units, order }), ..popular }
        })
    };
    Ok(Workload::new(ABOUT.name, target.span, pace.requests, load))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Placement {
    Scattered,
    Packed,
}

impl std::str::FromStr for Placement {
    type Err = ();
    fn from_str(text: &str) -> Result<Placement, ()> {
        match text {
            "scattered" => Ok(Placement::Scattered),
            "packed" => Ok(Placement::Packed),
            _ => Err(()),
        }
    }
}

/// Requests to units by Zipf's law. `scatter` maps a rank to its unit (`None`: the rank is the unit). A unit
/// has room for `per_unit` requests.
pub(crate) struct Popular {
    target: Target,
    ranks: Zipf,
    scatter: Option<Scatter>,
    moves: Option<Moves>,
    per_unit: u64,
    rng: Rng,
}

impl Popular {
    pub fn new(target: Target, ranks: Zipf, scatter: Option<Scatter>, per_unit: u64, rng: Rng) -> Popular {
        Popular { target, ranks, scatter, moves: None, per_unit, rng }
    }
}

/// Schedule of the changes of popularity.
struct Moves {
    /// Requests of one client between two changes.
    every: u64,
    left: u64,
    units: u64,
    /// Generator of the orders of units, the same for all clients.
    order: Rng,
}

impl Iterator for Popular {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if let Some(moves) = &mut self.moves {
            if moves.left == 0 {
                moves.left = moves.every;
                self.scatter = Some(Scatter::new(moves.units, &mut moves.order));
            }
            moves.left -= 1;
        }
        let rank = self.ranks.draw(&mut self.rng);
        let unit = self.scatter.as_ref().map_or(rank, |scatter| scatter.place(rank));
        let within = if self.per_unit == 1 { 0 } else { self.rng.below(self.per_unit) };
        Some(self.target.request(unit * self.per_unit + within, &mut self.rng))
    }
}
