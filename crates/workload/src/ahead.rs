//! An iterator that generates arrivals ahead of use, a few dozen at a time.
//!
//! Each arrival depends on a chain of random numbers, divisions and a logarithm. The processor stalls on such
//! a chain. In a batch, the processor overlaps the chains of several arrivals. The caller then takes ready
//! arrivals one by one.

use braid_base::Arrival;

/// Arrivals generated ahead of use. Correct only if the source does not depend on the time of the call.
pub(crate) struct Ahead<I> {
    source: I,
    made: Vec<Arrival>,
    /// Index of the first arrival not yet taken.
    next: usize,
}

/// Arrivals in a batch: a few pages of memory at most.
const AT_A_TIME: usize = 64;

impl<I: Iterator<Item = Arrival>> Ahead<I> {
    pub fn new(source: I) -> Ahead<I> {
        Ahead { source, made: Vec::with_capacity(AT_A_TIME), next: 0 }
    }

    #[inline(never)]
    fn make(&mut self) -> Option<Arrival> {
        self.made.clear();
        self.made.extend(self.source.by_ref().take(AT_A_TIME));
        self.next = 1;
        self.made.first().copied()
    }
}

impl<I: Iterator<Item = Arrival>> Iterator for Ahead<I> {
    type Item = Arrival;

    #[inline]
    fn next(&mut self) -> Option<Arrival> {
        let Some(arrival) = self.made.get(self.next) else { return self.make() };
        self.next += 1;
        Some(*arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Bytes, Nanos, Op, Request};

    #[test]
    fn ahead_yields_the_same_stream_to_the_end() {
        for count in [0, 1, AT_A_TIME, AT_A_TIME + 1, 3 * AT_A_TIME - 1] {
            let arrival = |at| {
                let request = Request { op: Op::Read, offset: Bytes(at), len: Bytes(512) };
                Arrival { at: Nanos(at), request }
            };
            let mut ahead = Ahead::new((0..count as u64).map(arrival));
            let taken: Vec<Arrival> = ahead.by_ref().collect();
            assert_eq!(taken, (0..count as u64).map(arrival).collect::<Vec<_>>());
            assert!(ahead.next().is_none() && ahead.next().is_none());
        }
    }
}
