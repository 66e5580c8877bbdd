//! LIRS (section 3 of the paper). Blocks with a low inter-reference recency (LIR) stay in the cache. Blocks
//! with a high inter-reference recency (HIR) have 1 % of the cache. The stack S orders blocks by their last
//! use, down to the oldest LIR block. The queue Q holds the HIR blocks in the cache. If a HIR block in S is
//! used again, the block becomes LIR, and the oldest LIR block becomes HIR.
//!
//! The paper sets no limit for the blocks of S outside the cache. Neither does this implementation.

use super::Cache;
use super::queues::Queues;

pub(super) struct Lirs {
    room: usize,
    /// Room for LIR blocks.
    low: usize,
    stack: Queues<1>,
    queue: Queues<1>,
    is_low: Vec<bool>,
    lows: usize,
}

impl Lirs {
    pub fn new(room: usize, blocks: usize) -> Lirs {
        // A cache of one block has room for the LIR block only.
        let high = (room / 100).max(1).min(room - 1);
        Lirs {
            room,
            low: room - high,
            stack: Queues::new(blocks),
            queue: Queues::new(blocks),
            is_low: vec![false; blocks],
            lows: 0,
        }
    }

    /// Removes HIR blocks from the bottom of the stack, up to the oldest LIR block.
    fn prune(&mut self) {
        while let Some(block) = self.stack.oldest(0).filter(|&block| !self.is_low[block as usize]) {
            self.stack.remove(block);
        }
    }

    /// Turns the oldest LIR block into a HIR block.
    fn lower(&mut self) {
        if let Some(block) = self.stack.pop(0) {
            self.is_low[block as usize] = false;
            self.lows -= 1;
            self.queue.push(0, block);
            self.prune();
        }
    }

    fn become_low(&mut self, block: u32) {
        self.queue.remove(block);
        self.stack.push(0, block);
        self.is_low[block as usize] = true;
        self.lows += 1;
        if self.lows > self.low {
            self.lower();
        }
    }
}

impl Cache for Lirs {
    fn reference(&mut self, block: u32) -> bool {
        if self.is_low[block as usize] {
            self.stack.push(0, block);
            self.prune();
            return true;
        }
        let is_hit = self.queue.of(block).is_some();
        if !is_hit && self.lows + self.queue.len(0) == self.room {
            // A cache of one block has no HIR block.
            if self.queue.len(0) == 0 {
                self.lower();
            }
            self.queue.pop(0);
        }
        let is_in_stack = self.stack.of(block).is_some();
        if is_in_stack || !is_hit && self.lows < self.low {
            self.become_low(block);
        } else {
            self.stack.push(0, block);
            self.queue.push(0, block);
        }
        is_hit
    }
}
