//! Position of a number relative to its bound.
//!
//! ```text
//!  AtLeast(b):   fails | tie | holds            MoreThan(b):   fails | tie     tie | holds
//!                   b - 1 %  b                                    b - 1 %   b   b + 1 %
//! ```
//!
//! The whole confidence interval must be in one of these parts; otherwise the seeds do not agree. A ratio
//! that must be at least or at most 1 ("no slower") holds in a tie, too. A number within a one-sided bound
//! may still differ from the published margin, or be on the other side of 1.

use super::Ruling;
use crate::estimate::Estimate;
use crate::experiment::{Bound, Published, Quantity, Test};

/// Largest relative difference of level numbers.
pub(super) const TIE: f64 = 0.01;
/// Factor for another margin: a number, or a gain or loss, at least this many times the published value or at
/// most its inverse.
const OTHER: f64 = 2.0;
/// A gain or loss that differs from the published value by less than this has no other margin: twice a
/// negligible gain is still negligible.
const SMALL: f64 = 0.05;

/// Position of a number.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Below,
    TieBelow,
    Within,
    TieAbove,
    Above,
}

impl Test {
    /// Ruling on our estimate; `None` if the number is only shown.
    pub(super) fn ruling(&self, ours: &Estimate) -> Option<Ruling> {
        let (least, most) = self.limits()?;
        // NaN has no position.
        if [ours.mean, ours.low, ours.high, least, most].iter().any(|number| number.is_nan()) {
            return Some(Ruling::Fails);
        }
        Some(match (self.position(ours.low, least, most), self.position(ours.high, least, most)) {
            (Position::Within, Position::Within) => self.margin(ours.mean),
            (Position::TieBelow, Position::TieBelow) | (Position::TieAbove, Position::TieAbove) => {
                Ruling::Tie
            }
            (Position::Below, Position::Below) | (Position::Above, Position::Above) => Ruling::Fails,
            _ => Ruling::Undecided,
        })
    }

    fn position(&self, number: f64, least: f64, most: f64) -> Position {
        let width = |edge: f64| if edge.is_finite() { edge.abs() * TIE } else { 0.0 };
        let inner = |edge: f64| match self.bound {
            Bound::MoreThan(_) | Bound::LessThan(_) => width(edge),
            Bound::AtLeast(_) | Bound::AtMost(_) if self.quantity.is_ratio() && edge == 1.0 => -width(edge),
            _ => 0.0,
        };
        match number {
            n if n < least - width(least) => Position::Below,
            n if n < least + inner(least) => Position::TieBelow,
            n if n > most + width(most) => Position::Above,
            n if n > most - inner(most) => Position::TieAbove,
            _ => Position::Within,
        }
    }

    /// Ruling on a number within the bound, whose margin may be much larger or smaller than the published
    /// margin.
    fn margin(&self, ours: f64) -> Ruling {
        let is_one_sided = !matches!(self.bound, Bound::Between(..) | Bound::Near(_));
        let paper = match self.published {
            Published::Number(number) => number,
            Published::Range(low, high) => ours.clamp(low, high),
            Published::Words => return Ruling::Holds,
        };
        if !is_one_sided || matches!(self.quantity, Quantity::BestPlace { .. }) {
            return Ruling::Holds;
        }
        let is_other = |ours: f64, paper: f64| !(1.0 / OTHER..OTHER).contains(&(ours / paper));
        let (gain, published) = (ours - 1.0, paper - 1.0);
        match () {
            () if ours == paper => Ruling::Holds,
            () if is_other(ours, paper) => Ruling::OtherMargin,
            () if !self.quantity.is_ratio() => Ruling::Holds,
            // A one-sided bound would accept a gain although a loss is published.
            () if gain * published < 0.0 && gain.abs().min(published.abs()) > TIE => Ruling::Fails,
            () if is_other(gain, published) && (ours - paper).abs() > SMALL => Ruling::OtherMargin,
            () => Ruling::Holds,
        }
    }
}
