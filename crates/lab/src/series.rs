//! Time series of a simulation: counters noted at equal intervals, at most a few hundred. When a run exceeds
//! the limit, every other note is dropped and the interval doubles, so memory does not grow with the trace's
//! length.

use crate::guests::Guests;
use crate::outcome::{Interval, IntervalDevice};
use crate::recorder::Recorder;
use crate::rig::{Reached, SimulatedDevice};
use braid_base::{Bytes, Nanos};
use braid_emulated::Usage;
use braid_engine::{DeviceGlance, Glance};
use braid_model::Counters;

/// Notes, oldest first: the first note is at the end of the warm-up.
pub(crate) struct NoteSeries {
    pub interval: Nanos,
    notes: Vec<Note>,
}

/// All counters at one moment.
#[derive(Clone)]
pub(crate) struct Note {
    pub at: Nanos,
    pub requests: u64,
    pub bytes: Bytes,
    pub time: Nanos,
    pub migrated_bytes: u64,
    pub behind: Bytes,
    pub devices: Vec<DeviceNote>,
}

/// A device's counters at one moment.
#[derive(Clone, Copy)]
pub(crate) struct DeviceNote {
    pub guests: DeviceGlance,
    pub usage: Usage,
    pub wear: Counters,
}

/// Initial interval of a series of unknown length.
const FIRST: Nanos = Nanos::from_millis(100);
/// Most notes.
const MOST: usize = 512;
/// Intervals of a series of known length.
const USUAL: u64 = 200;

impl NoteSeries {
    /// An empty series with this interval, or with an interval that fits a simulation of `duration`.
    pub fn new(interval: Option<Nanos>, duration: Option<Nanos>) -> NoteSeries {
        let fitting = duration.map_or(FIRST, |duration| duration / USUAL);
        let interval = interval.unwrap_or(fitting).max(Nanos::from_micros(1));
        NoteSeries { interval, notes: Vec::new() }
    }

    /// Adds a note.
    pub fn push(&mut self, note: Note) {
        if self.notes.len() >= MOST && self.notes.len() % 2 == 1 {
            let mut place = 0;
            self.notes.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.interval = self.interval * 2;
        }
        self.notes.push(note);
    }

    /// The first note.
    pub fn first(&self) -> &Note {
        &self.notes[0]
    }

    /// The last note.
    pub fn last(&self) -> &Note {
        &self.notes[self.notes.len() - 1]
    }

    /// Bytes of the volume missing from a copy at the notes: the mean and the maximum.
    pub fn behind(&self) -> (f64, u64) {
        let behind = || self.notes.iter().map(|note| note.behind.0);
        (ratio(behind().sum(), self.notes.len() as u64), behind().max().unwrap_or(0))
    }

    /// Activity between the notes.
    pub fn intervals(&self) -> Vec<Interval> {
        let begin = self.first().at;
        self.notes
            .windows(2)
            .filter(|pair| pair[1].at > pair[0].at)
            .map(|pair| between(begin, &pair[0], &pair[1]))
            .collect()
    }
}

impl Note {
    /// Takes the counters now.
    pub fn take(now: Nanos, recorder: &Recorder, glance: &Glance, devices: &[SimulatedDevice]) -> Note {
        let (requests, bytes, time) = recorder.totals();
        let note = |(guests, simulated): (&DeviceGlance, &SimulatedDevice)| DeviceNote {
            guests: *guests,
            usage: simulated.usage(),
            wear: simulated.counters(),
        };
        Note {
            at: now,
            requests,
            bytes,
            time,
            migrated_bytes: glance.migrated_bytes,
            behind: glance.behind,
            devices: glance.devices.iter().zip(devices).map(note).collect(),
        }
    }
}

/// Takes notes until the world ends.
pub(crate) async fn keep(guests: std::rc::Rc<Guests<Reached>>, devices: Vec<SimulatedDevice>) {
    use braid_runtime::Runtime;
    loop {
        let next = {
            let series = guests.series.borrow();
            series.last().at + series.interval
        };
        guests.rt.sleep_until(next).await;
        let note = Note::take(guests.rt.now(), &guests.recorder.borrow(), &guests.volume.glance(), &devices);
        guests.series.borrow_mut().push(note);
    }
}

fn between(begin: Nanos, before: &Note, after: &Note) -> Interval {
    let seconds = (after.at - before.at).as_secs_f64();
    let requests = after.requests - before.requests;
    Interval {
        start_seconds: (before.at - begin).as_secs_f64(),
        length_seconds: seconds,
        requests,
        requests_per_second: requests as f64 / seconds,
        throughput_bytes_per_second: (after.bytes - before.bytes).0 as f64 / seconds,
        latency_ns_mean: ratio((after.time - before.time).0, requests),
        migrated_bytes: after.migrated_bytes - before.migrated_bytes,
        devices: devices_between(before, after),
    }
}

/// Activity of each device between two notes.
pub(crate) fn devices_between(before: &Note, after: &Note) -> Vec<IntervalDevice> {
    let pairs = || before.devices.iter().zip(&after.devices);
    let elapsed = after.at - before.at;
    let requests: u64 = pairs().map(|(b, a)| a.guests.requests - b.guests.requests).sum();
    let bytes: u64 = pairs().map(|(b, a)| a.guests.bytes - b.guests.bytes).sum();
    let used: u64 = after.devices.iter().map(|device| u64::from(device.guests.used)).sum();
    let device = |(before, after): (&DeviceNote, &DeviceNote)| IntervalDevice {
        requests_share: ratio(after.guests.requests - before.guests.requests, requests),
        bytes_share: ratio(after.guests.bytes - before.guests.bytes, bytes),
        data_share: ratio(u64::from(after.guests.used), used),
        throughput_bytes_per_second: ratio(after.guests.bytes - before.guests.bytes, elapsed.0) * 1e9,
        response_ns_mean: ratio(
            (after.guests.time - before.guests.time).0,
            after.guests.requests - before.guests.requests,
        ),
        utilisation: ratio((after.usage.busy - before.usage.busy).0, elapsed.0),
        queue_depth_mean: ratio((after.usage.waited - before.usage.waited).0, elapsed.0),
    };
    pairs().map(device).collect()
}

/// Part divided by whole; zero if the whole is zero.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
