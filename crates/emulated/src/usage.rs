//! How busy a device was, in the model's time.

use braid_base::{Bytes, Nanos, Op, Request};

/// Requests to a device, and how busy the device was.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Reads begun.
    pub reads: u64,
    /// Writes begun.
    pub writes: u64,
    /// Flushes begun.
    pub flushes: u64,
    /// Discards begun.
    pub discards: u64,
    /// Bytes of reads.
    pub read_bytes: Bytes,
    /// Bytes written, by guests or by moves: the cause of an SSD's wear.
    pub written_bytes: Bytes,
    /// Time with at least one request outstanding: divided by all time, the utilisation.
    pub busy: Nanos,
    /// Sum of the outstanding times of all requests: divided by all time, the mean queue depth.
    pub waited: Nanos,
    /// Requests outstanding since `changed`.
    outstanding: u64,
    changed: Nanos,
}

impl Usage {
    #[inline]
    pub(crate) fn begin(&mut self, request: Request, now: Nanos) {
        self.pass_to(now);
        self.outstanding += 1;
        match request.op {
            Op::Read => {
                self.reads += 1;
                self.read_bytes += request.len;
            }
            Op::Write => {
                self.writes += 1;
                self.written_bytes += request.len;
            }
            Op::Flush => self.flushes += 1,
            Op::Discard => self.discards += 1,
        }
    }

    pub(crate) fn end(&mut self, now: Nanos) {
        self.pass_to(now);
        self.outstanding -= 1;
    }

    /// Counts the time since the last change.
    pub(crate) fn pass_to(&mut self, now: Nanos) {
        let elapsed = now.saturating_sub(self.changed);
        if self.outstanding > 0 {
            self.busy += elapsed;
            self.waited += elapsed * self.outstanding;
        }
        self.changed = self.changed.max(now);
    }
}
