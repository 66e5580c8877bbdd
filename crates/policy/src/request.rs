//! What guests ask for, whole and in pieces, and how devices served it.

use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Nanos, Op};
use std::marker::PhantomData;
use std::ops::Range;

/// A request as the volume receives it, before it is cut where extents meet. A frontend passes on a request
/// that is longer than its largest buffer as several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Read, write, flush, or discard.
    pub op: Op,
    /// Which bytes of the volume; none for a flush.
    pub range: ByteRange,
    /// What else is known of it.
    pub flags: Flags,
}

/// What a guest says of a request. A flag is not set where the frontend cannot tell: NBD and FUSE carry
/// neither `metadata` nor `sequential`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The request is durable before it is answered (forced unit access).
    pub fua: bool,
    /// The bytes of a write are zeros, for which the guest sent no data.
    pub zeros: bool,
    /// The bytes are metadata of a file system.
    pub metadata: bool,
    /// The guest expects to go on where this request ends.
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
    /// `len` bytes from `start`.
    pub fn new(start: Bytes, len: Bytes) -> ByteRange {
        ByteRange { start, end: start + len }
    }

    /// How many bytes.
    pub fn len(&self) -> Bytes {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// The part of a guest's request that lies within one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Which extent.
    pub extent: ExtentId,
    /// Bytes from the start of the extent.
    pub range: Range<Bytes>,
    /// The first block that it touches, counted from the start of the volume.
    pub first_block: BlockId,
    /// How many blocks it touches.
    pub blocks: u32,
    /// The bytes of the volume that the guest asked for with this piece.
    pub request: ByteRange,
    /// Whether the memory cache holds all of the extent, so that it can be written to a new home without
    /// being read.
    pub whole: Option<WholeInMemory<'a>>,
}

impl Piece<'_> {
    /// The blocks that it touches.
    pub fn touched(&self) -> impl Iterator<Item = BlockId> + Clone + use<> {
        (self.first_block.0..self.first_block.0 + u64::from(self.blocks)).map(BlockId)
    }
}

/// The memory cache holds all of the extent that is being placed: without this a policy cannot ask for a new
/// home in the path of a write. It is valid for one question, so that it cannot be kept for another extent or
/// a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeInMemory<'a>(PhantomData<&'a ()>);

impl WholeInMemory<'_> {
    /// For the engine, and for tests in its place: the caller holds the extent's lock and has looked into the
    /// memory cache.
    pub fn vouched_by_the_engine() -> Self {
        WholeInMemory(PhantomData)
    }
}

/// Which way bytes went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the guest.
    Read,
    /// From the guest.
    Write,
    /// Nowhere: what was written became durable. Only a [`Completion`] has this, with a length of zero.
    Flush,
}

/// What a device did for a guest, for a probe, or in the background.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Which device.
    pub device: DeviceId,
    /// Read, write or flush.
    pub direction: Direction,
    /// How much.
    pub len: Bytes,
    /// Response time: queue and service, as the engine saw it.
    pub latency: Nanos,
    /// Whether a guest caused it. A probe tells how fast a device would be, and counts for nothing else.
    pub origin: Origin,
}

/// On whose behalf a device works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A guest waits for it.
    Guest,
    /// A measurement in idle time.
    Probe,
    /// Background work: moves, write-back, metadata.
    Background,
}
