//! What a device or a volume is asked for: the one word that traces, workloads and device models share.

use crate::{Bytes, Nanos};

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Reads bytes.
    Read,
    /// Writes bytes; they may be volatile until a flush.
    Write,
    /// Makes every write that completed before it durable.
    Flush,
    /// Says that the bytes are not needed any more.
    Discard,
}

/// A request. Flush has offset and len zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What it does.
    pub op: Op,
    /// Where it begins.
    pub offset: Bytes,
    /// How long it is.
    pub len: Bytes,
}

/// A request that comes at a time of its own, whatever became of the ones before it: open loop.
///
/// The request comes first in memory, too: a processor waits where one begins to read in the middle of what
/// was just written in pieces of 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Arrival {
    /// What is asked for.
    pub request: Request,
    /// When, from the start of the trace or workload.
    pub at: Nanos,
}
