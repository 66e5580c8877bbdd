//! W-TinyLFU (section 4 of the paper): a window of 1 % of the cache by LRU for new blocks, and a main part by
//! segmented LRU. Four fifths of the main part are protected. A block leaving the window enters the main part
//! if used more often than the main part's next victim. A sketch of counters estimates the uses.
//!
//! The sketch has four rows of counters up to 15. A row has as many counters as the cache has blocks (rounded
//! up to a power of two). All counters are halved after ten times as many references as the cache has blocks.
//! The paper's doorkeeper, which saves memory, is left out. In a draw, the block from the window is dropped.

use super::Cache;
use super::queues::Queues;
use crate::measure::mix;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;
const ROWS: usize = 4;
const MOST_USES: u8 = 15;
const SAMPLE: usize = 10;

pub(super) struct WTinyLfu {
    window: usize,
    main: usize,
    protected: usize,
    queues: Queues<3>,
    sketch: Sketch,
}

impl WTinyLfu {
    pub fn new(room: usize, blocks: usize) -> WTinyLfu {
        let window = (room / 100).max(1);
        let main = room - window;
        WTinyLfu {
            window,
            main,
            protected: main * 4 / 5,
            queues: Queues::new(blocks),
            sketch: Sketch::new(room),
        }
    }

    /// Admits a block that left the window to the main part, or drops the block.
    fn admit(&mut self, candidate: u32) {
        if self.queues.len(PROBATION) + self.queues.len(PROTECTED) < self.main {
            return self.queues.push(PROBATION, candidate);
        }
        let from = if self.queues.len(PROBATION) > 0 { PROBATION } else { PROTECTED };
        let Some(victim) = self.queues.oldest(from) else { return };
        if self.sketch.uses(candidate) > self.sketch.uses(victim) {
            self.queues.remove(victim);
            self.queues.push(PROBATION, candidate);
        }
    }
}

impl Cache for WTinyLfu {
    fn reference(&mut self, block: u32) -> bool {
        self.sketch.count(block);
        match self.queues.of(block) {
            Some(WINDOW) => self.queues.push(WINDOW, block),
            Some(_) if self.protected > 0 => {
                self.queues.push(PROTECTED, block);
                if self.queues.len(PROTECTED) > self.protected
                    && let Some(oldest) = self.queues.pop(PROTECTED)
                {
                    self.queues.push(PROBATION, oldest);
                }
            }
            Some(queue) => self.queues.push(queue, block),
            None => {
                self.queues.push(WINDOW, block);
                if self.queues.len(WINDOW) > self.window
                    && let Some(candidate) = self.queues.pop(WINDOW)
                {
                    self.admit(candidate);
                }
                return false;
            }
        }
        true
    }
}

/// Estimates of the recent uses of blocks: rather too high than too low.
struct Sketch {
    counters: Vec<u8>,
    mask: u64,
    counted: usize,
    most: usize,
}

impl Sketch {
    fn new(room: usize) -> Sketch {
        let width = room.next_power_of_two().max(16);
        Sketch { counters: vec![0; width * ROWS], mask: width as u64 - 1, counted: 0, most: SAMPLE * room }
    }

    /// Returns the counter of a block in each row.
    fn places(&self, block: u32) -> [usize; ROWS] {
        let width = self.mask as usize + 1;
        std::array::from_fn(|row| {
            row * width + (mix(u64::from(block) | (row as u64 + 1) << 32) & self.mask) as usize
        })
    }

    fn count(&mut self, block: u32) {
        let places = self.places(block);
        let least = self.uses(block);
        for place in places {
            // Increments only the lowest counters: the higher counters also count other blocks.
            if self.counters[place] == least && least < MOST_USES {
                self.counters[place] += 1;
            }
        }
        self.counted += 1;
        if self.counted >= self.most {
            self.counted /= 2;
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
        }
    }

    fn uses(&self, block: u32) -> u8 {
        self.places(block).into_iter().map(|place| self.counters[place]).min().unwrap_or(0)
    }
}
