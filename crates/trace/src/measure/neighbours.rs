//! A hash that leaves neighbours together: blocks that are touched one after another lie in the same few
//! lines of memory, where a hash that scatters them waits for memory at each. It makes measuring large
//! requests several times quicker.
//!
//! Sixteen neighbours share the higher bits of their hash, by which a table finds where to look, and differ
//! in the lowest four, which are the place there, and in the highest, which hashbrown compares before it
//! compares keys.

use std::hash::{BuildHasher, Hasher};

#[derive(Clone, Copy, Default)]
pub(super) struct Neighbours;

pub(super) struct Hash(u64);

impl BuildHasher for Neighbours {
    type Hasher = Hash;
    fn build_hasher(&self) -> Hash {
        Hash(0)
    }
}

impl Hasher for Hash {
    fn write_u64(&mut self, key: u64) {
        let place = key & 15;
        self.0 = (mix(key >> 4) & !15 | place) ^ place << 57;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = mix(self.0 ^ u64::from(byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The finaliser of splitmix64: neighbours fall far apart.
pub(crate) fn mix(key: u64) -> u64 {
    let x = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
