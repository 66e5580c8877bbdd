//! The host interface: one command and its bytes at a time, in order of arrival.

use crate::rate::Rate;
use braid_base::{Bytes, Nanos};

/// One direction of a host interface, or both where it is half duplex.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    rate: Rate,
    command: Nanos,
    free: Nanos,
    /// The last length asked for and its time: requests of one length follow one another.
    last: (Bytes, Nanos),
}

impl Link {
    /// A link that carries `rate` and spends `command` on each request.
    pub(crate) fn new(rate: Rate, command: Nanos) -> Link {
        Link { rate, command, free: Nanos::ZERO, last: (Bytes::ZERO, command) }
    }

    /// How long a request keeps the link.
    pub(crate) fn time(&mut self, len: Bytes) -> Nanos {
        if self.last.0 != len {
            self.last = (len, self.command + self.rate.time_for(len));
        }
        self.last.1
    }

    /// Carries a request whose bytes are all there at `now`; returns when it is through.
    pub(crate) fn carry(&mut self, len: Bytes, now: Nanos) -> Nanos {
        let time = self.time(len);
        self.keep(time, now)
    }

    /// Keeps the link for a time, from `now` on or when it is free; returns the end.
    pub(crate) fn keep(&mut self, time: Nanos, now: Nanos) -> Nanos {
        self.free = self.free.max(now) + time;
        self.free
    }

    /// Carries a request whose bytes began to come at `first` and were all there at `now`: the transfer
    /// overlapped with their coming as far as the link was free. Returns when it is through, never before
    /// `now`.
    pub(crate) fn carry_overlapped(&mut self, len: Bytes, first: Nanos, now: Nanos) -> Nanos {
        self.carry(len, first);
        self.free = self.free.max(now);
        self.free
    }
}
