//! The volume: one block device out of several, whose copies a policy places.
//!
//! ```text
//! volume.rs      the public face          read.rs write.rs zero.rs   the life of a request
//! create.rs      making a volume          commit.rs                  the life of a flush
//! open.rs        finding its devices      journal.rs checkpoint.rs   what a flush promises, and how it is forgotten
//! recover.rs     after a crash            extra.rs cache.rs          extra copies, and the memory cache
//! state.rs       what the volume knows: map.rs, space.rs, extras.rs, and what the journal does not know yet
//! background/    moves, probes, checkpoints
//! ```
//!
//! Durability: data before record, record before map page, flush before promise. A slot is not used again until the
//! record that freed it is durable. After a crash every block reads as its last flushed bytes or as a later write.
#![forbid(unsafe_code)]

mod background;
mod cache;
mod check;
mod checkpoint;
mod commit;
mod core;
mod create;
mod error;
mod export;
mod extra;
mod extras;
mod journal;
mod latency;
mod map;
mod member;
mod open;
mod read;
mod recover;
mod shape;
mod space;
mod state;
mod stats;
mod status;
mod volume;
mod write;
mod zero;

pub use check::{Report, check};
pub use create::{CreateOptions, create};
pub use error::{Error, ErrorKind, Result};
pub use export::{Allocation, Durability, Export, Zeroing};
pub use latency::Latency;
pub use open::identify;
pub use recover::Recovery;
pub use shape::Shape;
pub use stats::{BackgroundStats, DeviceStats, GuestStats};
pub use status::{DeviceGlance, DeviceStatus, Explanation, Glance, Status};
pub use volume::{OpenOptions, Volume};
