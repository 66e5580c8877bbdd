//! A random order of `0..n` in constant memory.

use braid_base::Rng;

/// A permutation of `0..n`, chosen by a seed.
///
/// Rounds of odd multiplications, additions and shifts permute the numbers below the next power of two. A
/// result outside `0..n` goes through the rounds again, less than once on average (cycle walking: Black and
/// Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). The permutation is not a cipher: its only
/// purpose is to separate neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Scatter {
    n: u64,
    mask: u64,
    shift: u32,
    keys: [(u64, u64); ROUNDS],
}

const ROUNDS: usize = 3;

impl Scatter {
    /// Creates the permutation of `0..n` that `rng` chooses.
    ///
    /// # Panics
    /// If `n` is zero.
    pub fn new(n: u64, rng: &mut Rng) -> Scatter {
        assert!(n > 0, "nothing has no order");
        let bits = (64 - (n - 1).leading_zeros()).max(1);
        let keys = std::array::from_fn(|_| (rng.next_u64() | 1, rng.next_u64()));
        Scatter { n, mask: u64::MAX >> (64 - bits), shift: bits.div_ceil(2), keys }
    }

    /// Returns `n`.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Returns the place of `i` in the order. `i` must be below `n`.
    pub fn place(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        let mut x = i;
        loop {
            for (factor, summand) in self.keys {
                x = x.wrapping_mul(factor).wrapping_add(summand) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_gives_each_number_a_distinct_place() {
        for n in [1, 2, 3, 7, 64, 1000, 4097, 65_536] {
            let scatter = Scatter::new(n, &mut Rng::new(n));
            let mut taken = vec![false; n as usize];
            (0..n).for_each(|i| taken[scatter.place(i) as usize] = true);
            assert!(taken.iter().all(|&taken| taken), "{n}");
        }
    }

    #[test]
    fn neighbours_are_kept_apart() {
        let n = 1 << 20;
        let scatter = Scatter::new(n, &mut Rng::new(7));
        let near = (1..n).filter(|&i| scatter.place(i).abs_diff(scatter.place(i - 1)) < n / 100).count();
        let share = near as f64 / n as f64;
        assert!((0.01..0.03).contains(&share), "2 % of pairs lie within 1 % by chance, here {share}");
    }
}
