//! A solid-state drive: channels, flash pages, a write buffer and a host interface.
//!
//! A *channel* works on one flash page at a time: the channel reads a page and moves it to the controller, or
//! moves a page to the flash and programs it, or erases a block. The number of channels is the drive's
//! parallelism. A flash page is a page of flash memory, not a page of a policy's ranking.
//!
//! Rules:
//! - The address of a flash page determines its channel (striping), and reads queue on the channel in order.
//! - A write completes when it is in the write buffer, and the controller has found its place in the map.
//!   Programs drain the buffer over all free channels: the drive writes at new places. Some controllers empty
//!   the buffer at a rate of their own, below the flash's rate (`drain`). A full buffer delays further
//!   writes.
//! - A channel prefers reads to programs; while the buffer is filling or a flush waits, reads and programs
//!   take turns. A started program or erasure makes way for a read only on drives that can suspend it.
//! - `translation` decides the additional programs of a write: the copies of garbage collection and merges
//!   take the channels' time like any other program, and each copy also needs a read.
//! - A flush waits until the buffer is drained, unless the buffer survives a power cut. Later writes wait for
//!   the flush.
//! - The interface carries bytes in the order of the requests, but no request waits for the flash of another.
//!
//! A request costs its caller one step, at its completion; only a full buffer and a waiting flush cost more.
//!
//! Left out: reads from the write buffer, slower reads after random writes have broken up the map, faster
//! program modes for the first part of a burst (SLC caches), and collection while the drive is idle.

mod drain;
mod flash;
mod page_map;
mod params;
mod programs;
mod rota;
mod spread;
mod translation;
mod write_buffer;

pub use page_map::State;
pub use params::{Blocks, FlushCost, Mapping, Pages, Params};

use crate::agenda::Agenda;
use crate::link::Link;
use crate::{Counters, Model, Op, Request, assert_within};
use braid_base::{Bytes, Nanos, Rng};
use drain::Drain;
use flash::Flash;
use std::collections::VecDeque;
use translation::{Cost, Translation};

/// An SSD at work.
#[derive(Clone, Debug)]
pub struct Ssd {
    params: Params,
    size: Bytes,
    flash: Flash,
    translation: Translation,
    read_link: Link,
    write_link: Link,
    drain: Drain,
    /// The time when the controller has updated the map for all writes so far.
    map_free: Nanos,
    /// Requests beyond the queue depth, in order.
    outside: VecDeque<(u64, Request)>,
    /// Incomplete requests on the drive.
    held: usize,
    /// Writes and flushes that wait for the buffer, in order.
    intake: VecDeque<(u64, Request)>,
    /// The time of the buffer's next change, while a request waits for the buffer; otherwise `Nanos::MAX`.
    wake: Nanos,
    /// Ends of the last sequential reads, the latest first.
    read_ends: [Bytes; 8],
    /// Tags of scheduled completions.
    due: Agenda<u64>,
    /// Requests that completed during a submission: for the next `advance`.
    completed: Vec<u64>,
    counters: Counters,
}

impl Ssd {
    /// A drive of `size` at rest, in the initial state of its parameters. The seed gives the spread of its
    /// read and program times, and the random part of the state.
    ///
    /// # Panics
    /// If `params` contradict their documentation.
    pub fn new(params: &Params, size: Bytes, seed: u64) -> Ssd {
        assert!(params.channels > 0, "an SSD has a channel");
        assert!(size > Bytes::ZERO, "an SSD of no bytes");
        let mut rng = Rng::new(seed);
        Ssd {
            params: *params,
            size,
            flash: Flash::new(params, &mut rng),
            translation: Translation::new(params, size, rng.fork()),
            read_link: Link::new(params.read_rate, params.command),
            write_link: Link::new(params.write_rate, params.command),
            drain: Drain::new(params.intake, params.buffer),
            map_free: Nanos::ZERO,
            outside: VecDeque::new(),
            held: 0,
            intake: VecDeque::new(),
            wake: Nanos::MAX,
            read_ends: [Bytes::ZERO; 8],
            due: Agenda::with_capacity(params.queue_depth.min(64)),
            completed: Vec::new(),
            counters: Counters::default(),
        }
    }
}

impl Model for Ssd {
    fn submit(&mut self, tag: u64, request: Request, now: Nanos) {
        assert_within(request, self.size);
        if self.next() <= now {
            self.catch_up(now);
        }
        if self.held == self.params.queue_depth {
            self.outside.push_back((tag, request));
            return;
        }
        self.admit(tag, request, now);
    }

    #[inline]
    fn next_event(&self) -> Option<Nanos> {
        Some(self.next()).filter(|at| *at < Nanos::MAX)
    }

    fn next_tag(&self) -> Option<u64> {
        self.due.first().copied()
    }

    #[inline]
    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        if !self.completed.is_empty() {
            completed.append(&mut self.completed);
        }
        self.run(now, completed);
    }

    fn note(&mut self, request: Request) {
        assert_within(request, self.size);
        match request.op {
            Op::Write if request.len > Bytes::ZERO => {
                self.translation.write(request.offset, request.len);
            }
            Op::Discard => self.translation.discard(request.offset, request.len),
            Op::Read | Op::Write | Op::Flush => {}
        }
    }

    fn counters(&self) -> Counters {
        let erased = self.counters.flash_written / self.params.erase_block;
        Counters { erases: erased, ..self.counters }
    }
}

impl Ssd {
    /// Processes earlier events before a new request.
    #[cold]
    fn catch_up(&mut self, now: Nanos) {
        let mut completed = std::mem::take(&mut self.completed);
        self.run(now, &mut completed);
        self.completed = completed;
    }

    /// The time of the next event; `Nanos::MAX` if there is no event.
    fn next(&self) -> Nanos {
        self.due.next().min(self.wake)
    }

    /// Processes every event up to `now`, in order of time, and appends the tags of completed requests.
    #[inline]
    fn run(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        while self.next() <= now {
            if self.wake < self.due.next() {
                self.take_in_waiting(self.wake);
                continue;
            }
            let Some((at, tag)) = self.due.take() else { return };
            completed.push(tag);
            self.held -= 1;
            if !self.outside.is_empty() {
                self.admit_next(at);
            }
        }
    }

    #[inline(never)]
    fn admit_next(&mut self, now: Nanos) {
        if let Some((tag, request)) = self.outside.pop_front() {
            self.admit(tag, request, now);
        }
    }

    /// Takes a request onto the drive.
    #[inline(always)]
    fn admit(&mut self, tag: u64, request: Request, now: Nanos) {
        self.held += 1;
        let through = match request.op {
            Op::Read if request.len > Bytes::ZERO => self.read(request, now),
            Op::Write if request.len > Bytes::ZERO => return self.take_in_turn(tag, request, now),
            Op::Flush => return self.take_in_turn(tag, request, now),
            Op::Read | Op::Write | Op::Discard => {
                if request.op == Op::Discard {
                    self.translation.discard(request.offset, request.len);
                }
                self.write_link.carry(Bytes::ZERO, now)
            }
        };
        self.complete(tag, through);
    }

    #[inline]
    fn read(&mut self, request: Request, now: Nanos) -> Nanos {
        self.counters.read += request.len;
        let ahead = self.was_read_ahead(request);
        // The request occupies the link in its turn, and its bytes follow one another as they become
        // available.
        let alone = self.read_link.time(request.len);
        let link = if self.params.half_duplex { &mut self.write_link } else { &mut self.read_link };
        let through = link.keep(alone, now);
        if ahead {
            return through;
        }
        let page = self.params.flash_page;
        let first = request.offset / page;
        let pages = (request.offset + request.len).align_up(page) / page - first;
        self.flash.settle(now);
        let pressed = self.is_pressed();
        let (soonest, latest) = self.flash.read(first, pages, request.len, now, pressed);
        through.max(latest).max(soonest + alone)
    }

    /// True if the drive reads ahead and this read continues at the end of a recent read.
    fn was_read_ahead(&mut self, request: Request) -> bool {
        if !self.params.read_ahead {
            return false;
        }
        let found = self.read_ends.iter().position(|end| *end == request.offset);
        self.read_ends[..=found.unwrap_or(7)].rotate_right(1);
        self.read_ends[0] = request.offset + request.len;
        found.is_some()
    }

    /// True if writes need room so urgently that reads share their channels with programs.
    fn is_pressed(&self) -> bool {
        !self.intake.is_empty() || self.flash.buffer().taken() * 2 > self.params.buffer
    }

    /// Takes in a write or a flush, behind waiting writes and flushes.
    fn take_in_turn(&mut self, tag: u64, request: Request, now: Nanos) {
        if self.intake.is_empty()
            && let Some(through) = self.take_in(request, now)
        {
            return self.complete(tag, through);
        }
        self.intake.push_back((tag, request));
    }

    /// Takes in waiting writes and flushes, as far as possible.
    #[inline(never)]
    fn take_in_waiting(&mut self, now: Nanos) {
        self.wake = Nanos::MAX;
        while let Some(&(tag, request)) = self.intake.front()
            && let Some(through) = self.take_in(request, now)
        {
            self.intake.pop_front();
            self.complete(tag, through);
        }
    }

    /// Takes a write into the buffer if there is room. Completes a flush if the buffer is empty or survives a
    /// power cut. Returns the time of completion. Otherwise returns `None`, and the caller retries at `wake`.
    fn take_in(&mut self, request: Request, now: Nanos) -> Option<Nanos> {
        self.flash.settle(now);
        let (cost, comes) = match (request.op, self.params.flush) {
            (Op::Flush, FlushCost::Protected(cost)) => (cost, now),
            (Op::Flush, FlushCost::Drains(cost)) => (cost, self.is_drained_from(now)),
            _ => (Nanos::ZERO, self.room_comes(request.len, now)),
        };
        if comes > now {
            self.wake = comes;
            return None;
        }
        let through = self.write_link.carry(request.len, now) + cost;
        let taken = if request.op == Op::Write { self.write(request, now) } else { now };
        Some(through.max(taken))
    }

    /// The earliest time at which the buffer may have room for `len` bytes, or is empty (an empty buffer has
    /// room for any write); `now` if there is room already.
    fn room_comes(&self, len: Bytes, now: Nanos) -> Nanos {
        let buffer = self.flash.buffer();
        let room = self.params.buffer.saturating_sub(buffer.taken());
        let by_flash = if len <= room || buffer.is_drained() { now } else { self.flash_makes(len - room) };
        by_flash.max(self.drain.room_comes(len))
    }

    /// The earliest time at which the buffer may be empty; `now` if the buffer is empty.
    fn is_drained_from(&self, now: Nanos) -> Nanos {
        let buffer = self.flash.buffer();
        let by_flash = if buffer.is_drained() { now } else { self.flash_makes(buffer.taken()) };
        by_flash.max(self.drain.is_over())
    }

    /// The time when programs will have made this much room, or all room of the programs in flight.
    fn flash_makes(&self, room: Bytes) -> Nanos {
        self.flash.room_comes(room).expect("a buffer that holds something is being drained")
    }

    /// Puts a write into the buffer. Returns the time when the controller has found its place.
    fn write(&mut self, request: Request, now: Nanos) -> Nanos {
        let cost @ Cost { own, copied, merged, update } = self.translation.write(request.offset, request.len);
        self.flash.insert(request.len, cost, now);
        self.drain.insert(request.len, now);
        self.counters.written += request.len;
        self.counters.copied += copied + merged;
        self.counters.flash_written += own + copied + merged;
        if update > Nanos::ZERO {
            self.map_free = self.map_free.max(now) + update;
        }
        self.map_free
    }

    fn complete(&mut self, tag: u64, through: Nanos) {
        self.due.add(through + self.params.latency, tag);
    }
}
