//! How well an emulation keeps the model's time.

use braid_base::Nanos;

/// Lateness of requests: time of completion after the model's time, because the real I/O took longer or the
/// machine was busy.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Lateness {
    /// Requests completed.
    pub requests: u64,
    /// The sum over all requests.
    pub total: Nanos,
    /// Greatest lateness of a single request.
    pub max: Nanos,
}

impl Lateness {
    /// Largest mean lateness, as a share of the mean response time, at which figures of an emulation count.
    /// Above this bound a busy machine and a policy cannot be told apart. Below, the two worlds agree within
    /// 10 %.
    pub const BOUND: f64 = 0.05;

    /// Mean over all requests; zero without requests.
    pub fn mean(&self) -> Nanos {
        self.total / self.requests.max(1)
    }

    pub(crate) fn record(&mut self, lateness: Nanos) {
        self.requests += 1;
        self.total += lateness;
        self.max = self.max.max(lateness);
    }
}
