//! Duration and rate. The duration is the time from the first request to the last.

use braid_base::{Nanos, Op, Request};

/// Duration and rate.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Rate {
    /// Time from the first request to the last.
    pub duration_seconds: f64,
    /// Requests of all kinds per second of the duration; zero if the duration is zero.
    pub arrivals_per_second: f64,
    /// Bytes of reads and writes per second of the duration.
    pub arrival_bytes_per_second: f64,
    /// Most requests within one second, counted from the first request on.
    pub peak_arrivals_per_second: u64,
}

#[derive(Default)]
pub(super) struct Counting {
    requests: u64,
    bytes: u64,
    last: Nanos,
    second: u64,
    in_second: u64,
    peak: u64,
}

impl Counting {
    pub(super) fn add(&mut self, at: Nanos, request: Request) {
        self.requests += 1;
        if matches!(request.op, Op::Read | Op::Write) {
            self.bytes = self.bytes.saturating_add(request.len.0);
        }
        self.last = at;
        let second = at.0 / 1_000_000_000;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second += 1;
        self.peak = self.peak.max(self.in_second);
    }

    pub(super) fn finish(self) -> Rate {
        let seconds = self.last.as_secs_f64();
        let over = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        Rate {
            duration_seconds: seconds,
            arrivals_per_second: over(self.requests),
            arrival_bytes_per_second: over(self.bytes),
            peak_arrivals_per_second: self.peak,
        }
    }
}
