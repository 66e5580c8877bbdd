//! Time to equilibrium of a run: bytes read and written, noted from the load's beginning on, warm-up
//! included.
//!
//! The measure: the first time after which the throughput of every interval is within a tenth of the mean of
//! the measured time. If the last interval is outside, there is no such time. Throughput is counted by the
//! clients' programmes, if they count, otherwise by the volume.
//!
//! Intervals are between a 40th and a 20th of the run: the resolution of the result. Shorter intervals would
//! show the unsteadiness of the load rather than changes of its mean.

use crate::guests::Guests;
use braid_base::{Bytes, Nanos};
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

/// Bytes read and written up to each of some times, oldest first: the first time is the load's beginning.
pub(crate) struct Course {
    interval: Nanos,
    notes: Vec<(Nanos, Bytes)>,
}

/// Fewest intervals of a run, and half of the most.
const INTERVALS: usize = 20;
/// Initial interval of a run of unknown length.
const FIRST: Nanos = Nanos::from_millis(10);
/// Tolerance of throughput in equilibrium around the mean.
const TOLERANCE: f64 = 0.1;

impl Course {
    /// Course of a run that begins now, with a known or unknown length.
    pub fn new(now: Nanos, length: Option<Nanos>) -> Course {
        let most = 2 * INTERVALS as u64;
        let interval = length.map_or(FIRST, |length| length / most).max(Nanos::from_micros(1));
        Course { interval, notes: vec![(now, Bytes::ZERO)] }
    }

    fn next(&self) -> Nanos {
        self.last().0 + self.interval
    }

    fn last(&self) -> (Nanos, Bytes) {
        self.notes[self.notes.len() - 1]
    }

    /// Notes the bytes read and written up to now. If there are too many intervals, pairs of intervals are
    /// joined.
    fn push(&mut self, now: Nanos, moved: Bytes) {
        self.notes.push((now, moved));
        if self.notes.len() > 2 * INTERVALS + 1 {
            // The odd note is dropped: its time is part of the next interval.
            self.notes.pop();
            let mut place = 0;
            self.notes.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.interval = self.interval * 2;
        }
    }

    /// Time from the beginning to the equilibrium of a finished run with this mean, in bytes per second.
    pub fn settled(&self, mean: f64) -> Option<Nanos> {
        let near = |rate: f64| (rate - mean).abs() <= TOLERANCE * mean;
        let is_settled = |pair: &&[(Nanos, Bytes)]| {
            let [(from, before), (to, after)] = [pair[0], pair[1]];
            near(after.saturating_sub(before).0 as f64 / (to - from).as_secs_f64())
        };
        if mean <= 0.0 {
            return None;
        }
        let settled = self.notes.windows(2).rev().take_while(is_settled).count();
        let first = self.notes.len() - 1 - settled;
        (settled > 0).then(|| self.notes[first].0 - self.notes[0].0)
    }
}

/// Takes notes until the world ends.
pub(crate) async fn keep<D: Device>(guests: Rc<Guests<D>>) {
    loop {
        let next = guests.course.borrow().next();
        guests.rt.sleep_until(next).await;
        let moved = guests.recorder.borrow().progress();
        guests.course.borrow_mut().push(guests.rt.now(), moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with these rates in bytes per second, each for a second.
    fn run(rates: &[u64]) -> Course {
        let mut course = Course::new(Nanos::from_secs(7), Some(Nanos::from_secs(40)));
        let mut moved = 0;
        for (second, rate) in rates.iter().enumerate() {
            moved += rate;
            course.push(Nanos::from_secs(8 + second as u64), Bytes(moved));
        }
        course
    }

    #[test]
    fn equilibrium_starts_when_throughput_stays_near_final_rate() {
        let settled = |rates: &[u64]| run(rates).settled(1000.0).map(Nanos::as_secs_f64);
        assert_eq!(settled(&[1000, 1000, 1000]), Some(0.0));
        assert_eq!(settled(&[500, 890, 910, 1090, 1000]), Some(2.0));
        assert_eq!(settled(&[500, 1000, 1000, 1111, 1000]), Some(4.0), "it had not stayed");
    }

    #[test]
    fn run_without_steady_end_has_no_equilibrium() {
        assert_eq!(run(&[1000, 1000, 800]).settled(1000.0), None);
        assert_eq!(run(&[]).settled(1000.0), None);
        assert_eq!((run(&[0, 0]).settled(f64::NAN), run(&[0, 0]).settled(0.0)), (None, None));
    }

    #[test]
    fn long_runs_keep_few_intervals_and_the_equilibrium() {
        // One byte per nanosecond, and two after 100 s.
        let moved = |at: Nanos| Bytes(at.0 + at.0.saturating_sub(Nanos::from_secs(100).0));
        let mut course = Course::new(Nanos::ZERO, None);
        while course.last().0 < Nanos::from_secs(1000) {
            let next = course.next();
            course.push(next, moved(next));
            assert!(course.notes.len() <= 2 * INTERVALS + 1);
        }
        let settled = course.settled(2e9).expect("it is").as_secs_f64();
        assert!((100.0..150.0).contains(&settled), "{settled} s");
    }
}
