//! The part of the block table that survives a restart, in the 255 KiB that a policy may save.
//!
//! A table takes 16 MiB for each TiB, but only ratios of counters matter. The table is therefore saved by
//! value: hottest sub-regions first, as many as fit. Each entry takes 2 bytes, its counter in steps of a
//! quarter of an octave: 127,000 blocks, the hottest 500 MB. A larger region on the devices would be written
//! whole every five minutes, for entries that are colder still.
//!
//! ```text
//! 1      version
//! 4      regions; of each: 4 number, 2 counter
//! …      sub-regions, to the end; of each: 4 number, 2 counter, 2 entries; of each entry: 2, place × 64 + step
//! ```

use super::block_table::{BLOCKS, BlockTable};
use crate::LONGEST_STATE;

const VERSION: u8 = 1;
/// Steps of an entry's counter: four to an octave, and 16 octaves in 16 bits.
const STEPS: u16 = 64;
const _: () = assert!(BLOCKS * STEPS as usize == 1 << 16);

/// Returns the hottest part of a table, in at most [`LONGEST_STATE`].
pub(super) fn save(table: &BlockTable) -> Vec<u8> {
    let regions: Vec<(u32, u16)> =
        table.regions().map(|(number, region)| (number, region.counter)).filter(|r| r.1 > 0).collect();
    let fitting = regions.len().min(LONGEST_STATE.as_usize() / 2 / 6);
    let mut state = vec![VERSION];
    state.extend((fitting as u32).to_le_bytes());
    for (number, counter) in &regions[..fitting] {
        state.extend(number.to_le_bytes());
        state.extend(counter.to_le_bytes());
    }
    for sub in table.hottest_first() {
        let (Some(entries), Some(counter)) = (table.entries(sub), table.sub_counter(sub)) else { continue };
        let used: Vec<(usize, u16)> =
            entries.counters.iter().copied().enumerate().filter(|&(_, counter)| counter > 0).collect();
        if state.len() + 8 + used.len() * 2 > LONGEST_STATE.as_usize() {
            break;
        }
        state.extend(sub.to_le_bytes());
        state.extend(counter.to_le_bytes());
        state.extend((used.len() as u16).to_le_bytes());
        for (place, counter) in used {
            state.extend((place as u16 * STEPS + step_of(counter)).to_le_bytes());
        }
    }
    state
}

/// Fills an empty table of a volume of `blocks` blocks from a saved state. Any bytes are accepted: unknown
/// contents and places beyond the volume are ignored.
pub(super) fn restore(table: &mut BlockTable, mut state: &[u8], blocks: u64) {
    let subs = blocks.div_ceil(BLOCKS as u64);
    restore_from(table, &mut state, subs);
}

/// `None` if the version is unknown or the state ends too early.
fn restore_from(table: &mut BlockTable, state: &mut &[u8], subs: u64) -> Option<()> {
    if take::<1>(state)? != [VERSION] {
        return None;
    }
    let regions = u32::from_le_bytes(take(state)?) as usize;
    let mut counters = Vec::new();
    for _ in 0..regions {
        counters.push((u32::from_le_bytes(take(state)?), u16::from_le_bytes(take(state)?)));
    }
    while !state.is_empty() {
        let Some((sub, counter, entries)) = take_sub(state) else { break };
        if u64::from(sub) < subs && table.entries(sub).is_none() {
            let pairs = entries.iter().map(|&entry| u16::from_le_bytes(entry));
            table.restore(sub, counter, pairs.map(|e| (usize::from(e / STEPS), counter_of(e % STEPS))));
        }
    }
    counters.into_iter().for_each(|(number, counter)| table.restore_region(number, counter));
    Some(())
}

type Entry = [u8; 2];

fn take_sub<'a>(state: &mut &'a [u8]) -> Option<(u32, u16, &'a [Entry])> {
    let sub = u32::from_le_bytes(take(state)?);
    let counter = u16::from_le_bytes(take(state)?);
    let entries = usize::from(u16::from_le_bytes(take(state)?));
    let (these, rest) = state.split_at_checked(entries.checked_mul(size_of::<Entry>())?)?;
    *state = rest;
    Some((sub, counter, these.as_chunks().0))
}

fn take<const N: usize>(state: &mut &[u8]) -> Option<[u8; N]> {
    let (these, rest) = state.split_first_chunk()?;
    *state = rest;
    Some(*these)
}

/// Returns the octave of a counter above 0, times four, plus the quarter of the octave.
fn step_of(counter: u16) -> u16 {
    let octave = counter.ilog2() as u16;
    let quarter = (u32::from(counter) << 2 >> octave) as u16 - 4;
    octave * 4 + quarter
}

/// Returns the smallest counter of a step; at least 1.
fn counter_of(step: u16) -> u16 {
    let (octave, quarter) = (step / 4, step % 4);
    (((4 + u32::from(quarter)) << octave >> 2) as u16).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hystor::candidates::Search;
    use braid_base::{BlockId, MIB, Rng};

    #[test]
    fn saved_step_is_within_a_quarter_of_counter() {
        for counter in 1..=u16::MAX {
            let (step, least) = (step_of(counter), counter_of(step_of(counter)));
            assert!(step < STEPS && least <= counter && u32::from(counter) * 4 < u32::from(least) * 5 + 4);
        }
    }

    #[test]
    fn restored_table_chooses_nearly_the_same_blocks() {
        let (blocks, mut rng) = (1 << 20, Rng::new(4));
        let mut table = BlockTable::new(blocks, MIB * 16);
        for block in (0..3_000).map(|i| i * 37) {
            (0..1 << rng.below(9)).for_each(|_| table.access(BlockId(block), 1, 8));
        }
        let saved = save(&table);
        assert!(saved.len() < 20_000, "{} bytes", saved.len());
        let mut restored = BlockTable::new(blocks, MIB * 16);
        restore(&mut restored, &saved, blocks);
        let chosen = |table: &BlockTable| {
            let (mut search, mut part, mut all) = (Search::new(table, 1_000), Vec::new(), Vec::new());
            while search.next(table, 0, &mut part) {
                all.append(&mut part);
            }
            all
        };
        let (before, after) = (chosen(&table), chosen(&restored));
        let same = after.iter().filter(|block| before.contains(block)).count();
        assert!(after.len() == before.len() && same > 900, "{same} of {}", before.len());
        assert_eq!(save(&restored), saved);
    }

    #[test]
    fn restore_accepts_arbitrary_bytes() {
        let mut rng = Rng::new(5);
        let mut table = BlockTable::new(1 << 16, MIB);
        (0..5_000).for_each(|i| table.access(BlockId(i * 13), 1, 8));
        let saved = save(&table);
        for _ in 0..2_000 {
            let mut bytes = if rng.chance(0.5) { saved.clone() } else { vec![1; 400] };
            for _ in 0..1 + rng.below(300) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            let mut restored = BlockTable::new(1 << 16, MIB);
            restore(&mut restored, &bytes, 1 << 16);
            assert!(restored.memory() <= 2 * MIB.as_usize());
            (0..2_000).for_each(|i| restored.access(BlockId(i * 31), 1, 8));
        }
    }

    #[test]
    fn hottest_blocks_are_saved_if_table_exceeds_limit() {
        let mut table = BlockTable::new(1 << 24, MIB * 64);
        (0..400_000).for_each(|i| table.access(BlockId(i * 8), 1, 8));
        (0..5_000).for_each(|i| table.access(BlockId(5_000_000 + i % 100), 1, 8));
        let saved = save(&table);
        assert!((200 << 10..=255 << 10).contains(&saved.len()), "{} bytes", saved.len());
        let mut restored = BlockTable::new(1 << 24, MIB * 64);
        restore(&mut restored, &saved, 1 << 24);
        assert!(restored.counter(BlockId(5_000_050)) > 600);
    }
}
