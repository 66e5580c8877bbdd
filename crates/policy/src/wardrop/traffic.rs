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
    /// In a period, on average since the first or over the last ones.
    average: f32,
    /// For how many periods it is known, up to as many as the average counts.
    known: u8,
}

/// How many periods the average counts.
const PERIODS: u8 = 8;

impl Requests {
    /// Begins a period.
    pub fn turn(&mut self) {
        let known = PERIODS.min(self.known + 1);
        let average = self.average + (self.now as f32 - self.average) / f32::from(known);
        *self = Requests { now: 0, last: self.now, before: self.last, average, known };
    }

    /// How many the next period brings, as far as can be said.
    pub fn likely(&self) -> f64 {
        f64::from(self.average)
    }

    /// How many the next periods bring at least: as many as each of the last two had, or the average as if there had been
    /// none before, where that is more. What was asked for a lot, but once, is not hot for that.
    pub fn lasting(&self) -> f64 {
        let average = self.likely() * f64::from(self.known) / f64::from(PERIODS);
        average.max(f64::from(self.last.min(self.before)))
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

    fn after(periods: &[u32]) -> Requests {
        let mut requests = Requests::default();
        for &count in periods {
            requests.now = count;
            requests.turn();
        }
        requests
    }

    #[test]
    fn what_comes_again_lasts_and_what_came_once_hardly() {
        assert_eq!((after(&[20, 20]).lasting(), after(&[20, 20]).likely()), (20.0, 20.0));
        assert_eq!((after(&[20]).lasting(), after(&[20]).likely()), (2.5, 20.0));
        assert_eq!((after(&[20, 4]).lasting(), after(&[20, 4]).likely()), (4.0, 12.0));
        assert_eq!(after(&[20, 0, 0, 0, 0]).likely(), 4.0);
        let often: Vec<u32> = (0..100).map(|period| u32::from(period % 5 == 0)).collect();
        let (likely, lasting) = (after(&often).likely(), after(&often).lasting());
        assert!(likely == lasting && (0.1..0.3).contains(&likely), "{likely} {lasting}");
    }
}
