//! The state of the volume in memory: the place of every copy, the free slots, and the changes pending for
//! the journal. Pure: nothing here waits.

mod behind;
mod cache_table;
mod changes;
mod commits;
mod exposed;
mod extents;
mod extra_changes;
mod extras;
mod gathered;
mod given_up;
mod groups;
mod intended;
mod moved;
mod neighbours;
mod other;
mod outdated;
mod pending_log;
mod ranges;
mod space;
mod state;
mod survived;
mod taken;
mod watched;
mod window;

pub(crate) use behind::{Behind, Intent};
pub(crate) use cache_table::{CachePage, CacheTables};
pub(crate) use changes::Scope;
pub(crate) use extents::Map;
pub(crate) use extra_changes::DirtyChange;
pub(crate) use extras::Extras;
pub(crate) use groups::Groups;
pub(crate) use intended::IntendedWrite;
pub(crate) use moved::Moved;
pub(crate) use neighbours::Arrival;
pub(crate) use other::Other;
pub(crate) use pending_log::{LogReader, NeededLog, Opening, PendingLog, clear};
pub(crate) use ranges::Ranges;
pub(crate) use space::Space;
pub(crate) use state::{State, has_moved_home};
