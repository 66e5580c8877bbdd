//! A solid-state drive: channels, flash pages, a write buffer and a host interface.
//!
//! A *channel* is a unit that works on one flash page at a time: it reads a page and moves it to the
//! controller, or moves a page to the flash and programs it, or erases a block. The drive is as parallel as
//! it has channels. A flash page is a page of flash memory, not the page that policies rank.
//!
//! Rules:
//! - A flash page lies on the channel that its address says (striping), and reads queue there in order.
//! - A write completes when it is in the write buffer, and the controller has found its place in the map.
//!   Programs drain the buffer over whichever channels are free: the drive writes at new places; some
//!   controllers empty it at a rate of their own, below that of the flash (`drain`). A full buffer holds
//!   further writes up.
//! - A channel prefers reads to programs; while the buffer is filling or a flush waits, they take turns. A
//!   program or an erasure that has begun makes way for a read only on drives that can suspend it.
//! - What a write makes the drive program beside its own bytes is `translation`'s word: the copies of garbage
//!   collection and merges take the channels' time like any other program, and a copy's read besides.
//! - A flush waits until the buffer is drained, unless the buffer survives a power cut. Writes behind it wait
//!   for it.
//! - The interface carries bytes in the order in which requests came, but no request waits for the flash of
//!   another.
//!
//! A request costs its caller one step, when it completes; only a full buffer and a flush that waits cost
//! more.
//!
//! Left out: reads served from the write buffer, reads that slow down as random writes break up the map,
//! faster program modes that last for the first part of a burst (SLC caches), and collection while the drive
//! is idle.

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
    /// When the controller has updated the map for all writes so far.
    map_free: Nanos,
    /// Requests beyond the queue depth, in order.
    outside: VecDeque<(u64, Request)>,
    /// Requests on the drive that have not completed.
    held: usize,
    /// Writes and flushes that wait for the buffer, in order.
    intake: VecDeque<(u64, Request)>,
    /// When the buffer next changes, while something waits for it; else the end of time.
    wake: Nanos,
    /// Ends of the last sequential reads, the latest first.
    read_ends: [Bytes; 8],
    /// Completions that are certain: tags.
    due: Agenda<u64>,
    /// Completed when a request was submitted: for the next `advance`.
    completed: Vec<u64>,
    counters: Counters,
}

impl Ssd {
    /// A drive of `size` at rest, in the state that its parameters say; the seed gives the spread of its read
    /// and program times, and what the state leaves to chance.
    ///
    /// # Panics
    /// Where `params` contradict their documentation.
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
    /// Brings about what should have been before a request comes.
    #[cold]
    fn catch_up(&mut self, now: Nanos) {
        let mut completed = std::mem::take(&mut self.completed);
        self.run(now, &mut completed);
        self.completed = completed;
    }

    /// The time of the next event; the end of time where there is none.
    fn next(&self) -> Nanos {
        self.due.next().min(self.wake)
    }

    /// Brings every event up to `now` about, in order of time, and appends the tags of what has completed.
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
        // The link is the request's in its turn, and its bytes follow one another when they are there.
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

    /// Whether this read goes on where one of the last few ended, on a drive that reads ahead.
    fn was_read_ahead(&mut self, request: Request) -> bool {
        if !self.params.read_ahead {
            return false;
        }
        let found = self.read_ends.iter().position(|end| *end == request.offset);
        self.read_ends[..=found.unwrap_or(7)].rotate_right(1);
        self.read_ends[0] = request.offset + request.len;
        found.is_some()
    }

    /// Whether writes are in such need of room that reads share their channels with programs.
    fn is_pressed(&self) -> bool {
        !self.intake.is_empty() || self.flash.buffer().taken() * 2 > self.params.buffer
    }

    /// Takes a write or a flush in, behind those that wait.
    fn take_in_turn(&mut self, tag: u64, request: Request, now: Nanos) {
        if self.intake.is_empty()
            && let Some(through) = self.take_in(request, now)
        {
            return self.complete(tag, through);
        }
        self.intake.push_back((tag, request));
    }

    /// Takes in what waits, as far as it goes.
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

    /// Takes a write into the buffer if it has room, and lets a flush through if nothing is buffered; returns
    /// when that is done. Otherwise it is to be tried again at `wake`.
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

    /// From when on the buffer may have room for so many bytes, or be empty, which is room for any; `now` if
    /// it is so.
    fn room_comes(&self, len: Bytes, now: Nanos) -> Nanos {
        let buffer = self.flash.buffer();
        let room = self.params.buffer.saturating_sub(buffer.taken());
        let by_flash = if len <= room || buffer.is_drained() { now } else { self.flash_makes(len - room) };
        by_flash.max(self.drain.room_comes(len))
    }

    /// From when on the buffer may be empty; `now` if it is.
    fn is_drained_from(&self, now: Nanos) -> Nanos {
        let buffer = self.flash.buffer();
        let by_flash = if buffer.is_drained() { now } else { self.flash_makes(buffer.taken()) };
        by_flash.max(self.drain.is_over())
    }

    /// When programs will have made so much room, or as much as those under way will.
    fn flash_makes(&self, room: Bytes) -> Nanos {
        self.flash.room_comes(room).expect("a buffer that holds something is being drained")
    }

    /// Puts a write into the buffer; returns when the controller has found its place.
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
