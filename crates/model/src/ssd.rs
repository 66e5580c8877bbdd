//! A solid-state drive: channels, flash pages, a write buffer and a host interface.
//!
//! A *channel* is a unit that works on one flash page at a time: it reads a page and moves it to the controller, or
//! moves a page to the flash and programs it. The drive is as parallel as it has channels. A flash page is a page of
//! flash memory, not the page that policies rank.
//!
//! Rules:
//! - A flash page lies on the channel that its address says (striping), and reads queue there in order.
//! - A write completes when it is in the write buffer. Programs drain the buffer over whichever channels are free: the
//!   drive writes at new places. A full buffer holds further writes up.
//! - A channel prefers reads to programs; while the buffer is filling or a flush waits, they take turns. A program or
//!   a read that has begun is not interrupted.
//! - What a write makes the drive program is `translation`'s word.
//! - A flush waits until the buffer is drained, unless the buffer survives a power cut. Writes behind it wait for it.
//!
//! Left out: reads served from the write buffer, reads that slow down as random writes break up the map, and faster
//! program modes that last for the first part of a burst (SLC caches).

mod translation;
mod write_buffer;

pub use translation::{Cost, Translation, TranslationParams};

use crate::link::Link;
use crate::rate::Rate;
use crate::{Model, Op, Request, assert_within};
use braid_base::{Bytes, Nanos, Rng};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use write_buffer::WriteBuffer;

/// What an SSD is made of.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Units that read or program one flash page at a time; at most 128.
    pub channels: u32,
    /// What is read or programmed at once.
    pub flash_page: Bytes,
    /// From the cells of a flash page to its register.
    pub read: Nanos,
    /// From the register to the cells.
    pub program: Nanos,
    /// Between a register and the controller.
    pub channel: Rate,
    /// Host interface: bytes read.
    pub read_rate: Rate,
    /// Host interface: bytes written.
    pub write_rate: Rate,
    /// Whether reads and writes share the interface in time (SATA) or not (PCIe).
    pub half_duplex: bool,
    /// What each command keeps the interface and the controller busy for: it bounds the request rate.
    pub command: Nanos,
    /// What each command takes beside: it bounds nothing but the rate at depth one.
    pub latency: Nanos,
    /// Memory for writes.
    pub buffer: Bytes,
    /// What a flush does.
    pub flush: FlushCost,
    /// How many requests the drive holds; the others wait outside.
    pub queue_depth: usize,
    /// Whether the drive reads ahead of a sequential reader, so that its requests cost the interface only.
    pub read_ahead: bool,
    /// The write cost's constants.
    pub translation: TranslationParams,
}

/// What a flush does and takes.
#[derive(Clone, Copy, Debug)]
pub enum FlushCost {
    /// Waits until the buffer is drained, then takes this long.
    Drains(Nanos),
    /// The buffer survives a power cut: takes this long and waits for nothing.
    Protected(Nanos),
}

/// An SSD at work.
#[derive(Clone, Debug)]
pub struct Ssd {
    params: Params,
    size: Bytes,
    rng: Rng,
    translation: Box<Translation>,
    read_link: Link,
    write_link: Link,
    /// Requests beyond the queue depth, in order.
    outside: VecDeque<(u64, Request)>,
    /// Requests on the drive, by number, and the numbers that are free.
    held: Vec<Held>,
    free: Vec<u32>,
    /// Writes and flushes that wait for the buffer, in order.
    intake: VecDeque<(u32, Request)>,
    channels: Vec<Channel>,
    /// Channels without work, a bit for each.
    idle: u128,
    last_programmed: u32,
    buffer: WriteBuffer,
    /// Ends of the last sequential reads, the latest first.
    read_ends: [Bytes; 8],
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    /// Completed since the last `advance`, which takes them.
    completed: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    tag: u64,
    len: Bytes,
    /// Channels that still read for it.
    reading: u32,
    /// When the first of its bytes was there.
    first: Nanos,
}

#[derive(Clone, Debug)]
struct Channel {
    /// Requests to read for and how long each takes.
    reads: VecDeque<(u32, Nanos)>,
    work: Work,
    read_last: bool,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    None,
    Read(u32),
    /// A program that makes so much room in the buffer.
    Program(Bytes),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Channel(u32),
    Complete(u32),
}

impl Ssd {
    /// A used drive of `size` at rest; the seed gives the spread of its read and program times.
    pub fn new(params: &Params, size: Bytes, seed: u64) -> Ssd {
        assert!(
            (1..=128).contains(&params.channels),
            "an SSD has 1 to 128 channels, not {}",
            params.channels
        );
        assert!(size > Bytes::ZERO, "an SSD of no bytes");
        let channel = Channel { reads: VecDeque::new(), work: Work::None, read_last: false };
        Ssd {
            params: *params,
            size,
            rng: Rng::new(seed),
            translation: Box::new(Translation::new(&params.translation, size)),
            read_link: Link::new(params.read_rate, params.command),
            write_link: Link::new(params.write_rate, params.command),
            outside: VecDeque::new(),
            held: Vec::new(),
            free: Vec::new(),
            intake: VecDeque::new(),
            channels: vec![channel; params.channels as usize],
            idle: u128::MAX >> (128 - params.channels),
            last_programmed: 0,
            buffer: WriteBuffer::default(),
            read_ends: [Bytes::ZERO; 8],
            events: BinaryHeap::new(),
            order: 0,
            completed: Vec::new(),
        }
    }
}

impl Model for Ssd {
    fn submit(&mut self, tag: u64, request: Request, now: Nanos) {
        assert_within(request, self.size);
        self.run(now);
        if self.held.len() - self.free.len() == self.params.queue_depth {
            self.outside.push_back((tag, request));
            return;
        }
        self.admit(tag, request, now);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    fn advance(&mut self, now: Nanos, completed: &mut Vec<u64>) {
        self.run(now);
        completed.append(&mut self.completed);
    }
}

impl Ssd {
    /// Brings every event up to `now` about, in order of time.
    fn run(&mut self, now: Nanos) {
        while let Some(&Reverse((at, _, event))) = self.events.peek()
            && at <= now
        {
            self.events.pop();
            match event {
                Event::Channel(channel) => self.channel_done(channel, at),
                Event::Complete(held) => {
                    self.completed.push(self.held[held as usize].tag);
                    self.free.push(held);
                    if let Some((tag, request)) = self.outside.pop_front() {
                        self.admit(tag, request, at);
                    }
                }
            }
        }
    }

    /// Takes a request onto the drive.
    fn admit(&mut self, tag: u64, request: Request, now: Nanos) {
        let held = self.hold(Held { tag, len: request.len, reading: 0, first: Nanos::MAX });
        match request.op {
            Op::Read if request.len > Bytes::ZERO => self.read(held, request, now),
            Op::Write | Op::Flush => {
                self.intake.push_back((held, request));
                self.take_in(now);
                self.program_where_idle(now);
            }
            Op::Read | Op::Discard => {
                if request.op == Op::Discard {
                    self.translation.discard(request.offset, request.len);
                }
                let through = self.write_through_link(Bytes::ZERO, now);
                self.complete(held, through);
            }
        }
    }

    fn hold(&mut self, request: Held) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.held[at as usize] = request;
                at
            }
            None => {
                self.held.push(request);
                (self.held.len() - 1) as u32
            }
        }
    }

    /// Puts a read on the channels of its flash pages.
    fn read(&mut self, held: u32, request: Request, now: Nanos) {
        if self.was_read_ahead(request) {
            let through = self.read_link().carry(request.len, now);
            return self.complete(held, through);
        }
        let page = self.params.flash_page;
        let first = request.offset / page;
        let pages = (request.offset + request.len).align_up(page) / page - first;
        let channels = u64::from(self.params.channels);
        let per_page = self.spread(self.params.read) + self.params.channel.time_for(page.min(request.len));
        let used = pages.min(channels);
        self.held[held as usize].reading = used as u32;
        for part in 0..used {
            let at = ((first + part) % channels) as u32;
            let time = per_page * (pages - part).div_ceil(channels);
            self.channels[at as usize].reads.push_back((held, time));
            if self.idle & 1 << at != 0 {
                self.give_work(at, now);
            }
        }
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

    fn channel_done(&mut self, at: u32, now: Nanos) {
        let work = std::mem::replace(&mut self.channels[at as usize].work, Work::None);
        match work {
            Work::None => {}
            Work::Read(held) => self.part_read(held, now),
            Work::Program(room) => {
                self.buffer.programmed(room);
                self.take_in(now);
            }
        }
        self.give_work(at, now);
        self.program_where_idle(now);
    }

    fn part_read(&mut self, held: u32, now: Nanos) {
        let request = &mut self.held[held as usize];
        request.reading -= 1;
        request.first = request.first.min(now);
        if request.reading == 0 {
            let (len, first) = (request.len, request.first);
            let through = self.read_link().carry_overlapped(len, first, now);
            self.complete(held, through);
        }
    }

    /// Takes writes into the buffer as far as it has room, and lets a flush through once nothing is buffered.
    fn take_in(&mut self, now: Nanos) {
        while let Some(&(held, request)) = self.intake.front() {
            let drained = self.buffer.is_drained();
            let flush = match (request.op, self.params.flush) {
                (Op::Flush, FlushCost::Protected(cost)) => cost,
                (Op::Flush, FlushCost::Drains(cost)) if drained => cost,
                (Op::Flush, FlushCost::Drains(_)) => return,
                _ if drained || self.buffer.taken() + request.len <= self.params.buffer => Nanos::ZERO,
                _ => return,
            };
            if request.op == Op::Write {
                let cost = self.translation.write(request.offset, request.len);
                self.buffer.insert(request.len, cost);
            }
            self.intake.pop_front();
            let through = self.write_through_link(request.len, now);
            self.complete(held, through + flush);
        }
    }

    /// Starts programs on idle channels, from one to the next.
    fn program_where_idle(&mut self, now: Nanos) {
        while self.idle != 0 && self.buffer.program_is_due(self.params.flash_page) {
            let behind = self.idle & u128::MAX.checked_shl(self.last_programmed + 1).unwrap_or(0);
            let at = if behind != 0 { behind.trailing_zeros() } else { self.idle.trailing_zeros() };
            self.last_programmed = at;
            self.give_work(at, now);
        }
    }

    /// Gives a channel that has just finished, or is idle, its next work.
    fn give_work(&mut self, at: u32, now: Nanos) {
        let pressed = !self.intake.is_empty() || self.buffer.taken() * 2 > self.params.buffer;
        let program = self.buffer.program_is_due(self.params.flash_page);
        let channel = &mut self.channels[at as usize];
        let read = if program && pressed && channel.read_last { None } else { channel.reads.pop_front() };
        channel.read_last = read.is_some();
        self.idle &= !(1 << at);
        let (work, time) = match read {
            Some((held, time)) => (Work::Read(held), time),
            None if program => self.start_program(),
            None => {
                self.idle |= 1 << at;
                return;
            }
        };
        self.channels[at as usize].work = work;
        self.schedule(now + time, Event::Channel(at));
    }

    /// Takes a channel's share of a merge, or else a flash page's worth, out of what the buffer owes. A merge runs on
    /// all channels at once, and is one piece of work on each.
    fn start_program(&mut self) -> (Work, Nanos) {
        let page = self.params.flash_page;
        let per_page = self.spread(self.params.program) + self.params.channel.time_for(page);
        let share = (self.params.translation.merge / u64::from(self.params.channels)).max(page);
        if let Some(merged) = self.buffer.take_merge(share) {
            return (Work::Program(Bytes::ZERO), per_page * merged.align_up(page).0 / page.0);
        }
        (Work::Program(self.buffer.take_page(page)), per_page)
    }

    /// A time as it varies from flash page to flash page: uniform within 5 % (assumed; the 990 PRO's 99th percentile is
    /// 7 % above its mean, [review]).
    fn spread(&mut self, time: Nanos) -> Nanos {
        let twentieth = time.0 / 20;
        Nanos(time.0 - twentieth + self.rng.below(2 * twentieth + 1))
    }

    fn read_link(&mut self) -> &mut Link {
        if self.params.half_duplex { &mut self.write_link } else { &mut self.read_link }
    }

    fn write_through_link(&mut self, len: Bytes, now: Nanos) -> Nanos {
        self.write_link.carry(len, now)
    }

    fn complete(&mut self, held: u32, through: Nanos) {
        self.schedule(through + self.params.latency, Event::Complete(held));
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }
}
