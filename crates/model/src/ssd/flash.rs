//! The flash of an SSD at work: channels that read, program and erase.
//!
//! A read is put on its channels at once, behind what they do: its end is known when it comes. Programs are not: as long
//! as the write buffer has room, they begin on channels that nobody reads from. They are caught up with when somebody
//! asks (`settle`), in the order of the times at which they begin, so that an undisturbed drive needs no event at all,
//! and that it does not matter when and how often it is asked.

use crate::agenda::Agenda;
use crate::rate::Rate;
use crate::ssd::params::{Mapping, Params};
use crate::ssd::translation::Cost;
use crate::ssd::write_buffer::WriteBuffer;
use braid_base::{Bytes, Nanos, Rng};
use std::collections::VecDeque;

/// The channels, and what the write buffer owes them.
#[derive(Clone, Debug)]
pub struct Flash {
    timing: Timing,
    channels: Vec<Channel>,
    /// Channels that were busy when they were last looked at, by the time at which to look again. Programs take about the
    /// same time each, so that a new time belongs near the end.
    busy: Agenda<u32>,
    /// Channels that were not: the first has been idle for longest. Some may have become busy since.
    idle: VecDeque<u32>,
    buffer: WriteBuffer,
    /// When something was last put into the buffer: what waits for an idle channel begins then.
    since: Nanos,
    /// Bytes for which blocks have not yet been erased.
    unerased: Bytes,
    reads: Rng,
    programs: Rng,
}

#[derive(Clone, Debug)]
struct Timing {
    page: Bytes,
    read: Spread,
    program: Spread,
    page_transfer: Nanos,
    suspend: Option<Nanos>,
    erase: Nanos,
    erase_block: Bytes,
    /// The programs that one copy takes the time of.
    copy: f64,
    /// A channel's share of a merge.
    merge_share: Bytes,
    rate: Rate,
}

#[derive(Clone, Copy, Default, Debug)]
struct Channel {
    /// When all that it has been given is done.
    free: Nanos,
    /// When the last read that it has been given is done.
    reads_end: Nanos,
    /// When its program is done, and the room that it makes.
    program: Option<(Nanos, Bytes)>,
    read_last: bool,
    is_busy: bool,
    is_idle: bool,
}

impl Flash {
    /// Flash at rest.
    pub fn new(params: &Params, rng: &mut Rng) -> Flash {
        let transfer = params.channel.time_for(params.flash_page);
        let (program, copy) = (params.program + transfer, params.read + transfer * 2 + params.program);
        let merge = match params.mapping {
            Mapping::Blocks(blocks) => blocks.merge,
            Mapping::Pages(_) => Bytes::ZERO,
        };
        Flash {
            timing: Timing {
                page: params.flash_page,
                read: Spread::around(params.read),
                program: Spread::around(params.program),
                page_transfer: transfer,
                suspend: params.suspend,
                erase: params.erase,
                erase_block: params.erase_block,
                copy: copy.0 as f64 / program.0 as f64,
                merge_share: (merge / u64::from(params.channels)).max(params.flash_page),
                rate: params.channel,
            },
            channels: vec![Channel { is_idle: true, ..Channel::default() }; params.channels as usize],
            busy: Agenda::with_capacity(params.channels as usize),
            idle: (0..params.channels).collect(),
            buffer: WriteBuffer::default(),
            since: Nanos::ZERO,
            unerased: Bytes::ZERO,
            reads: rng.fork(),
            programs: rng.fork(),
        }
    }

    /// The buffer, as of the last `settle`.
    pub fn buffer(&self) -> &WriteBuffer {
        &self.buffer
    }

    /// Reads flash pages `first..first + pages`, `len` bytes of them, from `now` on, to which it has been settled; returns
    /// when the first and the last of them are at the controller. `pressed`: writes wait for room, so that programs and reads take turns.
    pub fn read(&mut self, first: u64, pages: u64, len: Bytes, now: Nanos, pressed: bool) -> (Nanos, Nanos) {
        let channels = self.channels.len() as u64;
        let transfer = self.transfer(len);
        let per_page = self.timing.read.draw(&mut self.reads) + transfer;
        let mut at = (first % channels) as usize;
        let (mut soonest, mut latest) = (Nanos::MAX, now);
        for part in 0..pages.min(channels) {
            let time = match pages <= channels {
                true => per_page,
                false => per_page * (pages - part).div_ceil(channels),
            };
            let end = self.read_on(at, time, now, pressed);
            (soonest, latest) = (soonest.min(end), latest.max(end));
            at = if at + 1 == self.channels.len() { 0 } else { at + 1 };
        }
        (soonest, latest)
    }

    fn read_on(&mut self, at: usize, time: Nanos, now: Nanos, pressed: bool) -> Nanos {
        let channel = self.channels[at];
        let turn = pressed && channel.read_last && channel.program.is_none();
        if turn && self.buffer.has_page(self.timing.page) {
            let end = self.program(at, channel.free.max(now));
            if !channel.is_busy {
                self.look_again(at as u32, end);
            }
        }
        let channel = &mut self.channels[at];
        channel.read_last = true;
        let programs = channel.free > channel.reads_end.max(now);
        let end = match self.timing.suspend {
            Some(suspend) if programs && !pressed => {
                let start = channel.reads_end.max(channel.free.min(now + suspend));
                channel.free += time + suspend;
                start + time
            }
            _ => {
                channel.free = channel.free.max(now) + time;
                channel.free
            }
        };
        channel.reads_end = end;
        end
    }

    /// Takes a write into the buffer at `now`, to which it has been settled.
    pub fn insert(&mut self, len: Bytes, cost: Cost, now: Nanos) {
        self.since = now;
        let copies = Bytes((cost.copied.0 as f64 * self.timing.copy) as u64);
        self.buffer.insert(len, cost.own + copies, cost.merged);
        self.unerased += cost.own + cost.copied + cost.merged;
    }

    /// Begins the programs that could by `now`, and ends those that have.
    pub fn settle(&mut self, now: Nanos) {
        if self.is_due() {
            self.program_on_idle();
        }
        while self.busy.next() <= now
            && let Some((time, at)) = self.busy.take()
        {
            if let Some(again) = self.look(at, time) {
                self.look_again(at, again);
            }
        }
    }

    /// What has become of a busy channel by `time`: ends its program, and begins another. Returns when to look again, or
    /// `None` if it is idle.
    fn look(&mut self, at: u32, time: Nanos) -> Option<Nanos> {
        let channel = &mut self.channels[at as usize];
        if let Some((end, room)) = channel.program {
            if end > time {
                return Some(end);
            }
            channel.program = None;
            self.buffer.programmed(room);
        }
        if channel.free > time {
            return Some(channel.free);
        }
        if self.is_due() {
            return Some(self.program(at as usize, time.max(self.since)));
        }
        let channel = &mut self.channels[at as usize];
        channel.is_busy = false;
        if !channel.is_idle {
            channel.is_idle = true;
            self.idle.push_back(at);
        }
        None
    }

    /// When programs that are under way will have made so much room, or as much as they will, as of the last `settle`; `None`
    /// where nothing is under way.
    pub fn room_comes(&self, wanted: Bytes) -> Option<Nanos> {
        let mut room = Bytes::ZERO;
        let mut comes = None;
        for (time, at) in self.busy.iter() {
            comes = Some(*time);
            room += self.channels[*at as usize].program.map_or(Bytes::ZERO, |(_, room)| room);
            if room >= wanted {
                break;
            }
        }
        comes
    }

    fn is_due(&self) -> bool {
        self.buffer.is_due(self.timing.page)
    }

    /// Begins what waits since it came on channels that were idle then.
    fn program_on_idle(&mut self) {
        while self.is_due()
            && let Some(at) = self.idle.pop_front()
        {
            let channel = &mut self.channels[at as usize];
            channel.is_idle = false;
            if channel.is_busy {
                continue;
            }
            let again =
                if channel.free > self.since { channel.free } else { self.program(at as usize, self.since) };
            self.look_again(at, again);
        }
    }

    /// Queues a channel that is not in the queue.
    #[inline]
    fn look_again(&mut self, at: u32, time: Nanos) {
        debug_assert!(self.busy.len() < self.channels.len(), "a channel is queued twice");
        self.channels[at as usize].is_busy = true;
        self.busy.add(time, at);
    }

    /// Begins a channel's share of a merge, or else a flash page's worth of what the buffer owes; returns when that will be
    /// done. A merge runs on all channels at once, and is one piece of work on each.
    #[inline]
    fn program(&mut self, at: usize, start: Nanos) -> Nanos {
        let Timing { page, program, page_transfer, merge_share, .. } = self.timing;
        let mut time = program.draw(&mut self.programs) + page_transfer;
        let room = match self.buffer.take_merge(merge_share) {
            Some(merged) => {
                time = time * (merged.align_up(page) / page);
                Bytes::ZERO
            }
            None => self.buffer.take_page(page),
        };
        if self.unerased >= self.timing.erase_block {
            self.unerased -= self.timing.erase_block;
            time += self.timing.erase;
        }
        let (channel, end) = (&mut self.channels[at], start + time);
        channel.free = end;
        channel.program = Some((end, room));
        channel.read_last = false;
        end
    }

    fn transfer(&self, len: Bytes) -> Nanos {
        if len >= self.timing.page { self.timing.page_transfer } else { self.timing.rate.time_for(len) }
    }
}

/// A time as it varies from flash page to flash page: uniform within 5 % (assumed; the 990 PRO's 99th percentile is 7 %
/// above its mean, [review]).
#[derive(Clone, Copy, Debug)]
struct Spread {
    least: Nanos,
    /// How many nanoseconds it can be.
    count: u64,
}

impl Spread {
    fn around(time: Nanos) -> Spread {
        let twentieth = time.0 / 20;
        Spread { least: Nanos(time.0 - twentieth), count: 2 * twentieth + 1 }
    }

    fn draw(self, rng: &mut Rng) -> Nanos {
        self.least + Nanos(rng.below(self.count))
    }
}
