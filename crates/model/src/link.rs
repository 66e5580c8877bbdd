//! The host interface: one command and its bytes at a time, in order of arrival.

use crate::rate::Rate;
use braid_base::{Bytes, Nanos};

/// One direction of a host interface, or both directions if half duplex.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    rate: Rate,
    command: Nanos,
    free: Nanos,
    /// The last requested length and its time: requests of one length follow one another.
    last: (Bytes, Nanos),
}

impl Link {
    /// A link that carries `rate` and spends `command` on each request.
    pub(crate) fn new(rate: Rate, command: Nanos) -> Link {
        Link { rate, command, free: Nanos::ZERO, last: (Bytes::ZERO, command) }
    }

    /// The time for which a request occupies the link.
    pub(crate) fn time(&mut self, len: Bytes) -> Nanos {
        if self.last.0 != len {
            self.last = (len, self.command + self.rate.time_for(len));
        }
        self.last.1
    }

    /// Carries a request whose bytes are all present at `now`. Returns the end of the transfer.
    pub(crate) fn carry(&mut self, len: Bytes, now: Nanos) -> Nanos {
        let time = self.time(len);
        self.keep(time, now)
    }

    /// Occupies the link for a time, from `now` on or when free. Returns the end.
    pub(crate) fn keep(&mut self, time: Nanos, now: Nanos) -> Nanos {
        self.free = self.free.max(now) + time;
        self.free
    }

    /// Carries a request whose bytes arrive from `first` to `now`. The transfer overlaps with the arrival as
    /// far as the link is free. Returns the end of the transfer, never before `now`.
    pub(crate) fn carry_overlapped(&mut self, len: Bytes, first: Nanos, now: Nanos) -> Nanos {
        self.carry(len, first);
        self.free = self.free.max(now);
        self.free
    }
}
