//! The read buffer of a disk: the data of earlier reads, and read-ahead while the disk is idle.
//!
//! After a read, the disk continues to read (a *stream*) into the same *stretch* of the buffer. The stream
//! ends when the arm is needed elsewhere or the stream is `reach` ahead of the host. The stream costs no
//! events: its progress is computed on demand. Writes do not change stretches: the disk updates its buffer,
//! and only addresses are modelled here.

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

/// The stretches, at most a fixed number, and the stream that extends a stretch.
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

    /// Advances the stream to `now`. Returns the sector under its head.
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

    /// True if all these sectors are held, as of the last `follow`. The sectors then count as used.
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

    /// The sector of a stopped stream, if the host has used half of the stream's lead.
    pub fn stalled(&self) -> Option<u64> {
        let stream = self.stream?;
        let end = self.stretches[stream.stretch].end;
        let low = end.saturating_sub(stream.consumed) <= self.reach / 2;
        (end == stream.stop && low && end < self.device_end).then_some(end)
    }

    /// Resumes a stalled stream: its end begins to pass at `since`.
    pub fn resume(&mut self, since: Nanos) {
        if let Some(stream) = &mut self.stream {
            stream.since = since;
            stream.stop = (stream.consumed + self.reach).min(self.device_end);
        }
    }

    /// The sector and time at which the stream continues, if a read from `sector` continues the stream.
    pub fn continues(&self, sector: u64) -> Option<(u64, Nanos)> {
        let stream = self.stream?;
        let stretch = self.stretches[stream.stretch];
        let moving = stretch.end < stream.stop;
        (moving && stretch.start <= sector && sector <= stretch.end).then_some((stretch.end, stream.since))
    }

    /// Stops the stream: the head moves elsewhere.
    pub fn stop(&mut self) {
        self.stream = None;
    }

    /// Records a read of sectors `sector..end`. The stream continues behind them: `end` begins to pass at
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

    /// The stretch that ends at or beyond `sector`, a new stretch, or the least recently used stretch.
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
