//! When requests come: at a rate of their own (open loop), or each after the last one of its client (closed
//! loop).

use crate::ahead::Ahead;
use crate::catalogue::Setting;
use crate::draw::exponential;
use crate::times::Times;
use crate::{Client, Load, Step};
use braid_base::{Arrival, BadSetting, Nanos, Request, Rng, Settings};

/// Open or closed loop, and how many requests in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Requests of all clients together; `None` without end.
    pub requests: Option<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Open(Times),
    Closed { clients: u64, think: Nanos },
}

/// The settings that [`Pace::take`] takes.
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

/// The longest time of any setting but the length of a day.
pub(crate) const DAY: Nanos = Nanos::from_secs(86_400);

/// The most clients of any workload.
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
                "workload {} has a rate and clients or think: give a rate for requests that come by themselves, or \
                 clients that wait for their last request",
                settings.name()
            )));
        }
        let kind = match is_open {
            true => Kind::Open(Times::new(rate as f64)),
            false => Kind::Closed { clients, think },
        };
        Ok(Pace { requests, kind })
    }

    /// An open loop.
    pub fn open(requests: Option<u64>, times: Times) -> Pace {
        Pace { requests, kind: Kind::Open(times) }
    }

    /// How many streams of requests there are.
    pub fn streams(&self) -> u64 {
        match self.kind {
            Kind::Open(_) => 1,
            Kind::Closed { clients, .. } => clients,
        }
    }

    /// Gives each stream its requests, which `make` makes from the number of the stream and random numbers of
    /// its own.
    pub fn load<I>(&self, seed: u64, make: impl Fn(u64, Rng) -> I) -> Load
    where
        I: Iterator<Item = Request> + Send + 'static,
    {
        let mut rng = Rng::new(seed);
        match self.kind {
            Kind::Open(times) => {
                let (requests, rng) = (make(0, rng.fork()), rng.fork());
                let left = self.requests.unwrap_or(u64::MAX);
                Load::Open(Box::new(Ahead::new(Timed { requests, rng, times, left })))
            }
            Kind::Closed { clients, think } => {
                let processes = Processes { requests: self.requests, clients, join: Nanos::ZERO };
                processes.load(seed, |client, mut rng| {
                    let mut thinker = Thinker::new(think, rng.fork());
                    make(client, rng).map(move |request| Step::Request { think: thinker.think(), request })
                })
            }
        }
    }
}

/// A closed loop of clients that think in ways of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processes {
    /// Requests of all together; `None` without end.
    pub requests: Option<u64>,
    pub clients: u64,
    /// When all but the first begin.
    join: Nanos,
}

/// The settings that [`Processes::take`] takes.
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

    /// Gives each client its steps, as many as have its share of the requests.
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

/// What one of `parts` gets of `all`, so that the sum is `all`.
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
    /// How long it does nothing at first.
    join: Nanos,
    /// Requests that are left.
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

/// Waits before requests, exponentially distributed.
pub(crate) struct Thinker {
    /// In nanoseconds.
    mean: f64,
    rng: Rng,
}

impl Thinker {
    /// With this mean; zero is no wait at all.
    pub fn new(mean: Nanos, rng: Rng) -> Thinker {
        Thinker { mean: mean.0 as f64, rng }
    }

    /// The next wait.
    pub fn think(&mut self) -> Nanos {
        match self.mean {
            0.0 => Nanos::ZERO,
            mean => Nanos(exponential(&mut self.rng, mean) as u64),
        }
    }
}
