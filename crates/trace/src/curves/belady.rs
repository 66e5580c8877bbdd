//! Belady's MIN: evicts the block with the most distant next use, or without any.

use super::queues::NONE;
use super::{Cache, References};
use std::collections::BinaryHeap;

/// Stale entries allowed in the queue, in addition to the number of cached blocks.
const SLACK: usize = 1024;

pub(super) struct Belady {
    room: usize,
    /// For each reference, the index of the next reference to the same block; [`NONE`] for the last.
    next: Vec<u32>,
    now: usize,
    /// For each cached block, the index of the next reference. `None` for blocks outside the cache.
    needed: Vec<Option<u32>>,
    held: usize,
    /// Cached blocks by next reference, mixed with stale entries of earlier references.
    queue: BinaryHeap<(u32, u32)>,
}

impl Belady {
    pub fn new(room: usize, references: &References) -> Belady {
        let blocks = references.blocks();
        let mut seen = vec![NONE; references.distinct()];
        let mut next = vec![NONE; blocks.len()];
        for (at, &block) in blocks.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut seen[block as usize], at as u32);
        }
        let needed = vec![None; references.distinct()];
        Belady { room, next, now: 0, needed, held: 0, queue: BinaryHeap::new() }
    }

    fn evict(&mut self) {
        while let Some((when, block)) = self.queue.pop() {
            // A stale entry: the block has been referenced since.
            if self.needed[block as usize] == Some(when) {
                self.needed[block as usize] = None;
                self.held -= 1;
                return;
            }
        }
    }
}

impl Cache for Belady {
    fn reference(&mut self, block: u32) -> bool {
        let is_hit = self.needed[block as usize].is_some();
        if !is_hit {
            if self.held == self.room {
                self.evict();
            }
            self.held += 1;
        }
        let when = self.next[self.now];
        self.now += 1;
        self.needed[block as usize] = Some(when);
        self.queue.push((when, block));
        if self.queue.len() > 2 * self.held + SLACK {
            let needed = &self.needed;
            self.queue.retain(|&(when, block)| needed[block as usize] == Some(when));
        }
        is_hit
    }
}
