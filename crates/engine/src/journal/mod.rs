//! What a flush promises: the ring of batches, commits, checkpoints, and recovery from them.

mod checkpoint;
mod commit;
mod recover;
mod ring;

pub(crate) use checkpoint::map_images;
pub(crate) use commit::Commits;
pub use recover::Recovery;
pub(crate) use recover::recover;
pub(crate) use ring::{Journal, Ring};
