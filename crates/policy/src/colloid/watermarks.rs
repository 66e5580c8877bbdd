//! Load to move in a round: a binary search for the share p of the default tier at which latencies are equal.
//! Two water marks bound the search and follow a changing load.
//!
//! ```text
//! |L_D − L_A| < δ L_D                balanced: nothing moves
//! L_D < L_A: p_lo = p                else: p_hi = p
//! p_lo ≥ p_hi                        the load has changed: the other mark is at its end again
//! p_hi − p_lo < ε                    likewise: the mark towards which p shall go
//! Δp = |(p_lo + p_hi) / 2 − p|
//! ```

/// State of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    low: f64,
    high: f64,
    delta: f64,
    epsilon: f64,
}

/// Decision of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// True if the default tier shall gain accesses, false if the alternate tier.
    pub to_default: bool,
    /// Δp: share of all accesses that shall move.
    pub share: f64,
}

impl Watermarks {
    /// Returns a search with the given δ and ε.
    pub fn new(delta: f64, epsilon: f64) -> Watermarks {
        Watermarks { low: 0.0, high: 1.0, delta, epsilon }
    }

    /// Returns the decision for a share of accesses to the default tier and the latencies of both tiers.
    /// `None` if balanced.
    pub fn next(&mut self, share: f64, default_ms: f64, other_ms: f64) -> Option<Shift> {
        if (default_ms - other_ms).abs() < self.delta * default_ms {
            return None;
        }
        let to_default = default_ms < other_ms;
        match to_default {
            true => self.low = share,
            false => self.high = share,
        }
        if self.low >= self.high || self.high - self.low < self.epsilon {
            match to_default {
                true => self.high = 1.0,
                false => self.low = 0.0,
            }
        }
        Some(Shift { to_default, share: (f64::midpoint(self.low, self.high) - share).abs() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_halves_remaining_range() {
        let mut marks = Watermarks::new(0.05, 0.01);
        // All accesses are on the slower default tier: half of them move.
        assert_eq!(marks.next(1.0, 4.0, 2.0), Some(Shift { to_default: false, share: 0.5 }));
        // With half, the default tier is faster: the middle of 0.5 and 1.
        assert_eq!(marks.next(0.5, 1.0, 2.0), Some(Shift { to_default: true, share: 0.25 }));
        assert_eq!(marks.next(0.75, 3.0, 2.0), Some(Shift { to_default: false, share: 0.125 }));
        assert_eq!(marks.next(0.625, 2.0, 2.09), None, "less than 5 % apart");
    }

    /// Both marks are at about 0.7, and now the default tier is slower at 0.6: the lower mark is no longer a
    /// bound.
    #[test]
    fn crossed_marks_reopen() {
        let mut marks = Watermarks::new(0.05, 0.01);
        assert!(marks.next(0.72, 2.0, 1.0).is_some() && marks.next(0.68, 1.0, 2.0).is_some());
        assert_eq!(marks.next(0.6, 2.0, 1.0), Some(Shift { to_default: false, share: 0.3 }));
    }

    #[test]
    fn converged_marks_reopen_in_direction_of_shift() {
        let mut marks = Watermarks::new(0.05, 0.01);
        assert!(marks.next(0.5, 2.0, 1.0).is_some());
        assert_eq!(marks.next(0.4921875, 1.0, 2.0), Some(Shift { to_default: true, share: 0.25390625 }));
    }
}
