//! S3-FIFO (algorithm 1 of the paper): a small queue of a tenth of the cache for new blocks, a main queue,
//! and a ghost queue. The ghost queue remembers as many evicted blocks as the main queue has room for. A
//! block moves from the small to the main queue if used more than once in the small queue. The main queue
//! gives used blocks another turn.

use super::Cache;
use super::queues::Queues;

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;
/// Limit of counted uses: two bits.
const MOST_USES: u8 = 3;

pub(super) struct S3Fifo {
    room: usize,
    small: usize,
    queues: Queues<3>,
    uses: Vec<u8>,
}

impl S3Fifo {
    pub fn new(room: usize, blocks: usize) -> S3Fifo {
        S3Fifo { room, small: (room / 10).max(1), queues: Queues::new(blocks), uses: vec![0; blocks] }
    }

    fn evict(&mut self) {
        if self.queues.len(SMALL) >= self.small || self.queues.len(MAIN) == 0 {
            self.evict_from_small();
        } else {
            self.evict_from_main();
        }
    }

    fn evict_from_small(&mut self) {
        while let Some(block) = self.queues.oldest(SMALL) {
            if self.uses[block as usize] > 1 {
                self.uses[block as usize] = 0;
                self.queues.push(MAIN, block);
                if self.queues.len(MAIN) > self.room - self.small {
                    return self.evict_from_main();
                }
            } else {
                self.queues.push(GHOST, block);
                if self.queues.len(GHOST) > self.room - self.small {
                    self.queues.pop(GHOST);
                }
                return;
            }
        }
        // All blocks of the small queue moved to the main queue. The main queue had room for all.
        self.evict_from_main();
    }

    fn evict_from_main(&mut self) {
        while let Some(block) = self.queues.pop(MAIN) {
            if self.uses[block as usize] == 0 {
                return;
            }
            self.uses[block as usize] -= 1;
            self.queues.push(MAIN, block);
        }
    }
}

impl Cache for S3Fifo {
    fn reference(&mut self, block: u32) -> bool {
        let queue = self.queues.of(block);
        if matches!(queue, Some(SMALL | MAIN)) {
            let uses = &mut self.uses[block as usize];
            *uses = (*uses + 1).min(MOST_USES);
            return true;
        }
        if self.queues.len(SMALL) + self.queues.len(MAIN) == self.room {
            self.evict();
        }
        // The eviction may have pushed the block out of the ghost queue: the state before the eviction
        // counts.
        self.queues.push(if queue == Some(GHOST) { MAIN } else { SMALL }, block);
        self.uses[block as usize] = 0;
        false
    }
}
