//! The place of each page in an SSD, and the cost of garbage collection.
//!
//! Pages are mapped one by one, and written at new places only: into the *open* erase block of the host, or
//! into the open block of collection. When free erase blocks run out, the block with the fewest valid pages
//! is the victim (greedy choice): its valid pages are copied, then the block is erased. The copies made for
//! each host page grow with the valid share of the flash, and with the randomness of the writes (P.
//! Desnoyers, "Analytic Modeling of SSD Write Performance", SYSTOR 2012: greedy collection under uniformly
//! random writes; the tests compare the map with its formula).
//!
//! Memory is bounded: at most `MOST_SAMPLES` pages are followed, whatever the size of the drive, and each
//! takes 8 bytes, 2.5 MiB at most. On a drive of up to 1 GiB the samples are all its pages. A larger drive is
//! cut into *units* of a larger power of two (512 KiB at 80 GB, 32 MiB at 7.68 TB). One page of each unit, at
//! a place drawn by lot, stands for the unit. Only writes and discards of the sampled page count, and the
//! flash is smaller in the same proportion as the pages. The copies for each page therefore equal the copies
//! on the full map (a test compares both). The cost: a hot spot smaller than a unit appears either as large
//! as the unit or not at all, and the copies change in steps of some thousandths of the drive.
//!
//! Copies are charged evenly to the writes that follow a collection: a drive that collects in pace with its
//! writer.

use braid_base::{Bytes, Rng};
use std::collections::VecDeque;

/// The map of one drive.
#[derive(Clone, Debug)]
pub struct PageMap {
    unit_shift: u32,
    /// Draws the sampled page of a unit.
    lot: u64,
    /// The place of each unit, or `NOWHERE`. A place is an erase block's number and an index in the block.
    place_of: Vec<u32>,
    /// The unit at each place, or `NOWHERE`.
    unit_at: Vec<u32>,
    /// Units in a block, as a power of two.
    block_shift: u32,
    /// Valid units by block; `NOT_CLOSED` more for blocks that are free or open.
    valid: Vec<i16>,
    free: VecDeque<u32>,
    host: Open,
    copies: Open,
    /// Copies for each page that the host writes, since the last collection.
    pace: f64,
}

/// An erase block during filling: the next place in the block, and the first place behind the block.
#[derive(Clone, Copy, Debug)]
struct Open {
    next: u32,
    end: u32,
}

/// The initial content of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Empty: as new, or discarded.
    Fresh,
    /// Everything, written once in order. The spare erase blocks are free.
    Filled,
    /// Full, overwritten at random everywhere until the copies for each write stopped changing.
    Steady,
}

/// The unit of mapping in drives.
pub(crate) const PAGE: Bytes = Bytes(1 << PAGE_SHIFT);
const PAGE_SHIFT: u32 = 12;
const MOST_SAMPLES: u64 = 1 << 18;
const NOWHERE: u32 = u32::MAX;
const NOT_CLOSED: i16 = 0x4000;
/// Enough blocks for a choice as good as among all blocks of a full-size drive, and few enough for a fast
/// choice.
const BLOCKS: u64 = 1_024;
/// Free blocks that collection keeps: one for the host, one for copies, one freed by collection.
const KEPT_FREE: usize = 3;

impl PageMap {
    /// The map of a drive of `size` with flash for `1 + spare` times as much.
    pub fn new(size: Bytes, spare: f64, state: State, rng: Rng) -> PageMap {
        PageMap::of_samples(size, spare, state, MOST_SAMPLES, rng)
    }

    /// The same map with another limit of samples.
    fn of_samples(size: Bytes, spare: f64, state: State, most: u64, mut rng: Rng) -> PageMap {
        let pages = (size / PAGE).max(1);
        let unit_shift = PAGE_SHIFT + pages.div_ceil(most).next_power_of_two().trailing_zeros();
        let units = size.0.div_ceil(1 << unit_shift);
        let block_shift = (units / BLOCKS).clamp(16, 256).next_power_of_two().trailing_zeros();
        let per_block = 1u64 << block_shift;
        let spare_units = (units as f64 * spare).ceil() as u64;
        // The open blocks and the kept free blocks come in addition to the spare blocks.
        let blocks = (units + spare_units).div_ceil(per_block) + 2 + KEPT_FREE as u64;
        let mut map = PageMap {
            unit_shift,
            lot: rng.next_u64() | 1,
            place_of: vec![NOWHERE; units as usize],
            unit_at: vec![NOWHERE; (blocks * per_block) as usize],
            block_shift,
            valid: vec![NOT_CLOSED; blocks as usize],
            free: (0..blocks as u32).collect(),
            host: Open { next: 0, end: 0 },
            copies: Open { next: 0, end: 0 },
            pace: 0.0,
        };
        map.precondition(state, &mut rng);
        map
    }

    fn precondition(&mut self, state: State, rng: &mut Rng) {
        let units = self.place_of.len() as u64;
        if state != State::Fresh {
            (0..units).for_each(|unit| self.write_unit(unit as u32));
        }
        if state == State::Steady {
            (0..PASSES * units).for_each(|_| self.write_unit(rng.below(units) as u32));
        }
    }

    /// Accounts for a write. Returns the copies for each of its bytes.
    pub fn write(&mut self, offset: Bytes, len: Bytes) -> f64 {
        self.each_unit(offset, len, PageMap::write_unit);
        self.pace
    }

    /// Marks the bytes as no longer in use.
    pub fn discard(&mut self, offset: Bytes, len: Bytes) {
        // A partly discarded page stays in use.
        let (start, end) = (offset.align_up(PAGE), (offset + len).align_down(PAGE));
        if start < end {
            self.each_unit(start, end - start, PageMap::discard_unit);
        }
    }

    /// Calls `act` for the units whose sampled page is touched.
    fn each_unit(&mut self, offset: Bytes, len: Bytes, act: impl Fn(&mut PageMap, u32)) {
        if len == Bytes::ZERO {
            return;
        }
        let (first, last) = (offset.0 >> PAGE_SHIFT, ((offset + len).0 - 1) >> PAGE_SHIFT);
        let shift = self.unit_shift - PAGE_SHIFT;
        for unit in first >> shift..=last >> shift {
            let sampled = (unit << shift) + self.sample(unit);
            if (first..=last).contains(&sampled) {
                act(self, unit as u32);
            }
        }
    }

    /// The sampled page of a unit: the high bits of a product, as a hash.
    fn sample(&self, unit: u64) -> u64 {
        let shift = self.unit_shift - PAGE_SHIFT;
        (unit.wrapping_mul(self.lot) ^ self.lot)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .checked_shr(64 - shift)
            .unwrap_or(0)
    }

    fn write_unit(&mut self, unit: u32) {
        if self.host.next == self.host.end {
            self.open_for_host();
        }
        self.forget(unit);
        let place = self.host.next;
        self.host.next += 1;
        self.put(unit, place);
    }

    fn discard_unit(&mut self, unit: u32) {
        self.forget(unit);
        self.place_of[unit as usize] = NOWHERE;
    }

    /// Marks the unit's page as no longer valid.
    fn forget(&mut self, unit: u32) {
        let old = self.place_of[unit as usize];
        if old != NOWHERE {
            self.unit_at[old as usize] = NOWHERE;
            self.valid[(old >> self.block_shift) as usize] -= 1;
        }
    }

    fn put(&mut self, unit: u32, place: u32) {
        self.place_of[unit as usize] = place;
        self.unit_at[place as usize] = unit;
        self.valid[(place >> self.block_shift) as usize] += 1;
    }

    /// Closes the host's block, collects until enough are free, and opens the next one.
    fn open_for_host(&mut self) {
        self.close(self.host);
        let mut copied = 0;
        while self.free.len() < KEPT_FREE {
            copied += self.collect();
        }
        self.host = self.open();
        self.pace = f64::from(copied) / f64::from(1u32 << self.block_shift);
    }

    /// Copies the valid units of the block with the fewest, and frees the block. Returns the copies.
    fn collect(&mut self) -> u32 {
        let fewest = *self.valid.iter().min().expect("a drive has blocks");
        let victim = self.valid.iter().position(|&valid| valid == fewest).expect("it was found above");
        assert!(fewest < 1 << self.block_shift, "a drive with spare blocks has one that is not all valid");
        let start = (victim as u32) << self.block_shift;
        for place in start..start + (1 << self.block_shift) {
            let unit = std::mem::replace(&mut self.unit_at[place as usize], NOWHERE);
            if unit != NOWHERE {
                self.copy(unit);
            }
        }
        self.valid[victim] = NOT_CLOSED;
        self.free.push_back(victim as u32);
        fewest as u32
    }

    fn copy(&mut self, unit: u32) {
        if self.copies.next == self.copies.end {
            self.close(self.copies);
            self.copies = self.open();
        }
        let place = self.copies.next;
        self.copies.next += 1;
        self.put(unit, place);
    }

    fn open(&mut self) -> Open {
        let block = self.free.pop_front().expect("collection keeps blocks free");
        let start = block << self.block_shift;
        Open { next: start, end: start + (1 << self.block_shift) }
    }

    fn close(&mut self, open: Open) {
        if open.end > 0 {
            self.valid[((open.end - 1) >> self.block_shift) as usize] -= NOT_CLOSED;
        }
    }
}

/// Number of random overwrites of the drive before the steady state.
const PASSES: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{GIB, MIB};

    /// Copies and host pages for each host page, of random writes over `share` of the drive.
    fn amplification(map: &mut PageMap, size: Bytes, share: f64, writes: u64) -> f64 {
        let mut rng = Rng::new(9);
        let pages = ((size / PAGE) as f64 * share) as u64;
        let copies: f64 = (0..writes).map(|_| map.write(PAGE * rng.below(pages), PAGE)).sum();
        1.0 + copies / writes as f64
    }

    /// Desnoyers, equation for greedy collection of large erase blocks: A = α / (α + W(−α e^−α)), where α is
    /// flash per page of the drive and W is Lambert's function, here by Newton's method from its series at
    /// the branch.
    fn desnoyers(spare: f64) -> f64 {
        let alpha = 1.0 + spare;
        let x = -alpha * (-alpha).exp();
        let mut w = -1.0 + (2.0 * (1.0 + std::f64::consts::E * x)).sqrt();
        for _ in 0..50 {
            w -= (w * w.exp() - x) / (w.exp() * (w + 1.0));
        }
        alpha / (alpha + w)
    }

    #[test]
    fn random_writes_are_amplified_as_greedy_collection_is_known_to() {
        for spare in [0.07, 0.15, 0.28, 0.5] {
            let mut map = PageMap::new(GIB, spare, State::Steady, Rng::new(1));
            let (found, known) = (amplification(&mut map, GIB, 1.0, 200_000), desnoyers(spare));
            println!("spare {spare}: {found:.2} against {known:.2}");
            assert!((found / known - 1.0).abs() < 0.07, "spare {spare}: {found} against {known}");
        }
    }

    #[test]
    fn sampled_pages_have_amplification_of_all_pages() {
        let size = GIB * 4;
        for share in [1.0, 0.2] {
            let run = |most| {
                let mut map = PageMap::of_samples(size, 0.1, State::Steady, most, Rng::new(2));
                amplification(&mut map, size, share, 1 << 21);
                amplification(&mut map, size, share, 1 << 20)
            };
            let (exact, sampled) = (run(1 << 20), run(MOST_SAMPLES));
            println!("share {share}: {exact:.2} by all pages, {sampled:.2} by one in four");
            assert!((sampled / exact - 1.0).abs() < 0.05, "share {share}: {exact} and {sampled}");
        }
    }

    #[test]
    fn sequential_rewrite_defragments_steady_drive() {
        for size in [GIB, GIB * 64] {
            let mut map = PageMap::new(size, 0.1, State::Steady, Rng::new(3));
            let pass = |map: &mut PageMap| -> f64 {
                let steps = size / MIB;
                (0..steps).map(|step| map.write(MIB * step, MIB)).sum::<f64>() / steps as f64
            };
            let first = pass(&mut map);
            pass(&mut map);
            let third = pass(&mut map);
            assert!(first > 2.0 && third < 0.01, "{size}: {first} copies at first, {third} later");
        }
    }

    #[test]
    fn filled_drive_copies_nothing_until_spare_blocks_are_written() {
        let mut map = PageMap::new(GIB, 0.1, State::Filled, Rng::new(4));
        let spare_pages = 26_214;
        assert_eq!(amplification(&mut map, GIB, 1.0, spare_pages * 9 / 10), 1.0);
        assert!(amplification(&mut map, GIB, 1.0, 4 * spare_pages) > 3.0);
    }

    #[test]
    fn a_discarded_half_makes_collection_cheap() {
        for size in [GIB, GIB * 512] {
            let mut map = PageMap::new(size, 0.1, State::Steady, Rng::new(5));
            let full = amplification(&mut map, size, 0.5, 100_000);
            for step in 0..size / MIB / 2 {
                map.discard(size / 2 + MIB * step, MIB);
            }
            let units = map.place_of.len() as u64;
            let mapped = map.place_of.iter().filter(|&&place| place != NOWHERE).count() as u64;
            assert_eq!(mapped, units / 2, "{size}");
            if size == GIB {
                amplification(&mut map, size, 0.5, 500_000);
                let half = amplification(&mut map, size, 0.5, 100_000);
                assert!(full > 4.0 && half < 1.5, "{full} before, {half} after");
            }
        }
    }

    #[test]
    fn the_map_is_consistent_whatever_is_written_and_discarded() {
        for size in [PAGE, PAGE * 17, MIB, MIB * 70 + PAGE] {
            let mut map = PageMap::new(size, 0.07, State::Filled, Rng::new(6));
            let mut rng = Rng::new(7);
            for _ in 0..40_000 {
                let offset = PAGE * rng.below(size / PAGE);
                let len = (PAGE * rng.between(1, 40)).min(size - offset);
                match rng.below(10) {
                    0 => map.discard(offset, len),
                    _ => drop(map.write(offset, len)),
                }
            }
            let mut valid = vec![0; map.valid.len()];
            for (unit, &place) in map.place_of.iter().enumerate().filter(|(_, place)| **place != NOWHERE) {
                assert_eq!(map.unit_at[place as usize], unit as u32, "{size}");
                valid[(place >> map.block_shift) as usize] += 1;
            }
            let counted: Vec<i16> = map.valid.iter().map(|valid| valid % NOT_CLOSED).collect();
            assert_eq!(counted, valid, "{size}");
        }
    }

    #[test]
    fn page_map_of_large_drive_is_bounded_in_size() {
        let map = PageMap::new(Bytes(7_681_501_126_656), 0.13, State::Fresh, Rng::new(8));
        let bytes = 4 * (map.place_of.len() + map.unit_at.len()) + 2 * map.valid.len() + 4 * map.free.len();
        assert!(bytes <= 5 << 19, "{bytes} bytes");
    }
}
