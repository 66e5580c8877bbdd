//! Queues of numbered blocks. A block is in at most one queue, and can be removed from any position in
//! constant time.

/// Number of no block.
pub(super) const NONE: u32 = u32::MAX;
/// Queue number of blocks outside all queues.
const NOWHERE: u8 = u8::MAX;

pub(super) struct Queues<const N: usize> {
    newer: Vec<u32>,
    older: Vec<u32>,
    queue: Vec<u8>,
    newest: [u32; N],
    oldest: [u32; N],
    len: [usize; N],
}

impl<const N: usize> Queues<N> {
    /// Creates empty queues for the blocks 0 to `blocks` - 1.
    pub fn new(blocks: usize) -> Queues<N> {
        Queues {
            newer: vec![NONE; blocks],
            older: vec![NONE; blocks],
            queue: vec![NOWHERE; blocks],
            newest: [NONE; N],
            oldest: [NONE; N],
            len: [0; N],
        }
    }

    /// Returns the queue of a block.
    pub fn of(&self, block: u32) -> Option<usize> {
        Some(self.queue[block as usize]).filter(|&queue| queue != NOWHERE).map(usize::from)
    }

    pub fn len(&self, queue: usize) -> usize {
        self.len[queue]
    }

    pub fn oldest(&self, queue: usize) -> Option<u32> {
        Some(self.oldest[queue]).filter(|&block| block != NONE)
    }

    /// Returns the next newer block of the same queue.
    pub fn newer(&self, block: u32) -> Option<u32> {
        Some(self.newer[block as usize]).filter(|&block| block != NONE)
    }

    /// Moves a block to the newest position of a queue, from any queue or none.
    pub fn push(&mut self, queue: usize, block: u32) {
        self.remove(block);
        let before = self.newest[queue];
        self.older[block as usize] = before;
        match before {
            NONE => self.oldest[queue] = block,
            before => self.newer[before as usize] = block,
        }
        self.newest[queue] = block;
        self.queue[block as usize] = queue as u8;
        self.len[queue] += 1;
    }

    /// Removes the oldest block of a queue.
    pub fn pop(&mut self, queue: usize) -> Option<u32> {
        let block = self.oldest(queue)?;
        self.remove(block);
        Some(block)
    }

    /// Removes a block from its queue, if any.
    pub fn remove(&mut self, block: u32) {
        let Some(queue) = self.of(block) else { return };
        let at = block as usize;
        let (newer, older) = (self.newer[at], self.older[at]);
        match newer {
            NONE => self.newest[queue] = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest[queue] = newer,
            older => self.newer[older as usize] = newer,
        }
        (self.newer[at], self.older[at], self.queue[at]) = (NONE, NONE, NOWHERE);
        self.len[queue] -= 1;
    }
}
