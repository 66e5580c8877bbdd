//! The virtual world: time that jumps, disks that forget unflushed writes, and an oracle that knows every
//! byte a volume may return after a crash.
//!
//! The engine runs here unchanged, on [`World`] as its runtime and [`Disk`]s as its devices. Everything
//! follows from a seed: schedule, completion times, contents and the moment of the power cut, so each
//! failure can be replayed.
#![forbid(unsafe_code)]

mod bad_places;
mod campaign;
mod connection;
mod disk;
mod faults;
mod faulty;
mod hollow;
mod image;
mod lasting;
mod media;
mod oracle;
mod power;
mod sector_tags;
mod stamp;
mod verify;
mod workload;
mod world;

pub use bad_places::Bad;
pub use campaign::{Campaign, Disturbance, Failure, Report, Setup, States, Subject, TrialId};
pub use connection::{Connection, LATE_REQUESTS, Server};
pub use disk::{Disk, DiskOptions, StoredDisk};
pub use faults::{FaultPlan, Faults, Operation};
pub use faulty::{Faulty, Step, Trace};
pub use hollow::{Hollow, Payload};
pub use image::Blank;
pub use lasting::{LastingBytes, StoredMemory};
pub use oracle::{FlushId, Mismatch, Oracle, ReadId, WriteId};
pub use power::Power;
pub use sector_tags::SectorTags;
pub use stamp::{read_stamp, stamp};
pub use workload::{Errors, Mix, SharedOracle, Workload};
pub use world::{Ended, World};
