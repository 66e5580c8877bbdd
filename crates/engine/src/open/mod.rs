//! Opens a volume from its devices alone: finds the superblocks, refuses foreign devices, and decides whether
//! each device is current.
//!
//! ```text
//! superblock.rs  reading the copies on the devices                  assemble.rs  which device is what, and which are refused
//! enter.rs       the phases of an opening, and what may not be opened   judge.rs   what one device is good for
//! apart.rs       whether a device was used without the others      volume.rs    all steps of an opening
//! candidate.rs   what a device that was given says             outdated.rs  whether all that is there is known to be older
//! cut.rs         devices whose end is gone
//! survey.rs      which devices there should be, for a search   likeness.rs  the adopted disk among several disks
//! past.rs        a past state of the volume, for readers
//! left_log.rs    what a daemon that died has left in memory          again.rs     an opening that begins again
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
