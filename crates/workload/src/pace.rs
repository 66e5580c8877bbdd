//! Arrival of requests: at a given rate (open loop), or each request after the last request of its client
//! (closed loop).

use crate::ahead::Ahead;
use crate::catalogue::Setting;
use crate::draw::exponential;
use crate::times::Times;
use crate::{Client, Load, Step};
use braid_base::{Arrival, BadSetting, Nanos, Request, Rng, Settings};

/// Open or closed loop, and the number of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Requests of all clients together. `None` for an endless workload.
    pub requests: Option<u64>,
    kind: LoopKind,
}

#[derive(Clone, Copy, Debug)]
enum LoopKind {
    Open(Times),
    Closed { clients: u64, think: Nanos },
}

/// Settings that [`Pace::take`] takes.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting { key: "requests", default: "1M", meaning: "requests of all clients together, or `endless`" },
    Setting { key: "clients", default: "1", meaning: "clients, each with one request at a time" },
    Setting {
        key: "think",
        default: "0s",
        meaning: "mean wait of a client before a request, exponentially distributed",
    },
    Setting {
        key: "rate",
        default: "",
        meaning: "requests per second, as a Poisson process, instead of clients: open loop",
    },
];

/// Limit of all times but the length of a day.
pub(crate) const DAY: Nanos = Nanos::from_secs(86_400);

/// Limit of clients of any workload.
pub(crate) const MOST_CLIENTS: u64 = 65_536;

impl Pace {
    /// Takes `requests`, `clients`, `think`, `rate`.
    pub fn take(settings: &mut Settings) -> Result<Pace, BadSetting> {
        let requests = take_requests(settings, Some(1_000_000))?;
        let is_closed = settings.is_set("clients") || settings.is_set("think");
        let clients = settings.take_count("clients", 1, 1..=MOST_CLIENTS)?;
        let think = settings.take_time("think", Nanos::ZERO, Nanos::ZERO..=DAY)?;
        let is_open = settings.is_set("rate");
        let rate = settings.take_count("rate", 1, 1..=1_000_000_000)?;
        if is_open && is_closed {
            return Err(BadSetting::new(format!(
                "workload {} has a rate and clients or think: give a rate for an open loop, or clients for \
                 a closed loop",
                settings.name()
            )));
        }
        let kind = match is_open {
            true => LoopKind::Open(Times::new(rate as f64)),
            false => LoopKind::Closed { clients, think },
        };
        Ok(Pace { requests, kind })
    }

    /// Creates an open loop.
    pub fn open(requests: Option<u64>, times: Times) -> Pace {
        Pace { requests, kind: LoopKind::Open(times) }
    }

    /// Returns the number of streams of requests.
    pub fn streams(&self) -> u64 {
        match self.kind {
            LoopKind::Open(_) => 1,
            LoopKind::Closed { clients, .. } => clients,
        }
    }

    /// Creates the load. `make` creates the requests of each stream from the number of the stream and a
    /// separate random generator.
    pub fn load<I>(&self, seed: u64, make: impl Fn(u64, Rng) -> I) -> Load
    where
        I: Iterator<Item = Request> + Send + 'static,
    {
        let mut rng = Rng::new(seed);
        match self.kind {
            LoopKind::Open(times) => {
                let (requests, rng) = (make(0, rng.fork()), rng.fork());
                let left = self.requests.unwrap_or(u64::MAX);
                Load::Open(Box::new(Ahead::new(Timed { requests, rng, times, left })))
            }
            LoopKind::Closed { clients, think } => {
                let processes = Processes { requests: self.requests, clients, join: Nanos::ZERO };
                processes.load(seed, |client, mut rng| {
                    let mut thinker = Thinker::new(think, rng.fork());
                    make(client, rng).map(move |request| Step::Request { think: thinker.think(), request })
                })
            }
        }
    }
}

/// A closed loop of clients that generate their own steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processes {
    /// Requests of all clients together. `None` for an endless workload.
    pub requests: Option<u64>,
    pub clients: u64,
    /// Start of all clients but the first.
    join: Nanos,
}

/// Settings that [`Processes::take`] takes.
pub(crate) const PROCESSES: &[Setting] = &[
    Setting { key: "requests", default: "1M", meaning: "requests of all processes together, or `endless`" },
    Setting { key: "clients", default: "10", meaning: "processes, each with one request at a time" },
    Setting { key: "join", default: "0s", meaning: "when all processes but the first begin" },
];

impl Processes {
    /// Takes `requests`, `clients` and `join`.
    pub fn take(settings: &mut Settings) -> Result<Processes, BadSetting> {
        let requests = take_requests(settings, Some(1_000_000))?;
        let clients = settings.take_count("clients", 10, 1..=MOST_CLIENTS)?;
        let join = settings.take_time("join", Nanos::ZERO, Nanos::ZERO..=DAY)?;
        Ok(Processes { requests, clients, join })
    }

    /// Creates the load. Each client takes steps until its share of the requests is used up.
    pub fn load<I>(&self, seed: u64, make: impl Fn(u64, Rng) -> I) -> Load
    where
        I: Iterator<Item = Step> + Send + 'static,
    {
        let mut rng = Rng::new(seed);
        let client = |number| {
            let left = self.requests.map_or(u64::MAX, |all| share(all, number, self.clients));
            let join = if number == 0 { Nanos::ZERO } else { self.join };
            Box::new(Counted { steps: make(number, rng.fork()), join, left }) as Client
        };
        Load::Closed((0..self.clients).map(client).collect())
    }
}

/// Takes `requests`: a number, or `endless` for `None`.
pub(crate) fn take_requests(
    settings: &mut Settings,
    default: Option<u64>,
) -> Result<Option<u64>, BadSetting> {
    match settings.take_text("requests").as_deref() {
        None => Ok(default),
        Some("endless") => Ok(None),
        Some(text) => settings.read_count("requests", text, 1..=u64::MAX / 2).map(Some),
    }
}

/// Returns the share of `all` for one of `parts`. All shares add up to `all`.
pub(crate) fn share(all: u64, part: u64, parts: u64) -> u64 {
    all / parts + u64::from(part < all % parts)
}

struct Timed<I> {
    requests: I,
    rng: Rng,
    times: Times,
    left: u64,
}

impl<I: Iterator<Item = Request>> Iterator for Timed<I> {
    type Item = Arrival;

    #[inline]
    fn next(&mut self) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        let request = self.requests.next()?;
        Some(Arrival { at: self.times.next(&mut self.rng), request })
    }
}

struct Counted<I> {
    steps: I,
    /// Wait before the first step.
    join: Nanos,
    /// Remaining requests.
    left: u64,
}

impl<I: Iterator<Item = Step>> Iterator for Counted<I> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.join > Nanos::ZERO {
            return Some(Step::Pause(std::mem::take(&mut self.join)));
        }
        if self.left == 0 {
            return None;
        }
        let step = self.steps.next()?;
        self.left -= u64::from(matches!(step, Step::Request { .. }));
        Some(step)
    }
}

/// Generator of waits before requests, exponentially distributed.
pub(crate) struct Thinker {
    /// Mean in nanoseconds.
    mean: f64,
    rng: Rng,
}

impl Thinker {
    /// Creates a generator with the given mean. A mean of zero gives no waits.
    pub fn new(mean: Nanos, rng: Rng) -> Thinker {
        Thinker { mean: mean.0 as f64, rng }
    }

    /// Draws the next wait.
    pub fn think(&mut self) -> Nanos {
        match self.mean {
            0.0 => Nanos::ZERO,
            mean => Nanos(exponential(&mut self.rng, mean) as u64),
        }
    }
}
