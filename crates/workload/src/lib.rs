//! Generated workloads: who asks a volume for which bytes, and when. One file per workload, which opens with
//! its source, its figures and what is assumed.
//!
//! A workload comes from `name,key=value,…` and a seed: the same text and seed give the same requests on
//! every machine and in every version. It is a value without clock or I/O; the caller that runs it says when
//! a request has completed by asking for the next step. Requests lie within [`Workload::span`], in whole
//! sectors, and are never empty, but for flushes. Generating one allocates nothing. A workload that has
//! started takes a few hundred bytes for each client; those with files take tables as well, at most half a
//! GiB whatever is set, a few MiB by default.
//!
//! A workload that imitates a published one is called `…-like`, never by the name of the real one.
#![forbid(unsafe_code)]

mod ahead;
mod catalogue;
mod checkpoint;
mod db2;
mod dbench;
mod diurnal;
mod draw;
mod email;
mod ext3_file;
mod file_system;
mod financial1;
mod financial2;
mod hot_cold;
mod iometer;
mod netapp;
mod oltp;
mod pace;
mod page_cache;
mod postmark;
mod random;
mod refill;
mod sequential;
mod side_by_side;
mod smb;
mod target;
mod times;
mod tpcc;
mod tpch;
mod websearch;
mod webserver;
mod zipf;

pub use braid_base::BadSetting;
pub use catalogue::{About, Setting, names, parse};

use braid_base::{Arrival, Bytes, Nanos, Request};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A workload, ready to be started as often as needed: each start gives the same requests.
#[derive(Clone)]
pub struct Workload {
    name: &'static str,
    span: Bytes,
    requests: Option<u64>,
    filled: Vec<Range<Bytes>>,
    metadata: Vec<Range<Bytes>>,
    unmeasured: u64,
    load: Arc<dyn Fn() -> Load + Send + Sync>,
}

/// The requests of a workload, from its first one on.
pub enum Load {
    /// Requests come at times of their own, whatever became of the ones before them. Times never fall.
    Open(Arrivals),
    /// Each client does one thing after the other.
    Closed(Vec<Client>),
}

/// Requests with their times.
pub type Arrivals = Box<dyn Iterator<Item = Arrival> + Send>;

/// What one client does: the next step is asked for once the last one is done. A client that ends is gone.
pub type Client = Box<dyn Iterator<Item = Step> + Send>;

/// What a client does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Waits, then makes a request, and is done when that is complete.
    Request {
        /// How long the client waits first.
        think: Nanos,
        /// What it asks for then.
        request: Request,
    },
    /// Computes, and then an operation of the client's own programme is complete. It began when the last one
    /// was complete, and the requests since then were part of it: none, if a page cache answered it.
    Operation {
        /// How long the client computes first.
        think: Nanos,
        /// What the programme has read or written by it.
        bytes: Bytes,
    },
    /// Does nothing for so long. No operation is under way.
    Pause(Nanos),
    /// Waits until all clients that have not ended stand at such a step.
    Meet,
}

impl Workload {
    pub(crate) fn new(
        name: &'static str,
        span: Bytes,
        requests: Option<u64>,
        load: impl Fn() -> Load + Send + Sync + 'static,
    ) -> Workload {
        let filled = vec![Bytes::ZERO..span];
        Workload { name, span, requests, filled, metadata: Vec::new(), unmeasured: 0, load: Arc::new(load) }
    }

    pub(crate) fn with_filled(self, filled: Vec<Range<Bytes>>) -> Workload {
        Workload { filled, ..self }
    }

    pub(crate) fn with_metadata(self, metadata: Vec<Range<Bytes>>) -> Workload {
        Workload { metadata, ..self }
    }

    pub(crate) fn with_unmeasured(self, unmeasured: u64) -> Workload {
        Workload { unmeasured, ..self }
    }

    /// Its name, as [`parse`] takes it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many bytes of a volume it needs: all requests end below.
    pub fn span(&self) -> Bytes {
        self.span
    }

    /// How many requests it makes in all, where that is known; flushes count. `None`: unknown, or without
    /// end.
    pub fn requests(&self) -> Option<u64> {
        self.requests
    }

    /// What holds bytes before the first request, in order and without overlap. The caller that runs the
    /// workload writes it beforehand: a read of what was never written would not meet a device.
    pub fn filled(&self) -> &[Range<Bytes>] {
        &self.filled
    }

    /// Where it has metadata of a file system, in order and without overlap. The caller that runs the
    /// workload says so of a request that begins there, as a kernel does which knows what it asks for.
    pub fn metadata(&self) -> &[Range<Bytes>] {
        &self.metadata
    }

    /// How many requests come before those that count: earlier runs of the same programme.
    pub fn unmeasured(&self) -> u64 {
        self.unmeasured
    }

    /// Starts it from the beginning.
    pub fn start(&self) -> Load {
        (self.load)()
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workload {} over {}", self.name, self.span)
    }
}
