//! What guests ask: of all devices, and of each extent.

use super::response::USUAL_PART;
use braid_base::Bytes;

/// Requests in the last periods. Once a period has ended, they are counted in requests that take as long as those of all guests on
/// average.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// In this period.
    now: u32,
    /// What these were for.
    bytes: Bytes,
    /// In the last one.
    pub last: f64,
    /// In the one before.
    before: f64,
    /// In a period, on average since the first or over the last ones.
    average: f64,
    /// For how many periods it is known, up to as many as the average counts.
    known: u8,
}

/// How many periods the average counts.
const PERIODS: u8 = 8;
/// No extent is asked for more often in a period: what says otherwise was not counted.
const MOST_REQUESTS: f64 = u32::MAX as f64;

impl Requests {
    /// One more.
    pub fn add(&mut self, len: Bytes) {
        self.now += 1;
        self.bytes += len;
    }

    /// How many bytes a request of this period is for, on average.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes.0 as f64 / f64::from(self.now.max(1))
    }

    /// Begins a period, after one in which the requests of all guests were for `mean_bytes`.
    pub fn turn(&mut self, mean_bytes: f64) {
        let known = PERIODS.min(self.known + 1);
        let of_mean_length = self.bytes.0 as f64 / mean_bytes.max(1.0);
        let last = (1.0 - USUAL_PART) * f64::from(self.now) + USUAL_PART * of_mean_length;
        let average = self.average + (last - self.average) / f64::from(known);
        *self = Requests { now: 0, bytes: Bytes::ZERO, last, before: self.last, average, known };
    }

    /// What is kept when the volume is closed: of the last period, the one before and the average; and for how many periods these
    /// are known. What this period has had so far is not.
    pub fn saved(&self) -> ([f64; 3], u8) {
        ([self.last, self.before, self.average], self.known)
    }

    /// Takes back what [`Requests::saved`] returned, whatever it is: a number that cannot be counts as none.
    pub fn restored(saved: [f64; 3], known: u8) -> Requests {
        let possible = |number: f64| if (0.0..=MOST_REQUESTS).contains(&number) { number } else { 0.0 };
        let [last, before, average] = saved.map(possible);
        Requests { last, before, average, known: known.min(PERIODS), ..Requests::default() }
    }

    /// How many the next period brings, as far as can be said.
    pub fn likely(&self) -> f64 {
        self.average
    }

    /// As many as each of the last two periods had.
    pub fn steady(&self) -> f64 {
        self.last.min(self.before)
    }

    /// How many the next periods bring at least: as many as each of the last two had, or the average as if there had been
    /// none before, where that is more. What was asked for a lot, but once, is not hot for that.
    pub fn lasting(&self) -> f64 {
        let average = self.likely() * f64::from(self.known) / f64::from(PERIODS);
        average.max(self.steady())
    }
}

/// What all guests did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Accesses that went to a device.
    pub requests: Requests,
    /// Hot extents that were accessed in the last period.
    pub extents: u32,
    /// How many requests guests had in flight, and what these took in milliseconds, in the period lately in which that was most.
    highest: (f64, f64),
}

/// What has become so many times more than at any time lately is another load.
const ANOTHER_LOAD: f64 = 2.0;
/// What is left of the highest after a period: it is forgotten in some ten. Most loads pause now and then.
const FORGOTTEN: f64 = 0.9;
/// With fewer requests in flight devices are idle, and what follows is a first load rather than another one.
const IDLE: f64 = 0.1;

impl Traffic {
    /// Whether guests have become more, with `in_flight` requests in flight that take `mean_ms`, and devices slower for it. Guests
    /// that wait for answers have as many requests in flight however quick the devices are: where that grows, it is the guests
    /// who changed.
    pub fn has_grown(&self, (in_flight, mean_ms): (f64, f64)) -> bool {
        let (guests, response_ms) = self.highest;
        guests > IDLE && in_flight > ANOTHER_LOAD * guests && mean_ms > ANOTHER_LOAD * response_ms
    }

    /// Takes note of how many requests guests had in flight in a period, and what these took in milliseconds.
    pub fn remember(&mut self, (in_flight, mean_ms): (f64, f64)) {
        let (guests, response_ms) = self.highest;
        self.highest = (in_flight.max(FORGOTTEN * guests), mean_ms.max(FORGOTTEN * response_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::KIB;

    fn after(periods: &[u32]) -> Requests {
        let mut requests = Requests::default();
        for &count in periods {
            (0..count).for_each(|_| requests.add(KIB * 8));
            requests.turn((KIB * 8).0 as f64);
        }
        requests
    }

    #[test]
    fn a_load_has_grown_where_more_requests_wait_longer_than_lately() {
        let grown = |periods: &[(f64, f64)]| {
            let mut traffic = Traffic::default();
            let grown = |&period: &(f64, f64)| {
                let grown = traffic.has_grown(period);
                traffic.remember(period);
                grown
            };
            periods.iter().map(grown).collect::<Vec<bool>>().into_iter().rposition(|grown| grown)
        };
        assert_eq!(grown(&[(0.5, 0.2), (0.6, 0.2), (3.5, 1.3), (4.0, 1.4)]), Some(2));
        // No quicker devices, no more guests; no slower devices; after an idle time; between pauses.
        assert_eq!(grown(&[(1.0, 0.2), (1.1, 1.4)]), None);
        assert_eq!(grown(&[(0.5, 0.2), (3.5, 0.3)]), None);
        assert_eq!(grown(&[(0.01, 0.2), (3.5, 1.3)]), None);
        assert_eq!(grown(&[(3.5, 1.3), (0.0, 0.1), (0.0, 0.1), (3.5, 1.3)]), None);
        let mut long_ago = vec![(3.5, 1.3)];
        long_ago.extend([(0.5, 0.2); 20]);
        long_ago.push((3.5, 1.3));
        assert_eq!(grown(&long_ago), Some(21));
    }

    #[test]
    fn large_requests_count_for_more_and_all_requests_together_as_many_as_they_are() {
        let asked = |requests: &[(u32, u64)]| {
            let mut counted = Requests::default();
            requests.iter().for_each(|&(count, kib)| (0..count).for_each(|_| counted.add(KIB * kib)));
            counted
        };
        let mut all = asked(&[(30, 4), (10, 64)]);
        let mean = all.mean_bytes();
        let turned = |mut requests: Requests| {
            requests.turn(mean);
            requests.last
        };
        let (small, large) = (turned(asked(&[(30, 4)])), turned(asked(&[(10, 64)])));
        assert_eq!((small, large), (15.0 + 0.5 * 120.0 / 19.0, 5.0 + 0.5 * 640.0 / 19.0));
        all.turn(mean);
        assert_eq!((all.last, small + large), (40.0, 40.0));
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
