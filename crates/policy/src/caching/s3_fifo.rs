//! S3-FIFO: three queues, in which a block that is asked for once is soon gone.
//!
//! Yang, Zhang, Qiu, Yue, Vinayak, "FIFO queues are all you need for cache eviction" (SOSP 2023), section 4;
//! details as in the authors' code (libCacheSim). New blocks come to the small queue S (10 % of the cache).
//! The oldest of S moves to the main queue M if it has been asked for `threshold` times since it came;
//! otherwise it goes, and its name is remembered in the ghost queue G, which is as long as M. A new block
//! that G knows comes to M. From M the oldest goes if it was not asked for; otherwise it comes again, as the
//! newest, for one time less. No queue is sorted at a hit: that only counts, up to 3.
//!
//! Deviations. Dirty blocks cannot go, so they are in no queue until they are clean, and come back as the
//! newest of theirs: S and M are shares of what is clean. A search ends after 64 steps with whatever is
//! oldest then, so that each takes bounded time. G is a table of names ([`super::ghosts`]), which forgets a
//! few early.

use super::ghosts::Ghosts;
use crate::{CellId, CellLists, ExtraCopy};
use braid_base::{BlockId, DeviceId};

/// The queues of each device.
pub struct S3Fifo {
    threshold: u8,
    /// S and M of each device.
    queues: CellLists,
    /// By cell.
    marks: Vec<Mark>,
    /// By device: how many blocks are in S and in M.
    lens: Vec<[usize; 2]>,
    /// Blocks that have a copy, dirty or clean.
    known: usize,
    ghosts: Ghosts,
    /// What was named to go.
    victim: Option<CellId>,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// Hits since it came, or came again: at most `MOST_HITS`.
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
/// M is so many tenths of the cache, and so long is G.
const MAIN_TENTHS: usize = 9;
/// Steps of a search for a victim.
const MOST_STEPS: usize = 64;
/// What is reserved beyond need: one part in so many.
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

    /// A block has got a copy.
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

    /// A copy has become clean, or dirty.
    pub fn changed(&mut self, copy: ExtraCopy) {
        match copy.dirty {
            true => self.leave(copy.device, copy.cell),
            false => self.join(copy.device, copy.cell),
        }
    }

    /// A block has lost its copy.
    pub fn left(&mut self, block: BlockId, copy: ExtraCopy) {
        self.leave(copy.device, copy.cell);
        self.known -= 1;
        let was_evicted = self.victim == Some(copy.cell);
        if was_evicted && self.marks[copy.cell.0 as usize].queue == Queue::Small {
            self.ghosts.remember(block, self.ghost_len());
        }
        self.victim = self.victim.filter(|_| !was_evicted);
    }

    /// The copy that goes next on a device.
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

    /// The oldest of the queue that is too long.
    fn next(&self, device: DeviceId) -> Option<(Queue, CellId)> {
        let [small, main] = self.lens[device.index()];
        let main_is_long = small == 0 || main * 10 > (small + main) * MAIN_TENTHS;
        let queue = if main_is_long { Queue::Main } else { Queue::Small };
        self.queues.oldest(Self::list(device, queue)).map(|cell| (queue, cell))
    }

    /// The copies of M on a device, the newest first.
    pub fn main(&self, device: DeviceId) -> impl Iterator<Item = CellId> {
        self.queues.newest_first(Self::list(device, Queue::Main))
    }

    /// A block was in M before a restart: it is the newest there.
    pub fn restore(&mut self, copy: ExtraCopy) {
        if (copy.cell.0 as usize) < self.marks.len() {
            self.leave(copy.device, copy.cell);
            self.marks[copy.cell.0 as usize].queue = Queue::Main;
            if !copy.dirty {
                self.join(copy.device, copy.cell);
            }
        }
    }

    /// Bytes of memory that it takes.
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
