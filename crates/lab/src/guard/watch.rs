//! Recording of the guests' requests, and of the number outstanding.

use super::scale::{Scale, cost};
use braid_base::{Arrival, Nanos, Request};
use std::sync::Arc;

/// Requests of guests since the last batch was taken.
pub struct Watch {
    scale: Scale,
    room: usize,
    /// The requests for ghosts.
    arrivals: Vec<Arrival>,
    asked: u64,
    /// Cost of all requests, and of the ghosts' requests.
    cost: u64,
    cost_of_ghosts: u64,
    in_flight: u64,
    begun: u64,
    /// Peak of outstanding requests, and the number of requests that reached the peak.
    peak: u64,
    at_peak: u64,
    /// Ended requests, and their total latency.
    ended: u64,
    took: Nanos,
    begin: Nanos,
    /// Most requests in flight in a ghost, in an open loop: the present peak, or most of the peak of earlier
    /// batches.
    most: f64,
}

/// Requests of guests in a period, for ghosts.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Requests, with times from the beginning of the batch.
    pub(super) arrivals: Arc<[Arrival]>,
    pub(super) length: Nanos,
    pub(super) guests: Loop,
    /// Mean latency of ended requests; `None` if no request ended.
    pub took: Option<Nanos>,
}

/// Arrival of requests: open loop or closed loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loop {
    /// Requests came at times of their own; at most `most` are in flight.
    Open { most: usize },
    /// A number of clients that wait for each answer and then think.
    Closed { clients: usize, think: Nanos },
}

/// Fewest requests in a batch; fewer wait for the next batch.
const FEWEST: usize = 50;
/// Closed loop: if more than this share of all requests reach the peak of outstanding requests, the peak is
/// the number of clients.
const CLOSED: f64 = 0.05;
/// Share of the peak kept from one batch to the next.
const FADES: f64 = 0.9;

impl Watch {
    /// Starts watching with `in_flight` requests outstanding. `room` is the most requests of ghosts in a
    /// batch, of 32 bytes each.
    pub fn new(now: Nanos, in_flight: u64, scale: Scale, room: usize) -> Watch {
        Watch {
            scale,
            room,
            arrivals: Vec::new(),
            asked: 0,
            cost: 0,
            cost_of_ghosts: 0,
            in_flight,
            begun: 0,
            peak: 0,
            at_peak: 0,
            ended: 0,
            took: Nanos::ZERO,
            begin: now,
            most: 0.0,
        }
    }

    /// A guest asks for `request`.
    pub fn asks(&mut self, at: Nanos, request: Request) {
        if self.is_full() {
            return;
        }
        self.asked += 1;
        self.cost += cost(&request);
        if let Some(request) = self.scale.request(request, self.asked) {
            self.cost_of_ghosts += cost(&request);
            self.arrivals.push(Arrival { at, request });
        }
    }

    /// True if there is no room for more requests.
    pub fn is_full(&self) -> bool {
        self.arrivals.len() >= self.room
    }

    /// True if guests have sent no request.
    pub fn is_idle(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// A request begins.
    pub fn begins(&mut self) {
        self.begun += 1;
        self.in_flight += 1;
        if self.in_flight > self.peak {
            (self.peak, self.at_peak) = (self.in_flight, 0);
        }
        self.at_peak += u64::from(self.in_flight == self.peak);
    }

    /// A request has ended; `took` is its latency, if known.
    pub fn ends(&mut self, took: Option<Nanos>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.ended += u64::from(took.is_some());
        self.took += took.unwrap_or_default();
    }

    /// Takes the requests until now, if enough for a verdict.
    pub fn take(&mut self, now: Nanos) -> Option<Batch> {
        if self.arrivals.len() < FEWEST {
            return None;
        }
        let (begin, length) = (self.begin, now - self.begin);
        // A smaller share of the load is played faster in proportion.
        let share = self.cost_of_ghosts as f64 / self.cost as f64;
        let time = |at: Nanos| match self.scale.one_in() {
            1 => at,
            _ => Nanos((at.0 as f64 * share) as u64),
        };
        let arrivals: Arc<[Arrival]> = std::mem::take(&mut self.arrivals)
            .into_iter()
            .map(|arrival| Arrival { at: time(arrival.at.saturating_sub(begin)), ..arrival })
            .collect();
        let guests = self.guests(length);
        let took = (self.ended > 0).then(|| self.took / self.ended);
        let most = match guests {
            Loop::Open { most } => most as f64,
            Loop::Closed { clients, .. } => clients as f64,
        };
        *self = Watch { most, ..Watch::new(now, self.in_flight, self.scale, self.room) };
        Some(Batch { arrivals, length, guests, took })
    }

    fn guests(&self, length: Nanos) -> Loop {
        let peak = self.peak as f64;
        if self.at_peak as f64 <= CLOSED * self.begun as f64 {
            return Loop::Open { most: peak.max(self.most * FADES).round() as usize };
        }
        // Little's law: clients = rate × (latency in the volume + think time).
        let between = peak * length.0 as f64 / self.begun as f64;
        let think = between - self.took.0 as f64 / self.ended.max(1) as f64;
        Loop::Closed { clients: self.peak as usize, think: Nanos(think.max(0.0) as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Bytes, Op, Rng};

    const READ: Request = Request { op: Op::Read, offset: Bytes(0), len: Bytes(4096) };

    /// Requests by arrival time and latency, in milliseconds.
    fn watched(requests: &[(u64, u64)]) -> Loop {
        let mut watch = Watch::new(Nanos::ZERO, 0, Scale::WHOLE, 10_000);
        let mut ends: Vec<(u64, u64)> = Vec::new();
        for &(at, took) in requests {
            ends.sort_unstable();
            while ends.first().is_some_and(|&(end, _)| end <= at) {
                watch.ends(Some(Nanos::from_millis(ends.remove(0).1)));
            }
            watch.asks(Nanos::from_millis(at), READ);
            watch.begins();
            ends.push((at + took, took));
        }
        let last = requests.last().expect("there are some").0;
        watch.take(Nanos::from_millis(last + 1)).expect("there are enough").guests
    }

    #[test]
    fn waiting_clients_are_a_closed_loop_with_think_time() {
        let two = |number: u64| [(10 * number, 8), (10 * number + 1, 8)];
        let Loop::Closed { clients, think } = watched(&(0..500).flat_map(two).collect::<Vec<_>>()) else {
            panic!("it is a closed loop")
        };
        assert_eq!(clients, 2);
        assert!((1_900_000..2_100_000).contains(&think.0), "{think}");
    }

    #[test]
    fn requests_at_random_times_are_an_open_loop() {
        let mut rng = Rng::new(3);
        let mut at = 0;
        let requests: Vec<(u64, u64)> = (0..2000)
            .map(|_| {
                at += rng.below(10);
                (at, 1 + rng.below(20))
            })
            .collect();
        let guests = watched(&requests);
        assert!(matches!(guests, Loop::Open { most: 4.. }), "{guests:?}");
    }

    #[test]
    fn few_requests_wait_for_more() {
        let mut watch = Watch::new(Nanos::ZERO, 0, Scale::WHOLE, 10_000);
        (0..FEWEST as u64 - 1).for_each(|n| watch.asks(Nanos(n), READ));
        assert!(watch.take(Nanos(100)).is_none());
        watch.asks(Nanos(150), READ);
        let batch = watch.take(Nanos(200)).expect("there are enough");
        assert_eq!((batch.arrivals.len(), batch.length), (FEWEST, Nanos(200)));
    }

    #[test]
    fn arrivals_beyond_batch_capacity_are_dropped() {
        let mut watch = Watch::new(Nanos::ZERO, 0, Scale::WHOLE, 60);
        (0..59).for_each(|n| watch.asks(Nanos(n), READ));
        assert!(!watch.is_full());
        (59..90).for_each(|n| watch.asks(Nanos(n), READ));
        assert!(watch.is_full());
        assert_eq!(watch.take(Nanos(100)).expect("there are enough").arrivals.len(), 60);
        assert!(!watch.is_full());
    }
}
