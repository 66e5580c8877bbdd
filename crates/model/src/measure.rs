//! Measures of devices: the loads of published figures and of calibration, and their values for a model in
//! virtual time.

use crate::ssd::State;
use crate::{Model, Op, Request, Spec, Timing};
use braid_base::{Bytes, MIB, Nanos, Rng};

/// A way to measure a device, in a closed loop. Sequential requests are of 128 KiB, random requests of 4 KiB,
/// aligned. Unless stated otherwise, an SSD has been written once in order before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Measure {
    /// Reads one after the other, `depth` outstanding, from this share of the device on.
    SequentialRead {
        /// Requests outstanding.
        depth: usize,
        /// The start, 0 to 1.
        from: f64,
    },
    /// Writes one after the other, `depth` outstanding, from the start, for longer than a buffer can hide.
    SequentialWrite {
        /// Requests outstanding.
        depth: usize,
    },
    /// Reads at uniformly random places.
    RandomRead {
        /// Requests outstanding.
        depth: usize,
    },
    /// Writes at uniformly random places, for longer than a buffer can hide.
    RandomWrite {
        /// Requests outstanding.
        depth: usize,
        /// The written share of the device.
        span: f64,
        /// The initial state of an SSD that maps pages; other devices have no states.
        state: State,
    },
    /// One read after the other at random places within a two-thousandth of the device: the arm's time
    /// without the distance. The range is at least 256 MiB, because a disk's buffer might hold a smaller
    /// range.
    NearRead,
    /// One read after the other at random places in the first and the last hundredth of the device in turn.
    FarRead,
    /// One read after the other, each before the previous read: a disk waits for almost a turn each time.
    BackwardRead,
    /// One read after the other, always of the same bytes, so a disk's buffer holds the bytes.
    SameRead {
        /// The length of the read.
        len: Bytes,
    },
}

/// The requests of a measure, one after the other.
#[derive(Clone, Debug)]
pub struct Requests {
    measure: Measure,
    size: Bytes,
    rng: Rng,
    count: u64,
}

const SEQUENTIAL: Bytes = Bytes(128 << 10);
const SMALL: Bytes = Bytes(4 << 10);

impl Measure {
    /// Requests outstanding.
    pub fn depth(self) -> usize {
        match self {
            Measure::SequentialRead { depth, .. }
            | Measure::SequentialWrite { depth }
            | Measure::RandomRead { depth }
            | Measure::RandomWrite { depth, .. } => depth,
            Measure::NearRead | Measure::FarRead | Measure::BackwardRead | Measure::SameRead { .. } => 1,
        }
    }

    /// The length of its requests.
    pub fn len(self) -> Bytes {
        match self {
            Measure::SequentialRead { .. } | Measure::SequentialWrite { .. } => SEQUENTIAL,
            Measure::SameRead { len } => len,
            _ => SMALL,
        }
    }

    /// True if the measure writes: destroys the data on the device.
    pub fn writes(self) -> bool {
        matches!(self, Measure::SequentialWrite { .. } | Measure::RandomWrite { .. })
    }

    /// True if the value comes from the median time of a request, not from the mean: events of only some
    /// requests must not count.
    pub fn of_median(self) -> bool {
        matches!(self, Measure::BackwardRead | Measure::SameRead { .. })
    }

    /// The value at a number of completed requests per second: MB/s (10^6 bytes) of sequential access,
    /// otherwise requests per second.
    pub fn value(self, per_second: f64) -> f64 {
        match self {
            Measure::SequentialRead { .. } | Measure::SequentialWrite { .. } => {
                per_second * SEQUENTIAL.0 as f64 / 1e6
            }
            _ => per_second,
        }
    }

    /// Its requests to a device of `size`.
    ///
    /// # Panics
    /// If the size is below 1 MiB.
    pub fn requests(self, size: Bytes, seed: u64) -> Requests {
        assert!(size >= MIB, "a device of {size} is too small to be measured");
        Requests { measure: self, size, rng: Rng::new(seed), count: 0 }
    }
}

impl Requests {
    /// The next request. Requests never end: sequential requests start again behind the last.
    pub fn step(&mut self) -> Request {
        let at = self.count;
        self.count += 1;
        let op = if self.measure.writes() { Op::Write } else { Op::Read };
        Request { op, offset: self.offset(at), len: self.measure.len() }
    }

    fn offset(&mut self, at: u64) -> Bytes {
        let small = self.size / SMALL;
        let share = |share: f64| ((small as f64 * share) as u64).max(1);
        let mut random = |from: u64, count: u64| SMALL * (from + self.rng.below(count)).min(small - 1);
        match self.measure {
            Measure::SequentialRead { from, .. } => {
                let from = Bytes((self.size.0 as f64 * from) as u64).align_down(SEQUENTIAL);
                let places = ((self.size - from) / SEQUENTIAL).max(1);
                from.min(self.size.align_down(SEQUENTIAL) - SEQUENTIAL) + SEQUENTIAL * (at % places)
            }
            Measure::SequentialWrite { .. } => SEQUENTIAL * (at % (self.size / SEQUENTIAL)),
            Measure::RandomRead { .. } => random(0, small),
            Measure::RandomWrite { span, .. } => random(0, share(span)),
            Measure::NearRead => {
                random(small / 2, share(1.0 / 2_000.0).max((MIB * 256 / SMALL).min(small / 4)))
            }
            Measure::FarRead => {
                random(if at.is_multiple_of(2) { 0 } else { small - share(0.01) }, share(0.01))
            }
            // Starts a hundredth from the device's start, so all reads lie at the outer edge, whatever their
            // number.
            Measure::BackwardRead => {
                let first = share(0.01);
                SMALL * (first - 1 - at % first)
            }
            Measure::SameRead { .. } => (self.size / 2).align_down(SEQUENTIAL),
        }
    }
}

/// Measures a model at its full capacity.
///
/// Takes a few milliseconds to a few seconds of processor time. The same model gives the same value.
pub fn measure(spec: &Spec, measure: Measure) -> f64 {
    let spec = match measure {
        Measure::RandomWrite { state, .. } => &spec.clone().with_state(state),
        _ => &spec.clone().with_state(State::Filled),
    };
    let mut device = spec.build(spec.capacity, 7);
    let mut requests = measure.requests(spec.capacity, 11);
    let depth = measure.depth();
    let (warm_up, count) = match measure {
        Measure::SequentialRead { .. } => (100, 3_000),
        Measure::SequentialWrite { .. } => (4 * (buffer_of(spec) / SEQUENTIAL) + 100, 3_000),
        Measure::RandomWrite { .. } => {
            let filled = 2 * (buffer_of(spec) / SMALL).min(buffered_runs_of(spec)) + 2_000;
            (filled, filled.max(4_000))
        }
        _ => (4 * depth as u64, 3_000.max(20 * depth as u64)),
    };
    let start = drive(&mut device, depth, warm_up, Nanos::ZERO, |_| requests.step());
    if measure.of_median() {
        let mut ends = vec![start];
        for at in 0..1_001 {
            ends.push(drive(&mut device, 1, 1, ends[at], |_| requests.step()));
        }
        let mut times: Vec<Nanos> = ends.windows(2).map(|ends| ends[1] - ends[0]).collect();
        times.sort_unstable();
        return measure.value(1.0 / times[500].as_secs_f64());
    }
    let end = drive(&mut device, depth, count, start, |_| requests.step());
    measure.value(count as f64 / (end - start).as_secs_f64())
}

/// Keeps `depth` requests outstanding until `count` have completed. Returns the time of the last completion.
///
/// # Panics
/// If `depth` is zero.
pub fn drive(
    device: &mut impl Model,
    depth: usize,
    count: u64,
    start: Nanos,
    mut next: impl FnMut(u64) -> Request,
) -> Nanos {
    assert!(depth > 0, "without a request outstanding nothing completes");
    let mut completed = Vec::with_capacity(depth);
    let (mut submitted, mut done, mut now) = (0, 0, start);
    while done < count {
        while submitted < count && submitted - done < depth as u64 {
            device.submit(submitted, next(submitted), now);
            submitted += 1;
        }
        now = device.next_event().expect("requests are outstanding, so something happens").max(now);
        device.advance(now, &mut completed);
        done += completed.drain(..).count() as u64;
    }
    now
}

fn buffer_of(spec: &Spec) -> Bytes {
    match &spec.timing {
        Timing::Ssd(params) => params.buffer,
        Timing::Hdd(params) => params.buffer,
        Timing::Dram(_) | Timing::Rates(_) => Bytes::ZERO,
        Timing::Group(params) => buffer_of(&params.member) * params.count as u64,
    }
}

fn buffered_runs_of(spec: &Spec) -> u64 {
    match &spec.timing {
        Timing::Ssd(_) | Timing::Dram(_) | Timing::Rates(_) => u64::MAX,
        Timing::Hdd(params) => params.buffered_runs as u64,
        Timing::Group(params) => buffered_runs_of(&params.member).saturating_mul(params.count as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{GIB, KIB};

    #[test]
    fn requests_of_every_measure_lie_within_device() {
        let random = Measure::RandomWrite { depth: 1, span: 0.1, state: State::Filled };
        let reads = [0.0, 0.96, 1.0].map(|from| Measure::SequentialRead { depth: 1, from });
        let others = [random, Measure::SequentialWrite { depth: 1 }, Measure::RandomRead { depth: 1 }];
        let special = [Measure::NearRead, Measure::FarRead, Measure::BackwardRead];
        let same = [KIB * 4, KIB * 128].map(|len| Measure::SameRead { len });
        for size in [MIB, MIB * 3 + KIB * 4, GIB] {
            for measure in reads.into_iter().chain(others).chain(special).chain(same) {
                let mut requests = measure.requests(size, 1);
                for _ in 0..20_000 {
                    let request = requests.step();
                    assert!(request.offset + request.len <= size, "{measure:?} of {size}: {request:?}");
                }
            }
        }
    }
}
