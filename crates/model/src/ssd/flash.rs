//! The flash of an SSD at work: channels that read, program and erase.
//!
//! A read is put on its channels at once, behind their current work: its end is known at submission. The ends
//! of programs are not known in advance. While the write buffer has room, programs begin only on channels
//! without reads: either on channels idle at the time of a write, or on channels that become idle later.
//! Later starts are computed on demand (`settle`), in the order of their times. An undisturbed drive
//! therefore needs no event at all, and the times and number of calls do not matter.

use crate::rate::Rate;
use crate::ssd::params::Params;
use crate::ssd::programs::{Piece, Programs};
use crate::ssd::rota::Rota;
use crate::ssd::spread::Spread;
use crate::ssd::translation::Cost;
use crate::ssd::write_buffer::BufferAmounts;
use braid_base::{Bytes, Nanos, Rng};

/// The channels, and the pending programs of the write buffer.
#[derive(Clone, Debug)]
pub struct Flash {
    timing: ReadTiming,
    channels: Vec<Channel>,
    /// The channels that were busy at their last look, and the time of the next look. An idle channel may
    /// have received reads since.
    rota: Rota,
    programs: Programs,
    rng: Rng,
}

/// The timing of reads.
#[derive(Clone, Debug)]
struct ReadTiming {
    page: Bytes,
    read: Spread,
    page_transfer: Nanos,
    rate: Rate,
    suspend: Option<Nanos>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Channel {
    /// The end of all work given to the channel.
    free: Nanos,
    /// The end of the last read given to the channel.
    reads_end: Nanos,
    /// The end of its program, and the room that the program frees.
    program: Option<(Nanos, Bytes)>,
    read_last: bool,
}

impl Flash {
    /// Flash at rest.
    pub fn new(params: &Params, rng: &mut Rng) -> Flash {
        let reads = rng.fork();
        Flash {
            timing: ReadTiming {
                page: params.flash_page,
                read: Spread::around(params.read),
                page_transfer: params.channel.time_for(params.flash_page),
                rate: params.channel,
                suspend: params.suspend,
            },
            channels: vec![Channel::default(); params.channels as usize],
            rota: Rota::new(params.channels),
            programs: Programs::new(params, rng.fork()),
            rng: reads,
        }
    }

    /// The buffer, as of the last `settle`.
    pub fn buffer(&self) -> &BufferAmounts {
        self.programs.buffer()
    }

    /// Reads flash pages `first..first + pages`, `len` bytes of them, from `now` on; the flash must be
    /// settled to `now`. Returns the times when the first and the last page are at the controller. `pressed`:
    /// writes wait for room, so programs and reads take turns.
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
            // A page still waits, so no channel is idle: the rota will look at this channel.
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

    /// Takes a write into the buffer at `now`, and begins its programs on idle channels. The flash must be
    /// settled to `now`.
    pub fn insert(&mut self, len: Bytes, cost: Cost, now: Nanos) {
        self.programs.insert(len, cost);
        self.begin(now);
    }

    /// Begins programs due at `now` on idle channels: mostly several pages for one write. Programs still due
    /// afterwards find no idle channel.
    fn begin(&mut self, now: Nanos) {
        if !self.rota.has_idle() {
            return;
        }
        let (mut pages, page) = self.programs.take_pages();
        self.rota.begin(|at| {
            if pages == 0 {
                return None;
            }
            let channel = &mut self.channels[at as usize];
            if channel.free <= now {
                pages -= 1;
                channel.program(page, now);
            }
            Some(channel.free)
        });
        self.programs.give_back(pages);
        if self.programs.is_due() {
            self.begin_singly(now);
        }
    }

    /// Begins programs like `begin`, for pieces of different kinds.
    #[inline(never)]
    fn begin_singly(&mut self, now: Nanos) {
        self.rota.begin(|at| {
            if !self.programs.is_due() {
                return None;
            }
            let channel = &mut self.channels[at as usize];
            if channel.free <= now {
                channel.program(self.programs.begin(), now);
            }
            Some(channel.free)
        });
    }

    /// Begins all programs that can begin by `now`, and ends all programs that have ended.
    pub fn settle(&mut self, now: Nanos) {
        while let (time, at) = self.rota.next()
            && time <= now
        {
            let Some(again) = self.look(at as usize, time) else {
                self.rota.rest();
                continue;
            };
            self.rota.put_off(again);
            // The end of the last program makes a part of a page due: while its channel continues to read,
            // another channel may be idle.
            if self.programs.is_due() {
                self.begin(time);
            }
        }
    }

    /// Updates a busy channel at `time`: ends its program, and begins another. Returns the time of the next
    /// look, or `None` if the channel is idle.
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

    /// The time when programs in flight will have made `wanted` room, or all of their room, as of the last
    /// `settle`; `None` if no program is in flight.
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
    /// Begins a piece of the pending programs.
    #[inline(always)]
    fn program(&mut self, piece: Piece, start: Nanos) {
        self.free = start + piece.time;
        self.program = Some((self.free, piece.room));
        self.read_last = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Timing, by_name};
    use braid_base::KIB;

    #[test]
    fn extra_settling_does_not_change_flash_timing() {
        let Timing::Ssd(params) = by_name("x25-m").unwrap().timing else { panic!("the x25-m is an SSD") };
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut seldom = Flash::new(&params, &mut Rng::new(seed));
            let (mut often, mut now) = (seldom.clone(), Nanos::ZERO);
            for step in 0..2_000 {
                for _ in 0..rng.below(4) {
                    now += Nanos(rng.below(60_000));
                    often.settle(now);
                }
                [&mut seldom, &mut often].into_iter().for_each(|flash| flash.settle(now));
                assert_eq!(seldom.buffer(), often.buffer(), "seed {seed}, step {step}");
                if rng.chance(0.3) {
                    // Includes parts of pages: the rest of a page is due when no program is in flight.
                    let len = KIB * rng.between(1, 12);
                    let cost =
                        Cost { own: len, copied: Bytes::ZERO, merged: Bytes::ZERO, update: Nanos::ZERO };
                    [&mut seldom, &mut often].into_iter().for_each(|flash| flash.insert(len, cost, now));
                } else {
                    let (page, pages) = (rng.below(64), rng.between(1, 4));
                    let read = |flash: &mut Flash| flash.read(page, pages, KIB * 4, now, false);
                    assert_eq!(read(&mut seldom), read(&mut often), "seed {seed}, step {step}");
                }
            }
        }
    }
}
