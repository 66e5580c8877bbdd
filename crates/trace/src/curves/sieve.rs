//! SIEVE: a queue in fixed order, and a hand that moves from the oldest block to the newest. The hand spares
//! blocks used since its last pass, and evicts the first unused block (algorithm 1 of the paper).

use super::Cache;
use super::queues::Queues;

pub(super) struct Sieve {
    room: usize,
    held: Queues<1>,
    visited: Vec<bool>,
    hand: Option<u32>,
}

impl Sieve {
    pub fn new(room: usize, blocks: usize) -> Sieve {
        Sieve { room, held: Queues::new(blocks), visited: vec![false; blocks], hand: None }
    }

    fn evict(&mut self) {
        let mut at = self.hand.or_else(|| self.held.oldest(0));
        while let Some(block) = at.filter(|&block| self.visited[block as usize]) {
            self.visited[block as usize] = false;
            at = self.held.newer(block).or_else(|| self.held.oldest(0));
        }
        if let Some(block) = at {
            self.hand = self.held.newer(block);
            self.held.remove(block);
        }
    }
}

impl Cache for Sieve {
    fn reference(&mut self, block: u32) -> bool {
        if self.held.of(block).is_some() {
            self.visited[block as usize] = true;
            return true;
        }
        if self.held.len(0) == self.room {
            self.evict();
        }
        self.held.push(0, block);
        self.visited[block as usize] = false;
        false
    }
}
