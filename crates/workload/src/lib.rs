//! Workload generators. Each workload has its own file. The head of the file names the source, the figures
//! and the assumptions.
//!
//! [`parse`] creates a workload from `name,key=value,…` and a seed. The same text and seed give the same
//! requests on every machine and in every version. A workload is a value without clock or I/O. The caller
//! runs the workload and signals the completion of a request by asking for the next step. Requests lie within
//! [`Workload::span`], in whole sectors. Only flushes are empty. Generating a request allocates no memory. A
//! started workload takes a few hundred bytes for each client. Workloads with files also take tables: a few
//! MiB by default, at most half a GiB with any settings.
//!
//! A workload that imitates a published workload has a name that ends in `-like`, never the original name.
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

/// A workload, ready to be started any number of times. Every start gives the same requests.
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

/// All requests of a workload, from the first on.
pub enum Load {
    /// Open loop: each request has an arrival time, independent of earlier completions. Times never decrease.
    Open(Arrivals),
    /// Closed loop: each client does one step after the other.
    Closed(Vec<Client>),
}

/// Requests with their arrival times, in order.
pub type Arrivals = Box<dyn Iterator<Item = Arrival> + Send>;

/// The steps of one client. The caller takes the next step when the last step is done. The end of the
/// iterator is the end of the client.
pub type Client = Box<dyn Iterator<Item = Step> + Send>;

/// The next step of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The client waits, then makes a request. The step is done when the request is complete.
    Request {
        /// Wait before the request.
        think: Nanos,
        /// The request.
        request: Request,
    },
    /// End of an operation of the client's program, after a time of computing. The operation began at the end
    /// of the last operation and includes all requests since then: none if a page cache answered the
    /// operation.
    Operation {
        /// Time of computing.
        think: Nanos,
        /// Bytes read or written by the operation.
        bytes: Bytes,
    },
    /// Idle time, outside any operation.
    Pause(Nanos),
    /// The client waits until every client that has not ended is at a `Meet` step.
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

    /// Returns the name, as [`parse`] accepts.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the bytes of a volume that the workload needs. All requests end at or below this offset.
    pub fn span(&self) -> Bytes {
        self.span
    }

    /// Returns the number of requests, flushes included. `None` if the number is unknown or the workload
    /// endless.
    pub fn requests(&self) -> Option<u64> {
        self.requests
    }

    /// Returns the ranges that hold data before the first request, in order and without overlap. The caller
    /// writes these ranges before the run, because a read of unwritten bytes would not reach a device.
    pub fn filled(&self) -> &[Range<Bytes>] {
        &self.filled
    }

    /// Returns the ranges of file-system metadata, in order and without overlap. The caller marks requests
    /// that begin in these ranges as metadata, like a kernel that knows the purpose of each request.
    pub fn metadata(&self) -> &[Range<Bytes>] {
        &self.metadata
    }

    /// Returns the number of requests before the measured requests: earlier runs of the same program.
    pub fn unmeasured(&self) -> u64 {
        self.unmeasured
    }

    /// Starts the workload from the beginning.
    pub fn start(&self) -> Load {
        (self.load)()
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workload {} over {}", self.name, self.span)
    }
}
