//! Requests of guests, whole and in pieces, and their completion by devices.

use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Nanos, Op};
use std::marker::PhantomData;
use std::ops::Range;

/// A request as the volume receives it, before the cut at extents. A frontend passes on a request longer than
/// its largest buffer as several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Read, write, flush, or discard.
    pub op: Op,
    /// Bytes of the volume; empty for a flush.
    pub range: ByteRange,
    /// Further attributes of the request.
    pub flags: Flags,
}

/// A guest's statements about a request. A flag that the frontend cannot tell is not set: NBD and FUSE carry
/// neither `metadata` nor `sequential`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The request is durable before the reply (forced unit access).
    pub fua: bool,
    /// The bytes of a write are zeros, and the guest sent no data.
    pub zeros: bool,
    /// The bytes are metadata of a file system.
    pub metadata: bool,
    /// The guest expects to continue at the end of the request.
    pub sequential: bool,
}

/// Bytes of the volume, from `start` up to and not including `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// The first byte.
    pub start: Bytes,
    /// The byte after the last.
    pub end: Bytes,
}

impl ByteRange {
    /// Returns `len` bytes from `start`.
    pub fn new(start: Bytes, len: Bytes) -> ByteRange {
        ByteRange { start, end: start + len }
    }

    /// Number of bytes.
    pub fn len(&self) -> Bytes {
        self.end.saturating_sub(self.start)
    }

    /// True if the range has no bytes.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// Part of a guest's request within one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The extent.
    pub extent: ExtentId,
    /// Bytes from the start of the extent.
    pub range: Range<Bytes>,
    /// The first block touched, counted from the start of the volume.
    pub first_block: BlockId,
    /// Number of blocks touched.
    pub blocks: u32,
    /// Bytes of the volume in the guest's whole request.
    pub request: ByteRange,
    /// Set if the memory cache holds the whole extent: a new home can be written without a read.
    pub whole: Option<WholeInMemory<'a>>,
}

impl Piece<'_> {
    /// Returns the blocks touched.
    pub fn touched(&self) -> impl Iterator<Item = BlockId> + Clone + use<> {
        (self.first_block.0..self.first_block.0 + u64::from(self.blocks)).map(BlockId)
    }
}

/// Proof that the memory cache holds the whole extent being placed. A policy needs the proof to ask for a new
/// home in the path of a write. The proof is valid for one question, and cannot be kept for another extent or
/// a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeInMemory<'a>(PhantomData<&'a ()>);

impl WholeInMemory<'_> {
    /// Makes the proof. For the engine, and for tests in its place: the caller holds the extent's lock and
    /// has found the extent in the memory cache.
    pub fn vouched_by_the_engine() -> Self {
        WholeInMemory(PhantomData)
    }
}

/// Direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the guest.
    Read,
    /// From the guest.
    Write,
    /// No bytes: earlier writes became durable. Only in a [`Completion`], with a length of zero.
    Flush,
}

/// Work of a device for a guest, for a probe, or in the background.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The device.
    pub device: DeviceId,
    /// Read, write or flush.
    pub direction: Direction,
    /// Bytes.
    pub len: Bytes,
    /// Response time, queue and service, as measured by the engine.
    pub latency: Nanos,
    /// Cause of the work. A probe measures how fast a device would be, and counts for nothing else.
    pub origin: Origin,
}

/// Cause of a device's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A guest waits for the work.
    Guest,
    /// A measurement in idle time.
    Probe,
    /// Background work: moves, write-back, metadata.
    Background,
}
