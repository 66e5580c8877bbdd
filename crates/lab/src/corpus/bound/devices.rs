//! The devices of a cell as models alone, and which of them is predicted to end a request first.
//!
//! A prediction is what the request takes a device that does nothing else, and the work that waits there,
//! divided by how much of it the device does at the same time; times what predictions of such requests were
//! wrong by lately. That a device was slower than predicted is half forgotten within a fifth of a second, so
//! that a full write buffer is tried again.

use crate::corpus::oracle::Costs;
use braid_base::{Bytes, Nanos, Op, Request};
use braid_model::{DeviceModel, Model, Spec};

/// A device, and what it has been given.
pub(super) struct Device {
    model: DeviceModel,
    size: Bytes,
    costs: Costs,
    ends: Ends,
    parts: Vec<Part>,
    free: Vec<usize>,
    /// Predicted work of the parts outstanding, in milliseconds.
    work: f64,
    /// Of reads and writes: how much longer they take than is predicted, and since when that is known.
    errors: [(f64, Nanos); 2],
    /// Whether something was written since the last flush.
    is_dirty: bool,
    /// Scratch.
    completed: Vec<u64>,
    pub written: Bytes,
}

/// A request of a device, for a part of a guest's request.
#[derive(Clone, Copy)]
struct Part {
    ticket: usize,
    op: Op,
    alone: f64,
    predicted: f64,
    begun: Nanos,
}

/// How a read goes on: so far behind the end of one of so many requests.
const NEAR: Bytes = Bytes(32 << 10);
const STREAMS: usize = 64;

/// How much a new observation counts.
const NEW: f64 = 0.2;
/// What predictions are wrong by at most.
const MOST_WRONG: f64 = 1000.0;
/// How long it is half remembered that they were, in milliseconds.
const REMEMBERED: f64 = 200.0;
/// The least that a request takes, in milliseconds.
const LEAST: f64 = 0.01;

impl Device {
    pub fn new(spec: &Spec, size: Bytes, seed: u64) -> Device {
        Device {
            model: spec.build(size, seed),
            size,
            costs: Costs::of(spec),
            ends: Ends::default(),
            parts: Vec::new(),
            free: Vec::new(),
            work: 0.0,
            errors: [(1.0, Nanos::ZERO); 2],
            is_dirty: false,
            completed: Vec::new(),
            written: Bytes::ZERO,
        }
    }

    /// A request within the device: addresses beyond its end begin anew.
    fn placed(&self, op: Op, offset: Bytes, len: Bytes) -> Request {
        let len = len.min(self.size);
        Request { op, offset: (offset % self.size).min(self.size - len), len }
    }

    /// When a request is predicted to end, in milliseconds from now.
    pub fn predicts(&self, op: Op, offset: Bytes, len: Bytes, now: Nanos) -> f64 {
        let request = self.placed(op, offset, len);
        self.error(op, now) * (self.alone(&request, self.ends.would_go_on(&request)) + self.waits())
    }

    fn alone(&self, request: &Request, goes_on: bool) -> f64 {
        // A buffer may take a write at once. That it was full is an error, which is remembered.
        self.costs.takes(request.op, request.len, goes_on || request.op == Op::Write).max(LEAST)
    }

    fn waits(&self) -> f64 {
        self.work / self.costs.parallel
    }

    fn error(&self, op: Op, now: Nanos) -> f64 {
        let (error, since) = self.errors[usize::from(op == Op::Write)];
        1.0 + (error - 1.0) / (1.0 + now.saturating_sub(since).as_millis_f64() / REMEMBERED)
    }

    pub fn begin(&mut self, ticket: usize, op: Op, offset: Bytes, len: Bytes, now: Nanos) {
        let request = self.placed(op, offset, len);
        let (mut alone, mut predicted) = (0.0, 0.0);
        if op != Op::Flush {
            let goes_on = self.ends.goes_on(&request);
            alone = self.alone(&request, goes_on);
            predicted = alone + self.waits();
            self.is_dirty |= op == Op::Write;
            self.written += if op == Op::Write { len } else { Bytes::ZERO };
        }
        self.work += alone;
        let part = Part { ticket, op, alone, predicted, begun: now };
        let tag = self.free.pop().unwrap_or(self.parts.len());
        match self.parts.get_mut(tag) {
            Some(free) => *free = part,
            None => self.parts.push(part),
        }
        self.model.submit(tag as u64, request, now);
    }

    /// Flushes what was written; whether there was anything.
    pub fn flush(&mut self, ticket: usize, now: Nanos) -> bool {
        let is_dirty = std::mem::take(&mut self.is_dirty);
        if is_dirty {
            self.begin(ticket, Op::Flush, Bytes::ZERO, Bytes::ZERO, now);
        }
        is_dirty
    }

    pub fn next_event(&self) -> Option<Nanos> {
        self.model.next_event()
    }

    /// Passes to a time; `ended` has the ticket of each part that has ended.
    pub fn advance(&mut self, now: Nanos, mut ended: impl FnMut(usize)) {
        while self.model.next_event().is_some_and(|next| next <= now) {
            self.model.advance(now, &mut self.completed);
            for tag in std::mem::take(&mut self.completed) {
                let Part { ticket, op, alone, predicted, begun } = self.parts[tag as usize];
                self.free.push(tag as usize);
                self.work = if self.free.len() == self.parts.len() { 0.0 } else { self.work - alone };
                if op != Op::Flush {
                    let wrong =
                        ((now - begun).as_millis_f64() / predicted).clamp(1.0 / MOST_WRONG, MOST_WRONG);
                    let known = self.error(op, now);
                    self.errors[usize::from(op == Op::Write)] = (known + NEW * (wrong - known), now);
                }
                ended(ticket);
            }
        }
    }
}

/// Where the last requests ended.
pub(super) struct Ends {
    ends: [Bytes; STREAMS],
    oldest: usize,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends { ends: [Bytes(u64::MAX); STREAMS], oldest: 0 }
    }
}

impl Ends {
    fn stream(&self, request: &Request) -> Option<usize> {
        let near = |end: &Bytes| request.offset.0.checked_sub(end.0).is_some_and(|gap| gap <= NEAR.0);
        self.ends.iter().position(near)
    }

    /// Whether a request would go on where one ended, or a little behind.
    fn would_go_on(&self, request: &Request) -> bool {
        self.stream(request).is_some()
    }

    /// As [`Ends::would_go_on`], of a request that is made.
    pub fn goes_on(&mut self, request: &Request) -> bool {
        let stream = self.stream(request);
        self.ends[stream.unwrap_or(self.oldest)] = request.offset + request.len;
        if stream.is_none() {
            self.oldest = (self.oldest + 1) % STREAMS;
        }
        stream.is_some()
    }
}
