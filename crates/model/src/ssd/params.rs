//! What an SSD is made of.

use crate::rate::Rate;
use crate::ssd::page_map::State;
use braid_base::{Bytes, Nanos};

/// What an SSD is made of. The size is not part of it: what depends on span or distance depends on the share
/// of the size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// Units that read or program one flash page at a time: dies, or as many as the figures need. At most
    /// 1,024.
    pub channels: u32,
    /// What is read or programmed at once.
    pub flash_page: Bytes,
    /// From the cells of a flash page to its register.
    pub read: Nanos,
    /// From the register to the cells.
    pub program: Nanos,
    /// What is erased at once.
    pub erase_block: Bytes,
    /// Erasing it.
    pub erase: Nanos,
    /// How long a program or an erasure takes to make way for a read; `None` if it cannot.
    pub suspend: Option<Nanos>,
    /// Between a register and the controller.
    pub channel: Rate,
    /// Host interface: bytes read.
    pub read_rate: Rate,
    /// Host interface: bytes written.
    pub write_rate: Rate,
    /// Whether reads and writes share the interface in time (SATA) or not (PCIe).
    pub half_duplex: bool,
    /// What each command keeps the interface and the controller busy for: it bounds the request rate.
    pub command: Nanos,
    /// What each command takes beside: it bounds nothing but the rate at depth one.
    pub latency: Nanos,
    /// The rate at which the controller empties the write buffer, where that is less than the flash would
    /// take. It holds up a write only if the buffer is full, and no reads.
    pub intake: Option<Rate>,
    /// Memory for writes.
    pub buffer: Bytes,
    /// What a flush does.
    pub flush: FlushCost,
    /// How many requests the drive holds; the others wait outside.
    pub queue_depth: usize,
    /// Whether the drive reads ahead of a sequential reader, so that its requests cost the interface only.
    pub read_ahead: bool,
    /// How many sequential writers the drive tells apart: 1 to 16.
    pub streams: usize,
    /// Whether discards free flash. Otherwise they are taken, and nothing comes of them.
    pub trim: bool,
    /// How written bytes find their place.
    pub mapping: Mapping,
    /// What lies on the drive at the start.
    pub state: State,
}

/// What a flush does and takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushCost {
    /// Waits until the buffer is drained, then takes this long.
    Drains(Nanos),
    /// The buffer survives a power cut: takes this long and waits for nothing.
    Protected(Nanos),
}

/// How written bytes find their place in the flash.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mapping {
    /// Page by page, wherever there is room; garbage is collected.
    Pages(Pages),
    /// Erase block by erase block: a write that does not go on where another one ended merges old and new.
    Blocks(Blocks),
}

/// A drive that maps pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pages {
    /// Flash beyond the size, as a share of the size: 0.01 to 10.
    pub spare: f64,
    /// The controller's time for the map at each random write, which holds up other writes.
    pub update: Nanos,
    /// The share of the map that the drive's memory holds.
    pub map_held: f64,
    /// The controller's time beside, where the part of the map that a random write needs is not in memory.
    pub map_miss: Nanos,
}

/// A drive that maps erase blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Blocks {
    /// Bytes programmed for each random write beside its own.
    pub merge: Bytes,
    /// The area within which random writes cost no more than sequential ones, one for all writers, as a share
    /// of the size.
    pub reach: f64,
}

impl Pages {
    /// With a map that is all in memory and costs nothing.
    pub const fn spare(spare: f64) -> Mapping {
        Mapping::Pages(Pages { spare, update: Nanos::ZERO, map_held: 1.0, map_miss: Nanos::ZERO })
    }
}
