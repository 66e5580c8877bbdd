//! How warm each extent is: a byte each, that grows with use and halves with time.

use braid_base::ExtentId;

/// Access history of all extents of a volume. One byte per extent; learning costs one addition.
#[derive(Clone, Debug)]
pub struct Heat {
    levels: Vec<u8>,
    /// Where the next round of cooling goes on.
    hand: usize,
}

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
