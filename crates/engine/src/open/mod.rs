//! Opens a volume from its devices alone: finds the superblocks, refuses foreign devices, and decides whether
//! each device is current.
//!
//! ```text
//! volume.rs        the stages of an opening: found, judged, recovered, accepted, entered
//! again.rs         repeated attempts
//! options.rs       options of an opening
//! assemble.rs      the role of each device: given, lacking, placed
//! superblock.rs    reads the copies of a superblock
//! candidate.rs     superblock and table of a given device
//! verdict.rs       whether a device is current
//! apart.rs         devices used without the others
//! outdated.rs      devices known to be outdated
//! cut.rs           devices with a missing end
//! phases.rs        phases of an opening, only copies on absent devices
//! left_log.rs      pending log of a dead daemon
//! dirty_blocks.rs  dirty blocks on absent devices
//! survey.rs        the expected devices, for a search
//! likeness.rs      the adopted disk among several disks
//! past.rs          a past state of the volume, read-only
//! ```

mod accepted;
mod again;
mod apart;
mod assemble;
mod candidate;
mod cut;
mod dirty_blocks;
mod entered;
mod found;
mod given;
mod judged;
mod lacking;
mod left_log;
mod likeness;
mod options;
mod outdated;
mod past;
mod phases;
mod placed;
mod recovered;
mod superblock;
mod survey;
mod verdict;
mod volume;

use accepted::Accepted;
pub(crate) use again::{Attempts, Refusal, Unwritten, disagrees};
pub(crate) use assemble::{Assembled, assemble};
pub(crate) use candidate::Candidate;
pub(crate) use cut::refuse_cached;
pub(crate) use dirty_blocks::older_without;
use entered::Entered;
use found::Found;
pub use given::AdoptedDisk;
pub(crate) use given::Highest;
use judged::Judged;
pub(crate) use lacking::Lacking;
pub(crate) use left_log::LeftLog;
pub use likeness::{KnownDisk, Likeness};
pub use options::{BeforeOpen, OpenOptions};
pub(crate) use outdated::{newer_elsewhere, refuse_outdated};
pub use past::Past;
pub(crate) use phases::{enter, number, only_copies, refuse_only_copies};
use recovered::Recovered;
pub(crate) use superblock::ask_superblock;
pub use superblock::identify;
pub use survey::{Sighting, Standing, Survey};
pub(crate) use verdict::{NEVER, judge, was_current};
pub(crate) use volume::open;
