//! The flash of an SSD at work: channels that read, program and erase.
//!
//! A read is put on its channels at once, behind what they do: its end is known when it comes. Programs are not: as long
//! as the write buffer has room, they begin on channels that nobody reads from: on those that are idle when a write comes,
//! or as soon as one is. The latter are caught up with when somebody asks (`settle`), in the order of the times at which
//! they begin, so that an undisturbed drive needs no event at all, and that it does not matter when and how often it is
//! asked.

use crate::rate::Rate;
use crate::ssd::params::Params;
use crate::ssd::programs::Programs;
use crate::ssd::rota::Rota;
use crate::ssd::spread::Spread;
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
    programs: Programs,
    /// When something was last put into the buffer: what becomes due later, and finds a channel idle, begins then.
    since: Nanos,
    rng: Rng,
}

/// Of reads.
#[derive(Clone, Debug)]
struct Timing {
    page: Bytes,
    read: Spread,
    page_transfer: Nanos,
    rate: Rate,
    suspend: Option<Nanos>,
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
        let reads = rng.fork();
        Flash {
            timing: Timing {
                page: params.flash_page,
                read: Spread::around(params.read),
                page_transfer: params.channel.time_for(params.flash_page),
                rate: params.channel,
                suspend: params.suspend,
            },
            channels: vec![Channel::default(); params.channels as usize],
            rota: Rota::new(params.channels),
            programs: Programs::new(params, rng.fork()),
            since: Nanos::ZERO,
            rng: reads,
        }
    }

    /// The buffer, as of the last `settle`.
    pub fn buffer(&self) -> &WriteBuffer {
        self.programs.buffer()
    }

    /// Reads flash pages `first..first + pages`, `len` bytes of them, from `now` on, to which it has been settled; returns
    /// when the first and the last of them are at the controller. `pressed`: writes wait for room, so that programs and reads take turns.
    #[inline]
    pub fn read(&mut self, first: u64, pages: u64, len: Bytes, now: Nanos, pressed: bool) -> (Nanos, Nanos) {
        let channels = self.channels.len() as u64;
        let transfer = self.transfer(len);
        let per_page = self.timing.read.draw(&mut self.rng) + transfer;
        let mut at = (first % channels) as usize;
        if pages == 1 {
            let end = self.read_on(at, per_page, now, pressed);
            return (end, end);
        }
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

    #[inline]
    fn read_on(&mut self, at: usize, time: Nanos, now: Nanos, pressed: bool) -> Nanos {
        let channel = &mut self.channels[at];
        let turn = pressed && channel.read_last && channel.program.is_none();
        if turn && self.programs.has_page() {
            // Since a page still waits, no channel is idle: it will be looked at.
            channel.program(self.programs.begin(), channel.free.max(now));
        }
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

    /// Takes a write into the buffer at `now`, to which it has been settled, and begins on idle channels what it owes.
    pub fn insert(&mut self, len: Bytes, cost: Cost, now: Nanos) {
        self.programs.insert(len, cost);
        self.since = now;
        self.begin();
    }

    /// Begins what is due on channels that were idle when it came: mostly several pages for one write.
    fn begin(&mut self) {
        if !self.rota.has_idle() {
            return;
        }
        let (mut pages, room) = self.programs.take_pages();
        self.rota.begin(|at| {
            if pages == 0 {
                return None;
            }
            let channel = &mut self.channels[at as usize];
            if channel.free <= self.since {
                pages -= 1;
                channel.program((self.programs.time(), room), self.since);
            }
            Some(channel.free)
        });
        self.programs.give_back(pages);
        if self.programs.is_due() {
            self.begin_singly();
        }
    }

    /// The same for pieces that are not alike.
    #[inline(never)]
    fn begin_singly(&mut self) {
        self.rota.begin(|at| {
            if !self.programs.is_due() {
                return None;
            }
            let channel = &mut self.channels[at as usize];
            if channel.free <= self.since {
                channel.program(self.programs.begin(), self.since);
            }
            Some(channel.free)
        });
    }

    /// Begins the programs that could by `now`, and ends those that have.
    pub fn settle(&mut self, now: Nanos) {
        if self.programs.is_due() {
            self.begin();
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
            self.programs.end(room);
        }
        if channel.free > time {
            return Some(channel.free);
        }
        if !self.programs.is_due() {
            return None;
        }
        channel.program(self.programs.begin(), time);
        Some(channel.free)
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

    fn transfer(&self, len: Bytes) -> Nanos {
        if len >= self.timing.page { self.timing.page_transfer } else { self.timing.rate.time_for(len) }
    }
}

impl Channel {
    /// Begins a piece of what is to be programmed, which takes so long and makes so much room.
    #[inline(always)]
    fn program(&mut self, (time, room): (Nanos, Bytes), start: Nanos) {
        self.free = start + time;
        self.program = Some((self.free, room));
        self.read_last = false;
    }
}
