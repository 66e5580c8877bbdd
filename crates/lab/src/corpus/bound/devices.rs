//! Devices of a cell as models only, and predictions of the device that ends a request first.
//!
//! A prediction is the time of the request on an otherwise idle device, plus the waiting work divided by the
//! device's parallelism, times the recent error of predictions for such requests. Slower service than
//! predicted is half forgotten within a fifth of a second, so a full write buffer is tried again.

use crate::corpus::oracle::Costs;
use braid_base::{Bytes, Nanos, Op, Request};
use braid_model::{DeviceModel, Model, Spec};

/// A device, with its outstanding requests.
pub(super) struct Device {
    model: DeviceModel,
    size: Bytes,
    costs: Costs,
    ends: Ends,
    parts: Vec<DeviceRequest>,
    free: Vec<usize>,
    /// Predicted work of the parts outstanding, in milliseconds.
    work: f64,
    /// Error factors of predictions for reads and writes, and the time of the last observation.
    errors: [(f64, Nanos); 2],
    /// True if data was written since the last flush.
    is_dirty: bool,
    /// Scratch.
    completed: Vec<u64>,
    pub written: Bytes,
}

/// A request of a device: a part of a guest's request.
#[derive(Clone, Copy)]
struct DeviceRequest {
    ticket: usize,
    op: Op,
    alone: f64,
    predicted: f64,
    begun: Nanos,
}

/// Largest gap behind the end of one of the last `STREAMS` requests at which a read is sequential.
const NEAR: Bytes = Bytes(32 << 10);
const STREAMS: usize = 64;

/// Weight of a new observation.
const NEW: f64 = 0.2;
/// Largest error factor of predictions.
const MOST_WRONG: f64 = 1000.0;
/// Half-life of a remembered error, in milliseconds.
const REMEMBERED: f64 = 200.0;
/// Least time of a request, in milliseconds.
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

    /// Maps a request into the device: addresses beyond the end wrap around.
    fn placed(&self, op: Op, offset: Bytes, len: Bytes) -> Request {
        let len = len.min(self.size);
        Request { op, offset: (offset % self.size).min(self.size - len), len }
    }

    /// Predicted end of a request, in milliseconds from now.
    pub fn predicts(&self, op: Op, offset: Bytes, len: Bytes, now: Nanos) -> f64 {
        let request = self.placed(op, offset, len);
        self.error(op, now) * (self.alone(&request, self.ends.would_go_on(&request)) + self.waits())
    }

    fn alone(&self, request: &Request, goes_on: bool) -> f64 {
        // A buffer may take a write at once. A full buffer is a prediction error, which is remembered.
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
        let part = DeviceRequest { ticket, op, alone, predicted, begun: now };
        let tag = self.free.pop().unwrap_or(self.parts.len());
        match self.parts.get_mut(tag) {
            Some(free) => *free = part,
            None => self.parts.push(part),
        }
        self.model.submit(tag as u64, request, now);
    }

    /// Flushes written data; returns false if nothing was written since the last flush.
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

    /// Advances to a time; `ended` receives the ticket of each ended part.
    pub fn advance(&mut self, now: Nanos, mut ended: impl FnMut(usize)) {
        while self.model.next_event().is_some_and(|next| next <= now) {
            self.model.advance(now, &mut self.completed);
            for tag in std::mem::take(&mut self.completed) {
                let DeviceRequest { ticket, op, alone, predicted, begun } = self.parts[tag as usize];
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

/// Ends of the last requests.
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

    /// True if a request would continue at the end of an earlier request, or a little behind.
    fn would_go_on(&self, request: &Request) -> bool {
        self.stream(request).is_some()
    }

    /// As [`Ends::would_go_on`], and records the request.
    pub fn goes_on(&mut self, request: &Request) -> bool {
        let stream = self.stream(request);
        self.ends[stream.unwrap_or(self.oldest)] = request.offset + request.len;
        if stream.is_none() {
            self.oldest = (self.oldest + 1) % STREAMS;
        }
        stream.is_some()
    }
}
