//! Belady's MIN: the block goes that is needed last, or never again.

use super::queues::NONE;
use super::{Cache, References};
use std::collections::BinaryHeap;

/// Entries of earlier references that may stay in the queue, beside as many as there are blocks.
const SLACK: usize = 1024;

pub(super) struct Belady {
    room: usize,
    /// For each reference, when its block is referenced next; [`NONE`] for never.
    next: Vec<u32>,
    now: usize,
    /// When each block that is held is needed; none of the others.
    needed: Vec<Option<u32>>,
    held: usize,
    /// What is held, by when it is needed, with entries of earlier references among them.
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
            // An entry of an earlier reference, whose block has been needed since.
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
