//! Compares our numbers with a paper's, and rules on the paper's claims.
//!
//! A ruling needs more than one sample ([`Ruling::OneSeed`]) and the paper's single-device rows
//! ([`Ruling::Untestable`]). The whole confidence interval must lie on one side of the bound that the paper's
//! sentence gives (`ruling.rs`). An extreme is taken of the means over all seeds (`numbers.rs`).

use crate::experiment::{Baseline, Bound, Claim, Experiment, Origin, Published, Quantity, Series, Test};
use crate::study::Table;
use serde::Serialize;

mod numbers;
mod ruling;
mod words;

use numbers::Results;
pub use words::describe;

/// Distinct samples needed for a ruling: the interval of one sample has no width.
pub const SEEDS_NEEDED: u32 = 2;

/// A tested claim of a paper.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judged {
    /// The claim, in our words.
    pub claim: String,
    /// Place of the claim in the paper.
    pub place: String,
    /// Origin of the claim.
    pub origin: Origin,
    /// Verdicts: for the system's default setting first, then for its other settings.
    pub verdicts: Vec<ClaimVerdict>,
    /// Reasons why the claim is untestable; empty if the claim is testable.
    pub untestable: Vec<String>,
    /// Reason why the claim does not hold, if known.
    pub why: Option<String>,
    /// Numbers of another run with the reason changed; empty if the claim holds, or no such run is declared.
    pub instead: Vec<Number>,
}

/// Verdict on a claim for one setting of the system.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClaimVerdict {
    /// The series of the verdict; `None` if the claim is not about the system with several settings.
    pub of: Option<String>,
    /// Ruling of the number that speaks most against the claim; `None` if numbers are only shown.
    pub ruling: Option<Ruling>,
    /// The numbers.
    pub numbers: Vec<Number>,
}

/// Ruling on a claim: each ruling outweighs those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// Holds: the whole confidence interval meets the bound.
    Holds,
    /// Holds, but by at least twice or at most half the published margin: no confirmation.
    OtherMargin,
    /// Our number is within 1 % of the bound: neither better nor worse.
    Tie,
    /// The confidence interval is on both sides of the bound: the seeds do not agree.
    Undecided,
    /// Does not hold.
    Fails,
    /// The paper's single-device rows were not reproduced, or a parameter was chosen for the claim.
    Untestable,
    /// There is one sample: one seed, or runs that ignore their seeds.
    OneSeed,
    /// The runs were too short to say.
    TooShort,
}

impl Ruling {
    /// The ruling in words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Ruling::Holds => "holds",
            Ruling::OtherMargin => "holds, by another margin",
            Ruling::Tie => "a tie",
            Ruling::Undecided => "undecided",
            Ruling::Fails => "does not hold",
            Ruling::Untestable => "untestable",
            Ruling::OneSeed => "one seed: no verdict",
            Ruling::TooShort => "too short to judge",
        }
    }
}

impl std::fmt::Display for Ruling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

/// Our number beside the paper's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Number {
    /// Name of the quantity, with its unit.
    pub quantity: String,
    /// The paper's number.
    pub claimed: String,
    /// Our number: the mean over all seeds.
    pub ours: f64,
    /// Lower end of our 95 % confidence interval.
    pub ours_low: f64,
    /// Upper end of our 95 % confidence interval.
    pub ours_high: f64,
    /// Our number divided by the paper's, or by the middle of the paper's range; `None` if the paper gives no
    /// number.
    pub ratio: Option<f64>,
    /// The bound that our number must meet for the claim to hold.
    pub needed: String,
    /// Ruling on the number; `None` if the number is only shown.
    pub ruling: Option<Ruling>,
}

impl Number {
    /// Our number, with its spread.
    pub fn ours_shown(&self) -> String {
        shown_with_spread(self.ours, (self.ours_high - self.ours_low) / 2.0)
    }

    /// Text of a number that makes a claim untestable.
    fn distance(&self) -> String {
        format!("{}: {:.2} × the paper's", self.quantity, self.ratio.unwrap_or(f64::NAN))
    }
}

/// Formats a number with three significant digits.
pub fn shown(number: f64) -> String {
    let places = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 1.0 => 2,
        _ => 3,
    };
    format!("{number:.places$}")
}

/// Formats a number with its spread, if known.
pub fn shown_with_spread(mean: f64, half_width: f64) -> String {
    if half_width == 0.0 { shown(mean) } else { format!("{} ± {}", shown(mean), shown(half_width)) }
}

/// Tests all claims of an experiment by the tables of each seed; its baselines come first. Shortened runs
/// (`quick`) do not support rulings: they give numbers only.
pub(crate) fn judge(
    experiment: &Experiment,
    seeds: &[Vec<Table>],
    quick: bool,
) -> (Vec<Number>, Vec<Judged>) {
    let results = Results { experiment, seeds };
    let mut baselines: Vec<Number> =
        experiment.baselines.iter().map(|baseline| results.number(&baseline.as_test(), &[])).collect();
    let mut claims: Vec<Judged> =
        experiment.claims.iter().map(|claim| results.judged(claim, &baselines)).collect();
    if quick {
        baselines.iter_mut().for_each(Number::unrule);
        claims.iter_mut().for_each(Judged::unrule);
    }
    (baselines, claims)
}

impl Number {
    fn unrule(&mut self) {
        self.ruling = self.ruling.map(|_| Ruling::TooShort);
    }

    /// True if our number is as near to the paper's as a baseline must be.
    fn is_reproduced(&self) -> bool {
        self.ratio.is_some_and(|ratio| (ratio - 1.0).abs() <= Baseline::TOLERANCE)
    }
}

impl Judged {
    fn unrule(&mut self) {
        for verdict in &mut self.verdicts {
            verdict.ruling = verdict.ruling.map(|_| Ruling::TooShort);
            verdict.numbers.iter_mut().for_each(Number::unrule);
        }
        self.untestable.clear();
        self.why = None;
        self.instead.clear();
    }

    /// True for a claim of the paper; false for Braid's own claims and for claims repeated under other
    /// conditions.
    pub fn is_of_paper(&self) -> bool {
        matches!(self.origin, Origin::Paper | Origin::Fitted)
    }

    /// True if the claim has any ruling.
    pub fn is_tested(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.ruling.is_some())
    }
}

impl Results<'_> {
    fn judged(&self, claim: &Claim, baselines: &[Number]) -> Judged {
        let named: Vec<&str> = claim.tests.iter().flat_map(|test| test.quantity.series()).collect();
        // Other settings of a system take its place: all variants of one rank at the same time.
        let variants: Vec<&str> = self
            .experiment
            .series
            .iter()
            .filter(|series| series.variant_of.is_some_and(|of| named.contains(&of)))
            .map(|series| series.label)
            .collect();
        let has_variant = |label: &str| self.experiment.series.iter().any(|s| s.variant_of == Some(label));
        let spoken_of = named.iter().copied().find(|name| has_variant(name));
        let off: Vec<String> =
            baselines.iter().filter(|row| !row.is_reproduced()).map(Number::distance).collect();
        let untestable = match claim.origin {
            Origin::Fitted => vec!["a parameter of the lab was chosen for this number".to_owned()],
            Origin::Paper | Origin::Repeat => off,
            Origin::Aim => Vec::new(),
        };
        let mut verdicts = vec![self.verdict(claim, &[], spoken_of, &untestable)];
        for labels in ranks(self.experiment, &variants) {
            let stand_in = spoken_of.map(|label| stand_in(self.experiment, label, &labels));
            verdicts.push(self.verdict(claim, &labels, stand_in, &untestable));
        }
        let is = |ruling: Ruling| verdicts.iter().any(|verdict| verdict.ruling == Some(ruling));
        let has_reason =
            [Ruling::OtherMargin, Ruling::Tie, Ruling::Undecided, Ruling::Fails].into_iter().any(is);
        let why = (has_reason && !claim.why.is_empty()).then(|| claim.why.to_owned());
        let shown = |quantity: &Quantity| {
            let test = Test { quantity: *quantity, published: Published::Words, bound: Bound::Shown };
            self.number(&test, &[])
        };
        let instead = if has_reason { claim.instead.iter().map(shown).collect() } else { Vec::new() };
        let untestable = if is(Ruling::Untestable) { untestable } else { Vec::new() };
        let (sentence, place) = (claim.sentence.to_owned(), claim.place.to_owned());
        Judged { claim: sentence, place, origin: claim.origin, verdicts, untestable, why, instead }
    }

    fn verdict(
        &self,
        claim: &Claim,
        variants: &[&str],
        of: Option<&str>,
        untestable: &[String],
    ) -> ClaimVerdict {
        let judged = |test: &Test| {
            let mut number = self.number(test, variants);
            let needs_baseline = claim.origin == Origin::Fitted || self.is_about_policy(&test.quantity);
            if needs_baseline && !untestable.is_empty() {
                number.ruling = number.ruling.map(|ruling| ruling.max(Ruling::Untestable));
            }
            number
        };
        let numbers: Vec<Number> = claim.tests.iter().map(judged).collect();
        let ruling = numbers.iter().filter_map(|number| number.ruling).max();
        ClaimVerdict { of: of.map(str::to_owned), ruling, numbers }
    }

    fn number(&self, test: &Test, variants: &[&str]) -> Number {
        let ours = self.estimate(&test.quantity, variants);
        let paper = match test.published {
            Published::Number(number) => Some(number),
            Published::Range(low, high) => Some((low + high) / 2.0),
            Published::Words => None,
        };
        let is_one = self.is_one_sample(&test.quantity, variants);
        let ruling = test.ruling(&ours).map(|ruling| if is_one { Ruling::OneSeed } else { ruling });
        Number {
            quantity: describe(self.experiment, &test.quantity, variants),
            claimed: test.published.to_string(),
            ours: ours.mean,
            ours_low: ours.low,
            ours_high: ours.high,
            ratio: paper.map(|paper| ours.mean / paper),
            needed: test.bound.to_string(),
            ruling,
        }
    }

    /// True if a quantity concerns more than devices alone.
    fn is_about_policy(&self, quantity: &Quantity) -> bool {
        let named = quantity.series();
        self.experiment.series.iter().any(|series| named.contains(&series.label) && !is_single_device(series))
    }
}

/// True if a series is a row without a policy: all data on devices of one class.
pub(crate) fn is_single_device(series: &Series) -> bool {
    matches!(series.policy, "ssd-only" | "hdd-only")
}

/// Groups variants by rank: the first of every series, the second of every series, and so on.
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

/// The variant that replaces a series.
fn stand_in<'a>(experiment: &Experiment, series: &'a str, variants: &[&'a str]) -> &'a str {
    let of = |label: &str| experiment.series.iter().find(|s| s.label == label)?.variant_of;
    variants.iter().copied().find(|variant| of(variant) == Some(series)).unwrap_or(series)
}

#[cfg(test)]
mod tests;
