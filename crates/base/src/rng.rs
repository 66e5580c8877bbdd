//! Random numbers from a seed: the same seed gives the same numbers on every machine and in every version.
//!
//! wyrand (Wang Yi, wyhash final version 4, 2022), seeded by a step of splitmix64. Written here, and not
//! taken from a crate: a crate may change its stream between versions, and every recorded seed would then
//! replay different numbers. One number is one word and one product: a simulation draws some seven for each
//! request.

/// A stream of random numbers. Cheap to copy: a copy continues the same stream on its own.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Rng {
        let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Rng { state: x ^ (x >> 31) }
    }

    /// An independent stream, for one part of a larger whole: more draws in one part leave the other parts
    /// unchanged.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }

    /// A uniform 64-bit number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.state) * u128::from(self.state ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    /// A uniform number in `0..limit`, by multiply and shift; the bias is below `limit` / 2^64.
    ///
    /// # Panics
    /// If `limit` is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "there is no number below zero");
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A uniform number in `low..high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// A uniform number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Fills a slice with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }

    /// Puts a slice in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_seed_never_change() {
        let mut rng = Rng::new(42);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            first,
            [6_327_169_416_285_365_978, 15_026_662_536_226_652_536, 11_841_802_312_108_098_636]
        );
    }

    #[test]
    fn numbers_below_a_limit_reach_every_value() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 7];
        (0..7_000).for_each(|_| seen[rng.below(7) as usize] += 1);
        assert!(seen.iter().all(|&n| (800..1_200).contains(&n)), "{seen:?}");
    }
}
