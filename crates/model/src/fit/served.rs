//! A model from requests that a device has served for others: nothing is asked of it for the sake of the
//! model.
//!
//! Each model of the library is given the same requests, and that which takes most nearly as long is changed,
//! one property after the other, as long as it comes nearer. Compared are mean response times of requests
//! that are alike: read, write or flush, small or large, in order or not, alone or among others. A request is
//! given to the model as long after the completion before it as it was given to the device, so that a model
//! that is too slow has no more requests to serve at a time than the device had. What no request told stays
//! as in the library. What collection costs a drive is part of what its writes took, and the model has none
//! of its own.

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

/// A request that a device has served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// When it was given to the device.
    pub at: Nanos,
    /// What it was.
    pub request: Request,
    /// How long it took.
    pub took: Nanos,
}

/// The model that is nearest to what a device did.
#[derive(Clone, PartialEq, Debug)]
pub struct Nearest {
    /// The model.
    pub spec: Spec,
    /// By what factor its mean response times are off, on average: 1 if they are the device's.
    pub off: f64,
}

/// The model that is nearest to a device of this class and size that has served these requests, in order of
/// their times. None if there are too few.
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

/// Models of the library from which a nearer one is looked for.
const STARTS: usize = 2;
/// Where the best of its class is so far off, as a logarithm, a device is not what it is called: a file in
/// memory is no disk.
const ANOTHER_CLASS: f64 = 0.4;

impl Served {
    /// A model is made from as many requests at least.
    pub const FEWEST: usize = 32;
}

/// A model, how far it is off, and how far each of its properties is from the library's: logarithms.
#[derive(Clone)]
struct Candidate {
    spec: Spec,
    off: f64,
    from_library: Vec<f64>,
}

/// The factors by which a property is changed, one after the other.
const STEPS: [f64; 4] = [2.0, 1.4, 1.15, 1.05];
/// What is nearer by less is not worth a change.
const LEAST: f64 = 0.001;
/// How much nearer a model must be for a property that is e times the library's: of models that are as near,
/// which differ where no request tells, that which is most like a known one.
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

    /// Changes each property by a factor, up or down, where that is nearer. Whether any was.
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

/// Makes something take so many times as long.
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

/// One at least, and another one for each factor.
fn fewer(count: usize, by: f64) -> usize {
    let fewer = count as f64 / by;
    (if by > 1.0 { fewer.floor() } else { fewer.ceil() }).max(1.0) as usize
}

/// Disks turn at one of a few speeds.
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

/// What a device has served, as models are given it.
struct Load {
    size: Bytes,
    requests: Vec<Request>,
    /// What each took, and which it is like.
    took: Vec<Nanos>,
    kind: Vec<usize>,
    /// How long after the completion before it each was given, the first ones after the beginning.
    after: Vec<Nanos>,
    /// The requests that follow each one's completion.
    following: Vec<std::ops::Range<usize>>,
    first: usize,
    /// Requests of each kind: how many of all, and the mean of what they took.
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Default)]
struct Kind {
    mean: f64,
    weight: f64,
}

/// A solid-state drive is taken to be no larger: its map of pages is made for each model.
const LARGEST_DRIVE: Bytes = Bytes(MIB.0 * 64);
/// Longer requests are large.
const SMALL: Bytes = Bytes(KIB.0 * 32);
/// The part of the requests, the first ones, that do not count: others that are not known were under way.
const WARM_UP: f64 = 0.05;
/// Of requests that are alike those that took longest count as the one at this percentile: a device has
/// hiccups.
const PERCENTILE: f64 = 0.98;
/// Ends of requests that are remembered, to tell what is in order.
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
            // How many are under way with it.
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

    /// How far a model is off: the mean of the logarithms of the factors.
    fn off(&self, spec: &Spec) -> f64 {
        let size =
            if matches!(spec.timing, Timing::Ssd(_)) { self.size.min(LARGEST_DRIVE) } else { self.size };
        let took = self.replay(&mut spec.build(size, 7), size);
        let theirs = self.kinds(&took);
        let off = |(ours, theirs): (&Kind, &Kind)| ours.weight * (theirs.mean / ours.mean).ln().abs();
        self.kinds.iter().zip(&theirs).map(off).sum()
    }

    /// What each request takes on a model.
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

/// A request to a smaller device.
fn within(request: Request, size: Bytes) -> Request {
    let len = request.len.min(size);
    let offset = Bytes(request.offset.0 % size.0).min(size - len);
    Request { offset, len, ..request }
}
