//! A model from requests that a device has already served: fitting sends no request to the device.
//!
//! Each model of the library is given the same requests. The best models are then changed, one property after
//! the other, as long as the response times come closer to the device's. The comparison uses mean response
//! times of similar requests: read, write or flush, small or large, in order or not, alone or among others. A
//! request keeps its delay after the previous completion, so a model that is too slow has no more requests in
//! flight than the device had. Properties that no request shows stay as in the library. The cost of a drive's
//! collection is part of its write times, and the model has no collection of its own.

use super::drive::no_collection;
use crate::hdd::Curve;
use crate::library::{Spec, Timing, library};
use crate::rate::Rate;
use crate::ssd::{FlushCost, Mapping, State};
use crate::text::check;
use crate::{DeviceModel, Model, Op, Request};
use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A request with its response time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// The time of submission to the device.
    pub at: Nanos,
    /// The request.
    pub request: Request,
    /// The response time.
    pub took: Nanos,
}

/// The model that is nearest to a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Nearest {
    /// The model.
    pub spec: Spec,
    /// The mean factor between the response times of model and device: 1 if equal.
    pub off: f64,
}

/// The model that is nearest to a device of this class and size, from its served requests in order of time.
/// `None` for too few requests.
///
/// Takes a second of processor time for 2,048 requests.
pub fn nearest(name: &str, class: DeviceClass, size: Bytes, served: &[Served]) -> Option<Nearest> {
    if served.len() < Served::FEWEST {
        return None;
    }
    let load = Load::new(size, served);
    let of_class = |of: DeviceClass| {
        let start = |known: &Spec| {
            let mut spec = known.clone();
            (spec.name, spec.title) =
                (Cow::Owned(name.to_owned()), Cow::Owned(format!("{name}, as it served")));
            (spec.class, spec.capacity, spec.figures) = (class, size, &[]);
            if let Timing::Ssd(params) = &mut spec.timing
                && let Mapping::Pages(pages) = &mut params.mapping
            {
                (*pages, params.state) = (no_collection(pages.update), State::Filled);
            }
            Candidate::new(spec, &load)
        };
        let has_parts = |spec: &&Spec| {
            spec.class == of
                && !spec.is_of_a_paper()
                && matches!(spec.timing, Timing::Ssd(_) | Timing::Hdd(_))
        };
        let mut starts: Vec<Candidate> = library().iter().filter(has_parts).map(start).collect();
        starts.sort_by(|one, other| one.off.total_cmp(&other.off));
        starts.truncate(STARTS);
        let changed = starts.into_iter().map(|start| start.nearer(&load));
        changed.min_by(|one, other| one.score().total_cmp(&other.score()))
    };
    let other = if class == DeviceClass::Ssd { DeviceClass::Hdd } else { DeviceClass::Ssd };
    let best = of_class(class).filter(|best| best.off < ANOTHER_CLASS).or_else(|| of_class(other))?;
    Some(Nearest { spec: best.spec, off: best.off.exp() })
}

/// Models of the library from which the search for a nearer model starts.
const STARTS: usize = 2;
/// If the best model of the class is further off than this (as a logarithm), the class is wrong: for example,
/// a file in memory declared as a disk.
const ANOTHER_CLASS: f64 = 0.4;

impl Served {
    /// The fewest requests for a model.
    pub const FEWEST: usize = 32;
}

/// A model, its distance, and the distance of each of its properties from the library: logarithms.
#[derive(Clone)]
struct Candidate {
    spec: Spec,
    off: f64,
    from_library: Vec<f64>,
}

/// The factors of successive changes of a property.
const STEPS: [f64; 4] = [2.0, 1.4, 1.15, 1.05];
/// The smallest improvement that justifies a change.
const LEAST: f64 = 0.001;
/// The required improvement for a property e times the library's value. Of equally near models, which differ
/// only where no request tells them apart, the model most like a known model wins.
const UNKNOWN: f64 = 0.02;

impl Candidate {
    fn new(spec: Spec, load: &Load) -> Candidate {
        let from_library = vec![0.0; properties(&spec.timing).len()];
        Candidate { off: load.off(&spec), spec, from_library }
    }

    fn score(&self) -> f64 {
        self.off + UNKNOWN * self.from_library.iter().map(|by| by.abs()).sum::<f64>()
    }

    fn nearer(mut self, load: &Load) -> Candidate {
        for factor in STEPS {
            while self.step(load, factor) {}
        }
        self
    }

    /// Changes each property by a factor, up or down, if the result is nearer. Returns true if a property
    /// changed.
    fn step(&mut self, load: &Load, factor: f64) -> bool {
        let before = self.score();
        for (place, property) in properties(&self.spec.timing).iter().enumerate() {
            for by in [factor, 1.0 / factor] {
                let mut other = self.clone();
                property(&mut other.spec.timing, by);
                if other.spec.timing == self.spec.timing || check(&other.spec).is_err() {
                    continue;
                }
                other.off = load.off(&other.spec);
                other.from_library[place] += by.ln();
                if other.score() < self.score() - LEAST {
                    *self = other;
                    break;
                }
            }
        }
        self.score() < before - 10.0 * LEAST
    }
}

/// Multiplies the time of a property by a factor.
type Property = fn(&mut Timing, f64);

fn properties(timing: &Timing) -> &'static [Property] {
    match timing {
        Timing::Hdd(_) => DISK,
        _ => DRIVE,
    }
}

const DRIVE: &[Property] = &[
    |timing, by| DRIVE[1..].iter().for_each(|property| property(timing, by)),
    |timing, by| drive(timing, |params| params.latency = longer(params.latency, by)),
    |timing, by| drive(timing, |params| params.command = longer(params.command, by)),
    |timing, by| drive(timing, |params| params.read = longer(params.read, by)),
    |timing, by| drive(timing, |params| params.read_rate = slower(params.read_rate, by)),
    |timing, by| drive(timing, |params| params.write_rate = slower(params.write_rate, by)),
    |timing, by| drive(timing, |params| params.program = longer(params.program, by)),
    |timing, by| drive(timing, |params| params.intake = params.intake.map(|rate| slower(rate, by))),
    |timing, by| {
        drive(timing, |params| {
            if let Mapping::Pages(pages) = &mut params.mapping {
                pages.update = longer(pages.update, by);
            }
        });
    },
    |timing, by| {
        drive(timing, |params| {
            let (FlushCost::Drains(time) | FlushCost::Protected(time)) = &mut params.flush;
            *time = longer(*time, by);
        });
    },
];

const DISK: &[Property] = &[
    |timing, by| {
        disk(timing, |params| {
            let mut seek = params.seek;
            for time in [
                &mut seek.track_read,
                &mut seek.track_write,
                &mut seek.settle,
                &mut seek.average,
                &mut seek.full,
                &mut seek.write_settle,
            ] {
                *time = longer(*time, by);
            }
            if Curve::solve(seek).is_some() {
                params.seek = seek;
            }
        });
    },
    |timing, by| disk(timing, |params| params.revolution = turn(params.revolution, by)),
    |timing, by| {
        disk(timing, |params| {
            (params.outer, params.inner) = (slower(params.outer, by), slower(params.inner, by))
        });
    },
    |timing, by| disk(timing, |params| params.command = longer(params.command, by)),
    |timing, by| disk(timing, |params| params.interface = slower(params.interface, by).max(params.outer)),
    |timing, by| disk(timing, |params| params.weighed = fewer(params.weighed, by).min(128)),
    |timing, by| disk(timing, |params| params.buffered_runs = fewer(params.buffered_runs, by).min(4_096)),
    |timing, by| disk(timing, |params| params.write_cache = by < 1.0),
];

fn drive(timing: &mut Timing, change: impl FnOnce(&mut crate::ssd::Params)) {
    if let Timing::Ssd(params) = timing {
        change(params);
    }
}

fn disk(timing: &mut Timing, change: impl FnOnce(&mut crate::hdd::Params)) {
    if let Timing::Hdd(params) = timing {
        change(params);
    }
}

fn longer(time: Nanos, by: f64) -> Nanos {
    Nanos((time.0 as f64 * by).clamp(0.0, 1e9) as u64)
}

fn slower(rate: Rate, by: f64) -> Rate {
    Rate((rate.0 as f64 / by).clamp(1e6, 1e12) as u64)
}

/// `count` divided by a factor, rounded away from `count`, at least one.
fn fewer(count: usize, by: f64) -> usize {
    let fewer = count as f64 / by;
    (if by > 1.0 { fewer.floor() } else { fewer.ceil() }).max(1.0) as usize
}

/// The neighbouring usual speed: disks turn at a few speeds only.
fn turn(present: Nanos, by: f64) -> Nanos {
    const USUAL: [u64; 6] = [15_000, 10_500, 10_000, 7_200, 5_900, 5_400];
    let turns = USUAL.map(|per_minute| Nanos(60_000_000_000 / per_minute));
    let next = if by > 1.0 {
        turns.into_iter().find(|&turn| turn > present)
    } else {
        turns.into_iter().rev().find(|&turn| turn < present)
    };
    next.unwrap_or(present)
}

/// The served requests, in the form for models.
struct Load {
    size: Bytes,
    requests: Vec<Request>,
    /// The response time and the kind of each request.
    took: Vec<Nanos>,
    kind: Vec<usize>,
    /// The delay of each request after the completion before it; for the first requests, after the start.
    after: Vec<Nanos>,
    /// The requests that follow the completion of each request.
    following: Vec<std::ops::Range<usize>>,
    first: usize,
    /// Kinds of requests: the share of all requests, and the mean response time.
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Default)]
struct Kind {
    mean: f64,
    weight: f64,
}

/// The largest size of a modelled solid-state drive: each model builds its map of pages.
const LARGEST_DRIVE: Bytes = Bytes(MIB.0 * 64);
/// The longest small request.
const SMALL: Bytes = Bytes(KIB.0 * 32);
/// The share of requests at the start that do not count: unknown requests were in flight.
const WARM_UP: f64 = 0.05;
/// Cap of response times within a kind, as a percentile: a device has hiccups.
const PERCENTILE: f64 = 0.98;
/// Remembered ends of requests, for the detection of sequential requests.
const STREAMS: usize = 16;

impl Load {
    fn new(size: Bytes, served: &[Served]) -> Load {
        let begin = served[0].at;
        let mut ends: Vec<(Nanos, usize)> =
            served.iter().enumerate().map(|(n, one)| (one.at + one.took.max(Nanos(1)), n)).collect();
        ends.sort_unstable();
        let (mut after, mut following) = (Vec::new(), vec![0..0; served.len()]);
        let (mut ended, mut first, mut kind) = (0, 0, Vec::new());
        let mut streams = [Bytes(u64::MAX); STREAMS];
        for (n, one) in served.iter().enumerate() {
            while ended < ends.len() && ends[ended].0 <= one.at {
                ended += 1;
            }
            match ended.checked_sub(1).map(|last| ends[last]) {
                None => {
                    after.push(one.at - begin);
                    first = n + 1;
                }
                Some((end, last)) => {
                    after.push(one.at - end);
                    let range = &mut following[last];
                    *range = if range.end == 0 { n..n + 1 } else { range.start..n + 1 };
                }
            }
            let request = one.request;
            let stream = streams.iter().position(|&end| end == request.offset);
            streams[stream.unwrap_or(n % STREAMS)] = request.offset + request.len;
            // Requests in flight at the same time.
            let among = match n - ended {
                0 => 0,
                1..4 => 1,
                _ => 2,
            };
            let op = match request.op {
                Op::Read => 0,
                Op::Write => 1,
                Op::Flush | Op::Discard => 2,
            };
            kind.push(
                ((op * 2 + usize::from(request.len > SMALL)) * 2 + usize::from(stream.is_some())) * 3 + among,
            );
        }
        let mut load = Load {
            size,
            requests: served.iter().map(|one| one.request).collect(),
            took: served.iter().map(|one| one.took).collect(),
            kind,
            after,
            following,
            first,
            kinds: Vec::new(),
        };
        load.kinds = load.kinds(&load.took);
        load
    }

    /// Means and weights by kind: half by number, half by time.
    fn kinds(&self, took: &[Nanos]) -> Vec<Kind> {
        let mut of_kind = vec![Vec::new(); 36];
        for n in (took.len() as f64 * WARM_UP) as usize..took.len() {
            of_kind[self.kind[n]].push(took[n].0);
        }
        let sum = |times: &mut Vec<u64>| {
            times.sort_unstable();
            let most = times.get((times.len() as f64 * PERCENTILE) as usize).copied().unwrap_or(u64::MAX);
            times.iter().map(|&time| time.min(most) as f64).sum::<f64>()
        };
        let sums: Vec<(f64, f64)> =
            of_kind.iter_mut().map(|times| (times.len() as f64, sum(times))).collect();
        let all = sums.iter().fold((1.0, 1.0), |all, one| (all.0 + one.0, all.1 + one.1));
        let kind = |(count, sum): (f64, f64)| Kind {
            mean: if count > 0.0 { (sum / count).max(1.0) } else { 1.0 },
            weight: (count / all.0 + sum / all.1) / 2.0,
        };
        sums.into_iter().map(kind).collect()
    }

    /// The distance of a model: the mean of the logarithms of the factors.
    fn off(&self, spec: &Spec) -> f64 {
        let size =
            if matches!(spec.timing, Timing::Ssd(_)) { self.size.min(LARGEST_DRIVE) } else { self.size };
        let took = self.replay(&mut spec.build(size, 7), size);
        let theirs = self.kinds(&took);
        let off = |(ours, theirs): (&Kind, &Kind)| ours.weight * (theirs.mean / ours.mean).ln().abs();
        self.kinds.iter().zip(&theirs).map(off).sum()
    }

    /// The response time of each request on a model.
    fn replay(&self, device: &mut DeviceModel, size: Bytes) -> Vec<Nanos> {
        let mut took = vec![Nanos::ZERO; self.requests.len()];
        let mut due: BinaryHeap<Reverse<(Nanos, usize)>> =
            (0..self.first).map(|n| Reverse((self.after[n], n))).collect();
        let (mut done, mut completed) = (0, Vec::new());
        while done < took.len() {
            let next = due.peek().map(|Reverse((at, _))| *at);
            let now = [next, device.next_event()].into_iter().flatten().min();
            let now = now.expect("requests are outstanding, so something happens");
            device.advance(now, &mut completed);
            for tag in completed.drain(..) {
                let n = tag as usize;
                took[n] = now - took[n];
                done += 1;
                due.extend(self.following[n].clone().map(|next| Reverse((now + self.after[next], next))));
            }
            while let Some(&Reverse((at, n))) = due.peek()
                && at <= now
            {
                due.pop();
                took[n] = now;
                device.submit(n as u64, within(self.requests[n], size), now);
            }
        }
        took
    }
}

/// A request, moved into a smaller device.
fn within(request: Request, size: Bytes) -> Request {
    let len = request.len.min(size);
    let offset = Bytes(request.offset.0 % size.0).min(size - len);
    Request { offset, len, ..request }
}
