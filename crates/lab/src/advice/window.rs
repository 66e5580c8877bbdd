//! Simulated part of a recording: its last requests, in memory, so that many simulations need to read the
//! file only once.

use crate::{Error, Result};
use braid_base::{Arrival, Bytes, Nanos, Op};
use braid_trace::{Options, TraceFile};
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::path::Path;

/// The last requests of a recording, and the extents touched by the whole recording.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    /// File of the recording.
    pub(crate) name: String,
    /// Unit of touched extents.
    pub(crate) extent: Bytes,
    /// Requests at their addresses on the recorded device; the first comes at time zero.
    pub(crate) placed: Vec<Arrival>,
    /// The same requests with touched extents made contiguous.
    pub(crate) compacted: Vec<Arrival>,
    /// Number of extents touched by the whole recording.
    pub(crate) extents: u64,
    /// Numbers of the touched extents on the recorded device, in order; `None` if there are several devices
    /// or too many extents.
    touched: Option<Vec<u64>>,
    /// Requests of the whole recording.
    pub(crate) recorded_requests: u64,
    /// Time from the first recorded request to the last.
    pub(crate) recorded: Nanos,
    /// Unreadable records.
    pub(crate) bad_records: u64,
}

/// Fewest requests of a window for a forecast.
const FEWEST: usize = 64;
/// Most extents known by number: 32 MiB of memory, 512 GiB of extents of 128 KiB.
const MOST_KNOWN: usize = 1 << 22;

impl Window {
    /// Reads the last `most` requests of a recording.
    ///
    /// # Errors
    /// `Trace` if the recording cannot be read. `Setup` if there are too few requests, no reads and writes,
    /// or all requests at one moment.
    pub fn read(path: &Path, options: &Options, extent: Bytes, most: usize) -> Result<Window> {
        let name = path.display().to_string();
        let (file, compaction) = TraceFile::open_touched(path, options, extent)?;
        let mut last: VecDeque<(Arrival, Arrival)> = VecDeque::new();
        let mut touched = (file.survey().places.len() == 1).then(HashSet::new);
        for record in file.reader()? {
            let record = record?;
            let Some(request) = compaction.place(&record) else {
                return Err(changed(&name));
            };
            if last.len() == most.max(FEWEST) {
                last.pop_front();
            }
            last.push_back((record.arrival, Arrival { request, ..record.arrival }));
            note(&mut touched, &record.arrival, extent);
        }
        let start = last.front().map_or(Nanos::ZERO, |(first, _)| first.at);
        let since = |arrival: Arrival| Arrival { at: arrival.at - start, ..arrival };
        let (placed, compacted) = last.into_iter().map(|(a, b)| (since(a), since(b))).unzip();
        let sorted = |touched: HashSet<u64>| {
            let mut touched: Vec<u64> = touched.into_iter().collect();
            touched.sort_unstable();
            touched
        };
        let survey = file.survey();
        let window = Window {
            name,
            extent,
            placed,
            compacted,
            extents: compaction.extents(),
            touched: touched.map(sorted),
            recorded_requests: survey.tally.records,
            recorded: survey.duration,
            bad_records: survey.tally.bad_records,
        };
        window.check()?;
        Ok(window)
    }

    /// Extents touched by the recording, by number on the recorded device, in order; `None` if there are
    /// several devices or too many touched extents.
    pub fn touched(&self) -> Option<&[u64]> {
        self.touched.as_deref()
    }

    /// End of the requests' addresses.
    pub fn end(&self) -> Bytes {
        self.placed
            .iter()
            .map(|arrival| arrival.request.offset + arrival.request.len)
            .max()
            .unwrap_or_default()
    }

    /// Time from the first request to the last.
    pub(crate) fn length(&self) -> Nanos {
        self.placed.last().map_or(Nanos::ZERO, |last| last.at)
    }

    /// Start of the measured part: half of the reads and writes come before.
    pub(crate) fn warm_up(&self) -> Nanos {
        let times = self.times();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    /// Reads and writes of the measured part.
    pub(crate) fn measured_requests(&self) -> u64 {
        let times = self.times();
        (times.len() - times.len() / 2) as u64
    }

    /// Starts of batches of equally many reads and writes, in the measured part. Simultaneous requests are in
    /// the same batch.
    pub(crate) fn batches(&self, count: usize) -> Vec<Nanos> {
        let times = self.times();
        let measured = &times[times.len() / 2..];
        let mut begins: Vec<Nanos> =
            (0..count).map(|batch| measured[batch * measured.len() / count]).collect();
        begins.dedup();
        begins
    }

    fn times(&self) -> Vec<Nanos> {
        let is_timed = |arrival: &&Arrival| matches!(arrival.request.op, Op::Read | Op::Write);
        self.placed.iter().filter(is_timed).map(|arrival| arrival.at).collect()
    }

    fn check(&self) -> Result<()> {
        let Window { name, recorded_requests, .. } = self;
        let count = self.times().len();
        if count < FEWEST {
            return Err(Error::setup(format!(
                "{name} has {recorded_requests} requests, {count} of them reads or writes: advice needs at least {FEWEST}; record for \
                 longer, while the volume is in use"
            )));
        }
        if self.warm_up() == Nanos::ZERO || self.warm_up() == self.length() {
            return Err(Error::setup(format!(
                "{name}: at least half of its {count} reads and writes have the same time, which leaves \
                 nothing to warm up or nothing to measure; use a recording with times, or --time-unit for \
                 another unit"
            )));
        }
        Ok(())
    }
}

fn changed(name: &str) -> Error {
    Error::new(crate::ErrorKind::Trace, format!("{name} has changed while it was read: try again"))
}

/// Records the extents of a request; `touched` becomes `None` if there are too many.
fn note(touched: &mut Option<HashSet<u64>>, arrival: &Arrival, extent: Bytes) {
    let (Some(known), request) = (touched.as_mut(), arrival.request) else { return };
    // A discard touches no extent: its range may be as large as the volume.
    if !matches!(request.op, Op::Read | Op::Write) || request.len == Bytes::ZERO {
        return;
    }
    let last = (request.offset + request.len - Bytes(1)) / extent;
    known.extend(request.offset / extent..=last);
    if known.len() > MOST_KNOWN {
        *touched = None;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use braid_base::Request;
    use braid_trace::{BlockCompression, CompactWriter, Header};
    use std::path::PathBuf;

    /// Writes a compact trace of these requests.
    pub(crate) fn recording(folder: &Path, arrivals: &[Arrival]) -> PathBuf {
        let path = folder.join("trace");
        let mut writer = CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None).unwrap();
        arrivals.iter().for_each(|arrival| writer.push(arrival).unwrap());
        std::fs::write(&path, writer.finish(0).unwrap()).unwrap();
        path
    }

    pub(crate) fn read_at(number: u64, at: u64) -> Arrival {
        let request = Request { op: Op::Read, offset: Bytes(number << 20), len: Bytes(4096) };
        Arrival { request, at: Nanos::from_millis(at) }
    }

    fn window(arrivals: &[Arrival], most: usize) -> Result<Window> {
        let folder = tempfile::tempdir().unwrap();
        Window::read(&recording(folder.path(), arrivals), &Options::default(), Bytes(128 << 10), most)
    }

    #[test]
    fn the_last_requests_are_kept_and_the_first_half_warms_up() {
        let all: Vec<Arrival> = (0..1000).map(|n| read_at(n % 10, n)).collect();
        let window = window(&all, 100).unwrap();
        assert_eq!((window.placed.len(), window.recorded_requests, window.extents), (100, 1000, 10));
        assert_eq!((window.placed[0].at, window.warm_up()), (Nanos::ZERO, Nanos::from_millis(50)));
        assert_eq!((window.length(), window.measured_requests()), (Nanos::from_millis(99), 50));
        // 900 asks for the first of ten extents, 1 MiB apart; compacted, the extents are neighbours.
        assert_eq!(window.placed[3].request.offset, Bytes(3 << 20));
        assert_eq!(window.compacted[3].request.offset, Bytes(3 * (128 << 10)));
        assert_eq!(window.touched().unwrap()[..3], [0, 8, 16]);
        let begins = window.batches(5);
        assert_eq!(begins, [50, 60, 70, 80, 90].map(Nanos::from_millis));
    }

    #[test]
    fn uninformative_recording_is_rejected_with_a_remedy() {
        let few: Vec<Arrival> = (0..10).map(|n| read_at(n, n)).collect();
        let flushes: Vec<Arrival> = (0..200)
            .map(|n| Arrival {
                request: Request { op: Op::Flush, offset: Bytes(0), len: Bytes(0) },
                ..read_at(n, n)
            })
            .collect();
        let at_once: Vec<Arrival> = (0..200).map(|n| read_at(n, 0)).collect();
        for (arrivals, expected) in [(few, "10 of them"), (flushes, "0 of them"), (at_once, "--time-unit")] {
            let error = window(&arrivals, 1000).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Setup);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn simultaneous_requests_share_a_batch() {
        let all: Vec<Arrival> = (0..200).map(|n| read_at(n, if n < 150 { n } else { 150 })).collect();
        let begins = window(&all, 1000).unwrap().batches(10);
        assert_eq!(begins, [100, 110, 120, 130, 140, 150].map(Nanos::from_millis));
    }
}
