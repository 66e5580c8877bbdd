//! The cost of a write inside an SSD: the translation layer.
//!
//! In a drive that maps pages, a write costs its own pages and the copies of collection (`page_map`). In a
//! drive that maps erase blocks, a write that continues a recent writer (a *stream*) fills blocks in order
//! and costs only its own bytes. A write within the *area*, one area for all writers, also costs only its own
//! bytes. Any other write is random and merges a block of a fixed size; the area then restarts at the write.
//! uFLIP found both effects: a few sequential writers at a time are cheap, and so are random writes within
//! some megabytes (L. Bouganim, B. Jónsson, P. Bonnet, CIDR 2009, micro-benchmarks Partitioning and
//! Locality). The area is assumed to be a range of addresses.
//!
//! Early drives that map pages have another reason than flash for slow random writes. The Intel drives of
//! 2008 take as many 4 KiB writes per second on SLC as on MLC of less than half the speed. Their controller
//! spends a fixed time on each random write, and more if a part of the map is not in its memory ("more DRAM,
//! more tracked writes", source (b3)). The used share of the map is estimated: of `REGIONS` equal parts of
//! the drive, the parts with one of the last `RECENT` random writes.

use crate::ssd::page_map::{PAGE, PageMap};
use crate::ssd::params::{Mapping, Pages, Params};
use braid_base::{Bytes, Nanos, Rng};

/// The cost of a write.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Its own bytes, as the flash stores them.
    pub own: Bytes,
    /// Bytes copied because of the write.
    pub copied: Bytes,
    /// Bytes merged before the write.
    pub merged: Bytes,
    /// The controller's time.
    pub update: Nanos,
}

/// The layer of one drive.
#[derive(Clone, Debug)]
pub struct Translation {
    streams: Streams,
    kind: TranslationKind,
}

#[derive(Clone, Debug)]
enum TranslationKind {
    Pages(Box<Mapped>),
    Blocks { merge: Bytes },
}

#[derive(Clone, Debug)]
struct Mapped {
    map: PageMap,
    trim: bool,
    update: Option<Update>,
}

impl Translation {
    /// The layer of a drive of `size`.
    pub fn new(params: &Params, size: Bytes, rng: Rng) -> Translation {
        let (kind, reach) = match params.mapping {
            Mapping::Pages(pages) => {
                let map = PageMap::new(size, pages.spare, params.state, rng);
                let update = Update::new(pages, size);
                (TranslationKind::Pages(Box::new(Mapped { map, trim: params.trim, update })), Bytes::ZERO)
            }
            Mapping::Blocks(blocks) => (
                TranslationKind::Blocks { merge: blocks.merge },
                Bytes((size.0 as f64 * blocks.reach) as u64),
            ),
        };
        Translation { streams: Streams::new(params.streams, reach), kind }
    }

    /// Accounts for a write. Returns its cost.
    pub fn write(&mut self, offset: Bytes, len: Bytes) -> Cost {
        match &mut self.kind {
            TranslationKind::Pages(mapped) => mapped.write(&mut self.streams, offset, len),
            TranslationKind::Blocks { merge } => {
                let merged = if self.streams.go_on(offset, len) { Bytes::ZERO } else { *merge };
                Cost { own: len, copied: Bytes::ZERO, merged, update: Nanos::ZERO }
            }
        }
    }

    /// Marks the bytes as no longer in use.
    pub fn discard(&mut self, offset: Bytes, len: Bytes) {
        match &mut self.kind {
            TranslationKind::Pages(mapped) if mapped.trim => mapped.map.discard(offset, len),
            _ => {}
        }
    }
}

impl Mapped {
    fn write(&mut self, streams: &mut Streams, offset: Bytes, len: Bytes) -> Cost {
        let whole = offset.is_aligned(PAGE) && len.is_aligned(PAGE);
        // Only these cases depend on whether the write is random.
        let random = (!whole || self.update.is_some()) && !streams.go_on(offset, len);
        let pages = (offset + len).align_up(PAGE) - offset.align_down(PAGE);
        let own = if random && !whole { pages } else { len };
        let copied = Bytes((own.0 as f64 * self.map.write(offset, len)) as u64);
        let update =
            self.update.as_mut().filter(|_| random).map_or(Nanos::ZERO, |update| update.time(offset));
        Cost { own, copied, merged: Bytes::ZERO, update }
    }
}

/// The ends of the last few writers, the latest first, and the area in which the order of writes does not
/// matter.
#[derive(Clone, Debug)]
struct Streams {
    ends: [Bytes; MOST_STREAMS],
    count: usize,
    /// Start and end of the area, at most `reach` long.
    area: (Bytes, Bytes),
    reach: Bytes,
}

pub(crate) const MOST_STREAMS: usize = 16;

impl Streams {
    fn new(count: usize, reach: Bytes) -> Streams {
        assert!((1..=MOST_STREAMS).contains(&count), "a drive distinguishes 1 to 16 streams, not {count}");
        Streams { ends: [Bytes::ZERO; MOST_STREAMS], count, area: (Bytes::ZERO, Bytes::ZERO), reach }
    }

    /// True if a write continues a stream, or lies in the area. The write becomes the end of its stream.
    fn go_on(&mut self, offset: Bytes, len: Bytes) -> bool {
        let end = offset + len;
        let widened = (self.area.0.min(offset), self.area.1.max(end));
        let is_near = widened.1 - widened.0 <= self.reach;
        let ends = &mut self.ends[..self.count];
        let found = ends.iter().position(|&end| end == offset);
        if is_near {
            self.area = widened;
        } else if found.is_none() {
            self.area = (offset, end);
        }
        // Random writes of the area replace each other, but no stream elsewhere.
        let in_area = |&end: &Bytes| is_near && (widened.0..=widened.1).contains(&end);
        let at = found.or_else(|| ends.iter().position(in_area)).unwrap_or(ends.len() - 1);
        ends.copy_within(..at, 1);
        ends[0] = end;
        found.is_some() || is_near
    }
}

/// The controller's work for the map at each random write.
#[derive(Clone, Debug)]
struct Update {
    /// The time of a random write; depends only on `regions_written`, which seldom changes. Zero if unknown.
    next: Nanos,
    time: Nanos,
    miss: Nanos,
    held: f64,
    region: Bytes,
    /// The regions of the last random writes, a ring.
    recent: Box<[u8; RECENT]>,
    newest: usize,
    recent_in: Box<[u16; REGIONS]>,
    regions_written: u32,
}

/// Equal parts of the drive for the estimate.
const REGIONS: usize = 128;
/// Eight for each region, so that uniform writes miss one region in three thousand.
const RECENT: usize = 1_024;

impl Update {
    /// `None` if the map takes no time.
    fn new(pages: Pages, size: Bytes) -> Option<Update> {
        let mut recent_in = Box::new([0; REGIONS]);
        recent_in[0] = RECENT as u16;
        (pages.update > Nanos::ZERO || pages.map_miss > Nanos::ZERO).then(|| Update {
            next: Nanos::ZERO,
            time: pages.update,
            miss: pages.map_miss,
            held: pages.map_held,
            region: Bytes(size.0.div_ceil(REGIONS as u64).max(1)),
            recent: Box::new([0; RECENT]),
            newest: 0,
            recent_in,
            regions_written: 1,
        })
    }

    /// The time of a random write, with the share of map misses once random writes have met all of their
    /// regions.
    fn time(&mut self, offset: Bytes) -> Nanos {
        let before = self.regions_written;
        self.remember(offset);
        if self.regions_written != before || self.next == Nanos::ZERO {
            let wanted = f64::from(self.regions_written) / REGIONS as f64;
            let missed = (1.0 - self.held / wanted).max(0.0);
            self.next = self.time + Nanos((self.miss.0 as f64 * missed) as u64);
        }
        self.next
    }

    fn remember(&mut self, offset: Bytes) {
        let region = (offset / self.region) as u8;
        self.newest = (self.newest + 1) % RECENT;
        let forgotten = std::mem::replace(&mut self.recent[self.newest], region);
        let forgotten_count = &mut self.recent_in[forgotten as usize];
        *forgotten_count -= 1;
        self.regions_written -= u32::from(*forgotten_count == 0);
        let count = &mut self.recent_in[region as usize];
        self.regions_written += u32::from(*count == 0);
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Timing, by_name};
    use crate::ssd::params::Blocks;
    use braid_base::{GIB, KIB};

    fn translation(mapping: Mapping) -> Translation {
        let Timing::Ssd(params) = by_name("x25-m").unwrap().timing else { panic!("the x25-m is an SSD") };
        Translation::new(&Params { mapping, streams: 2, ..params }, GIB, Rng::new(1))
    }

    #[test]
    fn two_sequential_writers_cause_no_merges() {
        let mut translation = translation(Mapping::Blocks(Blocks { merge: KIB * 512, reach: 0.0 }));
        assert_eq!(translation.write(GIB / 2, KIB * 4).merged, KIB * 512);
        for step in 0..100 {
            for start in [Bytes::ZERO, GIB / 2 + KIB * 4] {
                let cost = translation.write(start + KIB * 4 * step, KIB * 4);
                assert_eq!((cost.own, cost.merged), (KIB * 4, Bytes::ZERO), "step {step}");
            }
        }
    }

    #[test]
    fn random_writes_merge_little_within_one_area_only() {
        let reach = 8.0 / 1_024.0;
        let mut translation = translation(Mapping::Blocks(Blocks { merge: KIB * 512, reach }));
        let mut rng = Rng::new(3);
        let mut random_merges = |areas: u64, span: Bytes| {
            let merges = |at: u64| {
                let start = GIB / 4 + GIB / 4 * (at % areas);
                translation.write(start + KIB * 4 * rng.below(span / (KIB * 4)), KIB * 4).merged > Bytes::ZERO
            };
            (0..1_000).map(merges).filter(|merges| *merges).count()
        };
        assert_eq!(random_merges(1, GIB * 8 / 1_024), 1);
        let (twice, four_times) = (random_merges(1, GIB * 16 / 1_024), random_merges(1, GIB * 32 / 1_024));
        assert!(twice > 100 && four_times > 500, "{twice} and {four_times} of 1,000 writes beyond the area");
        assert!(random_merges(2, GIB * 4 / 1_024) > 990, "there is one area, not two");
    }

    #[test]
    fn random_writes_within_the_area_leave_streams_elsewhere_alone() {
        let reach = 8.0 / 1_024.0;
        let mut translation = translation(Mapping::Blocks(Blocks { merge: KIB * 512, reach }));
        let mut rng = Rng::new(4);
        translation.write(GIB / 2, KIB * 4);
        for step in 1..200 {
            translation.write(KIB * 4 * rng.below(1_024), KIB * 4);
            let cost = translation.write(GIB / 2 + KIB * 4 * step, KIB * 4);
            assert_eq!(cost.merged, Bytes::ZERO, "step {step}");
        }
    }

    #[test]
    fn map_update_slows_when_working_set_exceeds_held_map() {
        let (update, map_miss) = (Nanos(100), Nanos(200));
        let mapping = Mapping::Pages(Pages { spare: 0.1, update, map_held: 0.5, map_miss });
        let mut translation = translation(mapping);
        let mut rng = Rng::new(2);
        let mut last = |share: u64| {
            let pages = GIB / PAGE * share / 8;
            (0..5_000).map(|_| translation.write(PAGE * rng.below(pages), PAGE).update).last().unwrap()
        };
        let found = [last(1), last(4), last(8)];
        // One or two of 128 regions may be absent for a while.
        assert!(found[0] == Nanos(100) && found[1] == Nanos(100) && found[2] >= Nanos(198), "{found:?}");
    }

    #[test]
    fn random_partial_page_write_costs_full_page() {
        let mut translation = translation(Pages::spare(0.1));
        let half = |at: u64| (KIB * 2 * at, KIB * 2);
        let own = [7, 8, 9].map(|at| translation.write(half(at).0, half(at).1).own);
        assert_eq!(own, [KIB * 4, KIB * 2, KIB * 2]);
    }
}
