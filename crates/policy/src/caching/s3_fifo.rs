//! S3-FIFO: three queues; a block requested once is soon evicted.
//!
//! Yang, Zhang, Qiu, Yue, Vinayak, "FIFO queues are all you need for cache eviction" (SOSP 2023), section 4;
//! details as in the authors' code (libCacheSim). New blocks enter the small queue S (10 % of the cache). The
//! oldest block of S moves to the main queue M if hit `threshold` times since entering. Otherwise the block
//! is evicted, and the block's name enters the ghost queue G, which is as long as M. A new block known to G
//! enters M. The oldest block of M is evicted if not hit; otherwise the block re-enters M as the newest, with
//! one hit less. No queue is sorted at a hit: a hit only counts, up to 3.
//!
//! Deviations:
//! - Dirty blocks cannot be evicted, and are in no queue until clean. A block turned clean re-enters its
//!   queue as the newest: S and M are shares of the clean blocks.
//! - A search ends after 64 steps with the block oldest at that moment, so that each search takes bounded
//!   time.
//! - G is a table of names ([`super::ghosts`]), which forgets a few early.

use super::ghosts::Ghosts;
use crate::{CellId, CellLists, ExtraCopy};
use braid_base::{BlockId, DeviceId};

/// Queues of each device.
pub struct S3Fifo {
    threshold: u8,
    /// S and M of each device.
    queues: CellLists,
    /// By cell.
    marks: Vec<Mark>,
    /// By device: number of blocks in S and in M.
    lens: Vec<[usize; 2]>,
    /// Blocks with a cached copy, dirty or clean.
    known: usize,
    ghosts: Ghosts,
    /// Cell last returned as the victim.
    victim: Option<CellId>,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// Hits since the block entered or re-entered: at most `MOST_HITS`.
    hits: u8,
    queue: Queue,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Queue {
    #[default]
    Small = 0,
    Main = 1,
}

const MOST_HITS: u8 = 3;
/// Tenths of the cache in M; G is as long as M.
const MAIN_TENTHS: usize = 9;
/// Steps of a search for a victim.
const MOST_STEPS: usize = 64;
/// Reserve of memory beyond need: one part in `RESERVE`.
const RESERVE: usize = 16;

impl S3Fifo {
    pub fn new(devices: usize, threshold: u8) -> S3Fifo {
        S3Fifo {
            threshold,
            queues: CellLists::new(devices * 2),
            marks: Vec::new(),
            lens: vec![[0; 2]; devices],
            known: 0,
            ghosts: Ghosts::default(),
            victim: None,
        }
    }

    pub fn threshold(&self) -> u8 {
        self.threshold
    }

    pub fn used(&mut self, copy: ExtraCopy) {
        if let Some(mark) = self.marks.get_mut(copy.cell.0 as usize) {
            mark.hits = (mark.hits + 1).min(MOST_HITS);
        }
    }

    /// Handles a new cached copy of a block.
    pub fn entered(&mut self, block: BlockId, copy: ExtraCopy) {
        let place = copy.cell.0 as usize;
        if place >= self.marks.len() {
            let more = place + 1 - self.marks.len();
            if place >= self.marks.capacity() {
                self.marks.reserve_exact(more + (place / RESERVE).max(16));
            }
            self.marks.resize(place + 1, Mark::default());
        }
        let remembered = self.ghosts.forget(block, self.ghost_len());
        let queue = if remembered { Queue::Main } else { Queue::Small };
        self.marks[place] = Mark { hits: 0, queue };
        self.known += 1;
        if !copy.dirty {
            self.join(copy.device, copy.cell);
        }
    }

    /// Handles a copy turned clean or dirty.
    pub fn changed(&mut self, copy: ExtraCopy) {
        match copy.dirty {
            true => self.leave(copy.device, copy.cell),
            false => self.join(copy.device, copy.cell),
        }
    }

    /// Handles the removal of a block's cached copy.
    pub fn left(&mut self, block: BlockId, copy: ExtraCopy) {
        self.leave(copy.device, copy.cell);
        self.known -= 1;
        let was_evicted = self.victim == Some(copy.cell);
        if was_evicted && self.marks[copy.cell.0 as usize].queue == Queue::Small {
            self.ghosts.remember(block, self.ghost_len());
        }
        self.victim = self.victim.filter(|_| !was_evicted);
    }

    /// Returns the next copy to evict on a device.
    pub fn victim(&mut self, device: DeviceId) -> Option<CellId> {
        for _ in 0..MOST_STEPS {
            let (queue, cell) = self.next(device)?;
            let Mark { hits, .. } = self.marks[cell.0 as usize];
            let stays = match queue {
                Queue::Small if hits >= self.threshold => Some(0),
                Queue::Main if hits > 0 => Some(hits - 1),
                _ => None,
            };
            let Some(hits) = stays else { break };
            self.leave(device, cell);
            self.marks[cell.0 as usize] = Mark { hits, queue: Queue::Main };
            self.join(device, cell);
        }
        self.victim = self.next(device).map(|(_, cell)| cell);
        self.victim
    }

    /// Returns the oldest block of the queue that exceeds its share.
    fn next(&self, device: DeviceId) -> Option<(Queue, CellId)> {
        let [small, main] = self.lens[device.index()];
        let main_is_long = small == 0 || main * 10 > (small + main) * MAIN_TENTHS;
        let queue = if main_is_long { Queue::Main } else { Queue::Small };
        self.queues.oldest(Self::list(device, queue)).map(|cell| (queue, cell))
    }

    /// Returns the copies of M on a device, the newest first.
    pub fn main(&self, device: DeviceId) -> impl Iterator<Item = CellId> {
        self.queues.newest_first(Self::list(device, Queue::Main))
    }

    /// Restores a block of M from before a restart, as the newest.
    pub fn restore(&mut self, copy: ExtraCopy) {
        if (copy.cell.0 as usize) < self.marks.len() {
            self.leave(copy.device, copy.cell);
            self.marks[copy.cell.0 as usize].queue = Queue::Main;
            if !copy.dirty {
                self.join(copy.device, copy.cell);
            }
        }
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        self.queues.memory() + self.marks.capacity() * size_of::<Mark>() + self.ghosts.memory()
    }

    fn ghost_len(&self) -> usize {
        self.known * MAIN_TENTHS / 10
    }

    fn list(device: DeviceId, queue: Queue) -> usize {
        device.index() * 2 + queue as usize
    }

    fn join(&mut self, device: DeviceId, cell: CellId) {
        let queue = self.marks[cell.0 as usize].queue;
        self.queues.touch(Self::list(device, queue), cell);
        self.lens[device.index()][queue as usize] += 1;
    }

    fn leave(&mut self, device: DeviceId, cell: CellId) {
        if self.queues.contains(cell) {
            let queue = self.marks[cell.0 as usize].queue;
            self.queues.remove(Self::list(device, queue), cell);
            self.lens[device.index()][queue as usize] -= 1;
        }
    }
}
