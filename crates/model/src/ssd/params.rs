//! The properties of an SSD.

use crate::rate::Rate;
use crate::ssd::page_map::State;
use braid_base::{Bytes, Nanos};

/// The properties of an SSD. The size is separate: properties that depend on span or distance depend on the
/// share of the size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// Units that read or program one flash page at a time: dies, or as many as the figures require. At most
    /// 1,024.
    pub channels: u32,
    /// The unit of reads and programs.
    pub flash_page: Bytes,
    /// Time from the cells of a flash page to its register.
    pub read: Nanos,
    /// Time from the register to the cells.
    pub program: Nanos,
    /// The unit of erasure.
    pub erase_block: Bytes,
    /// Time of an erasure.
    pub erase: Nanos,
    /// The time in which a program or an erasure makes way for a read; `None` if suspension is impossible.
    pub suspend: Option<Nanos>,
    /// Rate between a register and the controller.
    pub channel: Rate,
    /// Host interface: bytes read.
    pub read_rate: Rate,
    /// Host interface: bytes written.
    pub write_rate: Rate,
    /// True if reads and writes share the interface in time (SATA), false if not (PCIe).
    pub half_duplex: bool,
    /// Time for which each command keeps the interface and the controller busy: bounds the request rate.
    pub command: Nanos,
    /// Additional time of each command: bounds only the rate at depth one.
    pub latency: Nanos,
    /// The rate at which the controller empties the write buffer, if lower than the flash's rate. The rate
    /// delays a write only if the buffer is full, and delays no reads.
    pub intake: Option<Rate>,
    /// Memory for writes.
    pub buffer: Bytes,
    /// The effect of a flush.
    pub flush: FlushCost,
    /// Requests that the drive holds; further requests wait outside.
    pub queue_depth: usize,
    /// True if the drive reads ahead of a sequential reader: its requests then cost only interface time.
    pub read_ahead: bool,
    /// Sequential writers that the drive distinguishes: 1 to 16.
    pub streams: usize,
    /// True if discards free flash. Otherwise discards are accepted without effect.
    pub trim: bool,
    /// The mapping of written bytes to places.
    pub mapping: Mapping,
    /// The initial content of the drive.
    pub state: State,
}

/// The effect and time of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushCost {
    /// Waits until the buffer is drained, then takes this time.
    Drains(Nanos),
    /// The buffer survives a power cut: takes this time without waiting for the buffer.
    Protected(Nanos),
}

/// The mapping of written bytes to places in the flash.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mapping {
    /// Page by page, wherever there is room; garbage is collected.
    Pages(Pages),
    /// Erase block by erase block: a write that does not continue at the end of another write merges old and
    /// new.
    Blocks(Blocks),
}

/// A drive that maps pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pages {
    /// Flash beyond the size, as a share of the size: 0.01 to 10.
    pub spare: f64,
    /// The controller's time for the map at each random write; delays other writes.
    pub update: Nanos,
    /// The share of the map that the drive's memory holds.
    pub map_held: f64,
    /// The controller's additional time if the part of the map for a random write is not in memory.
    pub map_miss: Nanos,
}

/// A drive that maps erase blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Blocks {
    /// Bytes programmed for each random write in addition to its own bytes.
    pub merge: Bytes,
    /// The area within which random writes cost no more than sequential writes, one area for all writers, as
    /// a share of the size.
    pub reach: f64,
}

impl Pages {
    /// Page mapping with a map completely in memory and without cost.
    pub const fn spare(spare: f64) -> Mapping {
        Mapping::Pages(Pages { spare, update: Nanos::ZERO, map_held: 1.0, map_miss: Nanos::ZERO })
    }
}
