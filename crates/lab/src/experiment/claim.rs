//! Claims of a paper about an experiment, and their tests: numbers, bounds, and the single-device rows that
//! must be reproduced before a claim about a policy is judged.

use super::{Measure, text};
use serde::{Deserialize, Serialize};

/// A claim of the paper, with its tests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim, in our words.
    #[serde(deserialize_with = "text::text")]
    pub sentence: &'static str,
    /// Place of the claim in the paper.
    #[serde(default, deserialize_with = "text::text")]
    pub place: &'static str,
    /// Origin of the claim.
    #[serde(default = "text::of_paper")]
    pub origin: Origin,
    /// Tests; all must hold.
    #[serde(deserialize_with = "text::list")]
    pub tests: &'static [Test],
    /// Reason why the claim fails here, if it fails and the reason is known. Figures belong in `instead`,
    /// which cannot become stale.
    #[serde(default, deserialize_with = "text::text")]
    pub why: &'static str,
    /// Numbers of another run, with only the reason changed; shown if the claim fails.
    #[serde(default, deserialize_with = "text::list", skip_serializing_if = "text::is_empty")]
    pub instead: &'static [Quantity],
}

impl Claim {
    /// The same claim in an experiment that repeats another under other conditions.
    pub const fn repeated(self) -> Claim {
        match self.origin {
            Origin::Paper | Origin::Fitted => Claim { origin: Origin::Repeat, ..self },
            Origin::Aim | Origin::Repeat => self,
        }
    }
}

/// Origin of a claim. Only claims of [`Origin::Paper`] count for the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A claim of the paper.
    Paper,
    /// A claim of the paper for which a parameter of the lab was chosen: shown, and never judged.
    Fitted,
    /// An aim of Braid.
    Aim,
    /// A claim of the paper, under conditions outside the paper: on nodes, or over a range left open by the
    /// paper.
    Repeat,
}

/// A row of the paper without a policy: one device alone, or compared with another. Claims about a policy are
/// judged only if each baseline is reproduced within [`Baseline::TOLERANCE`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub struct Baseline {
    /// Quantity compared.
    pub quantity: Quantity,
    /// The paper's number.
    pub published: f64,
}

impl Baseline {
    /// Largest relative deviation of our number from the published number.
    pub const TOLERANCE: f64 = 0.15;

    /// Test that our number must pass.
    pub fn as_test(&self) -> Test {
        Test {
            quantity: self.quantity,
            published: Published::Number(self.published),
            bound: Bound::Near(Baseline::TOLERANCE),
        }
    }
}

/// An assumed parameter of the loads, missing in the paper and drawn by the seed: `{name}` in a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Placeholder in a load, between braces.
    #[serde(deserialize_with = "text::text")]
    pub name: &'static str,
    /// The lowest value.
    pub low: u32,
    /// The highest value.
    pub high: u32,
}

/// Our number beside the paper's.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub struct Test {
    /// Quantity compared.
    pub quantity: Quantity,
    /// The paper's value.
    #[serde(default = "text::words", skip_serializing_if = "text::is_words")]
    pub published: Published,
    /// Bound that our number must meet for the claim to hold.
    pub bound: Bound,
}

/// A number derived from an experiment's measures. Series are named by their labels; `at`, `from` and `to`
/// are places. The place of an extreme is taken from the means over all seeds.
#[expect(missing_docs, reason = "what the fields are is said once for all of them")]
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "number", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Quantity {
    /// A series at a place.
    Value {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
        at: u32,
    },
    /// The best value of a series.
    Best {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
    },
    /// Place where a series is best.
    BestPlace {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
    },
    /// Best value of a series between two places, inclusive, relative to its best value elsewhere: above 1,
    /// its peak is between the two places.
    Peak {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
        from: u32,
        to: u32,
    },
    /// A series divided by the best of other series, at a place.
    Ratio {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
        at: u32,
    },
    /// As [`Quantity::Ratio`], at the worst place for the series, from a place on.
    WorstRatio {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
        from: u32,
    },
    /// As [`Quantity::Ratio`], at the best place for the series.
    BestRatio {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
    },
    /// As [`Quantity::BestRatio`], divided by the best ratio of other pairs: a pair is a series and its
    /// divisor.
    Most {
        measure: Measure,
        #[serde(deserialize_with = "text::pair")]
        of: Pair,
        #[serde(deserialize_with = "text::pairs")]
        others: &'static [Pair],
    },
    /// Best value of a series divided by the best value of other series, each at its own place.
    RatioOfBests {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
    },
    /// A series divided by the sum of other series, at a place.
    RatioToSum {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
        at: u32,
    },
    /// A series at one place divided by itself at another.
    Change {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
        at: u32,
        from: u32,
    },
    /// Least change of a series from one place to the next, between two places: at 1 or more, the series
    /// never falls.
    Rise {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
        from: u32,
        to: u32,
    },
    /// Greatest change of a series from one place to the next, between two places: at 1 or less, the series
    /// never rises.
    Fall {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
        from: u32,
        to: u32,
    },
}

/// A series, and its divisor.
pub type Pair = (&'static str, &'static str);

/// The paper's value of a number.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// An exact number.
    Number(f64),
    /// A range.
    Range(f64, f64),
    /// In words or in a plot, without a number.
    Words,
}

/// Bound on a number, from the paper's sentence.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// At least this value. A tie is enough.
    AtLeast(f64),
    /// At most this value. A tie is enough.
    AtMost(f64),
    /// More than this value: "is faster than". A tie is not enough.
    MoreThan(f64),
    /// Less than this value. A tie is not enough.
    LessThan(f64),
    /// Between two values, inclusive.
    Between(f64, f64),
    /// The published number, within this relative deviation: rows of tables.
    Near(f64),
    /// No bound: only shown.
    Shown,
}

impl Bound {
    /// The published ratio, plus or minus a quarter of the gain or loss: "38 % more".
    pub const fn about(published: f64) -> Bound {
        let part = (published - 1.0).abs() / 4.0;
        Bound::Between(published - part, published + part)
    }
}

impl Quantity {
    /// Measure of the number.
    pub fn measure(&self) -> Measure {
        match *self {
            Quantity::Value { measure, .. }
            | Quantity::Best { measure, .. }
            | Quantity::BestPlace { measure, .. }
            | Quantity::Peak { measure, .. }
            | Quantity::Ratio { measure, .. }
            | Quantity::WorstRatio { measure, .. }
            | Quantity::BestRatio { measure, .. }
            | Quantity::Most { measure, .. }
            | Quantity::RatioOfBests { measure, .. }
            | Quantity::RatioToSum { measure, .. }
            | Quantity::Change { measure, .. }
            | Quantity::Rise { measure, .. }
            | Quantity::Fall { measure, .. } => measure,
        }
    }

    /// Series of the number, its own first.
    pub fn series(&self) -> Vec<&'static str> {
        match *self {
            Quantity::Value { series, .. }
            | Quantity::Best { series, .. }
            | Quantity::BestPlace { series, .. }
            | Quantity::Peak { series, .. }
            | Quantity::Change { series, .. }
            | Quantity::Rise { series, .. }
            | Quantity::Fall { series, .. } => vec![series],
            Quantity::Ratio { of, to, .. }
            | Quantity::RatioToSum { of, to, .. }
            | Quantity::WorstRatio { of, to, .. }
            | Quantity::BestRatio { of, to, .. }
            | Quantity::RatioOfBests { of, to, .. } => {
                std::iter::once(of).chain(to.iter().copied()).collect()
            }
            Quantity::Most { of, others, .. } => {
                std::iter::once(&of).chain(others).flat_map(|&(of, to)| [of, to]).collect()
            }
        }
    }

    /// True for a ratio of two values: 1 is no difference.
    pub fn is_ratio(&self) -> bool {
        !matches!(self, Quantity::Value { .. } | Quantity::Best { .. } | Quantity::BestPlace { .. })
    }
}

impl Test {
    /// Least and greatest number within the bound.
    pub fn limits(&self) -> Option<(f64, f64)> {
        Some(match self.bound {
            Bound::AtLeast(least) | Bound::MoreThan(least) => (least, f64::INFINITY),
            Bound::AtMost(most) | Bound::LessThan(most) => (f64::NEG_INFINITY, most),
            Bound::Between(least, most) => (least, most),
            Bound::Near(part) => match self.published {
                Published::Number(number) => (number * (1.0 - part), number * (1.0 + part)),
                Published::Range(low, high) => (low * (1.0 - part), high * (1.0 + part)),
                // Without a published number, no number is near.
                Published::Words => (f64::NAN, f64::NAN),
            },
            Bound::Shown => return None,
        })
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, "at least {}", rounded(*least)),
            Bound::AtMost(most) => write!(f, "at most {}", rounded(*most)),
            Bound::MoreThan(least) => write!(f, "more than {}", rounded(*least)),
            Bound::LessThan(most) => write!(f, "less than {}", rounded(*most)),
            Bound::Between(low, high) => write!(f, "{} to {}", rounded(*low), rounded(*high)),
            Bound::Near(part) => write!(f, "within {} % of it", (part * 100.0).round()),
            Bound::Shown => f.write_str("-"),
        }
    }
}

/// Rounds a number of a claim for display: 1.475 for 1.4749999999999999.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

impl std::fmt::Display for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Published::Number(number) => write!(f, "{}", rounded(*number)),
            Published::Range(low, high) => write!(f, "{} to {}", rounded(*low), rounded(*high)),
            Published::Words => f.write_str("no number"),
        }
    }
}
