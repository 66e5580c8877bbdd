use super::*;
use braid_base::{MIB, Rng};
use std::collections::HashMap;

fn access(table: &mut BlockTable, block: u64, times: usize) {
    (0..times).for_each(|_| table.access(BlockId(block), 1, 8));
}

/// Checks that `unique` of each level is the number of counters above 0 below, and that sums are correct.
fn check(table: &BlockTable) {
    let mut total = 0;
    for (number, region) in table.regions() {
        let mut unique = 0;
        for (s, sub) in region.subs.iter().enumerate() {
            let entries = table.entries(number * SUBS as u32 + s as u32);
            let used = entries.map_or(0, |e| e.counters.iter().filter(|&&c| c > 0).count());
            assert_eq!(usize::from(sub.unique), used, "sub-region {s} of region {number}");
            unique += used;
        }
        assert_eq!(region.unique as usize, unique, "region {number}");
        assert_eq!(region.total, region.subs.iter().map(|sub| u32::from(sub.counter)).sum::<u32>());
        total += u64::from(region.counter);
    }
    assert_eq!(table.total, total);
}

#[test]
fn the_inverse_bitmap_halves_with_each_doubling_of_the_request() {
    let sectors = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 129, 1 << 20, u64::MAX];
    let expected = [128, 128, 64, 64, 32, 32, 16, 16, 8, 8, 4, 4, 2, 2, 1, 1, 1, 1];
    assert_eq!(sectors.map(inverse_bitmap), expected);
}

/// The open implementation counted only the first block of a request, and its `unique` stayed at 0 or 1.
#[test]
fn each_block_of_a_request_counts_at_every_level() {
    let mut table = BlockTable::new(1 << 20, MIB * 16);
    table.access(BlockId(1020), 8, 64);
    table.access(BlockId(1020), 1, 8);
    assert_eq!([1019, 1020, 1021, 1027, 1028].map(|b| table.counter(BlockId(b))), [0, 18, 2, 2, 0]);
    let region = table.region(0).expect("it was accessed");
    assert_eq!((region.counter, region.unique), (32, 8));
    assert_eq!(region.subs[..2].iter().map(|s| (s.counter, s.unique)).collect::<Vec<_>>(), [(24, 4), (8, 4)]);
    check(&table);
}

/// In the open implementation the counter was at 65,520 after 12 accesses: the wrong half of the entry was
/// masked.
#[test]
fn counter_overflow_halves_counters_of_same_page_only() {
    let mut table = BlockTable::new(1 << 20, MIB * 16);
    access(&mut table, 5, 1);
    access(&mut table, 2000, 10);
    access(&mut table, 7, 4095);
    assert_eq!(table.counter(BlockId(7)), 65_520);
    access(&mut table, 7, 1);
    assert_eq!([5, 7, 2000].map(|b| table.counter(BlockId(b))), [8, 32_776, 160]);
    check(&table);
}

#[test]
fn block_with_zero_counter_is_not_unique() {
    let mut table = BlockTable::new(1 << 20, MIB * 16);
    table.access(BlockId(100), 32, 256);
    access(&mut table, 7, 4096);
    assert_eq!((table.counter(BlockId(100)), table.region(0).expect("it is used").unique), (0, 1));
    check(&table);
}

/// Compares with a plain model of a table with all pages: the counters of each block, halved by page.
#[test]
fn random_requests_are_counted_as_in_a_plain_map() {
    let (mut table, mut plain, mut rng) = (BlockTable::new(1 << 21, MIB * 16), HashMap::new(), Rng::new(3));
    for _ in 0..60_000 {
        let blocks = 1 + rng.below(6);
        let first = if rng.chance(0.9) { 1000 + rng.below(40) } else { rng.below((1 << 21) - 6) };
        table.access(BlockId(first), blocks, blocks * 8);
        let b = inverse_bitmap(blocks * 8);
        // The parts of a request in two pages are counted one after the other.
        let (this, next): (Vec<u64>, Vec<u64>) =
            (first..first + blocks).partition(|block| block / 1024 == first / 1024);
        for part in [this, next] {
            if part.iter().any(|block| plain.get(block).is_some_and(|&c: &u16| c > u16::MAX - b)) {
                plain
                    .iter_mut()
                    .filter(|(block, _)| *block / 1024 == part[0] / 1024)
                    .for_each(|(_, c)| *c /= 2);
            }
            part.iter().for_each(|block| *plain.entry(*block).or_default() += b);
        }
    }
    check(&table);
    assert!(plain.iter().all(|(&block, &counter)| table.counter(BlockId(block)) == counter));
}

#[test]
fn memory_is_bounded_and_the_coldest_pages_go() {
    let (tib, limit) = (1u64 << 28, MIB * 16);
    let (mut table, mut rng) = (BlockTable::new(tib, limit), Rng::new(1));
    assert!(table.most_pages as u64 * 4 > 13 << 10, "entries of {} pages of 4 MiB", table.most_pages);
    // A hot set of 4 GiB, then single accesses to as many regions again as there is room for.
    let hot = |i: u64| i * 101 % 1000 * 1024 + i % 8;
    (0..40_000).for_each(|i| table.access(BlockId(hot(i)), 1, 8));
    (0..200_000).for_each(|_| table.access(BlockId(rng.below(tib)), 1, 8));
    assert_eq!(table.pages.len(), table.most_pages);
    assert!(table.memory() <= limit.as_usize(), "{} bytes", table.memory());
    let kept = (0..8_000).filter(|&i| table.counter(BlockId(hot(i))) > 0).count();
    assert_eq!(kept, 8_000);
    check(&table);
}

#[test]
fn flags_stay_while_counters_are_halved() {
    let mut table = BlockTable::new(1 << 20, MIB);
    assert!(table.flags_mut(BlockId(9)).is_none());
    access(&mut table, 9, 1);
    *table.flags_mut(BlockId(9)).expect("it was accessed") = 0x8001;
    access(&mut table, 9, 10_000);
    assert_eq!((table.flags(BlockId(9)), table.flags(BlockId(10))), (0x8001, 0));
}
