//! The flash of an SSD at work: channels that read, program and erase.
//!
//! A read is put on its channels at once, behind what they do: its end is known when it comes. Programs are not: as long
//! as the write buffer has room, they begin on channels that nobody reads from. They are caught up with when somebody
//! asks (`settle`), in the order of the times at which they begin, so that an undisturbed drive needs no event at all,
//! and that it does not matter when and how often it is asked.

use crate::rate::Rate;
use crate::ssd::params::{Mapping, Params};
use crate::ssd::rota::Rota;
use crate::ssd::translation::Cost;
use crate::ssd::write_buffer::WriteBuffer;
use braid_base::{Bytes, Nanos, Rng};

/// The channels, and what the write buffer owes them.
#[derive(Clone, Debug)]
pub struct Flash {
    timing: Timing,
    channels: Vec<Channel>,
    /// Which of them were busy when they were last looked at, and when to look again. An idle one may have got reads since.
    rota: Rota,
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
    /// The transfer of the page included.
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
        let spread = Spread::around(params.program);
        Flash {
            timing: Timing {
                page: params.flash_page,
                read: Spread::around(params.read),
                program: Spread { least: spread.least + transfer, ..spread },
                page_transfer: transfer,
                suspend: params.suspend,
                erase: params.erase,
                erase_block: params.erase_block,
                copy: copy.0 as f64 / program.0 as f64,
                merge_share: (merge / u64::from(params.channels)).max(params.flash_page),
                rate: params.channel,
            },
            channels: vec![Channel::default(); params.channels as usize],
            rota: Rota::new(params.channels),
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
    #[inline]
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
            // Since a page still waits, no channel is idle: it will be looked at.
            self.program(at, channel.free.max(now));
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
        // What waits since it came begins on channels that were idle then.
        while self.is_due()
            && let Some(at) = self.rota.idle()
        {
            let free = self.channels[at as usize].free;
            let again = if free > self.since { free } else { self.program(at as usize, self.since) };
            self.rota.begin(again);
        }
        while let (time, at) = self.rota.next()
            && time <= now
        {
            match self.look(at as usize, time) {
                Some(again) => self.rota.put_off(again),
                None => self.rota.rest(),
            }
        }
    }

    /// What has become of a busy channel by `time`: ends its program, and begins another. Returns when to look again, or
    /// `None` if it is idle.
    fn look(&mut self, at: usize, time: Nanos) -> Option<Nanos> {
        let channel = &mut self.channels[at];
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
        self.is_due().then(|| self.program(at, time.max(self.since)))
    }

    /// When programs that are under way will have made so much room, or as much as they will, as of the last `settle`; `None`
    /// where nothing is under way.
    pub fn room_comes(&self, wanted: Bytes) -> Option<Nanos> {
        let mut room = Bytes::ZERO;
        let mut comes = None;
        for &(time, at) in self.rota.busy() {
            comes = Some(time);
            room += self.channels[at as usize].program.map_or(Bytes::ZERO, |(_, room)| room);
            if room >= wanted {
                break;
            }
        }
        comes
    }

    fn is_due(&self) -> bool {
        self.buffer.is_due(self.timing.page)
    }

    /// Begins a channel's share of a merge, or else a flash page's worth of what the buffer owes; returns when that will be
    /// done.
    #[inline(always)]
    fn program(&mut self, at: usize, start: Nanos) -> Nanos {
        let mut time = self.timing.program.draw(&mut self.programs);
        let room = match self.buffer.owes_merge() {
            true => self.merge(&mut time),
            false => self.buffer.take_page(self.timing.page),
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

    /// A merge runs on all channels at once, and is one piece of work on each, which takes as many times as long as a program
    /// as it has pages. It makes no room.
    #[inline(never)]
    fn merge(&mut self, time: &mut Nanos) -> Bytes {
        let Timing { page, merge_share, .. } = self.timing;
        *time = *time * (self.buffer.take_merge(merge_share).align_up(page) / page);
        Bytes::ZERO
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
