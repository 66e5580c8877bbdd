//! How warm each extent is: a byte each, that grows with use and halves with time.

use braid_base::ExtentId;

/// Access history of all extents of a volume. One byte per extent; learning costs one addition.
#[derive(Clone, Debug)]
pub struct Heat {
    levels: Vec<u8>,
    /// Where the next round of cooling goes on.
    hand: usize,
}

/// Extents that are passed over together if all are cold.
const AT_A_TIME: usize = 64;

impl Heat {
    /// All cold.
    pub fn new(extents: u32) -> Heat {
        Heat { levels: vec![0; extents as usize], hand: 0 }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.levels.capacity()
    }

    /// An access.
    pub fn warm(&mut self, extent: ExtentId) {
        if extent.index() >= self.levels.len() {
            self.levels.resize(extent.index() + 1, 0);
        }
        let level = &mut self.levels[extent.index()];
        *level = level.saturating_add(8);
    }

    /// How warm an extent is: 0 is cold.
    pub fn level(&self, extent: ExtentId) -> u8 {
        self.levels.get(extent.index()).copied().unwrap_or(0)
    }

    /// Makes an extent as warm as this, as it was before a restart.
    pub fn set_level(&mut self, extent: ExtentId, level: u8) {
        if extent.index() >= self.levels.len() {
            self.levels.resize(extent.index() + 1, 0);
        }
        self.levels[extent.index()] = level;
    }

    /// The `limit` hottest extents that are not cold, in the order of their addresses; of those as warm as the last that fits,
    /// the first. Looks at every extent twice: some milliseconds per TiB.
    pub fn hottest(&self, limit: usize, mut found: impl FnMut(ExtentId, u8)) {
        let mut counts = [0usize; 256];
        self.warm_levels().for_each(|(_, level)| counts[usize::from(level)] += 1);
        // The level of which only some fit, and how many.
        let (mut edge, mut fit) = (0, limit);
        for level in (1..counts.len()).rev() {
            if counts[level] > fit {
                edge = level;
                break;
            }
            fit -= counts[level];
        }
        for (extent, level) in self.warm_levels().filter(|(_, level)| usize::from(*level) >= edge) {
            if usize::from(level) == edge {
                if fit == 0 {
                    continue;
                }
                fit -= 1;
            }
            found(extent, level);
        }
    }

    /// Extents that are not cold. Most are cold, and are passed over many at a time.
    fn warm_levels(&self) -> impl Iterator<Item = (ExtentId, u8)> {
        let parts = self.levels.chunks(AT_A_TIME).enumerate();
        let warm = parts.filter(|(_, part)| part.iter().any(|&level| level > 0));
        let levels = warm.flat_map(|(number, part)| (number * AT_A_TIME..).zip(part.iter().copied()));
        levels.filter(|(_, level)| *level > 0).map(|(index, level)| (ExtentId(index as u32), level))
    }

    /// Passes the clock's hand over up to `steps` extents. Those that it finds warm cool by half; the cold ones that
    /// `wanted` accepts are returned through `found`, until that has had `limit`.
    pub fn find_cold(
        &mut self,
        extents: u32,
        steps: u32,
        limit: usize,
        mut wanted: impl FnMut(ExtentId) -> bool,
        mut found: impl FnMut(ExtentId),
    ) {
        self.levels.resize(extents as usize, 0);
        let mut left = limit;
        for _ in 0..steps.min(extents) {
            if left == 0 {
                return;
            }
            self.hand = (self.hand + 1) % self.levels.len();
            let (extent, level) = (ExtentId(self.hand as u32), self.levels[self.hand]);
            self.levels[self.hand] = level / 2;
            if level == 0 && wanted(extent) {
                found(extent);
                left -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn the_hottest_are_those_that_a_sort_finds() {
        let mut rng = Rng::new(4);
        let mut heat = Heat::new(1_000);
        for _ in 0..3_000 {
            heat.warm(ExtentId(rng.below(900).min(rng.below(900)) as u32));
        }
        let mut sorted: Vec<(ExtentId, u8)> =
            (0..1_000).map(ExtentId).map(|extent| (extent, heat.level(extent))).collect();
        sorted.retain(|(_, level)| *level > 0);
        sorted.sort_by_key(|(extent, level)| (std::cmp::Reverse(*level), *extent));
        for limit in [0, 1, 7, 100, 500, 1_000] {
            let mut expected = sorted[..limit.min(sorted.len())].to_vec();
            expected.sort_by_key(|(extent, _)| *extent);
            let mut found = Vec::new();
            heat.hottest(limit, |extent, level| found.push((extent, level)));
            assert_eq!(found, expected, "{limit}");
        }
    }
}
