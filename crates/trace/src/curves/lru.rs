//! LRU: evicts the least recently used block.

use super::Cache;
use super::queues::Queues;

pub(super) struct Lru {
    room: usize,
    held: Queues<1>,
}

impl Lru {
    pub fn new(room: usize, blocks: usize) -> Lru {
        Lru { room, held: Queues::new(blocks) }
    }
}

impl Cache for Lru {
    fn reference(&mut self, block: u32) -> bool {
        let is_hit = self.held.of(block).is_some();
        if !is_hit && self.held.len(0) == self.room {
            self.held.pop(0);
        }
        self.held.push(0, block);
        is_hit
    }
}
