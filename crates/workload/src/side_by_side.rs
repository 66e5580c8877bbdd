//! Merges several volumes, each with its own load, into one volume: arrivals by time, addresses striped.

use crate::Arrivals;
use braid_base::{Arrival, Bytes};

/// Arrivals of all volumes in the order of their times.
pub(crate) struct SideBySide {
    volumes: Vec<(Option<Arrival>, Arrivals)>,
    stripe: Bytes,
}

impl SideBySide {
    /// Creates the merged stream. The first `stripe` bytes of each volume come first, then the next `stripe`
    /// bytes of each, and so on. A request beyond the end of a stripe continues in the next volume's stripe.
    /// `stripe` is much larger than a request.
    pub fn new(volumes: Vec<Arrivals>, stripe: Bytes) -> SideBySide {
        let first = |mut arrivals: Arrivals| (arrivals.next(), arrivals);
        SideBySide { volumes: volumes.into_iter().map(first).collect(), stripe }
    }
}

impl Iterator for SideBySide {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let count = self.volumes.len() as u64;
        let waiting = self.volumes.iter_mut().zip(0u64..).filter(|((next, _), _)| next.is_some());
        let ((next, arrivals), number) =
            waiting.min_by_key(|((next, _), _)| next.map(|arrival| arrival.at))?;
        let mut arrival = std::mem::replace(next, arrivals.next())?;
        let offset = arrival.request.offset;
        arrival.request.offset =
            self.stripe * ((offset / self.stripe) * count + number) + offset % self.stripe;
        Some(arrival)
    }
}
