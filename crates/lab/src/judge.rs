//! Puts what came out beside what a paper says, and says whether its claims hold.

use crate::experiment::{Bound, Claim, Experiment, Measure, Published, Quantity, Test};
use crate::study::Table;
use serde::Serialize;

/// A claim of a paper, tested.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judged {
    /// The claim, in our words.
    pub claim: String,
    /// Where the paper says it.
    pub place: String,
    /// Whether it holds: for the system as it is by default first, then for its other settings.
    pub verdicts: Vec<Verdict>,
    /// Why it does not hold, where it does not and the reason is known.
    pub why: Option<String>,
}

/// Whether a claim holds for one setting of the system.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The series that it speaks of; none if the claim is not about the system that has several.
    pub of: Option<String>,
    /// Whether all of it holds; none if numbers are only shown.
    pub holds: Option<bool>,
    /// The numbers.
    pub numbers: Vec<Number>,
}

/// A number of ours beside the paper's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Number {
    /// What it is, with its unit.
    pub quantity: String,
    /// What the paper says.
    pub claimed: String,
    /// Ours.
    pub ours: f64,
    /// Ours divided by the paper's; by the middle where the paper gives a range, none if it gives no number.
    pub ratio: Option<f64>,
    /// What ours must be for the claim to hold.
    pub needed: String,
    /// Whether it is.
    pub holds: Option<bool>,
}

/// A number with three digits that count.
pub fn shown(number: f64) -> String {
    let places = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 1.0 => 2,
        _ => 3,
    };
    format!("{number:.places$}")
}

/// Tests all claims of an experiment.
pub(crate) fn judge(experiment: &Experiment, tables: &[Table]) -> Vec<Judged> {
    experiment.claims.iter().map(|claim| judged(experiment, tables, claim)).collect()
}

fn judged(experiment: &Experiment, tables: &[Table], claim: &Claim) -> Judged {
    let named: Vec<&str> = claim.tests.iter().flat_map(|test| test.quantity.series()).collect();
    // Other settings of a system take its place: all those of one rank at the same time.
    let variants: Vec<&str> = experiment
        .series
        .iter()
        .filter(|series| series.variant_of.is_some_and(|of| named.contains(&of)))
        .map(|series| series.label)
        .collect();
    let results = Results { experiment, tables };
    let spoken_of = named.iter().copied().find(|name| has_variant(experiment, name));
    let mut verdicts = vec![results.verdict(claim, &[], spoken_of)];
    for labels in ranks(experiment, &variants) {
        let stand_in = spoken_of.map(|label| results.stand_in(label, &labels));
        verdicts.push(results.verdict(claim, &labels, stand_in));
    }
    let fails = verdicts.iter().any(|verdict| verdict.holds == Some(false));
    let why = (fails && !claim.why.is_empty()).then(|| claim.why.to_owned());
    Judged { claim: claim.sentence.to_owned(), place: claim.place.to_owned(), verdicts, why }
}

fn has_variant(experiment: &Experiment, label: &str) -> bool {
    experiment.series.iter().any(|series| series.variant_of == Some(label))
}

/// Variants that belong together: the first of every series, the second of every series, and so on.
fn ranks<'a>(experiment: &Experiment, variants: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut ranks: Vec<Vec<&str>> = Vec::new();
    let of = |label: &str| experiment.series.iter().find(|s| s.label == label).and_then(|s| s.variant_of);
    for &variant in variants {
        let free = ranks.iter_mut().find(|rank| rank.iter().all(|&other| of(other) != of(variant)));
        match free {
            Some(rank) => rank.push(variant),
            None => ranks.push(vec![variant]),
        }
    }
    ranks
}

/// What came out of an experiment.
struct Results<'a> {
    experiment: &'a Experiment,
    tables: &'a [Table],
}

impl Results<'_> {
    fn verdict(&self, claim: &Claim, variants: &[&str], of: Option<&str>) -> Verdict {
        let numbers: Vec<Number> = claim.tests.iter().map(|test| self.number(test, variants)).collect();
        let tested: Vec<bool> = numbers.iter().filter_map(|number| number.holds).collect();
        Verdict {
            of: of.map(str::to_owned),
            holds: (!tested.is_empty()).then(|| tested.iter().all(|&holds| holds)),
            numbers,
        }
    }

    fn number(&self, test: &Test, variants: &[&str]) -> Number {
        let ours = self.quantity(&test.quantity, variants);
        let paper = match test.published {
            Published::Number(number) => Some(number),
            Published::Range(low, high) => Some((low + high) / 2.0),
            Published::Words => None,
        };
        Number {
            quantity: self.describe(&test.quantity, variants),
            claimed: test.published.to_string(),
            ours,
            ratio: paper.map(|paper| ours / paper),
            needed: test.bound.to_string(),
            holds: test.bound.holds(ours),
        }
    }

    fn quantity(&self, quantity: &Quantity, variants: &[&str]) -> f64 {
        let measure = quantity.measure();
        let places = self.experiment.axis.places();
        let at = |series: &str, place: u32| self.value(measure, self.stand_in(series, variants), place);
        let best_of = |series: &[&str], place| {
            series
                .iter()
                .map(|series| at(series, place))
                .reduce(|a, b| better(measure, a, b))
                .unwrap_or(f64::NAN)
        };
        let best_place = |series: &str| {
            let best = |a: u32, b: u32| match better(measure, at(series, a), at(series, b)) == at(series, a) {
                true => a,
                false => b,
            };
            places.iter().copied().reduce(best).unwrap_or(0)
        };
        match *quantity {
            Quantity::Value { series, at: place, .. } => at(series, place),
            Quantity::Best { series, .. } => at(series, best_place(series)),
            Quantity::BestPlace { series, .. } => f64::from(best_place(series)),
            Quantity::Ratio { of, to, at: place, .. } => at(of, place) / best_of(to, place),
            Quantity::RatioToSum { of, to, at: place, .. } => {
                at(of, place) / to.iter().map(|series| at(series, place)).sum::<f64>()
            }
            Quantity::WorstRatio { of, to, from, .. } => {
                let ratios = places.iter().filter(|&&p| p >= from).map(|&p| at(of, p) / best_of(to, p));
                let worst = |a, b| if better(measure, a, b) == a { b } else { a };
                ratios.reduce(worst).unwrap_or(f64::NAN)
            }
            Quantity::Change { series, at: place, from, .. } => at(series, place) / at(series, from),
        }
    }

    /// The variant that takes a series' place.
    fn stand_in<'a>(&self, series: &'a str, variants: &[&'a str]) -> &'a str {
        let of = |label: &str| self.experiment.series.iter().find(|s| s.label == label)?.variant_of;
        variants.iter().copied().find(|variant| of(variant) == Some(series)).unwrap_or(series)
    }

    fn value(&self, measure: Measure, series: &str, place: u32) -> f64 {
        let row = self.experiment.series.iter().position(|s| s.label == series);
        let column = self.experiment.axis.places().iter().position(|&p| p == place);
        let table = self.tables.iter().find(|table| table.of == Some(measure));
        let value = || table?.values.get(row?)?.get(column?).copied();
        value().unwrap_or(f64::NAN)
    }

    fn describe(&self, quantity: &Quantity, variants: &[&str]) -> String {
        let measure = quantity.measure();
        let (name, unit, axis) = (measure.name(), measure.unit(), self.experiment.axis.label());
        let label = |series| self.stand_in(series, variants);
        let best_of = |to: &[&str]| match to {
            [one] => (*one).to_owned(),
            several => format!("the best of {}", several.join(", ")),
        };
        match *quantity {
            Quantity::Value { series, at, .. } => format!("{name} of {}, {axis} {at}, {unit}", label(series)),
            Quantity::Best { series, .. } => format!("best {name} of {}, {unit}", label(series)),
            Quantity::BestPlace { series, .. } => {
                format!("{axis} at which {} has its best {name}", label(series))
            }
            Quantity::Ratio { of, to, at, .. } => {
                format!("{name} of {}, {axis} {at}, as a multiple of {}", label(of), best_of(to))
            }
            Quantity::RatioToSum { of, to, at, .. } => {
                format!("{name} of {}, {axis} {at}, as a part of {} added up", label(of), to.join(" and "))
            }
            Quantity::WorstRatio { of, to, from, .. } => format!(
                "{name} of {} as a multiple of {}, where that is worst from {axis} {from} on",
                label(of),
                best_of(to)
            ),
            Quantity::Change { series, at, from, .. } => {
                format!("{name} of {}, {axis} {at}, as a multiple of that at {from}", label(series))
            }
        }
    }
}

/// The better of two values.
fn better(measure: Measure, a: f64, b: f64) -> f64 {
    if measure.more_is_better() { a.max(b) } else { a.min(b) }
}

impl Bound {
    /// Whether a number is within; none if it is only shown.
    fn holds(&self, ours: f64) -> Option<bool> {
        match *self {
            Bound::AtLeast(least) => Some(ours >= least),
            Bound::AtMost(most) => Some(ours <= most),
            Bound::Within(low, high) => Some((low..=high).contains(&ours)),
            Bound::Shown => None,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, "at least {least}"),
            Bound::AtMost(most) => write!(f, "at most {most}"),
            Bound::Within(low, high) => write!(f, "{low} to {high}"),
            Bound::Shown => f.write_str("-"),
        }
    }
}

impl std::fmt::Display for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Published::Number(number) => write!(f, "{number}"),
            Published::Range(low, high) => write!(f, "{low} to {high}"),
            Published::Words => f.write_str("no number"),
        }
    }
}
