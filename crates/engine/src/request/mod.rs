//! The life of a guest's request, a verb in each file.

mod ahead;
mod cache;
mod changing;
mod gate;
mod healing;
mod read;
mod read_ahead;
mod streams;
mod write;
mod zero;

pub use ahead::READ_AHEAD;
pub(crate) use cache::ExtentCache;
pub use cache::Readahead;
pub(crate) use gate::is_closed;

use crate::planted::{Bug, planted};
use crate::shape::Piece;
use crate::stats::GuestStats;
use crate::{OpenOptions, Result};
use ahead::Ahead;
use braid_base::Bytes;
use braid_runtime::{Arena, RangeTable};
use changing::{Change, Changing};
use gate::Gate;
use std::cell::RefCell;
use streams::Streams;

/// What the requests of guests share.
pub(crate) struct Guests {
    pub cache: RefCell<ExtentCache>,
    pub streams: RefCell<Streams>,
    pub ahead: RefCell<Ahead>,
    pub stats: RefCell<GuestStats>,
    /// Ranges of extents that have several copies: writes that overlap take turns.
    pub ranges: RangeTable,
    /// Extents that they are changing.
    pub changing: Changing,
    /// Where changes and flushes come in.
    pub gate: Gate,
}

impl Guests {
    /// Guests with memory as the options say, before the first request.
    ///
    /// # Errors
    /// `Invalid` if the machine does not have it.
    pub fn new(options: &OpenOptions, extent_size: Bytes) -> Result<Guests> {
        let OpenOptions { cache_extents, readahead, ahead, .. } = *options;
        let cache = ExtentCache::new(cache_extents, readahead, extent_size)?;
        // A run holds at least an extent, in one buffer.
        let is_off = readahead == Readahead::Off || extent_size > Arena::LARGEST;
        let most = if is_off { Bytes::ZERO } else { ahead };
        let (ahead, streams) = (Ahead::new(most)?, Streams::new(extent_size, most));
        Ok(Guests {
            cache: RefCell::new(cache),
            streams: RefCell::new(streams),
            ahead: RefCell::new(ahead),
            stats: RefCell::default(),
            ranges: RangeTable::default(),
            changing: Changing::default(),
            gate: Gate::default(),
        })
    }

    /// A guest changes a piece from now on: before the first byte, and under the lock of its extent. What was
    /// read ahead of it goes.
    #[inline]
    pub fn begin_change(&self, piece: &Piece) -> Change<'_> {
        if !planted(Bug::AheadNotDropped) {
            self.ahead.borrow_mut().cut(piece);
        }
        self.changing.begin(piece.extent)
    }

    /// What was read from devices before is not trusted any more.
    pub fn forget(&self) {
        self.cache.borrow_mut().clear();
        self.ahead.borrow_mut().clear();
    }
}
