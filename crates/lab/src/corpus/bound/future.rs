//! What a load will ask for, and Belady's MIN with this knowledge.
//!
//! The order of requests comes from a run in which each takes half of what it takes an SSD that does nothing
//! else, so that it has at least as many. Clients of a closed loop get ahead of each other otherwise in a run
//! on devices: so the next use of a block is the first in that order that no client has made yet.

use super::devices::Ends;
use super::load::{self, Place, Server};
use crate::{Error, Result, Setup};
use braid_base::{Bytes, Nanos, Op, Request};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which reads make a copy of a block worth its room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Worth {
    Every,
    /// Those that do not go on where another request ended: a disk is good at the others.
    Scattered,
}

/// Uses of blocks of all requests together, at most.
const MOST_USES: usize = 1 << 26;
/// All reads of a load, by block.
pub(super) struct Uses {
    /// The number of each request in the order of all, by stream.
    orders: Vec<Vec<u32>>,
    /// Where the uses of a block begin.
    starts: Vec<u32>,
    /// Numbers of requests, rising for each block.
    uses: Vec<u32>,
    requests: usize,
}

impl Uses {
    /// What a setup's load asks of so many blocks, in the order in which it does if a request takes as long
    /// as its length says.
    ///
    /// # Errors
    /// That of the load; one with too many uses.
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
                "the load asks for bytes beyond the end of the volume: use a larger one",
            ));
        }
        let mut starts = vec![0u32; blocks + 1];
        let mut total = 0;
        for read in &noted.reads {
            total += (read.end - read.first) as usize;
            starts[read.first as usize + 1..=read.end as usize].iter_mut().for_each(|count| *count += 1);
            if total > MOST_USES {
                return Err(Error::setup(format!(
                    "the load reads more than {MOST_USES} blocks, all of which the bound keeps in memory: use a shorter load"
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

    /// The blocks that a load has use for.
    pub fn blocks(&self) -> usize {
        self.starts.len() - 1
    }
}

struct Read {
    number: u32,
    first: u32,
    end: u32,
}

/// Notes requests, which do not wait for each other.
struct Noted<'a> {
    takes: &'a dyn Fn(Bytes) -> Nanos,
    worth: Worth,
    ends: Ends,
    block: Bytes,
    orders: Vec<Vec<u32>>,
    reads: Vec<Read>,
    count: u32,
    /// Where the farthest request ends, in blocks.
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

/// The blocks that a request touches.
pub(super) fn blocks(request: &Request, block: Bytes) -> std::ops::Range<usize> {
    (request.offset / block) as usize..(request.offset + request.len).0.div_ceil(block.0) as usize
}

/// The uses that are still to come.
pub(super) struct Future<'a> {
    uses: &'a Uses,
    /// The first use of each block that may be to come.
    cursors: Vec<u32>,
    /// Requests that have been made, a bit each.
    made: Vec<u64>,
}

impl<'a> Future<'a> {
    pub fn new(uses: &'a Uses) -> Future<'a> {
        let cursors = uses.starts[..uses.blocks()].to_vec();
        Future { uses, cursors, made: vec![0; uses.requests.div_ceil(64)] }
    }

    /// A request is made now.
    pub fn make(&mut self, place: Place) {
        let order = self.uses.orders.get(place.stream).and_then(|orders| orders.get(place.number));
        if let Some(&number) = order {
            self.made[number as usize / 64] |= 1 << (number % 64);
        }
    }

    /// When a block is next used, as the number of a request.
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

/// Blocks that Belady's MIN holds: of those that it was offered, those that are used next.
pub(super) struct Content {
    room: usize,
    pub held: usize,
    /// The next use of each block that is held.
    pub next: Vec<u32>,
    /// Blocks by their next use, with some that are not held any more, or have another next use.
    farthest: BinaryHeap<(u32, u32)>,
}

pub(super) const NOT_HELD: u32 = u32::MAX;
/// What is not known to be used is held as long as there is room.
const NEVER: u32 = u32::MAX - 1;

impl Content {
    pub fn new(room: usize, blocks: usize) -> Content {
        Content { room, held: 0, next: vec![NOT_HELD; blocks], farthest: BinaryHeap::new() }
    }

    pub fn holds(&self, block: usize) -> bool {
        self.next[block] != NOT_HELD
    }

    /// A block is at hand, which is next used then: it is held if it is used before another one that is.
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

    /// Holds what is used next of all blocks.
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
