//! Opens a volume from its devices alone: finds the superblocks, refuses foreign devices, and decides whether
//! each device is current.
//!
//! ```text
//! superblock.rs    reads the copies of a superblock
//! assemble.rs      the role of each device, and refusals
//! candidate.rs     superblock and table of a given device
//! judge.rs         whether a device is current
//! apart.rs         devices used without the others
//! outdated.rs      devices known to be outdated
//! cut.rs           devices with a missing end
//! enter.rs         phases of an opening, last refusals
//! volume.rs        all steps of an opening
//! again.rs         repeated attempts
//! left_log.rs      pending log of a dead daemon
//! dirty_blocks.rs  dirty blocks on absent devices
//! survey.rs        the expected devices, for a search
//! likeness.rs      the adopted disk among several disks
//! past.rs          a past state of the volume, read-only
//! ```

mod again;
mod apart;
mod assemble;
mod candidate;
mod cut;
mod dirty_blocks;
mod enter;
mod judge;
mod left_log;
mod likeness;
mod outdated;
mod past;
mod superblock;
mod survey;
mod volume;

pub(crate) use again::{Attempts, Highest, Refusal, Unwritten, disagrees};
pub use assemble::AdoptedDisk;
pub(crate) use assemble::{Assembled, Lacking, assemble, was_current};
pub(crate) use candidate::Candidate;
pub(crate) use cut::refuse_cached;
pub(crate) use dirty_blocks::{newly_lost, older_without};
pub(crate) use enter::{enter, number, only_copies, refuse_only_copies};
pub(crate) use judge::{NEVER, judge};
pub(crate) use left_log::LeftLog;
pub use likeness::{KnownDisk, Likeness};
pub(crate) use outdated::{newer_elsewhere, refuse_outdated};
pub use past::Past;
pub(crate) use superblock::ask_superblock;
pub use superblock::identify;
pub use survey::{Sighting, Standing, Survey};
pub(crate) use volume::open;
pub use volume::{BeforeOpen, OpenOptions};
