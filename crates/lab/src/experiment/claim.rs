//! What a paper says of an experiment, and how the lab tests it: claims, the numbers that they are about,
//! their bounds, and the single-device rows that must come out before a claim about a policy is judged.

use super::{Measure, text};
use serde::{Deserialize, Serialize};

/// What the paper says, and how it is tested.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim, in our words.
    #[serde(deserialize_with = "text::text")]
    pub sentence: &'static str,
    /// Where the paper says it.
    #[serde(default, deserialize_with = "text::text")]
    pub place: &'static str,
    /// Whose claim it is.
    #[serde(default = "text::of_paper")]
    pub origin: Origin,
    /// All of these must hold.
    #[serde(deserialize_with = "text::list")]
    pub tests: &'static [Test],
    /// Why it does not hold here, where it does not and the reason is known. Figures stand in `instead`,
    /// which cannot go stale.
    #[serde(default, deserialize_with = "text::text")]
    pub why: &'static str,
    /// What becomes of it in another run, with one thing changed that is the reason: shown where it does not
    /// hold.
    #[serde(default, deserialize_with = "text::list", skip_serializing_if = "text::is_empty")]
    pub instead: &'static [Quantity],
}

impl Claim {
    /// The same claim in an experiment that repeats another under conditions of ours.
    pub const fn repeated(self) -> Claim {
        match self.origin {
            Origin::Paper | Origin::Fitted => Claim { origin: Origin::Repeat, ..self },
            Origin::Aim | Origin::Repeat => self,
        }
    }
}

/// Whose claim it is. Only claims of [`Origin::Paper`] say anything of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The paper's.
    Paper,
    /// The paper's, and a parameter of the lab was chosen for it: it is shown, and never judged.
    Fitted,
    /// An aim of Braid's own.
    Aim,
    /// The paper's, under conditions that are not in the paper: on nodes, or over a range that it leaves
    /// open.
    Repeat,
}

/// A row of the paper without a policy: one device alone, or one beside another. Claims about a policy are
/// judged only if each of these comes out within [`Baseline::TOLERANCE`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub struct Baseline {
    /// What is compared.
    pub quantity: Quantity,
    /// The paper's number.
    pub published: f64,
}

impl Baseline {
    /// How far ours may be from the published number, as a part of it.
    pub const TOLERANCE: f64 = 0.15;

    /// What ours must be.
    pub fn as_test(&self) -> Test {
        Test {
            quantity: self.quantity,
            published: Published::Number(self.published),
            bound: Bound::Near(Baseline::TOLERANCE),
        }
    }
}

/// An assumed parameter of the loads, which the paper does not give and the seed draws: `{name}` in a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// What stands for it in a load, between braces.
    #[serde(deserialize_with = "text::text")]
    pub name: &'static str,
    /// The lowest value.
    pub low: u32,
    /// The highest value.
    pub high: u32,
}

/// A number of ours beside what the paper says of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub struct Test {
    /// What is compared.
    pub quantity: Quantity,
    /// What the paper says.
    #[serde(default = "text::words", skip_serializing_if = "text::is_words")]
    pub published: Published,
    /// What ours must be for the claim to hold.
    pub bound: Bound,
}

/// A number that follows from an experiment's measures. Series are named by their labels, `at`, `from` and
/// `to` are places. Where a number is an extreme, the means over all seeds say where it is.
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
    /// The place where a series is best.
    BestPlace {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
    },
    /// How much better the best value of a series between two places, these included, is than its best
    /// elsewhere: above 1 its peak is there.
    Peak {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
        from: u32,
        to: u32,
    },
    /// A series divided by the best of others at a place.
    Ratio {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
        at: u32,
    },
    /// As [`Quantity::Ratio`], where it is worst for the series, from a place on.
    WorstRatio {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
        from: u32,
    },
    /// As [`Quantity::Ratio`], where it is best for the series.
    BestRatio {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
    },
    /// As [`Quantity::BestRatio`], divided by the best that any of other pairs has: a pair is a series and
    /// what it is divided by.
    Most {
        measure: Measure,
        #[serde(deserialize_with = "text::pair")]
        of: Pair,
        #[serde(deserialize_with = "text::pairs")]
        others: &'static [Pair],
    },
    /// The best value of a series divided by the best of others, each wherever it is.
    RatioOfBests {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        of: &'static str,
        #[serde(deserialize_with = "text::texts")]
        to: &'static [&'static str],
    },
    /// A series divided by the sum of others at a place.
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
    /// The least that a series changes by from one place to the next, between two places: if that is 1 or
    /// more, it never falls.
    Rise {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
        from: u32,
        to: u32,
    },
    /// The most that it changes by: if that is 1 or less, it never rises.
    Fall {
        measure: Measure,
        #[serde(deserialize_with = "text::text")]
        series: &'static str,
        from: u32,
        to: u32,
    },
}

/// A series, and what it is divided by.
pub type Pair = (&'static str, &'static str);

/// What the paper says of a number.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// This.
    Number(f64),
    /// Something between.
    Range(f64, f64),
    /// It says it in words or shows it in a plot, without a number.
    Words,
}

/// What a number must be, as the sentence of the paper has it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// So much or more. A tie is as much.
    AtLeast(f64),
    /// So much or less. A tie is as much.
    AtMost(f64),
    /// More than this: "is faster than". A tie is not more.
    MoreThan(f64),
    /// Less than this. A tie is not less.
    LessThan(f64),
    /// Between, ends included.
    Between(f64, f64),
    /// The published number, give or take such a part of it: rows of tables.
    Near(f64),
    /// It is only shown.
    Shown,
}

impl Bound {
    /// The published ratio, give or take a quarter of the gain or loss: "38 % more".
    pub const fn about(published: f64) -> Bound {
        let part = (published - 1.0).abs() / 4.0;
        Bound::Between(published - part, published + part)
    }
}

impl Quantity {
    /// The measure that it is a number of.
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

    /// The series that it speaks of, itself first.
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

    /// Whether it is a ratio of two values: 1 is no difference.
    pub fn is_ratio(&self) -> bool {
        !matches!(self, Quantity::Value { .. } | Quantity::Best { .. } | Quantity::BestPlace { .. })
    }
}

impl Test {
    /// What the bound leaves: the least and the most that a number may be.
    pub fn limits(&self) -> Option<(f64, f64)> {
        Some(match self.bound {
            Bound::AtLeast(least) | Bound::MoreThan(least) => (least, f64::INFINITY),
            Bound::AtMost(most) | Bound::LessThan(most) => (f64::NEG_INFINITY, most),
            Bound::Between(least, most) => (least, most),
            Bound::Near(part) => match self.published {
                Published::Number(number) => (number * (1.0 - part), number * (1.0 + part)),
                Published::Range(low, high) => (low * (1.0 - part), high * (1.0 + part)),
                // Near to nothing: no number is.
                Published::Words => (f64::NAN, f64::NAN),
            },
            Bound::Shown => return None,
        })
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, "at least {least}"),
            Bound::AtMost(most) => write!(f, "at most {most}"),
            Bound::MoreThan(least) => write!(f, "more than {least}"),
            Bound::LessThan(most) => write!(f, "less than {most}"),
            Bound::Between(low, high) => write!(f, "{low} to {high}"),
            Bound::Near(part) => write!(f, "within {} % of it", (part * 100.0).round()),
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
