//! The memory cache: whole extents, write-through, least recently used evicted first (Wu and Reddy, section
//! II: 100 extents, the same under every policy compared).
//!
//! The paper reads the whole extent at the first miss: [`Readahead::First`]. A random read of 4 KiB then
//! costs thirty times its bytes. By default, the cache therefore reads an extent whole at the second miss.
//! The first miss must still be among the last `limit` / 4 misses. A sequential reader still benefits, one
//! request later.

use crate::shape::Piece;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, ExtentId};
use braid_policy::Lru;
use braid_runtime::{Arena, Buf};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::fmt;
use std::str::FromStr;

/// Which miss of the memory cache reads the whole extent into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readahead {
    /// At the first miss.
    First,
    /// At the second miss, a short while after the first.
    #[default]
    Second,
    /// Never: memory holds only extents that a guest asks to prefetch.
    Off,
}

impl Readahead {
    const NAMES: [(&str, Readahead); 3] =
        [("first", Readahead::First), ("second", Readahead::Second), ("off", Readahead::Off)];
}

impl FromStr for Readahead {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Readahead, String> {
        let found = Readahead::NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, when)| *when)
            .ok_or_else(|| format!("invalid readahead '{text}': use first, second or off"))
    }
}

impl fmt::Display for Readahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Readahead::NAMES.iter().find(|(_, when)| when == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

/// Extents in memory.
pub(crate) struct ExtentCache {
    limit: usize,
    readahead: Readahead,
    extent_size: Bytes,
    arena: Option<Arena>,
    bufs: HashMap<ExtentId, Buf, FixedState>,
    used: Lru<ExtentId>,
    missed: Missed,
}

/// Extents that missed once. Extents share a few places by hash; each place remembers its last missed extent
/// and the sequence number of the miss. Two extents that alternate in one place hide each other's second
/// miss. Such collisions are rare, and cost less than an exact table.
struct Missed {
    places: Box<[(u32, u64)]>,
    /// Misses so far.
    count: u64,
    /// Number of later misses within which a first miss counts.
    history: u64,
}

impl Missed {
    fn new(history: usize) -> Missed {
        let places = (history * 4).next_power_of_two().max(1);
        Missed { places: vec![(0, 0); places].into(), count: 0, history: history as u64 }
    }

    /// Records a miss. True if the previous miss of the extent was a short while ago.
    fn again(&mut self, extent: ExtentId) -> bool {
        self.count += 1;
        let spread = (u64::from(extent.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let place = &mut self.places[spread & (self.places.len() - 1)];
        let (before, count) = std::mem::replace(place, (extent.0, self.count));
        before == extent.0 && count > 0 && self.count - count <= self.history
    }
}

/// First misses are remembered for a fraction of the cache's capacity in extents: one in `HISTORY`.
const HISTORY: usize = 4;

impl ExtentCache {
    /// Returns a cache of at most `limit` extents, or of none if an extent is larger than [`Arena::LARGEST`].
    ///
    /// # Errors
    /// `Invalid` if the machine does not have the memory.
    pub fn new(limit: usize, readahead: Readahead, extent_size: Bytes) -> Result<ExtentCache> {
        let limit = if extent_size <= Arena::LARGEST { limit } else { 0 };
        let size = extent_size * limit as u64;
        let no_memory = || {
            let problem = format!(
                "a memory cache of {limit} extents of {extent_size} takes {size}, more than this machine \
                 has: use fewer extents"
            );
            Error::new(ErrorKind::Invalid, problem)
        };
        let arena = if limit > 0 { Some(Arena::try_new(size).ok_or_else(no_memory)?) } else { None };
        Ok(ExtentCache {
            limit,
            readahead,
            extent_size,
            arena,
            bufs: HashMap::default(),
            used: Lru::default(),
            missed: Missed::new(limit.div_ceil(HISTORY)),
        })
    }

    /// True if the extent is cached.
    pub fn contains(&self, extent: ExtentId) -> bool {
        !self.bufs.is_empty() && self.bufs.contains_key(&extent)
    }

    /// Copies a piece to `into`. False if the extent is not cached.
    pub fn read(&mut self, piece: &Piece, into: &Buf) -> bool {
        if self.bufs.is_empty() {
            return false;
        }
        let Some(buf) = self.bufs.get(&piece.extent) else { return false };
        into.copy_from(Bytes::ZERO, &buf.slice(piece.range.clone()));
        self.used.touch(piece.extent);
        true
    }

    /// Cached extents, most recently used first.
    pub fn newest_first(&self) -> impl Iterator<Item = ExtentId> {
        self.used.newest_first()
    }

    /// Returns the bytes of a cached extent.
    pub fn whole(&self, extent: ExtentId) -> Option<&Buf> {
        self.bufs.get(&extent)
    }

    /// Copies a cached extent to `into` without counting a use. False if the extent is not cached.
    pub fn copy_whole(&self, extent: ExtentId, into: &Buf) -> bool {
        let found = self.bufs.get(&extent);
        found.inspect(|buf| into.copy_from(Bytes::ZERO, buf)).is_some()
    }

    /// Writes a piece through to the cached extent, if present.
    pub fn write(&mut self, piece: &Piece, from: &Buf) {
        if let Some(buf) = self.bufs.get(&piece.extent) {
            buf.copy_from(piece.range.start, from);
            self.used.touch(piece.extent);
        }
    }

    /// Zeroes a piece of the cached extent, if present.
    pub fn zero(&mut self, piece: &Piece) {
        if let Some(buf) = self.bufs.get(&piece.extent) {
            buf.slice(piece.range.clone()).fill_zero();
        }
    }

    /// Records a miss. True if the extent should be read whole now.
    pub fn wants(&mut self, extent: ExtentId) -> bool {
        self.limit > 0
            && match self.readahead {
                Readahead::First => true,
                Readahead::Second => self.missed.again(extent),
                Readahead::Off => false,
            }
    }

    /// Returns a buffer for an extent to be read whole. Evicts the least recently used extent if the cache is
    /// full.
    pub fn room(&mut self) -> Option<Buf> {
        self.shrink_below_limit();
        self.arena.as_ref()?.try_alloc(self.extent_size)
    }

    fn shrink_below_limit(&mut self) {
        while self.bufs.len() >= self.limit
            && let Some(oldest) = self.used.pop_oldest()
        {
            self.bufs.remove(&oldest);
        }
    }

    /// Adds an extent that was read whole.
    pub fn insert(&mut self, extent: ExtentId, buf: Buf) {
        // Another task may have used the room meanwhile.
        self.shrink_below_limit();
        self.bufs.insert(extent, buf);
        self.used.touch(extent);
    }

    /// Drops an extent.
    pub fn remove(&mut self, extent: ExtentId) {
        if self.bufs.remove(&extent).is_some() {
            self.used.remove(extent);
        }
    }

    /// Drops all extents.
    pub fn clear(&mut self) {
        for (extent, _) in self.bufs.drain() {
            self.used.remove(extent);
        }
    }

    /// Returns the number of cached extents and the limit.
    pub fn len_and_limit(&self) -> (usize, usize) {
        (self.bufs.len(), self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;

    #[test]
    fn a_cache_beyond_the_machines_memory_is_refused_by_name_and_size() {
        let error =
            ExtentCache::new(1 << 30, Readahead::First, MIB).err().expect("no machine has a PiB of memory");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("1073741824 extents of 1 MiB takes 1 PiB"), "{error}");
        assert!(ExtentCache::new(2, Readahead::First, MIB).is_ok());
    }

    #[test]
    fn an_extent_is_wanted_at_the_first_miss_or_the_second_or_never() {
        for (readahead, expected) in [
            (Readahead::First, [true, true, true]),
            (Readahead::Second, [false, true, false]),
            (Readahead::Off, [false, false, false]),
        ] {
            let mut cache = ExtentCache::new(8, readahead, MIB).unwrap();
            assert_eq!([5, 5, 6].map(|extent| cache.wants(ExtentId(extent))), expected, "{readahead}");
            assert_eq!(readahead.to_string().parse(), Ok(readahead));
            let mut none = ExtentCache::new(0, readahead, MIB).unwrap();
            assert!(!none.wants(ExtentId(5)) && !none.wants(ExtentId(5)));
        }
        assert!("third".parse::<Readahead>().is_err());
    }
}
