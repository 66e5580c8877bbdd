//! Streams: reads that follow each other in order, or by a stride.
//!
//! Three reads at the same distance make a stream. Where the first two lie is kept in two small tables, each read in one place of each: one by
//! where the next read is expected that goes on in order, one by region of the volume and length for strides. So it costs a read that belongs to no
//! stream a look into each, however many clients read at the same time. Two candidates that meet in one place forget each other,
//! which costs them three more reads.
//!
//! A stream, once there is one, is told from other reads by where it has come to: its reads may arrive in another order than they were asked in.
//! How far it is worth to read ahead of it grows with what was read of it, so that a stream that ends never cost more than it read. Whether streams last is a
//! matter of the load: after each that ended too early, the next must have read twice as much before anything is read ahead of it, and half as much
//! after each that paid.

use braid_base::{Bytes, Nanos};
use std::ops::Range;

/// So many streams at the same time.
const MOST: usize = 16;
/// A stream of which no guest has read for so long has ended: another one may take its place.
const LONGEST_PAUSE: Nanos = Nanos::from_millis(250);
/// Reads that make a stream.
const ENOUGH: u32 = 3;
/// If they have read so much: as little as this as long as that pays, and at most so much.
const LEAST_READ: Bytes = Bytes(256 << 10);
const MOST_READ: Bytes = Bytes(4 << 20);
/// A stream has paid if so many bytes of it were read for each that was read ahead in vain.
const PAYS: u64 = 1;
/// Places of candidates, by the next read in order, and by region.
const IN_ORDER: usize = 256;
const STRIDES: usize = 64;
/// A stride longer than such a region is not recognised.
const REGION: Bytes = Bytes(64 << 20);
/// By so much a read of a stream may come late.
const LATE: Bytes = Bytes(4 << 20);

/// What is known of the streams of a volume.
pub(crate) struct Streams {
    streams: Vec<Stream>,
    in_order: Box<[Expected; IN_ORDER]>,
    strides: Box<[Last; STRIDES]>,
    extent_size: Bytes,
    /// What must have been read of a stream.
    enough: Bytes,
    /// What all streams together may be read ahead: half of the memory, for runs are free again only when all of them has been read.
    most: Bytes,
}

/// Where a read would go on in order.
#[derive(Clone, Copy, Default)]
struct Expected {
    at: Bytes,
    /// Reads so far, none in a free place, and their bytes.
    reads: u32,
    bytes: Bytes,
}

/// The last read of a region.
#[derive(Clone, Copy, Default)]
struct Last {
    at: Bytes,
    len: Bytes,
    /// From the one before, and how many reads followed each other at that distance.
    distance: Bytes,
    reads: u32,
}

/// One stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub step: Step,
    /// Where the next read is expected.
    pub next: Bytes,
    /// Up to where reading ahead has begun.
    pub until: Bytes,
    /// What was read of it, and how much of that before it was known.
    read: Bytes,
    before: Bytes,
    used: Nanos,
}

/// How the reads of a stream follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Each begins where the last one ended, or within an extent after that.
    InOrder,
    /// So many bytes at each multiple of a distance, which is longer than an extent.
    Stride { distance: Bytes, len: Bytes },
}

impl Streams {
    /// No stream yet. What is read ahead of all of them has `most` of memory.
    pub fn new(extent_size: Bytes, most: Bytes) -> Streams {
        Streams {
            streams: Vec::new(),
            in_order: Box::new([Expected::default(); IN_ORDER]),
            strides: Box::new([Last::default(); STRIDES]),
            extent_size,
            enough: LEAST_READ,
            most: Bytes(most.0 / 2),
        }
    }

    /// Notes a read; the stream that it belongs to, if there is one.
    pub fn note(&mut self, read: &Range<Bytes>, now: impl Fn() -> Nanos) -> Option<usize> {
        if !self.streams.is_empty()
            && let Some(known) = self.streams.iter().position(|stream| self.belongs(stream, read))
        {
            self.streams[known].advance(read, now());
            return Some(known);
        }
        let (step, bytes) = self.candidate(read)?;
        self.begin(step, read, bytes, now())
    }

    fn belongs(&self, stream: &Stream, read: &Range<Bytes>) -> bool {
        let (from, to) = (stream.next.saturating_sub(LATE), stream.next.max(stream.until));
        match stream.step {
            Step::InOrder => from <= read.start && read.start <= to + self.extent_size,
            Step::Stride { distance, len } => {
                let is_near = stream.next.saturating_sub(distance) <= read.start && read.start <= to;
                is_near && read.end - read.start == len && read.start % distance == stream.next % distance
            }
        }
    }

    /// Whether the last reads and this one make a stream, and how many bytes they have read of it.
    fn candidate(&mut self, read: &Range<Bytes>) -> Option<(Step, Bytes)> {
        let len = read.end - read.start;
        let before = self.in_order[place(read.start, IN_ORDER)];
        let goes_on = before.reads > 0 && before.at == read.start;
        let (reads, bytes) = if goes_on { (before.reads + 1, before.bytes + len) } else { (1, len) };
        self.in_order[place(read.end, IN_ORDER)] = Expected { at: read.end, reads, bytes };
        if goes_on {
            return (reads >= ENOUGH && bytes >= self.enough).then_some((Step::InOrder, bytes));
        }
        let region = Bytes((read.start / REGION) ^ len.0.rotate_left(32));
        let last = &mut self.strides[place(region, STRIDES)];
        let distance = read.start.saturating_sub(last.at);
        let reads = match last.len == len {
            true if distance > Bytes::ZERO && distance == last.distance => last.reads + 1,
            true => 2,
            false => 1,
        };
        *last = Last { at: read.start, len, distance: if reads > 1 { distance } else { Bytes::ZERO }, reads };
        let step = match distance > self.extent_size {
            true => Step::Stride { distance, len },
            false => Step::InOrder,
        };
        let bytes = len * u64::from(reads);
        (reads >= ENOUGH && bytes >= self.enough && distance >= len).then_some((step, bytes))
    }

    /// A stream begins, if there is a place for it.
    fn begin(&mut self, step: Step, read: &Range<Bytes>, bytes: Bytes, now: Nanos) -> Option<usize> {
        while let Some(ended) = self.streams.iter().position(|stream| has_ended(stream, now)) {
            let ended = self.streams.swap_remove(ended);
            self.enough = match ended.has_paid() {
                true => Bytes(self.enough.0 / 2).max(LEAST_READ),
                false => (self.enough * 2).min(MOST_READ),
            };
        }
        if self.streams.len() == MOST {
            return None;
        }
        let (next, until, before) = (read.start, Bytes::ZERO, bytes);
        let earlier = bytes - (read.end - read.start);
        let mut stream = Stream { step, next, until, read: earlier, before, used: now };
        stream.advance(read, now);
        self.streams.push(stream);
        Some(self.streams.len() - 1)
    }

    /// One of the streams.
    pub fn get(&self, stream: usize) -> &Stream {
        &self.streams[stream]
    }

    /// Reading ahead of a stream has begun up to here.
    pub fn set_until(&mut self, stream: usize, until: Bytes) {
        self.streams[stream].until = until;
    }

    /// How many bytes ahead of a stream are worth to be read: as many as were read of it, up to its part of the memory, and to what
    /// a stream alone can use.
    pub fn window(&self, stream: usize, most_of_one: Bytes) -> Bytes {
        let Stream { read, used, .. } = self.streams[stream];
        let others = self.streams.iter().filter(|other| !has_ended(other, used)).count();
        let part = Bytes(self.most.0 / others as u64).min(most_of_one);
        read.min(part).align_down(self.extent_size).max(self.extent_size)
    }
}

impl Stream {
    /// Whether enough of it was read since it is known for what was read ahead in vain.
    fn has_paid(&self) -> bool {
        let ahead = self.until.saturating_sub(self.next);
        let in_vain = match self.step {
            Step::InOrder => ahead,
            Step::Stride { distance, len } => len * (ahead / distance),
        };
        self.read - self.before >= in_vain * PAYS
    }

    /// What is worth to be read ahead after a read, and that read itself, in order. `window` is how many bytes; the first of them are those of the read.
    pub fn wanted(&self, read: &Range<Bytes>, window: Bytes) -> impl Iterator<Item = Range<Bytes>> + use<> {
        let (first, step, times) = match self.step {
            Step::InOrder => (read.start..self.next.max(read.end) + window, Bytes::ZERO, 0),
            Step::Stride { distance, .. } => (read.clone(), distance, self.steps(window)),
        };
        (0..=times).map(move |time| first.start + step * time..first.end + step * time)
    }

    /// Where so many bytes ahead of the next read end.
    pub fn end_of(&self, window: Bytes) -> Bytes {
        match self.step {
            Step::InOrder => self.next + window,
            Step::Stride { distance, .. } => self.next + distance * self.steps(window),
        }
    }

    fn steps(&self, window: Bytes) -> u64 {
        match self.step {
            Step::InOrder => 1,
            Step::Stride { len, .. } => (window / len).max(1),
        }
    }

    fn advance(&mut self, read: &Range<Bytes>, now: Nanos) {
        let next = match self.step {
            Step::InOrder => read.end,
            Step::Stride { distance, .. } => read.start + distance,
        };
        self.next = self.next.max(next);
        self.read += read.end - read.start;
        self.used = now;
    }
}

fn has_ended(stream: &Stream, now: Nanos) -> bool {
    now.saturating_sub(stream.used) > LONGEST_PAUSE
}

/// The place of a key in a table with a power of two of them.
fn place(key: Bytes, places: usize) -> usize {
    // Knuth's multiplier scatters the multiples of a request's size.
    (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (places - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB};

    fn streams() -> Streams {
        Streams::new(KIB * 128, MIB * 64)
    }

    fn note(streams: &mut Streams, at: Bytes, len: Bytes) -> Option<Step> {
        let found = streams.note(&(at..at + len), || Nanos::from_secs(1));
        found.map(|stream| streams.get(stream).step)
    }

    #[test]
    fn three_reads_in_order_make_a_stream_also_between_those_of_many_others() {
        let mut streams = streams();
        let found: Vec<Option<Step>> = (0..3 * 20)
            .map(|i| note(&mut streams, MIB * 100 * (i % 20) + KIB * 128 * (i / 20), KIB * 128))
            .collect();
        assert!(found[..40].iter().all(Option::is_none), "two reads are none");
        let streams = found[40..].iter().filter(|step| **step == Some(Step::InOrder)).count();
        assert_eq!(streams, MOST, "and there are no more than that");
    }

    #[test]
    fn three_reads_at_one_distance_make_a_stream_by_a_stride() {
        let mut streams = streams();
        let stride = Step::Stride { distance: MIB, len: KIB * 128 };
        let found: Vec<Option<Step>> = (0..5).map(|i| note(&mut streams, MIB * i, KIB * 128)).collect();
        assert_eq!(found, [None, None, Some(stride), Some(stride), Some(stride)]);
        // What lies within an extent is read with it.
        let found: Vec<Option<Step>> =
            (0..4).map(|i| note(&mut streams, MIB * 500 + KIB * 112 * i, KIB * 96)).collect();
        assert_eq!(found[3], Some(Step::InOrder));
    }

    #[test]
    fn reads_without_a_pattern_make_no_stream() {
        let mut streams = streams();
        let mut rng = braid_base::Rng::new(5);
        let mut found = 0;
        for _ in 0..100_000 {
            found += u32::from(note(&mut streams, KIB * 4 * rng.below(1 << 22), KIB * 4).is_some());
        }
        assert_eq!(found, 0);
    }

    #[test]
    fn reads_of_a_stream_may_arrive_in_another_order() {
        let mut streams = streams();
        let order = [0, 1, 2, 4, 3, 5, 7, 6, 8, 9];
        let found: Vec<Option<Step>> =
            order.iter().map(|&i| note(&mut streams, KIB * 128 * i, KIB * 128)).collect();
        assert!(found[2..].iter().all(|step| *step == Some(Step::InOrder)), "{found:?}");
        assert_eq!(streams.get(0).next, KIB * 1280);
    }

    #[test]
    fn a_window_grows_with_what_was_read_up_to_a_part_of_the_memory() {
        let mut streams = streams();
        let size = KIB * 64;
        let mut windows = Vec::new();
        for i in 0..400 {
            if let Some(stream) = streams.note(&(size * i..size * (i + 1)), || Nanos::from_secs(1)) {
                windows.push(streams.window(stream, MIB * 16));
            }
        }
        assert_eq!(windows[0], KIB * 256);
        assert!(windows.is_sorted());
        assert_eq!(windows.last(), Some(&(MIB * 16)), "of one alone");
        for other in 1..8 {
            for i in 0..4 {
                let at = MIB * 1000 * other + size * i;
                streams.note(&(at..at + size), || Nanos::from_secs(1));
            }
        }
        assert_eq!(streams.window(0, MIB * 16), MIB * 4);
        let end = size * 400;
        assert_eq!(streams.note(&(end..end + size), || Nanos::from_secs(9)), Some(0));
        assert_eq!(streams.window(0, MIB * 16), MIB * 16, "the others have ended");
    }

    /// Reads a file of so many reads at this place and time; whether it became a stream. Ten reads more than it has are read ahead in the end.
    fn read_file(streams: &mut Streams, number: u64, reads: u64) -> bool {
        let (start, now, size) = (MIB * 100 * number, Nanos::from_secs(number), KIB * 128);
        let mut found = None;
        for i in 0..reads {
            let at = start + size * i;
            found = streams.note(&(at..at + size), || now);
            if let Some(stream) = found {
                streams.set_until(stream, start + size * (reads + 10));
            }
        }
        found.is_some()
    }

    #[test]
    fn after_streams_that_ended_too_early_the_next_must_have_read_more() {
        let mut streams = streams();
        let found: Vec<bool> = (0..6).map(|file| read_file(&mut streams, file, 4)).collect();
        assert_eq!(found, [true, true, true, false, false, false], "they do not last");
        assert!(read_file(&mut streams, 6, 100), "this one does");
        assert!(read_file(&mut streams, 7, 100));
        assert!(read_file(&mut streams, 8, 16), "so it is less again");
    }
}
