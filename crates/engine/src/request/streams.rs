//! Streams: reads in order, or by a stride.
//!
//! Three reads at the same distance make a stream. Two small tables remember the first two reads, each read
//! in one place of each table. The first table is indexed by the address of the next read in order. The
//! second, for strides, is indexed by the length and the region of the volume. A read outside of all streams
//! thus costs one look into each table, however many clients read at the same time. Two candidates in the
//! same place overwrite each other, at a cost of three more reads.
//!
//! A known stream is recognised by its position, because its reads may arrive out of order. The window of
//! read-ahead grows with the bytes read, so that a short stream never costs more than its own reads. How long
//! streams last depends on the load. After each stream that ended too early, the next stream must have read
//! twice as much before read-ahead begins. After each stream that paid, half as much is enough.

use braid_base::{Bytes, ExtentId, Nanos};
use std::ops::Range;

/// Streams at the same time.
const MOST: usize = 16;
/// Pause of guests' reads after which a stream has ended: another stream may take its place.
const LONGEST_PAUSE: Nanos = Nanos::from_millis(250);
/// Reads that make a stream.
const ENOUGH: u32 = 3;
/// Bytes that these reads must have read: the minimum, as long as streams pay, and the maximum.
const LEAST_READ: Bytes = Bytes(256 << 10);
const MOST_READ: Bytes = Bytes(4 << 20);
/// Bytes that guests must read of a stream for each byte read ahead in vain, so that the stream pays.
const PAYS: u64 = 1;
/// Places of candidates: by the address of the next read in order, and by region.
const IN_ORDER: usize = 256;
const STRIDES: usize = 64;
/// Size of a region. A longer stride is not recognised.
const REGION: Bytes = Bytes(64 << 20);
/// Distance by which a read of a stream may arrive late.
const LATE: Bytes = Bytes(4 << 20);
/// Extents with failed read-ahead that a stream remembers: the most recent failures.
const MOST_FAILED: usize = 64;

/// The streams of a volume.
pub(crate) struct Streams {
    streams: Vec<Stream>,
    in_order: Box<[Expected; IN_ORDER]>,
    strides: Box<[LastRead; STRIDES]>,
    extent_size: Bytes,
    /// Bytes that a stream must have read before read-ahead begins.
    enough: Bytes,
    /// Streams begun so far.
    begun: u64,
    /// Bytes that may be read ahead of all streams together: half of the memory, because a run's memory is
    /// free only after the whole run has been read.
    most: Bytes,
}

/// The next read of a candidate in order.
#[derive(Clone, Copy, Default)]
struct Expected {
    at: Bytes,
    /// Reads so far (none if the place is free), and their bytes.
    reads: u32,
    bytes: Bytes,
}

/// The last read in a region.
#[derive(Clone, Copy, Default)]
struct LastRead {
    at: Bytes,
    len: Bytes,
    /// Distance to the read before, and number of reads with the same distance.
    distance: Bytes,
    reads: u32,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Unique number.
    pub number: u64,
    pub step: Step,
    /// Address of the next read.
    pub next: Bytes,
    /// Address up to which read-ahead has begun.
    pub until: Bytes,
    /// Bytes read so far, and bytes read before the stream was recognised.
    read: Bytes,
    before: Bytes,
    used: Nanos,
    /// Extents with failed read-ahead. A failed run does not tell the bad sector, so all extents of the run
    /// are excluded.
    failed: Vec<ExtentId>,
}

/// Ranges to be tried for read-ahead after a read.
pub(crate) struct AheadRanges {
    first: Range<Bytes>,
    step: Bytes,
    times: u64,
    /// End of the window.
    pub end: Bytes,
    /// Length of the window in bytes.
    pub window: Bytes,
}

/// Order of the reads of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Each read begins at the end of the last read, or within one extent after.
    InOrder,
    /// `len` bytes at each multiple of `distance`, which is longer than an extent.
    Stride { distance: Bytes, len: Bytes },
}

impl Streams {
    /// Returns an empty list of streams; read-ahead has `most` bytes of memory.
    pub fn new(extent_size: Bytes, most: Bytes) -> Streams {
        Streams {
            streams: Vec::new(),
            in_order: Box::new([Expected::default(); IN_ORDER]),
            strides: Box::new([LastRead::default(); STRIDES]),
            extent_size,
            enough: LEAST_READ,
            begun: 0,
            most: Bytes(most.0 / 2),
        }
    }

    /// Notes a read. Returns the index of its stream, if any.
    pub fn note(&mut self, read: &Range<Bytes>, now: impl Fn() -> Nanos) -> Option<usize> {
        if !self.streams.is_empty()
            && let Some(known) = self.streams.iter().position(|stream| self.belongs(stream, read, &now))
        {
            self.streams[known].advance(read, now());
            return Some(known);
        }
        let (step, bytes) = self.candidate(read)?;
        self.begin(step, read, bytes, now())
    }

    /// True if a read belongs to a stream. To an ended stream, only the exact next read belongs, not other
    /// reads near its position.
    fn belongs(&self, stream: &Stream, read: &Range<Bytes>, now: impl Fn() -> Nanos) -> bool {
        let (from, to) = (stream.next.saturating_sub(LATE), stream.next.max(stream.until));
        let is_near = match stream.step {
            Step::InOrder => from <= read.start && read.start <= to + self.extent_size,
            Step::Stride { distance, len } => {
                let is_near = stream.next.saturating_sub(distance) <= read.start && read.start <= to;
                is_near && read.end - read.start == len && read.start % distance == stream.next % distance
            }
        };
        is_near && (read.start == stream.next || !has_ended(stream, now()))
    }

    /// Adds a read to the candidates. Returns the step and the bytes read so far if the last reads make a
    /// stream.
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
        *last =
            LastRead { at: read.start, len, distance: if reads > 1 { distance } else { Bytes::ZERO }, reads };
        let step = match distance > self.extent_size.max(len) {
            true => Step::Stride { distance, len },
            false => Step::InOrder,
        };
        let bytes = len * u64::from(reads);
        (reads >= ENOUGH && bytes >= self.enough && distance >= len).then_some((step, bytes))
    }

    /// Begins a stream, if fewer than [`MOST`] are active. Ended streams adjust the bytes required of the
    /// next stream.
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
        self.begun += 1;
        let (number, failed) = (self.begun, Vec::new());
        let mut stream = Stream { number, step, next, until, read: earlier, before, used: now, failed };
        stream.advance(read, now);
        self.streams.push(stream);
        Some(self.streams.len() - 1)
    }

    /// Returns a stream by index.
    pub fn get(&self, stream: usize) -> &Stream {
        &self.streams[stream]
    }

    /// Sets the address up to which read-ahead of a stream has begun.
    pub fn set_until(&mut self, stream: usize, until: Bytes) {
        self.streams[stream].until = until;
    }

    /// Records extents that a device could not read ahead of a stream.
    pub fn fail(&mut self, number: u64, extents: impl Iterator<Item = ExtentId>) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.number == number) {
            stream.failed.extend(extents);
            let beyond = stream.failed.len().saturating_sub(MOST_FAILED);
            stream.failed.drain(..beyond);
        }
    }

    /// Returns the ranges to be tried for read-ahead after a read, within `most_of_one` bytes. `None` while
    /// read-ahead has begun for at least half of the window.
    pub fn wanted(&self, stream: usize, read: &Range<Bytes>, most_of_one: Bytes) -> Option<AheadRanges> {
        let window = self.window(stream, most_of_one);
        let stream = &self.streams[stream];
        (stream.until < stream.end_of(window / 2)).then(|| stream.wanted(read, window, self.extent_size))
    }

    /// Returns the window: bytes to read ahead of a stream. The window is as long as the bytes read of the
    /// stream, within the stream's share of the memory and `most_of_one`.
    fn window(&self, stream: usize, most_of_one: Bytes) -> Bytes {
        let Stream { read, used, .. } = self.streams[stream];
        let others = self.streams.iter().filter(|other| !has_ended(other, used)).count();
        let part = Bytes(self.most.0 / others as u64).min(most_of_one);
        read.min(part).align_down(self.extent_size).max(self.extent_size)
    }
}

impl AheadRanges {
    /// Ranges in order. The guest's own read comes first, unless read-ahead of the read has already begun.
    pub fn ranges(&self) -> impl Iterator<Item = Range<Bytes>> + use<> {
        let (first, step) = (self.first.clone(), self.step);
        (0..=self.times).map(move |time| first.start + step * time..first.end + step * time)
    }
}

impl Stream {
    /// True if guests have read enough of the stream, since its recognition, to pay for the bytes read ahead
    /// in vain.
    fn has_paid(&self) -> bool {
        let ahead = self.until.saturating_sub(self.next);
        let in_vain = match self.step {
            Step::InOrder => ahead,
            Step::Stride { distance, len } => len * (ahead / distance),
        };
        self.read - self.before >= in_vain * PAYS
    }

    /// True if a device could not read an extent ahead of the stream.
    pub fn has_failed(&self, extent: ExtentId) -> bool {
        self.failed.contains(&extent)
    }

    /// Returns the ranges in a window of `window` bytes after the next read.
    fn wanted(&self, read: &Range<Bytes>, window: Bytes, extent_size: Bytes) -> AheadRanges {
        let (is_new, goes_on) = (self.until <= self.next, self.follows(read) == self.next);
        match self.step {
            Step::InOrder => {
                // Whole extents: no extent is read in two parts.
                let end = self.end_of(window).align_up(extent_size);
                let start = if is_new && goes_on { read.start } else { self.next.max(self.until) };
                AheadRanges { first: start..end.max(start), step: Bytes::ZERO, times: 0, end, window }
            }
            Step::Stride { distance, len } => {
                let start = if is_new && goes_on { read.start } else { self.next };
                let passed = distance * (self.until.saturating_sub(start) / distance);
                let (start, end) = (start + passed, self.end_of(window));
                let times = (end.saturating_sub(start) / distance).saturating_sub(1);
                AheadRanges { first: start..start + len, step: distance, times, end, window }
            }
        }
    }

    /// Returns the end of a window after the next read.
    fn end_of(&self, window: Bytes) -> Bytes {
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

    /// Returns the expected address of the read after `read`.
    fn follows(&self, read: &Range<Bytes>) -> Bytes {
        match self.step {
            Step::InOrder => read.end,
            Step::Stride { distance, .. } => read.start + distance,
        }
    }

    fn advance(&mut self, read: &Range<Bytes>, now: Nanos) {
        self.next = self.next.max(self.follows(read));
        self.read += read.end - read.start;
        self.used = now;
    }
}

fn has_ended(stream: &Stream, now: Nanos) -> bool {
    now.saturating_sub(stream.used) > LONGEST_PAUSE
}

/// Returns the place of a key in a table; `places` is a power of two.
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
    fn three_sequential_reads_make_a_stream_despite_interleaving() {
        let mut streams = streams();
        let found: Vec<Option<Step>> = (0..3 * 20)
            .map(|i| note(&mut streams, MIB * 100 * (i % 20) + KIB * 128 * (i / 20), KIB * 128))
            .collect();
        assert!(found[..40].iter().all(Option::is_none), "two reads are none");
        let streams = found[40..].iter().filter(|step| **step == Some(Step::InOrder)).count();
        assert_eq!(streams, MOST, "and there are no more than that");
    }

    #[test]
    fn three_reads_at_equal_distance_make_a_stride_stream() {
        let mut streams = streams();
        let stride = Step::Stride { distance: MIB, len: KIB * 128 };
        let found: Vec<Option<Step>> = (0..5).map(|i| note(&mut streams, MIB * i, KIB * 128)).collect();
        assert_eq!(found, [None, None, Some(stride), Some(stride), Some(stride)]);
        // A stride within an extent is read in order.
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
    fn reads_of_a_stream_may_arrive_out_of_order() {
        let mut streams = streams();
        let order = [0, 1, 2, 4, 3, 5, 7, 6, 8, 9];
        let found: Vec<Option<Step>> =
            order.iter().map(|&i| note(&mut streams, KIB * 128 * i, KIB * 128)).collect();
        assert!(found[2..].iter().all(|step| *step == Some(Step::InOrder)), "{found:?}");
        assert_eq!(streams.get(0).next, KIB * 1280);
    }

    #[test]
    fn window_grows_with_reads_up_to_share_of_memory() {
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

    /// An old stream took random reads near its position for its own reads, for ever, and read ahead from
    /// there.
    #[test]
    fn ended_stream_resumes_only_at_next_expected_read() {
        let size = KIB * 128;
        let note_at = |streams: &mut Streams, at: Bytes, secs: u64| {
            streams.note(&(at..at + size), || Nanos::from_secs(secs)).is_some()
        };
        let mut in_order = streams();
        let mut stride = streams();
        for i in 0..8 {
            note_at(&mut in_order, size * i, 1);
            note_at(&mut stride, MIB * i, 1);
        }
        in_order.set_until(0, MIB * 16);
        stride.set_until(0, MIB * 16);
        for at in [0, 5, 9, 17, 100].map(|i| size * i) {
            assert!(!note_at(&mut in_order, at, 9), "{at}");
        }
        assert!(!note_at(&mut stride, MIB * 10, 9));
        assert!(note_at(&mut in_order, size * 8, 9) && note_at(&mut in_order, size * 10, 9));
        assert!(note_at(&mut stride, MIB * 8, 9) && note_at(&mut stride, MIB * 10, 9));
    }

    /// Returns the ranges to be tried for read-ahead after a read of the stream.
    fn wanted(streams: &mut Streams, at: Bytes, len: Bytes) -> Vec<Range<Bytes>> {
        let read = at..at + len;
        let stream = streams.note(&read, || Nanos::from_secs(1)).expect("it belongs to the stream");
        streams.wanted(stream, &read, MIB * 16).map(|wanted| wanted.ranges().collect()).unwrap_or_default()
    }

    #[test]
    fn sequential_stream_requests_no_range_twice() {
        let (mut streams, size) = (streams(), KIB * 96);
        (0..8).for_each(|i| _ = note(&mut streams, size * i, size));
        let (next, end) = (size * 9, (size * 9 + KIB * 768).align_up(KIB * 128));
        assert_eq!(
            wanted(&mut streams, size * 8, size),
            [size * 8..end],
            "from what is asked on, whole extents"
        );
        streams.set_until(0, end);
        assert!(wanted(&mut streams, next, size).is_empty(), "as long as half of the window has been");
        let at = next + size;
        streams.set_until(0, at + KIB * 128);
        assert_eq!(wanted(&mut streams, at, size)[0].start, at + KIB * 128, "what comes is not looked at");
    }

    #[test]
    fn stride_stream_requests_no_range_twice() {
        let (mut streams, size) = (streams(), KIB * 64);
        (0..8).for_each(|i| _ = note(&mut streams, MIB * i, size));
        let ranges = |steps: Range<u64>| steps.map(|i| MIB * i..MIB * i + size).collect::<Vec<_>>();
        assert_eq!(wanted(&mut streams, MIB * 8, size), ranges(8..17));
        streams.set_until(0, MIB * 17);
        assert_eq!(wanted(&mut streams, MIB * 9, size), []);
        streams.set_until(0, MIB * 13);
        assert_eq!(wanted(&mut streams, MIB * 10, size), ranges(13..21));
    }

    #[test]
    fn stream_remembers_64_newest_failed_extents() {
        let mut streams = streams();
        (0..3).for_each(|i| _ = note(&mut streams, MIB * i, KIB * 128));
        let number = streams.get(0).number;
        streams.fail(number, (0..80).map(ExtentId));
        streams.fail(number + 1, [ExtentId(99)].into_iter());
        let has_failed = |extent| streams.get(0).has_failed(ExtentId(extent));
        assert_eq!([15, 16, 79, 99].map(has_failed), [false, true, true, false]);
    }

    /// Reads a file of `reads` requests; place and time follow from `number`. Read-ahead ends ten requests
    /// behind the file. Returns true if the file became a stream.
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
    fn short_streams_raise_detection_threshold_until_long_streams() {
        let mut streams = streams();
        let found: Vec<bool> = (0..6).map(|file| read_file(&mut streams, file, 4)).collect();
        assert_eq!(found, [true, true, true, false, false, false], "they do not last");
        assert!(read_file(&mut streams, 6, 100), "this one does");
        assert!(read_file(&mut streams, 7, 100));
        assert!(read_file(&mut streams, 8, 16), "so it is less again");
    }
}
