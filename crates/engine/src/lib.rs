//! The volume: one block device made of several, with copies placed by a policy.
//!
//! ```text
//! volume.rs   the public face             request/   the life of a read, a write, a discard
//! create.rs   making a volume             devices/   requests to devices, deadlines, speed
//!                                         copies/    required and extra copies, repair, health
//! open.rs     finding its devices         map/       what the volume knows: extents, extras, slots, changes
//! status.rs   for administrators          journal/   the life of a flush, checkpoints, recovery
//! check.rs    of a volume at rest         moves/     migrations, probes, trims
//! replace.rs  a new device for a lost one   life/      devices that come and leave while guests work
//! policy/      the policy in charge, and what it has learned
//! adopted/    a disk that was there before, with its data, and is the volume
//! epochs/     a disk that alone is the volume as it was at a past instant
//! ```
//!
//! Durability: data before record, record before map page, flush before promise. A slot is not used again
//! until the record that freed the slot is durable. After a crash every block reads as its last flushed bytes
//! or as a later write.
#![forbid(unsafe_code)]

mod adopted;
mod buffer;
mod check;
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
mod replace;
mod request;
mod shape;
mod stats;
mod status;
mod volume;

pub use braid_format::pending_log::LARGEST as LARGEST_LOG;
pub use check::{Report, check, check_noted};
pub use create::{
    Adoption, CreateOptions, Fit, Left, RoomLeft, SPARE_SLOTS, create, planned_slots, record_len, room_left,
};
pub use epochs::PastState;
pub use error::{Error, ErrorKind, Result};
pub use export::{Allocation, Durability, Export, Hints, Zeroing};
pub use fence::Noted;
pub use journal::Recovery;
pub use latency::Latency;
pub use life::Addition;
pub use moves::{DrainStatus, MovesStatus};
pub use open::{
    AdoptedDisk, BeforeOpen, KnownDisk, Likeness, OpenOptions, Past, Sighting, Standing, Survey, identify,
};
#[cfg(feature = "planted")]
pub use planted::{Bug, plant};
pub use replace::{Replacement, replace};
pub use request::{READ_AHEAD, Readahead};
pub use shape::Shape;
pub use stats::{BackgroundStats, DeviceStats, GuestStats};
pub use status::{DeviceGlance, DeviceStatus, Explanation, Glance, Status};
pub use volume::Volume;
