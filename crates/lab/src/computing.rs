//! Computing between requests by clients of a closed loop, each alone or on shared processors.
//!
//! A client computes in *bursts*: from one request to the next, or to the end of the client's time slice.
//! During a burst a client may complete operations of its programme that need no request. Such operations are
//! recorded at the end of the burst, each with its own time.
//!
//! Shared processors serve bursts in order of arrival, each to its end. Linux 2.6.28 behaves about likewise
//! if bursts are shorter than the time slices: a waking process does not preempt another for so short a time.

use braid_base::{Bytes, Nanos};
use std::cell::{Cell, RefCell};

/// Time slice, assumed: the scheduler of Linux 2.6.28 grants at least about 12 ms on four processors. If
/// processors are scarce, the tail of operations' latencies is about as long.
const SLICE: Nanos = Nanos::from_millis(10);
/// Most operations recorded at the end of a burst.
const MOST_OPERATIONS: usize = 4096;

/// Processors on which clients compute.
pub(crate) struct Processors {
    /// When each processor is free; empty if each client has a processor of its own.
    free_at: RefCell<Vec<Nanos>>,
    thinking: Thinking,
}

impl Processors {
    /// Processors shared by all clients; `None` gives each client a processor of its own.
    pub fn new(shared: Option<usize>) -> Processors {
        let free_at = RefCell::new(vec![Nanos::ZERO; shared.unwrap_or(0)]);
        Processors { free_at, thinking: Thinking::default() }
    }

    /// Takes the processor that is free first for `time`, from `now` or from when the processor is free.
    /// Returns the end.
    pub fn take(&self, now: Nanos, time: Nanos) -> Nanos {
        self.thinking.change(now, 1);
        let mut free_at = self.free_at.borrow_mut();
        let Some(first) = free_at.iter_mut().min() else { return now + time };
        *first = now.max(*first) + time;
        *first
    }

    /// A client waits from now on, without a processor.
    pub fn wait(&self, now: Nanos) {
        self.thinking.change(now, 1);
    }

    /// A client has finished computing or waiting.
    pub fn done(&self, now: Nanos) {
        self.thinking.change(now, -1);
    }

    /// Total time that clients have spent computing, waiting, or waiting for a processor.
    pub fn thought(&self, now: Nanos) -> Nanos {
        self.thinking.change(now, 0)
    }
}

/// Total think time of all clients.
#[derive(Default)]
struct Thinking {
    clients: Cell<i64>,
    since: Cell<Nanos>,
    total: Cell<Nanos>,
}

impl Thinking {
    /// Counts the time up to `now`, then changes the number of thinking clients by `more`. Returns the total.
    fn change(&self, now: Nanos, more: i64) -> Nanos {
        let passed = now - self.since.replace(now);
        let total = self.total.get() + passed * self.clients.get() as u64;
        self.total.set(total);
        self.clients.set(self.clients.get() + more);
        total
    }
}

/// Computing that a client has to do before its next request.
pub(crate) struct Burst {
    /// Length of the burst.
    pub time: Nanos,
    /// Operations that end during the burst: time into the burst, and bytes read or written.
    ends: Vec<(Nanos, Bytes)>,
    /// Start of the operation under way.
    operation_began: Nanos,
}

/// A completed operation of a client's programme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub bytes: Bytes,
    pub took: Nanos,
    pub at: Nanos,
}

impl Burst {
    /// An empty burst that begins at `now`.
    pub fn new(now: Nanos) -> Burst {
        Burst { time: Nanos::ZERO, ends: Vec::new(), operation_began: now }
    }

    /// Adds computing of length `think` that completes an operation.
    pub fn add_operation(&mut self, think: Nanos, bytes: Bytes) {
        self.time += think;
        self.ends.push((self.time, bytes));
    }

    /// True if the burst is long enough to be computed now.
    pub fn is_full(&self) -> bool {
        self.time >= SLICE || self.ends.len() >= MOST_OPERATIONS
    }

    /// Ends the burst at `end` and returns its completed operations. The burst is empty afterwards.
    pub fn finish(&mut self, end: Nanos) -> impl Iterator<Item = Ended> + '_ {
        let begun = end - self.time;
        self.time = Nanos::ZERO;
        let (began, ends) = (&mut self.operation_began, &mut self.ends);
        ends.drain(..).map(move |(after, bytes)| {
            let at = begun + after;
            Ended { bytes, took: at - std::mem::replace(began, at), at }
        })
    }

    /// Begins an operation at `now`; none was under way before.
    pub fn begin_operation(&mut self, now: Nanos) {
        self.operation_began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_serve_processes_in_order_of_arrival() {
        let two = Processors::new(Some(2));
        let times = [(0, 100), (0, 30), (0, 50), (10, 10), (500, 7)];
        let ends = times.map(|(now, time)| two.take(Nanos(now), Nanos(time)).0);
        assert_eq!(ends, [100, 30, 80, 90, 507]);
        let own = Processors::new(None);
        assert_eq!(times.map(|(now, time)| own.take(Nanos(now), Nanos(time)).0), [100, 30, 50, 20, 507]);
    }

    #[test]
    fn time_before_a_processor_is_free_counts_as_thought() {
        let one = Processors::new(Some(1));
        let [first, second] = [10, 10].map(|time| one.take(Nanos::ZERO, Nanos(time)));
        one.done(first);
        one.done(second);
        assert_eq!((first.0, second.0, one.thought(Nanos(50)).0), (10, 20, 30));
    }

    /// An operation with requests takes the time since the preceding operation ended; the later operations of
    /// the burst take their own computing time only.
    #[test]
    fn operations_of_a_burst_end_in_sequence() {
        let mut burst = Burst::new(Nanos(1000));
        burst.add_operation(Nanos(5), Bytes(1));
        burst.add_operation(Nanos(7), Bytes(2));
        burst.time += Nanos(100);
        // The processor was free late.
        let ended: Vec<Ended> = burst.finish(Nanos(1312)).collect();
        let operation = |bytes, took, at| Ended { bytes: Bytes(bytes), took: Nanos(took), at: Nanos(at) };
        assert_eq!(ended, [operation(1, 205, 1205), operation(2, 7, 1212)]);
        // The request takes until 2000.
        burst.add_operation(Nanos::ZERO, Bytes(3));
        assert_eq!(burst.finish(Nanos(2000)).collect::<Vec<_>>(), [operation(3, 788, 2000)]);
        burst.begin_operation(Nanos(5000));
        burst.add_operation(Nanos(4), Bytes(4));
        assert_eq!(burst.finish(Nanos(5004)).collect::<Vec<_>>(), [operation(4, 4, 5004)]);
    }
}
