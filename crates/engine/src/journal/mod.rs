//! Durability: the journal ring, commits, intents, checkpoints, and recovery after a crash.

mod cache_table;
mod checkpoint;
mod commit;
mod dirty_spans;
mod gaps;
mod intents;
mod listed_blocks;
mod proof;
mod recent;
mod recover;
mod reserve;
mod ring;
mod unreadable;
mod void_regions;
mod witness;

pub(crate) use cache_table::{cache_images, write_empty_directories};
pub(crate) use checkpoint::{images, only_journal, rings};
pub(crate) use dirty_spans::{DirtySpans, refuse_dirty, write_empty_table};
pub(crate) use gaps::Gap;
pub use recover::Recovery;
pub(crate) use recover::{
    Forgetful, LoggedChanges, Mode, RecoveryInput, Replayed, check_cache_tables, check_image, lost_at_end,
    recover, refuse_later, refuse_third,
};
pub(crate) use reserve::Reservation;
pub(crate) use ring::{Journal, Ring};
pub(crate) use witness::{Listed, is_journal_lost};
