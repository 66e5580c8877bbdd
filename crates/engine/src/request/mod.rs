//! The life of a guest's request, a verb in each file.

mod cache;
mod changing;
mod read;
mod write;
mod zero;

pub(crate) use cache::ExtentCache;
pub use cache::Readahead;

use crate::stats::GuestStats;
use braid_runtime::RangeTable;
use changing::Changing;
use std::cell::RefCell;

/// What the requests of guests share.
pub(crate) struct Guests {
    pub cache: RefCell<ExtentCache>,
    pub stats: RefCell<GuestStats>,
    /// Ranges of extents that have several copies: writes that overlap take turns.
    pub ranges: RangeTable,
    /// Extents that they are changing.
    pub changing: Changing,
}

impl Guests {
    /// Guests with this memory cache, before the first request.
    pub fn new(cache: ExtentCache) -> Guests {
        Guests {
            cache: RefCell::new(cache),
            stats: RefCell::default(),
            ranges: RangeTable::default(),
            changing: Changing::default(),
        }
    }
}
