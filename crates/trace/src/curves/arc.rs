//! ARC (figure 4 of the paper). T1 holds blocks used once recently, T2 holds blocks used more often. B1 and
//! B2 remember blocks evicted from T1 and T2. A hit in B1 enlarges T1's share of the cache, a hit in B2
//! shrinks T1's share.

use super::Cache;
use super::queues::Queues;

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

pub(super) struct ArcCache {
    room: usize,
    queues: Queues<4>,
    /// Target size of T1.
    target: f64,
}

impl ArcCache {
    pub fn new(room: usize, blocks: usize) -> ArcCache {
        ArcCache { room, queues: Queues::new(blocks), target: 0.0 }
    }

    /// Evicts the oldest block of T1 or T2, and remembers the block in B1 or B2.
    fn replace(&mut self, is_in_b2: bool) {
        let t1 = self.queues.len(T1) as f64;
        let from_t1 = t1 >= 1.0 && (t1 > self.target || is_in_b2 && t1 == self.target);
        let (from, to) = if from_t1 { (T1, B1) } else { (T2, B2) };
        if let Some(block) = self.queues.pop(from) {
            self.queues.push(to, block);
        }
    }
}

impl Cache for ArcCache {
    fn reference(&mut self, block: u32) -> bool {
        let len = |arc: &ArcCache, queue: usize| arc.queues.len(queue);
        match self.queues.of(block) {
            Some(T1 | T2) => {
                self.queues.push(T2, block);
                return true;
            }
            Some(B1) => {
                let step = (len(self, B2) as f64 / len(self, B1) as f64).max(1.0);
                self.target = (self.target + step).min(self.room as f64);
                self.replace(false);
                self.queues.push(T2, block);
            }
            Some(_) => {
                let step = (len(self, B1) as f64 / len(self, B2) as f64).max(1.0);
                self.target = (self.target - step).max(0.0);
                self.replace(true);
                self.queues.push(T2, block);
            }
            None => {
                let first = len(self, T1) + len(self, B1);
                let all = first + len(self, T2) + len(self, B2);
                if first == self.room {
                    if len(self, T1) < self.room {
                        self.queues.pop(B1);
                        self.replace(false);
                    } else {
                        self.queues.pop(T1);
                    }
                } else if all >= self.room {
                    if all == 2 * self.room {
                        self.queues.pop(B2);
                    }
                    self.replace(false);
                }
                self.queues.push(T1, block);
            }
        }
        false
    }
}
