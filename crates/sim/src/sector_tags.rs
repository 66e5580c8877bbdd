//! A number for each sector, kept dense by block: a substitute for bytes if only their identity matters.
//!
//! A block with equal sectors, the usual case, takes eight bytes. A block with different sectors takes eight
//! times as much in addition. A MiB of blocks that were never set takes no memory, and reads as zero.

use braid_base::{Bytes, KIB, SECTOR};
use braid_runtime::prefetch;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Tags by sector. A tag is any number but `u64::MAX`.
#[derive(Clone, Default)]
pub struct SectorTags {
    chunks: Vec<Option<Box<Chunk>>>,
    /// Blocks whose sectors are not alike.
    mixed: HashMap<u64, [u64; SECTORS], FixedState>,
}

type Chunk = [u64; CHUNK];

/// The block: 4 KiB.
const BLOCK: Bytes = Bytes(4 * KIB.0);
/// Sectors of a block.
const SECTORS: usize = 8;
/// Blocks of a chunk: a MiB.
const CHUNK: usize = 256;
/// Stands for a block that is in `mixed`.
const MIXED: u64 = u64::MAX;

impl SectorTags {
    /// The tag of the sector that begins at `offset`.
    pub fn get(&self, offset: Bytes) -> u64 {
        let block = offset / BLOCK;
        match self.block(block) {
            MIXED => self.mixed[&block][sector_of(offset)],
            tag => tag,
        }
    }

    /// Announces a use of the tag at `offset`: prefetches the tag, because the tags exceed the processor's
    /// cache.
    pub fn expect(&self, offset: Bytes) {
        let (chunk, place) = place_of(offset / BLOCK);
        if let Some(Some(chunk)) = self.chunks.get(chunk) {
            prefetch(&chunk[place]);
        }
    }

    /// The tag of all sectors of a range, if all sectors of all touched blocks have the same tag.
    pub fn of_all(&self, offset: Bytes, len: Bytes) -> Option<u64> {
        let first = self.block(offset / BLOCK);
        let mut others = offset / BLOCK + 1..(offset + len).align_up(BLOCK) / BLOCK;
        (first != MIXED && others.all(|block| self.block(block) == first)).then_some(first)
    }

    /// Gives every sector of a range the same tag. Offset and length are whole sectors.
    pub fn set(&mut self, offset: Bytes, len: Bytes, tag: u64) {
        self.update(offset, len, |_| tag);
    }

    /// Takes the tags from `bytes`, which lie at `offset`: the tag of a sector is its first word.
    pub fn write(&mut self, offset: Bytes, bytes: &[u8]) {
        self.update(offset, Bytes::of_len(bytes.len()), |at| {
            let start = (at - offset).as_usize();
            u64::from_le_bytes(*bytes[start..].first_chunk().expect("a sector is longer than a word"))
        });
    }

    /// Puts the tags into `bytes`, which lie at `offset`. Only the first word of each sector changes.
    pub fn read(&self, offset: Bytes, bytes: &mut [u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let until_end = (BLOCK - at % BLOCK).as_usize().min(rest.len());
            let (in_block, behind) = rest.split_at_mut(until_end);
            let block = at / BLOCK;
            let tag = self.block(block);
            let tags = if tag == MIXED { self.mixed[&block] } else { [tag; SECTORS] };
            let sectors = in_block.chunks_exact_mut(SECTOR.as_usize());
            for (sector, tag) in sectors.zip(&tags[sector_of(at)..]) {
                sector[..8].copy_from_slice(&tag.to_le_bytes());
            }
            at += Bytes::of_len(until_end);
            rest = behind;
        }
    }

    fn update(&mut self, offset: Bytes, len: Bytes, tag_of: impl Fn(Bytes) -> u64) {
        debug_assert!(offset.is_aligned(SECTOR) && len.is_aligned(SECTOR), "{len:?} at {offset:?}");
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let block = at / BLOCK;
            let block_end = (BLOCK * (block + 1)).min(end);
            self.update_block(block, at, block_end, &tag_of);
            at = block_end;
        }
    }

    fn update_block(&mut self, block: u64, start: Bytes, end: Bytes, tag_of: &impl Fn(Bytes) -> u64) {
        let first = tag_of(start);
        let mut sectors = (start.0..end.0).step_by(SECTOR.as_usize()).map(Bytes);
        let alike = sectors.all(|at| tag_of(at) == first);
        let before = self.block(block);
        let whole = end - start == BLOCK || before == first;
        if alike && whole {
            if before == MIXED {
                self.mixed.remove(&block);
            }
            return self.set_block(block, first);
        }
        let mut tags = if before == MIXED { self.mixed[&block] } else { [before; SECTORS] };
        for at in (start.0..end.0).step_by(SECTOR.as_usize()).map(Bytes) {
            tags[sector_of(at)] = tag_of(at);
        }
        if tags.iter().all(|&tag| tag == tags[0]) {
            self.mixed.remove(&block);
            self.set_block(block, tags[0]);
        } else {
            self.mixed.insert(block, tags);
            self.set_block(block, MIXED);
        }
    }

    fn block(&self, block: u64) -> u64 {
        let (chunk, place) = place_of(block);
        self.chunks.get(chunk).and_then(Option::as_ref).map_or(0, |chunk| chunk[place])
    }

    fn set_block(&mut self, block: u64, tag: u64) {
        let (chunk, place) = place_of(block);
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        self.chunks[chunk].get_or_insert_with(|| Box::new([0; CHUNK]))[place] = tag;
    }
}

/// The chunk of a block, and its place there.
fn place_of(block: u64) -> (usize, usize) {
    (block as usize / CHUNK, block as usize % CHUNK)
}

fn sector_of(offset: Bytes) -> usize {
    ((offset % BLOCK) / SECTOR) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn tags_are_kept_as_a_plain_array_would() {
        let (mut tags, mut plain) = (SectorTags::default(), vec![0u64; 4096]);
        let mut rng = Rng::new(7);
        for round in 0..20_000u64 {
            let first = rng.below(4000);
            let count = if rng.chance(0.5) { 8 } else { rng.between(1, 40) };
            let first = if rng.chance(0.5) { first & !7 } else { first };
            tags.set(SECTOR * first, SECTOR * count, round % 50);
            plain[first as usize..(first + count) as usize].fill(round % 50);
            let look = rng.below(4096);
            assert_eq!(tags.get(SECTOR * look), plain[look as usize], "round {round}");
        }
        let alike = plain.chunks(8).filter(|block| block.iter().all(|tag| tag == &block[0])).count();
        assert_eq!(tags.mixed.len(), 512 - alike, "a block whose sectors are alike takes one word");
    }

    #[test]
    fn tags_round_trip_through_sector_bytes() {
        let mut tags = SectorTags::default();
        let mut bytes = vec![0xee; 3 * 512];
        for (sector, tag) in bytes.chunks_mut(512).zip([11u64, 12, 13]) {
            sector[..8].copy_from_slice(&tag.to_le_bytes());
        }
        tags.write(SECTOR * 7, &bytes);
        let mut read = vec![0; 5 * 512];
        tags.read(SECTOR * 6, &mut read);
        let found: Vec<u64> =
            read.chunks(512).map(|s| u64::from_le_bytes(*s.first_chunk().unwrap())).collect();
        assert_eq!(found, [0, 11, 12, 13, 0]);
        assert!(read[8..512].iter().all(|&byte| byte == 0));
    }
}
