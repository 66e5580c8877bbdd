//! `ext3-file-like`: small random reads of one large file on ext2 or ext3. The indirect blocks of the file
//! are read before the data.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | what is read | 4 KB each time, at random, until 16 or 32 MB are read | talk: Hystor, as presented, metadata |
//! | size of the file | 24 GiB here: its 6,151 indirect blocks are 24 MiB | assumed; 32 MB of SSD hold "nearly all" of them |
//! | how a file is mapped | 12 blocks by the inode, all others by indirect blocks of 1,024 pointers, in up to three levels | memory: ext2 |
//! | where an indirect block lies | directly before the first block that it points to | memory: ext2 allocates both when that block is written |
//! | runs | 4, each at places of its own; the last one is measured | assumed: within one run no indirect block is read twice |
//! | page cache | cold before each run, and larger than what is read | assumed |
//!
//! A read needs all indirect blocks on the path to its data, the highest level first. Each block that the
//! page cache does not hold is a request. Indirect blocks are metadata: [`Workload::metadata`] has their
//! places. The page cache keeps recently used indirect blocks, by second chance. Caching of data is left out,
//! because a random read of a large file hardly ever hits. Several clients take turns in one sequence of
//! reads. The content of the page cache depends on the sequence alone: a client does not wait while another
//! client still reads an indirect block. The inode is in memory. No other metadata of the file system lies
//! among the file's blocks.

use crate::{About, Client, Load, Setting, Step, Workload};
use braid_base::{BadSetting, Bytes, GIB, KIB, MIB, Nanos, Op, Request, Rng, Settings, TIB};
use std::ops::Range;

pub(crate) const ABOUT: About = About {
    name: "ext3-file-like",
    summary: "reads at random places of one large file, behind its indirect blocks",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "file", default: "24GiB", meaning: "size of the file, at most 2 TiB" },
    Setting {
        key: "read",
        default: "32MiB",
        meaning: "bytes that a run reads from the file, 4 KiB each time",
    },
    Setting { key: "clients", default: "1", meaning: "processes that share a run's reads" },
    Setting {
        key: "cache",
        default: "256MiB",
        meaning: "page cache for indirect blocks, empty before a run",
    },
    Setting { key: "runs", default: "4", meaning: "runs, each at other places; the last one is measured" },
    Setting { key: "pause", default: "10s", meaning: "time between two runs" },
];

/// Block of the file system, and size of a read.
const BLOCK: Bytes = Bytes(4 << 10);
/// Blocks that the inode points to directly.
const DIRECT: u64 = 12;
/// Pointers in an indirect block.
const POINTERS: u64 = 1024;
/// Levels of indirect blocks. A path to data has one block more.
const LEVELS: usize = 3;

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let file = settings.take_bytes("file", GIB * 24, BLOCK..=TIB * 2)?;
    let read = settings.take_bytes("read", MIB * 32, BLOCK..=GIB)?;
    let clients = settings.take_count("clients", 1, 1..=64)?;
    let cache = settings.take_bytes("cache", MIB * 256, KIB * 64..=TIB)?;
    let runs = settings.take_count("runs", 4, 1..=16)?;
    let pause = settings.take_time("pause", Nanos::from_secs(10), Nanos::ZERO..=Nanos::from_secs(86_400))?;
    let shape = Shape { blocks: file.align_up(BLOCK) / BLOCK };
    let reads = read.align_up(BLOCK) / BLOCK;
    let sequence = move || Sequence {
        shape,
        rng: Rng::new(seed),
        cache: PageCache::new(shape.indirect(), cache / BLOCK),
        reads,
        left: reads,
    };
    let mut whole = sequence();
    let lengths: Vec<u64> = (0..runs).map(|_| whole.requests_of_run()).collect();
    let all = lengths.iter().sum();
    let load = move || {
        let client = |number| Reader {
            sequence: sequence(),
            turns: Turns { number, clients, next: 0 },
            later_runs: runs - 1,
            pause,
            waiting: Waiting::default(),
            next: Next::Read,
        };
        Load::Closed((0..clients).map(|number| Box::new(client(number)) as Client).collect())
    };
    let workload = Workload::new(ABOUT.name, BLOCK * shape.end(), Some(all), load);
    Ok(workload.with_metadata(shape.metadata()).with_unmeasured(all - lengths[lengths.len() - 1]))
}

/// A client: its share of the reads, run after run.
struct Reader {
    sequence: Sequence,
    turns: Turns,
    /// Runs after the present run.
    later_runs: u64,
    pause: Nanos,
    waiting: Waiting,
    next: Next,
}

/// State of a client without pending blocks.
#[derive(Clone, Copy)]
enum Next {
    Read,
    EndRead,
    Pause,
}

impl Iterator for Reader {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(block) = self.waiting.take() {
                let request = Request { op: Op::Read, offset: BLOCK * block, len: BLOCK };
                return Some(Step::Request { think: Nanos::ZERO, request });
            }
            match self.next {
                Next::EndRead => {
                    self.next = Next::Read;
                    return Some(Step::Operation { think: Nanos::ZERO, bytes: BLOCK });
                }
                Next::Pause => {
                    self.next = Next::Read;
                    return Some(Step::Pause(self.pause));
                }
                Next::Read => match self.sequence.next() {
                    Some(blocks) if self.turns.is_own() => {
                        (self.waiting, self.next) = (blocks, Next::EndRead)
                    }
                    Some(_) => {}
                    None if self.later_runs == 0 => return None,
                    None => {
                        self.later_runs -= 1;
                        self.sequence.begin_run();
                        self.next = Next::Pause;
                        return Some(Step::Meet);
                    }
                },
            }
        }
    }
}

/// Round-robin order of the clients.
struct Turns {
    number: u64,
    clients: u64,
    next: u64,
}

impl Turns {
    /// Returns true if the next read of the sequence belongs to this client. Advances the turn.
    fn is_own(&mut self) -> bool {
        let turn = self.next;
        self.next = (turn + 1) % self.clients;
        turn == self.number
    }
}

/// The reads of a run. Clients take turns.
struct Sequence {
    shape: Shape,
    rng: Rng,
    cache: PageCache,
    /// Reads of each run.
    reads: u64,
    left: u64,
}

impl Sequence {
    /// Begins a run, with a cold page cache.
    fn begin_run(&mut self) {
        self.cache.clear();
        self.left = self.reads;
    }

    /// Simulates a run and returns its number of requests.
    fn requests_of_run(&mut self) -> u64 {
        self.begin_run();
        self.by_ref().map(|blocks| blocks.len as u64).sum()
    }
}

/// Yields the blocks that each read waits for, until the end of the run.
impl Iterator for Sequence {
    type Item = Waiting;

    fn next(&mut self) -> Option<Waiting> {
        self.left = self.left.checked_sub(1)?;
        let block = self.rng.below(self.shape.blocks);
        let mut waiting = Waiting::default();
        waiting.push(self.shape.place(block));
        // The lowest level first, because the block pushed last is read first.
        for indirect in self.shape.way_to(block).into_iter().flatten() {
            if !self.cache.use_or_take(self.shape.number(indirect)) {
                waiting.push(self.shape.place_of(indirect));
            }
        }
        Some(waiting)
    }
}

/// Blocks of the volume that a read waits for, the next block last.
#[derive(Clone, Copy, Default)]
struct Waiting {
    blocks: [u64; LEVELS + 1],
    len: usize,
}

impl Waiting {
    fn push(&mut self, block: u64) {
        self.blocks[self.len] = block;
        self.len += 1;
    }

    fn take(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        Some(self.blocks[self.len])
    }
}

/// Layout of a file with `blocks` blocks. The indirect blocks of the first level are numbered in the order of
/// the data, and the blocks of the second level in the order of the first level. The first block of the
/// second level begins with the second block of the first level. The only block of the third level begins
/// with the second block of the second level.
#[derive(Clone, Copy)]
struct Shape {
    blocks: u64,
}

/// An indirect block: its level, and its number within the level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Indirect {
    First(u64),
    Second(u64),
    Third,
}

impl Shape {
    /// Returns the indirect blocks on the path to a block of the file, the lowest level first.
    fn way_to(self, block: u64) -> [Option<Indirect>; LEVELS] {
        let first = block.checked_sub(DIRECT).map(|rest| rest / POINTERS);
        let second = first.and_then(|first| first.checked_sub(1)).map(|rest| rest / POINTERS);
        let has_third = second.is_some_and(|second| second > 0);
        [first.map(Indirect::First), second.map(Indirect::Second), has_third.then_some(Indirect::Third)]
    }

    /// Returns the place of a block of the file: behind all blocks allocated before.
    fn place(self, block: u64) -> u64 {
        let before = self.way_to(block).into_iter().flatten().map(|indirect| match indirect {
            Indirect::First(number) | Indirect::Second(number) => number + 1,
            Indirect::Third => 1,
        });
        block + before.sum::<u64>()
    }

    /// Returns the place of an indirect block: before the first block that it points to.
    fn place_of(self, indirect: Indirect) -> u64 {
        match indirect {
            Indirect::First(number) => self.place(DIRECT + POINTERS * number) - 1,
            Indirect::Second(number) => self.place_of(Indirect::First(1 + POINTERS * number)) - 1,
            Indirect::Third => self.place_of(Indirect::Second(1)) - 1,
        }
    }

    /// Returns the number of an indirect block among all indirect blocks.
    fn number(self, indirect: Indirect) -> usize {
        let [first, second, _] = self.levels();
        match indirect {
            Indirect::First(number) => number as usize,
            Indirect::Second(number) => (first + number) as usize,
            Indirect::Third => (first + second) as usize,
        }
    }

    /// Returns the number of indirect blocks of each level.
    fn levels(self) -> [u64; LEVELS] {
        self.way_to(self.blocks - 1).map(|last| match last {
            None => 0,
            Some(Indirect::First(number) | Indirect::Second(number)) => number + 1,
            Some(Indirect::Third) => 1,
        })
    }

    /// Returns the number of all indirect blocks.
    fn indirect(self) -> u64 {
        self.levels().iter().sum()
    }

    /// Returns the end of the file on the volume, in blocks.
    fn end(self) -> u64 {
        self.place(self.blocks - 1) + 1
    }

    /// Returns the ranges of all indirect blocks, adjacent blocks merged.
    fn metadata(self) -> Vec<Range<Bytes>> {
        let [first, second, third] = self.levels();
        let all = (0..first).map(Indirect::First).chain((0..second).map(Indirect::Second));
        let all = all.chain((third > 0).then_some(Indirect::Third));
        let mut places: Vec<u64> = all.map(|indirect| self.place_of(indirect)).collect();
        places.sort_unstable();
        let runs = places.chunk_by(|one, next| one + 1 == *next);
        runs.map(|run| BLOCK * run[0]..BLOCK * (run[run.len() - 1] + 1)).collect()
    }
}

/// The indirect blocks in memory, evicted by second chance (clock).
struct PageCache {
    /// State of each indirect block, by number.
    states: Vec<State>,
    /// Blocks in memory.
    held: Vec<u32>,
    /// Limit of blocks in memory.
    most: usize,
    /// Index in `held` of the next candidate for eviction.
    hand: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Held,
    Used,
}

impl PageCache {
    /// Creates an empty cache for at most `most` of `blocks` blocks.
    fn new(blocks: u64, most: u64) -> PageCache {
        let most = most.min(blocks) as usize;
        PageCache {
            states: vec![State::Absent; blocks as usize],
            held: Vec::with_capacity(most),
            most,
            hand: 0,
        }
    }

    fn clear(&mut self) {
        self.states.fill(State::Absent);
        self.held.clear();
        self.hand = 0;
    }

    /// Returns true if the cache holds a block. If not, inserts the block, and evicts another block from a
    /// full cache.
    fn use_or_take(&mut self, block: usize) -> bool {
        if self.states[block] != State::Absent {
            self.states[block] = State::Used;
            return true;
        }
        self.states[block] = State::Held;
        if self.held.len() < self.most {
            self.held.push(block as u32);
            return false;
        }
        while self.states[self.held[self.hand] as usize] == State::Used {
            self.states[self.held[self.hand] as usize] = State::Held;
            self.pass();
        }
        let given_up = std::mem::replace(&mut self.held[self.hand], block as u32);
        self.states[given_up as usize] = State::Absent;
        self.pass();
        false
    }
    /// Advances the hand.
    fn pass(&mut self) {
        self.hand = (self.hand + 1) % self.most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every block in the order of allocation by a sequential write, with its place.
    fn allocated(shape: Shape) -> Vec<Result<u64, Indirect>> {
        let mut all: Vec<Result<u64, Indirect>> = Vec::new();
        for block in 0..shape.blocks {
            for indirect in shape.way_to(block).into_iter().rev().flatten() {
                let is_new =
                    block == DIRECT || block > DIRECT && !shape.way_to(block - 1).contains(&Some(indirect));
                all.extend(is_new.then_some(Err(indirect)));
            }
            all.push(Ok(block));
        }
        all
    }

    #[test]
    fn file_and_indirect_blocks_lie_in_write_order() {
        // Both ends of the inode's blocks, and of the first, second and third level.
        let ends = [0, DIRECT, DIRECT + POINTERS, DIRECT + POINTERS + POINTERS * POINTERS];
        for blocks in ends.into_iter().flat_map(|end| [end, end + 1]).filter(|&blocks| blocks > 0) {
            let shape = Shape { blocks };
            let all = allocated(shape);
            for (place, what) in (0..).zip(&all) {
                let (at, what) = match *what {
                    Ok(block) => (shape.place(block), format!("block {block}")),
                    Err(indirect) => (shape.place_of(indirect), format!("{indirect:?}")),
                };
                assert_eq!(at, place, "{what} of a file of {blocks} blocks");
            }
            assert_eq!((all.len() as u64, shape.indirect()), (shape.end(), shape.end() - blocks));
            let metadata: Bytes = shape.metadata().iter().map(|range| range.end - range.start).sum();
            assert_eq!(metadata, BLOCK * shape.indirect());
        }
    }

    #[test]
    fn indirect_blocks_have_distinct_numbers() {
        let shape = Shape { blocks: DIRECT + POINTERS * (1 + POINTERS * 3) };
        let [first, second, third] = shape.levels();
        assert_eq!((first, second, third), (1 + POINTERS * 3, 3, 1));
        let all =
            (0..first).map(Indirect::First).chain((0..second).map(Indirect::Second)).chain([Indirect::Third]);
        assert!(all.enumerate().all(|(number, indirect)| shape.number(indirect) == number));
    }

    #[test]
    fn reused_block_outlasts_blocks_used_once() {
        let mut cache = PageCache::new(100, 3);
        assert!([0, 1, 2].iter().all(|&block| !cache.use_or_take(block)));
        assert!(cache.use_or_take(0));
        assert!(!cache.use_or_take(3), "in the place of 1");
        assert!(cache.use_or_take(0) && cache.use_or_take(2) && cache.use_or_take(3));
        assert!(!cache.use_or_take(1));
        cache.clear();
        assert!((0..4).all(|block| !cache.use_or_take(block)));
    }
}
