//! The volume: one block device made of several, with copies placed by a policy.
//!
//! ```text
//! volume.rs   public interface of an open volume
//! request/    life of a read, a write, a discard
//! create.rs   creation of a volume
//! copies/     required and cached copies, repair, health
//! open/       from devices to an open volume
//! devices/    requests to devices, deadlines, speed
//! status.rs   reports for administrators
//! region.rs   where the extents of a part of the volume lie
//! map/        state in memory: extents, extra copies, slots, changes
//! check.rs    check of a volume at rest
//! journal/    life of a flush, checkpoints, recovery
//! replace.rs  a new device in place of a lost one
//! resizable.rs  a volume that closes and opens with another size under its guests
//! moves/      migrations, probes, trims, resync
//! policy/     the active policy and its saved state
//! life/       devices that join or leave an open volume, another size
//! adopted/    a volume on a disk with earlier data
//! epochs/     a disk that alone is the volume at a past instant
//! ```
//!
//! Durability: data before record, record before map page, flush before promise. A slot is not used again
//! until the record that freed the slot is durable. After a crash every block reads as its last flushed bytes
//! or as a later write.
#![forbid(unsafe_code)]

mod adopted;
mod buffer;
mod check;
mod copier;
mod copies;
mod core;
mod create;
mod devices;
mod epochs;
mod error;
mod export;
mod fence;
mod jobs;
mod journal;
mod latency;
mod life;
mod map;
mod moves;
mod open;
mod planted;
mod policy;
mod region;
mod replace;
mod request;
mod resizable;
mod shape;
mod stats;
mod status;
mod volume;

pub use braid_format::pending_log::LARGEST as LARGEST_LOG;
pub use check::{Report, check, check_noted};
pub use create::{
    Adoption, CreateOptions, Fit, Left, RoomLeft, SPARE_SLOTS, create, planned_slots, record_len, room_left,
};
pub use devices::DrainStatus;
pub use epochs::PastState;
pub use error::{Error, ErrorKind, Result};
pub use export::{Allocation, Durability, Export, Hints, Zeroing};
pub use fence::Noted;
pub use journal::Recovery;
pub use latency::Latency;
pub use life::Addition;
pub use moves::MovesStatus;
pub use open::{
    AdoptedDisk, BeforeOpen, KnownDisk, Likeness, OpenOptions, Past, Sighting, Standing, Survey, identify,
};
#[cfg(debug_assertions)]
pub use planted::{Bug, plant};
pub use region::{Region, Tally};
pub use replace::{Replacement, replace};
pub use request::{READ_AHEAD, Readahead};
pub use resizable::ResizableVolume;
pub use shape::Shape;
pub use stats::{BackgroundStats, DeviceStats, GuestStats};
pub use status::{DeviceGlance, DeviceStatus, Explanation, Glance, Status};
pub use volume::Volume;
