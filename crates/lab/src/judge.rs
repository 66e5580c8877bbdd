//! Puts what came out beside what a paper says, and says whether its claims hold.

use crate::estimate::Estimate;
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
    /// That of the number that speaks most against it; none if numbers are only shown.
    pub ruling: Option<Ruling>,
    /// The numbers.
    pub numbers: Vec<Number>,
}

/// What is to be said of a claim: each one outweighs those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// It holds: all of the confidence interval is where it must be.
    Holds,
    /// It holds, but by so much more or less than is published that this is no confirmation.
    OtherMargin,
    /// The confidence interval is neither within nor without: seeds do not agree.
    Undecided,
    /// It does not hold.
    Fails,
    /// The runs were too short to say.
    TooShort,
}

impl Ruling {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Ruling::Holds => "holds",
            Ruling::OtherMargin => "holds, by another margin",
            Ruling::Undecided => "undecided",
            Ruling::Fails => "does not hold",
            Ruling::TooShort => "too short to judge",
        }
    }
}

impl std::fmt::Display for Ruling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

/// A number of ours beside the paper's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Number {
    /// What it is, with its unit.
    pub quantity: String,
    /// What the paper says.
    pub claimed: String,
    /// Ours: the mean over all seeds.
    pub ours: f64,
    /// The 95 % confidence interval of ours: from here …
    pub ours_low: f64,
    /// … to here.
    pub ours_high: f64,
    /// Ours divided by the paper's; by the middle where the paper gives a range, none if it gives no number.
    pub ratio: Option<f64>,
    /// What ours must be for the claim to hold.
    pub needed: String,
    /// Whether it is; none if it is only shown.
    pub ruling: Option<Ruling>,
}

impl Number {
    /// Ours, with its spread.
    pub fn ours_shown(&self) -> String {
        shown_with_spread(self.ours, (self.ours_high - self.ours_low) / 2.0)
    }
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

/// A number with what is known of its spread.
pub fn shown_with_spread(mean: f64, half_width: f64) -> String {
    if half_width == 0.0 { shown(mean) } else { format!("{} ± {}", shown(mean), shown(half_width)) }
}

/// Tests all claims of an experiment, by the tables of each seed. Runs that were shortened (`quick`) tell nothing of what holds: they give numbers, and no
/// ruling.
pub(crate) fn judge(experiment: &Experiment, seeds: &[Vec<Table>], quick: bool) -> Vec<Judged> {
    let judged = experiment.claims.iter().map(|claim| judged(experiment, seeds, claim));
    if quick { judged.map(Judged::unruled).collect() } else { judged.collect() }
}

impl Judged {
    fn unruled(mut self) -> Judged {
        for verdict in &mut self.verdicts {
            verdict.ruling = verdict.ruling.map(|_| Ruling::TooShort);
            verdict
                .numbers
                .iter_mut()
                .for_each(|number| number.ruling = number.ruling.map(|_| Ruling::TooShort));
        }
        self.why = None;
        self
    }
}

fn judged(experiment: &Experiment, seeds: &[Vec<Table>], claim: &Claim) -> Judged {
    let named: Vec<&str> = claim.tests.iter().flat_map(|test| test.quantity.series()).collect();
    // Other settings of a system take its place: all those of one rank at the same time.
    let variants: Vec<&str> = experiment
        .series
        .iter()
        .filter(|series| series.variant_of.is_some_and(|of| named.contains(&of)))
        .map(|series| series.label)
        .collect();
    let results = Results { experiment, seeds };
    let spoken_of = named.iter().copied().find(|name| has_variant(experiment, name));
    let mut verdicts = vec![results.verdict(claim, &[], spoken_of)];
    for labels in ranks(experiment, &variants) {
        let stand_in = spoken_of.map(|label| results.stand_in(label, &labels));
        verdicts.push(results.verdict(claim, &labels, stand_in));
    }
    let plainly_holds = |verdict: &Verdict| verdict.ruling.is_none_or(|ruling| ruling == Ruling::Holds);
    let has_why = !verdicts.iter().all(plainly_holds) && !claim.why.is_empty();
    let why = has_why.then(|| claim.why.to_owned());
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
    seeds: &'a [Vec<Table>],
}

/// What came out of it with one seed.
struct OfSeed<'a> {
    experiment: &'a Experiment,
    tables: &'a [Table],
}

impl Results<'_> {
    fn verdict(&self, claim: &Claim, variants: &[&str], of: Option<&str>) -> Verdict {
        let numbers: Vec<Number> = claim.tests.iter().map(|test| self.number(test, variants)).collect();
        let ruling = numbers.iter().filter_map(|number| number.ruling).max();
        Verdict { of: of.map(str::to_owned), ruling, numbers }
    }

    fn number(&self, test: &Test, variants: &[&str]) -> Number {
        let of_seed = |tables: &Vec<Table>| {
            let seed = OfSeed { experiment: self.experiment, tables };
            seed.quantity(&test.quantity, variants)
        };
        let ours = Estimate::of(&self.seeds.iter().map(of_seed).collect::<Vec<_>>());
        let paper = match test.published {
            Published::Number(number) => Some(number),
            Published::Range(low, high) => Some((low + high) / 2.0),
            Published::Words => None,
        };
        Number {
            quantity: self.describe(&test.quantity, variants),
            claimed: test.published.to_string(),
            ours: ours.mean,
            ours_low: ours.low,
            ours_high: ours.high,
            ratio: paper.map(|paper| ours.mean / paper),
            needed: test.bound.to_string(),
            ruling: test.ruling(&ours),
        }
    }

    /// The variant that takes a series' place.
    fn stand_in<'a>(&self, series: &'a str, variants: &[&'a str]) -> &'a str {
        stand_in(self.experiment, series, variants)
    }
}

/// The variant that takes a series' place.
fn stand_in<'a>(experiment: &Experiment, series: &'a str, variants: &[&'a str]) -> &'a str {
    let of = |label: &str| experiment.series.iter().find(|s| s.label == label)?.variant_of;
    variants.iter().copied().find(|variant| of(variant) == Some(series)).unwrap_or(series)
}

impl OfSeed<'_> {
    fn quantity(&self, quantity: &Quantity, variants: &[&str]) -> f64 {
        let measure = quantity.measure();
        let places = self.experiment.axis.places();
        let at = |series: &str, place: u32| {
            self.value(measure, stand_in(self.experiment, series, variants), place)
        };
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
            Quantity::Peak { series, from, to, .. } => {
                let best = |is_wanted: &dyn Fn(u32) -> bool| {
                    let values = places.iter().filter(|&&p| is_wanted(p)).map(|&p| at(series, p));
                    values.reduce(|a, b| better(measure, a, b)).unwrap_or(f64::NAN)
                };
                let is_within = |place| (from..=to).contains(&place);
                let (within, elsewhere) = (best(&is_within), best(&|place| !is_within(place)));
                if measure.more_is_better() { within / elsewhere } else { elsewhere / within }
            }
            Quantity::Ratio { of, to, at: place, .. } => at(of, place) / best_of(to, place),
            Quantity::RatioToSum { of, to, at: place, .. } => {
                at(of, place) / to.iter().map(|series| at(series, place)).sum::<f64>()
            }
            Quantity::WorstRatio { of, to, from, .. } => {
                let ratios = places.iter().filter(|&&p| p >= from).map(|&p| at(of, p) / best_of(to, p));
                let worst = |a, b| if better(measure, a, b) == a { b } else { a };
                ratios.reduce(worst).unwrap_or(f64::NAN)
            }
            Quantity::BestRatio { of, to, .. } => {
                let ratios = places.iter().map(|&p| at(of, p) / best_of(to, p));
                ratios.reduce(|a, b| better(measure, a, b)).unwrap_or(f64::NAN)
            }
            Quantity::RatioOfBests { of, to, .. } => {
                let best = |series: &str| at(series, best_place(series));
                let others = to.iter().map(|series| best(series));
                best(of) / others.reduce(|a, b| better(measure, a, b)).unwrap_or(f64::NAN)
            }
            Quantity::Change { series, at: place, from, .. } => at(series, place) / at(series, from),
        }
    }

    fn value(&self, measure: Measure, series: &str, place: u32) -> f64 {
        let row = self.experiment.series.iter().position(|s| s.label == series);
        let column = self.experiment.axis.places().iter().position(|&p| p == place);
        let table = self.tables.iter().find(|table| table.of == Some(measure));
        let value = || table?.values.get(row?)?.get(column?).copied()?;
        value().unwrap_or(f64::NAN)
    }
}

impl Results<'_> {
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
            Quantity::Peak { series, from, to, .. } => format!(
                "how much better the best {name} of {} is for {axis} {from} to {to} than elsewhere, as a factor",
                label(series)
            ),
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
            Quantity::BestRatio { of, to, .. } => {
                format!("{name} of {} as a multiple of {}, where that is best", label(of), best_of(to))
            }
            Quantity::RatioOfBests { of, to, .. } => {
                format!("best {name} of {} as a multiple of that of {}", label(of), best_of(to))
            }
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

/// A gain or loss so many times the published one, or less than its inverse, has another reason than the paper's, or hardly any.
const OTHER_GAIN: f64 = 2.0;
/// Unless it differs by less than this.
const SMALL: f64 = 0.1;
/// So many times a published value, or less than its inverse, is another value.
const OTHER_VALUE: f64 = 2.0;

impl Test {
    fn ruling(&self, ours: &Estimate) -> Option<Ruling> {
        let (least, most) = match self.bound {
            Bound::AtLeast(least) => (least, f64::INFINITY),
            Bound::AtMost(most) => (f64::NEG_INFINITY, most),
            Bound::Within(least, most) => (least, most),
            Bound::Shown => return None,
        };
        Some(match () {
            // Not a number is nowhere.
            () if ours.mean.is_nan() || ours.high < least || ours.low > most => Ruling::Fails,
            () if ours.low < least || ours.high > most => Ruling::Undecided,
            () if self.is_other_margin(ours.mean) => Ruling::OtherMargin,
            () => Ruling::Holds,
        })
    }

    /// Whether a number that is where it must be is there by much more, or much less, than what is published.
    fn is_other_margin(&self, ours: f64) -> bool {
        let paper = match self.published {
            Published::Number(number) => number,
            Published::Range(low, high) => ours.clamp(low, high),
            Published::Words => return false,
        };
        match self.quantity {
            Quantity::Value { .. } | Quantity::Best { .. } => {
                !(1.0 / OTHER_VALUE..=OTHER_VALUE).contains(&(ours / paper))
            }
            Quantity::BestPlace { .. } => false,
            Quantity::Peak { .. }
            | Quantity::Ratio { .. }
            | Quantity::WorstRatio { .. }
            | Quantity::BestRatio { .. }
            | Quantity::RatioOfBests { .. }
            | Quantity::RatioToSum { .. }
            | Quantity::Change { .. } => {
                let (gain, published) = (ours.ln().abs(), paper.ln().abs());
                let differs = gain > OTHER_GAIN * published || gain * OTHER_GAIN < published;
                differs && (ours - paper).abs() > SMALL
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use Ruling::{Fails, Holds, OtherMargin, Undecided};

    const RATIO: Quantity = Quantity::Ratio { measure: Measure::Throughput, of: "a", to: &["b"], at: 1 };
    const VALUE: Quantity = Quantity::Value { measure: Measure::Throughput, series: "a", at: 1 };

    fn ruling(quantity: Quantity, published: Published, bound: Bound, numbers: &[f64]) -> Option<Ruling> {
        Test { quantity, published, bound }.ruling(&Estimate::of(numbers))
    }

    #[test]
    fn all_of_the_confidence_interval_decides() {
        let at_least_one = |numbers: &[f64]| ruling(RATIO, Published::Words, Bound::AtLeast(1.0), numbers);
        assert_eq!(at_least_one(&[1.2, 1.3, 1.25]), Some(Holds));
        assert_eq!(at_least_one(&[0.8, 1.4, 1.25]), Some(Undecided));
        assert_eq!(at_least_one(&[0.8, 0.7, 0.75]), Some(Fails));
        assert_eq!(at_least_one(&[f64::NAN, 1.2]), Some(Fails));
        assert_eq!(ruling(RATIO, Published::Number(1.0), Bound::Shown, &[2.0]), None);
    }

    #[test]
    fn far_more_or_less_than_is_published_is_another_margin() {
        let gain =
            |published, ours| ruling(RATIO, Published::Number(published), Bound::AtLeast(1.0), &[ours]);
        assert_eq!(gain(1.25, 1.3), Some(Holds));
        assert_eq!(gain(1.25, 1.8), Some(OtherMargin));
        assert_eq!(gain(1.42, 1.003), Some(OtherMargin));
        // Twice of next to nothing is next to nothing.
        assert_eq!(gain(1.01, 1.08), Some(Holds));
        assert_eq!(gain(1.25, 0.4), Some(Fails));
        let value = |ours| ruling(VALUE, Published::Range(300.0, 400.0), Bound::AtLeast(100.0), &[ours]);
        assert_eq!(
            [120.0, 350.0, 700.0, 900.0].map(value),
            [OtherMargin, Holds, Holds, OtherMargin].map(Some)
        );
    }

    #[test]
    fn what_speaks_most_against_a_claim_counts() {
        assert_eq!([Holds, Undecided, OtherMargin].into_iter().max(), Some(Undecided));
        assert_eq!([Fails, Undecided].into_iter().max(), Some(Fails));
    }
}
