//! Requests of guests: each file holds one verb.

mod ahead;
mod cache;
mod changing;
mod fetch;
mod gate;
mod healing;
mod read;
mod read_ahead;
mod streams;
pub(crate) mod ticket;
mod write;
mod zero;

pub use ahead::READ_AHEAD;
pub(crate) use cache::ExtentCache;
pub use cache::Readahead;
pub(crate) use streams::Streams;

use crate::Result;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use crate::stats::GuestStats;
use ahead::Ahead;
use braid_base::Bytes;
use braid_runtime::{Arena, Buf, Mode, RangeTable};
use changing::{ChangeMark, Changing};
use gate::Gate;
use std::cell::RefCell;

/// State that all requests of guests share.
pub(crate) struct Guests {
    pub cache: RefCell<ExtentCache>,
    pub ahead: RefCell<Ahead>,
    pub stats: RefCell<GuestStats>,
    /// Ranges of extents with several copies: overlapping writes take turns.
    pub ranges: RangeTable,
    /// Extents that guests are changing.
    pub changing: Changing,
    /// Entrance of changes and flushes.
    pub gate: Gate,
}

impl Guests {
    /// Returns the state before the first request, with a cache of `cache_extents`, and memory of the size
    /// `ahead` for reading ahead of streams.
    ///
    /// # Errors
    /// `Invalid` if the machine does not have the memory.
    pub fn new(
        cache_extents: usize,
        readahead: Readahead,
        ahead: Bytes,
        extent_size: Bytes,
    ) -> Result<Guests> {
        let cache = ExtentCache::new(cache_extents, readahead, extent_size)?;
        // A run of read-ahead holds at least one extent, in one buffer.
        let is_off = readahead == Readahead::Off || extent_size > Arena::LARGEST;
        let most = if is_off { Bytes::ZERO } else { ahead };
        let ahead = Ahead::new(most)?;
        Ok(Guests {
            cache: RefCell::new(cache),
            ahead: RefCell::new(ahead),
            stats: RefCell::default(),
            ranges: RangeTable::default(),
            changing: Changing::default(),
            gate: Gate::default(),
        })
    }

    /// Marks the beginning of a guest's change of a piece. Called before the first byte, under the lock of
    /// the extent. Drops the bytes of the piece that were read ahead.
    #[inline]
    pub fn mark_change(&self, piece: &Piece) -> ChangeMark<'_> {
        if !planted(Bug::AheadNotDropped) {
            self.ahead.borrow_mut().cut(piece);
        }
        self.changing.begin(piece.extent)
    }

    /// Writes through to the memory cache. A cached extent is locked exclusive.
    #[inline]
    pub fn update_cache(&self, piece: &Piece, from: &Buf, mode: Mode, written: &Result<()>) {
        if mode == Mode::Exclusive && !planted(Bug::CacheNotUpdated) {
            match written {
                Ok(()) => self.cache.borrow_mut().write(piece, from),
                // The bytes on the devices are now unknown; the next read must ask the devices.
                Err(_) => self.cache.borrow_mut().remove(piece.extent),
            }
        }
    }

    /// Drops all bytes read from devices so far, which are no longer trusted: the memory cache and the bytes
    /// read ahead.
    pub fn forget(&self) {
        self.cache.borrow_mut().clear();
        self.ahead.borrow_mut().clear();
    }
}
