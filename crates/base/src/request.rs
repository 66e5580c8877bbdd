//! Request to a device or a volume: the type shared by traces, workloads and device models.

use crate::{Bytes, Nanos};

/// Operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Reads bytes.
    Read,
    /// Writes bytes, which may be volatile until a flush.
    Write,
    /// Makes every write completed before durable.
    Flush,
    /// Declares the bytes unneeded.
    Discard,
}

/// A request. A flush has offset and len zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Operation.
    pub op: Op,
    /// First byte.
    pub offset: Bytes,
    /// Length in bytes.
    pub len: Bytes,
}

/// A request with its own time of arrival, independent of earlier requests: open loop.
///
/// The request comes first in memory, too: a processor stalls on a read from the middle of a fresh write of
/// 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Arrival {
    /// The request.
    pub request: Request,
    /// Time of arrival, from the start of the trace or workload.
    pub at: Nanos,
}
