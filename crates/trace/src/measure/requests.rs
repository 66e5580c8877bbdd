//! Requests and bytes by kind.

use super::share;
use braid_base::{Op, Request};

/// Requests and bytes by kind.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Requests {
    /// All requests.
    pub requests: u64,
    /// Reads.
    pub read_requests: u64,
    /// Writes.
    pub write_requests: u64,
    /// Flushes.
    pub flush_requests: u64,
    /// Discards.
    pub discard_requests: u64,
    /// Share of reads among reads and writes.
    pub read_share: f64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
    /// Bytes of discards.
    pub discarded_bytes: u64,
}

impl Requests {
    pub(super) fn add(&mut self, request: Request) {
        self.requests += 1;
        let (requests, bytes) = match request.op {
            Op::Read => (&mut self.read_requests, &mut self.read_bytes),
            Op::Write => (&mut self.write_requests, &mut self.written_bytes),
            Op::Discard => (&mut self.discard_requests, &mut self.discarded_bytes),
            Op::Flush => {
                self.flush_requests += 1;
                return;
            }
        };
        *requests += 1;
        *bytes = bytes.saturating_add(request.len.0);
        self.read_share = share(self.read_requests, self.read_requests + self.write_requests);
    }
}
