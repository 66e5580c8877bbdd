//! The read buffer of a disk: what it holds of former reads, and what it reads ahead when nothing else is
//! asked.
//!
//! After a read the disk goes on reading (a *stream*) into the same *stretch* of the buffer until it is sent
//! elsewhere or is `reach` ahead of the host. The stream costs no events: how far it has come is computed
//! when somebody asks. Writes leave stretches alone: the disk updates its buffer, and only addresses are
//! modelled here.

use crate::hdd::geometry::Geometry;
use braid_base::{Bytes, Nanos, SECTOR};

/// Sectors `start..end`, held in the buffer.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: u64,
    end: u64,
    used: u64,
}

/// Reading ahead: at `since`, the end of the stretch begins to pass under the head.
#[derive(Clone, Copy, Debug)]
struct Stream {
    stretch: usize,
    since: Nanos,
    consumed: u64,
    stop: u64,
}

/// The stretches, at most a fixed number, and the stream that extends one of them.
#[derive(Clone, Debug)]
pub struct ReadBuffer {
    stretches: Vec<Stretch>,
    limit: usize,
    reach: u64,
    device_end: u64,
    uses: u64,
    stream: Option<Stream>,
}

impl ReadBuffer {
    /// An empty buffer of at most `limit` stretches that reads `reach` ahead on a device of `size`.
    pub fn new(limit: usize, reach: Bytes, size: Bytes) -> ReadBuffer {
        ReadBuffer {
            stretches: Vec::with_capacity(limit),
            limit,
            reach: reach / SECTOR,
            device_end: size.align_up(SECTOR) / SECTOR,
            uses: 0,
            stream: None,
        }
    }

    /// Moves the stream on to `now`; returns the sector that its head has come to.
    pub fn follow(&mut self, now: Nanos, geometry: &Geometry) -> Option<u64> {
        let stream = self.stream.as_mut()?;
        let stretch = &mut self.stretches[stream.stretch];
        let room = stream.stop.saturating_sub(stretch.end);
        let passed = geometry.passed(stretch.end, now.saturating_sub(stream.since), room);
        if passed > 0 {
            if stretch.end + passed < self.device_end {
                stream.since +=
                    geometry.passing(stretch.end, passed + 1) - geometry.passing(stretch.end + passed, 1);
            }
            stretch.end += passed;
            stretch.start = stretch.start.max(stretch.end.saturating_sub(self.reach));
        }
        Some(stretch.end.min(self.device_end - 1))
    }

    /// Whether all of these sectors are held, as of the last `follow`; if so they count as used.
    pub fn take(&mut self, sector: u64, count: u64) -> bool {
        let end = sector + count;
        let Some(at) = self.stretches.iter().position(|held| held.start <= sector && end <= held.end) else {
            return false;
        };
        self.uses += 1;
        self.stretches[at].used = self.uses;
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.stretch == at) {
            stream.consumed = stream.consumed.max(end);
            if self.stretches[at].end < stream.stop {
                stream.stop = (stream.consumed + self.reach).min(self.device_end);
            }
        }
        true
    }

    /// The sector at which a stream stands that has stopped and of whose lead the host has used up half.
    pub fn stalled(&self) -> Option<u64> {
        let stream = self.stream?;
        let end = self.stretches[stream.stretch].end;
        let low = end.saturating_sub(stream.consumed) <= self.reach / 2;
        (end == stream.stop && low && end < self.device_end).then_some(end)
    }

    /// Lets a stalled stream go on: its end begins to pass at `since`.
    pub fn resume(&mut self, since: Nanos) {
        if let Some(stream) = &mut self.stream {
            stream.since = since;
            stream.stop = (stream.consumed + self.reach).min(self.device_end);
        }
    }

    /// Where and when the stream goes on, if a read from `sector` is the stream's continuation.
    pub fn continues(&self, sector: u64) -> Option<(u64, Nanos)> {
        let stream = self.stream?;
        let stretch = self.stretches[stream.stretch];
        let moving = stretch.end < stream.stop;
        (moving && stretch.start <= sector && sector <= stretch.end).then_some((stretch.end, stream.since))
    }

    /// The head goes elsewhere.
    pub fn stop(&mut self) {
        self.stream = None;
    }

    /// Sectors `sector..end` have been read; the stream goes on behind them, where `end` begins to pass at
    /// `since`.
    pub fn start(&mut self, sector: u64, end: u64, since: Nanos) {
        self.uses += 1;
        let at = self.stretch_for(sector);
        let stretch = &mut self.stretches[at];
        stretch.end = end.max(stretch.end);
        stretch.start = stretch.start.max(stretch.end.saturating_sub(self.reach.max(end - sector)));
        stretch.used = self.uses;
        let stop = (end + self.reach).min(self.device_end);
        self.stream = Some(Stream { stretch: at, since, consumed: end, stop }).filter(|_| stretch.end == end);
    }

    /// The stretch that ends at or beyond `sector`, a new one, or the one unused for longest.
    fn stretch_for(&mut self, sector: u64) -> usize {
        let fresh = Stretch { start: sector, end: sector, used: self.uses };
        if let Some(at) = self.stretches.iter().position(|held| held.start <= sector && sector <= held.end) {
            return at;
        }
        if self.stretches.len() < self.limit {
            self.stretches.push(fresh);
            return self.stretches.len() - 1;
        }
        let at = (0..self.limit).min_by_key(|&at| self.stretches[at].used).unwrap_or(0);
        self.stretches[at] = fresh;
        at
    }
}
