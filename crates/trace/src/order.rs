//! Sorts records by time.
//!
//! Many real traces are not quite in order: several processors record events, or completions are recorded
//! with the time of arrival. A window of records is held back and sorted. Records with equal times keep their
//! order. A record older than the last record that left the window is *late*: its time becomes the time of
//! that last record, and the record is counted.

use crate::decode::Raw;
use std::collections::VecDeque;

/// Sorts records by time, within the reach of the window.
pub(crate) struct Order {
    held: VecDeque<Raw>,
    window: usize,
    /// Time of the last record that left the window.
    left: u64,
    reordered: u64,
    late: u64,
}

/// Default number of records held back.
pub(crate) const USUAL_WINDOW: usize = 1024;
/// Limit of the window. An insertion moves up to half of the window.
pub(crate) const LARGEST_WINDOW: usize = 65_536;

impl Order {
    pub(crate) fn new(window: usize) -> Order {
        Order { held: VecDeque::with_capacity(window + 1), window, left: 0, reordered: 0, late: 0 }
    }

    /// Takes a record, and returns the oldest record if the window is full.
    #[inline]
    pub(crate) fn push(&mut self, mut raw: Raw) -> Option<Raw> {
        if raw.at < self.left {
            raw.at = self.left;
            self.late += 1;
        }
        if self.window == 0 {
            self.left = raw.at;
            return Some(raw);
        }
        match self.held.back() {
            Some(newest) if newest.at > raw.at => {
                let place = self.held.partition_point(|held| held.at <= raw.at);
                self.held.insert(place, raw);
                self.reordered += 1;
            }
            _ => self.held.push_back(raw),
        }
        (self.held.len() > self.window).then(|| self.pop()).flatten()
    }

    /// Returns the oldest record in the window.
    pub(crate) fn pop(&mut self) -> Option<Raw> {
        let raw = self.held.pop_front()?;
        self.left = raw.at;
        Some(raw)
    }

    /// Returns the number of records sorted within the window.
    pub(crate) fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Returns the number of records that came too late for the window.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Op, Rng};

    fn ordered(window: usize, times: &[u64]) -> (Vec<(u64, u64)>, u64) {
        let mut order = Order::new(window);
        let raw =
            |(number, &at)| Raw { at, number: number as u64, device: 0, op: Op::Read, offset: 0, len: 1 };
        let mut out: Vec<Raw> = times.iter().enumerate().filter_map(|r| order.push(raw(r))).collect();
        out.extend(std::iter::from_fn(|| order.pop()));
        (out.iter().map(|raw| (raw.at, raw.number)).collect(), order.late())
    }

    #[test]
    fn window_sorts_records_and_keeps_order_of_equal_times() {
        let (out, late) = ordered(3, &[5, 1, 5, 2, 9, 9, 8]);
        assert_eq!(out, [(1, 1), (2, 3), (5, 0), (5, 2), (8, 6), (9, 4), (9, 5)]);
        assert_eq!(late, 0);
    }

    #[test]
    fn late_record_takes_the_preceding_time_without_a_window() {
        let (out, late) = ordered(0, &[5, 1, 6]);
        assert_eq!((out, late), (vec![(5, 0), (5, 1), (6, 2)], 1));
    }

    #[test]
    fn no_record_is_lost_and_no_time_runs_backwards_whatever_comes() {
        let mut rng = Rng::new(3);
        for window in [0, 1, 7, 100] {
            let times: Vec<u64> = (0..1000).map(|_| rng.below(50)).collect();
            let (out, _) = ordered(window, &times);
            assert!(out.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            let mut numbers: Vec<u64> = out.iter().map(|record| record.1).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..1000));
        }
    }
}
