//! What guests ask: of all devices, and of each extent.

/// Requests in the last periods.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// In this period.
    pub now: u32,
    /// In the last one.
    pub last: u32,
    /// In the one before.
    before: u32,
    /// In a period, on average over the last ones.
    level: f32,
}

/// How many periods the average counts.
const PERIODS: f32 = 8.0;

impl Requests {
    /// Begins a period.
    pub fn turn(&mut self) {
        let level = self.level + (self.now as f32 - self.level) / PERIODS;
        *self = Requests { now: 0, last: self.now, before: self.last, level };
    }

    /// How many the next period may bring: as many as each of the last two had, or the average where that is more. What was
    /// asked for a lot, but once, is not hot for that.
    pub fn expected(&self) -> f64 {
        f64::from(self.level).max(f64::from(self.last.min(self.before)))
    }
}

/// What all guests did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Accesses that went to a device.
    pub requests: Requests,
    /// Hot extents that were accessed in the last period.
    pub extents: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(periods: &[u32]) -> f64 {
        let mut requests = Requests::default();
        for &count in periods {
            requests.now = count;
            requests.turn();
        }
        requests.expected()
    }

    #[test]
    fn what_comes_again_is_expected_and_what_came_once_hardly() {
        assert_eq!(after(&[20, 20]), 20.0);
        assert_eq!(after(&[20, 4]), 4.0_f64.max(f64::from((20.0 / 8.0) * 7.0 / 8.0 + 4.0 / 8.0_f32)));
        assert_eq!(after(&[0, 20]), 2.5);
        assert!(after(&[20, 0, 0, 0, 0, 0]) < 1.5);
        let often: Vec<u32> = (0..100).map(|period| u32::from(period % 5 == 0)).collect();
        assert!((0.1..0.3).contains(&after(&often)), "{}", after(&often));
    }
}
