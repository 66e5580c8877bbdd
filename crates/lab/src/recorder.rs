//! What guests saw: response times by kind of request, with the wait for admission apart from the time in the volume.

use braid_base::{Bytes, Nanos, Op};
use hdrhistogram::Histogram;

/// What guests saw from a moment on.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Nothing that completes before counts.
    from: Nanos,
    kinds: [Kind; 4],
}

/// What became of the requests of one kind.
pub(crate) struct Kind {
    pub requests: u64,
    pub bytes: Bytes,
    /// From arrival to completion, of requests that were admitted at once.
    direct: Times,
    /// Of those that were not: the whole, and its two parts.
    delayed: Times,
    queued: Times,
    served: Times,
}

/// Times of requests: exactly what can be added up, and a histogram of the rest.
#[derive(Clone)]
pub(crate) struct Times {
    pub count: u64,
    pub sum: Nanos,
    pub max: Nanos,
    /// In nanoseconds, to two digits.
    pub histogram: Histogram<u64>,
}

impl Recorder {
    /// Forgets everything, and counts from `now` on.
    pub fn restart(&mut self, now: Nanos) {
        *self = Recorder { from: now, ..Recorder::default() };
    }

    /// A request has completed that arrived, was admitted, and is done at these times.
    pub fn record(&mut self, op: Op, len: Bytes, arrived: Nanos, admitted: Nanos, done: Nanos) {
        if done < self.from {
            return;
        }
        let kind = &mut self.kinds[place(op)];
        kind.requests += 1;
        kind.bytes += len;
        if arrived >= admitted {
            kind.direct.record(done - admitted);
        } else {
            kind.delayed.record(done - arrived);
            kind.queued.record(admitted - arrived);
            kind.served.record(done - admitted);
        }
    }

    /// What became of the requests of one kind.
    pub fn kind(&self, op: Op) -> &Kind {
        &self.kinds[place(op)]
    }

    /// Requests, bytes and the sum of response times of all reads and writes.
    pub fn totals(&self) -> (u64, Bytes, Nanos) {
        let mut totals = (0, Bytes::ZERO, Nanos::ZERO);
        for kind in [self.kind(Op::Read), self.kind(Op::Write)] {
            totals.0 += kind.requests;
            totals.1 += kind.bytes;
            totals.2 += kind.direct.sum + kind.delayed.sum;
        }
        totals
    }
}

fn place(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush => 2,
        Op::Discard => 3,
    }
}

impl Default for Kind {
    fn default() -> Kind {
        let [direct, delayed, queued, served] = std::array::from_fn(|_| Times::default());
        Kind { requests: 0, bytes: Bytes::ZERO, direct, delayed, queued, served }
    }
}

impl Kind {
    /// From arrival to completion.
    pub fn latency(&self) -> Times {
        self.direct.plus(&self.delayed)
    }

    /// From arrival until the volume took the request.
    pub fn queue(&self) -> Times {
        let mut times = self.queued.clone();
        times.count += self.direct.count;
        times.histogram.record_n(0, self.direct.count).expect("zero fits any histogram");
        times
    }

    /// In the volume.
    pub fn service(&self) -> Times {
        self.direct.plus(&self.served)
    }
}

/// The longest time that a histogram tells from longer ones.
const LONGEST: u64 = 1_000_000_000_000;

impl Default for Times {
    fn default() -> Times {
        let histogram =
            Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds of a histogram are in order");
        Times { count: 0, sum: Nanos::ZERO, max: Nanos::ZERO, histogram }
    }
}

impl Times {
    fn record(&mut self, time: Nanos) {
        self.count += 1;
        self.sum += time;
        self.max = self.max.max(time);
        self.histogram.saturating_record(time.0);
    }

    /// Both together.
    pub fn plus(&self, other: &Times) -> Times {
        let mut histogram = self.histogram.clone();
        histogram.add(&other.histogram).expect("both have the same bounds");
        Times {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            max: self.max.max(other.max),
            histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_and_service_add_up_to_latency() {
        let mut recorder = Recorder::default();
        for (arrived, admitted, done) in [(0, 0, 100), (0, 50, 200), (10, 10, 20)] {
            recorder.record(Op::Read, Bytes(512), Nanos(arrived), Nanos(admitted), Nanos(done));
        }
        let read = recorder.kind(Op::Read);
        let sums = [read.latency(), read.queue(), read.service()].map(|times| (times.count, times.sum.0));
        assert_eq!(sums, [(3, 310), (3, 50), (3, 260)]);
        assert_eq!(read.queue().histogram.value_at_quantile(0.5), 0);
        recorder.restart(Nanos(500));
        recorder.record(Op::Read, Bytes(512), Nanos(0), Nanos(0), Nanos(499));
        assert_eq!(recorder.totals().0, 0, "what completed before does not count");
    }
}
