//! Two rates without any other property: the device model of some papers.
//!
//! Requests pass one after the other, each for the time of its bytes. Position, queue and buffer have no
//! effect, and a flush takes no time. A disk of this kind therefore reads scattered bytes as fast as
//! neighbours. Use this model for comparison with such a paper, not with a device.

use crate::rate::Rate;
use crate::{Model, Op, Request, assert_within};
use braid_base::{Bytes, DeviceClass, Nanos};
use std::collections::VecDeque;

/// The properties of a device with two rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// The class of the represented device.
    pub class: DeviceClass,
    /// Bytes read.
    pub read: Rate,
    /// Bytes written.
    pub write: Rate,
}

/// A device with two rates at work.
#[derive(Clone, Debug)]
pub struct Rates {
    params: Params,
    size: Bytes,
    /// The end of all submitted requests.
    free: Nanos,
    /// Requests in order of completion, equal to the order of arrival.
    due: VecDeque<(Nanos, u64)>,
}

impl Rates {
    /// A device of `size`.
    pub fn new(params: &Params, size: Bytes) -> Rates {
        Rates { params: *params, size, free: Nanos::ZERO, due: VecDeque::new() }
    }
}

impl Model for Rates {
    fn submit(&mut self, tag: u64, request: Request, now: Nanos) {
        assert_within(request, self.size);
        let time = match request.op {
            Op::Read => self.params.read.time_for(request.len),
            Op::Write => self.params.write.time_for(request.len),
            Op::Flush | Op::Discard => Nanos::ZERO,
        };
        self.free = self.free.max(now) + time;
        self.due.push_back((self.free, tag));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.due.front().map(|(at, _)| *at)
    }

    fn next_tag(&self) -> Option<u64> {
        self.due.front().map(|(_, tag)| *tag)
    }

    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        while let Some((_, tag)) = self.due.pop_front_if(|(at, _)| *at <= now) {
            completed.push(tag);
        }
    }
}
