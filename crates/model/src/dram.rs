//! Memory: the protected cache of an array controller.
//!
//! Requests pass one after the other at the rate of the memory, and each also takes the controller's time. A
//! flush takes only the controller's time: the memory survives a power cut.

use crate::link::Link;
use crate::rate::Rate;
use crate::{Model, Op, Request, assert_within};
use braid_base::{Bytes, Nanos};
use std::collections::VecDeque;

/// The properties of a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Bytes read and written.
    pub rate: Rate,
    /// The time for which each request keeps the memory busy: bounds the request rate.
    pub command: Nanos,
    /// Additional time of each request; does not keep the memory busy.
    pub latency: Nanos,
}

/// A memory at work.
#[derive(Clone, Debug)]
pub struct Dram {
    size: Bytes,
    latency: Nanos,
    link: Link,
    /// Requests in order of completion, equal to the order of arrival.
    due: VecDeque<(Nanos, u64)>,
}

impl Dram {
    /// A memory of `size`.
    pub fn new(params: &Params, size: Bytes) -> Dram {
        let link = Link::new(params.rate, params.command);
        Dram { size, latency: params.latency, link, due: VecDeque::new() }
    }
}

impl Model for Dram {
    fn submit(&mut self, tag: u64, request: Request, now: Nanos) {
        assert_within(request, self.size);
        let moved = if request.op == Op::Discard { Bytes::ZERO } else { request.len };
        self.due.push_back((self.link.carry(moved, now) + self.latency, tag));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.due.front().map(|(at, _)| *at)
    }

    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        while let Some((_, tag)) = self.due.pop_front_if(|(at, _)| *at <= now) {
            completed.push(tag);
        }
    }
}
