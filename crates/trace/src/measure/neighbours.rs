//! A hash that keeps adjacent blocks together. Consecutive blocks lie in the same few cache lines. A
//! scattering hash would wait for memory at each block. Measuring large requests is several times faster.
//!
//! Sixteen adjacent blocks share the middle bits of their hash. A table finds its position by these bits. The
//! hashes differ in the lowest four bits, the place within the group, and in the highest bits. hashbrown
//! compares the highest bits before comparing keys.

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

/// The finalizer of splitmix64, which scatters adjacent keys.
pub(crate) fn mix(key: u64) -> u64 {
    let x = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
