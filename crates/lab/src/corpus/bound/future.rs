//! Future requests of a load, and Belady's MIN with this knowledge.
//!
//! The order of requests comes from a run in which each request takes half of its time on an idle SSD, so
//! that the run has at least as many requests. In a run on devices, clients of a closed loop advance in
//! another order. The next use of a block is therefore the first use in the recorded order that no
//! client has made yet.

use super::devices::Ends;
use super::load::{self, Place, Server};
use crate::{Error, Result, Setup};
use braid_base::{Bytes, Nanos, Op, Request};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Reads for which a copy of a block is worth its room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Worth {
    Every,
    /// Reads that do not continue at the end of another request: a disk is good at sequential reads.
    Scattered,
}

/// Most uses of blocks, of all requests together.
const MOST_USES: usize = 1 << 26;
/// All reads of a load, by block.
pub(super) struct Uses {
    /// Number of each request in the overall order, by stream.
    orders: Vec<Vec<u32>>,
    /// Start of each block's uses.
    starts: Vec<u32>,
    /// Numbers of requests, rising for each block.
    uses: Vec<u32>,
    requests: usize,
}

impl Uses {
    /// Uses of `blocks` blocks by a setup's load, in the order that results if `takes` gives the time of a
    /// request by its length.
    ///
    /// # Errors
    /// Errors of the load; a load with too many uses.
    pub fn of(setup: &Setup, blocks: usize, takes: &dyn Fn(Bytes) -> Nanos, worth: Worth) -> Result<Uses> {
        let mut noted = Noted {
            takes,
            worth,
            ends: Ends::default(),
            block: setup.block_size,
            orders: Vec::new(),
            reads: Vec::new(),
            count: 0,
            end: 0,
            outstanding: BinaryHeap::new(),
        };
        load::drive(setup, &mut noted, &mut |_| ())?;
        if noted.end > blocks {
            return Err(Error::setup(
                "the load has requests beyond the end of the volume: use a larger volume",
            ));
        }
        let mut starts = vec![0u32; blocks + 1];
        let mut total = 0;
        for read in &noted.reads {
            total += (read.end - read.first) as usize;
            starts[read.first as usize + 1..=read.end as usize].iter_mut().for_each(|count| *count += 1);
            if total > MOST_USES {
                return Err(Error::setup(format!(
                    "the load reads more than {MOST_USES} blocks, the limit of the bound's memory: use a \
                     shorter load"
                )));
            }
        }
        for block in 0..blocks {
            starts[block + 1] += starts[block];
        }
        let (mut uses, mut next) = (vec![0; total], starts.clone());
        for read in &noted.reads {
            for place in &mut next[read.first as usize..read.end as usize] {
                uses[*place as usize] = read.number;
                *place += 1;
            }
        }
        Ok(Uses { orders: noted.orders, starts, uses, requests: noted.count as usize })
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.starts.len() - 1
    }
}

struct Read {
    number: u32,
    first: u32,
    end: u32,
}

/// Server that records requests, without queues.
struct Noted<'a> {
    takes: &'a dyn Fn(Bytes) -> Nanos,
    worth: Worth,
    ends: Ends,
    block: Bytes,
    orders: Vec<Vec<u32>>,
    reads: Vec<Read>,
    count: u32,
    /// End of the farthest request, in blocks.
    end: usize,
    outstanding: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl Server for Noted<'_> {
    fn begin(&mut self, ticket: usize, place: Place, request: &Request, now: Nanos) {
        if self.orders.len() <= place.stream {
            self.orders.resize_with(place.stream + 1, Vec::new);
        }
        self.orders[place.stream].push(self.count);
        if request.op != Op::Flush {
            self.end = self.end.max(blocks(request, self.block).end);
        }
        let goes_on = matches!(request.op, Op::Read | Op::Write) && self.ends.goes_on(request);
        let is_worth = self.worth == Worth::Every || !goes_on;
        if request.op == Op::Read && request.len > Bytes::ZERO && is_worth {
            let blocks = blocks(request, self.block);
            self.reads.push(Read { number: self.count, first: blocks.start as u32, end: blocks.end as u32 });
        }
        self.count += 1;
        self.outstanding.push(Reverse((now + (self.takes)(request.len), ticket)));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.outstanding.peek().map(|Reverse((at, _))| *at)
    }

    fn advance(&mut self, now: Nanos, ended: &mut Vec<usize>) {
        while let Some(&Reverse((at, ticket))) = self.outstanding.peek()
            && at <= now
        {
            self.outstanding.pop();
            ended.push(ticket);
        }
    }
}

/// Blocks touched by a request.
pub(super) fn blocks(request: &Request, block: Bytes) -> std::ops::Range<usize> {
    (request.offset / block) as usize..(request.offset + request.len).0.div_ceil(block.0) as usize
}

/// Uses still to come.
pub(super) struct Future<'a> {
    uses: &'a Uses,
    /// First use of each block that may be still to come.
    cursors: Vec<u32>,
    /// Bits of requests already made.
    made: Vec<u64>,
}

impl<'a> Future<'a> {
    pub fn new(uses: &'a Uses) -> Future<'a> {
        let cursors = uses.starts[..uses.blocks()].to_vec();
        Future { uses, cursors, made: vec![0; uses.requests.div_ceil(64)] }
    }

    /// Marks a request as made.
    pub fn make(&mut self, place: Place) {
        let order = self.uses.orders.get(place.stream).and_then(|orders| orders.get(place.number));
        if let Some(&number) = order {
            self.made[number as usize / 64] |= 1 << (number % 64);
        }
    }

    /// Next use of a block, as the number of a request.
    pub fn next(&mut self, block: usize) -> Option<u32> {
        let end = self.uses.starts[block + 1];
        let cursor = &mut self.cursors[block];
        while *cursor < end {
            let number = self.uses.uses[*cursor as usize];
            if self.made[number as usize / 64] & 1 << (number % 64) == 0 {
                return Some(number);
            }
            *cursor += 1;
        }
        None
    }
}

/// Blocks held by Belady's MIN: of the offered blocks, those with the nearest next use.
pub(super) struct Content {
    room: usize,
    pub held: usize,
    /// Next use of each held block.
    pub next: Vec<u32>,
    /// Blocks by their next use, including stale entries: evicted blocks, and blocks with another next use.
    farthest: BinaryHeap<(u32, u32)>,
}

pub(super) const NOT_HELD: u32 = u32::MAX;
/// Next use of blocks without a known use: held as long as there is room.
const NEVER: u32 = u32::MAX - 1;

impl Content {
    pub fn new(room: usize, blocks: usize) -> Content {
        Content { room, held: 0, next: vec![NOT_HELD; blocks], farthest: BinaryHeap::new() }
    }

    pub fn holds(&self, block: usize) -> bool {
        self.next[block] != NOT_HELD
    }

    /// Offers a block with its next use: held if used before another held block, which is evicted.
    pub fn offer(&mut self, block: usize, next: Option<u32>) {
        let next = next.unwrap_or(NEVER);
        if self.next[block] == next || self.room == 0 {
            return;
        }
        if !self.holds(block) {
            if self.held == self.room {
                match self.farthest() {
                    Some((farthest, other)) if farthest > next => self.drop(other),
                    _ => return,
                }
            }
            self.held += 1;
        }
        self.next[block] = next;
        self.farthest.push((next, block as u32));
        if self.farthest.len() > 2 * self.room + 1024 {
            let valid = &self.next;
            self.farthest.retain(|(next, block)| valid[*block as usize] == *next);
        }
    }

    /// Holds the blocks with the nearest next uses, of all blocks.
    pub fn choose(&mut self, future: &mut Future) {
        self.farthest.clear();
        self.next.fill(NOT_HELD);
        let next = |block| (future.next(block).unwrap_or(NEVER), block as u32);
        let mut all: Vec<(u32, u32)> = (0..self.next.len()).map(next).collect();
        if self.room < all.len() {
            all.select_nth_unstable(self.room);
            all.truncate(self.room);
        }
        all.iter().for_each(|&(next, block)| self.next[block as usize] = next);
        self.held = all.len();
        self.farthest = all.into();
    }

    fn drop(&mut self, block: usize) {
        if self.holds(block) {
            self.next[block] = NOT_HELD;
            self.held -= 1;
        }
    }

    fn farthest(&mut self) -> Option<(u32, usize)> {
        while let Some(&(next, block)) = self.farthest.peek() {
            if self.next[block as usize] == next {
                return Some((next, block as usize));
            }
            self.farthest.pop();
        }
        None
    }
}
