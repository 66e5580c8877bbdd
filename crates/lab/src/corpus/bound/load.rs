//! A load in virtual time against a server other than a volume: as the clients of a simulation
//! ([`crate::guests`]), in one loop.
//!
//! Streams are clients of a closed loop, each with its own requests, and queues: arrivals of an open loop, or
//! requests shared by several clients. Memory: outstanding requests are bounded by the number of clients and
//! by [`Setup::outstanding`].

use crate::source::{self, Arrivals, Source};
use crate::{Error, Result, Setup, WarmUp};
use braid_base::{Arrival, Bytes, Nanos, Op, Request};
use braid_workload::{Client, Step};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Server of requests.
pub(super) trait Server {
    /// Begins a request; its ticket is returned once, at the end.
    fn begin(&mut self, ticket: usize, place: Place, request: &Request, now: Nanos);
    /// Time of the next event: may be now, or earlier.
    fn next_event(&self) -> Option<Nanos>;
    /// Advances to a time, and appends the tickets of ended requests.
    fn advance(&mut self, now: Nanos, ended: &mut Vec<usize>);
    /// Marks the beginning of the judged part.
    fn judged_begins(&mut self) {}
}

/// Position of a request in a stream: the same in every run of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub stream: usize,
    pub number: usize,
}

/// A judged request that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EndedRequest {
    pub op: Op,
    pub len: Bytes,
    pub arrived: Nanos,
    pub at: Nanos,
    /// Beginning of the judged part.
    pub from: Nanos,
}

/// Most requests of a load: results are kept in memory.
pub(super) const MOST_REQUESTS: u64 = 1 << 23;
/// Computing without a request is cut into slices of this length, so that time advances.
const SLICE: Nanos = Nanos::from_millis(10);

/// Runs a setup's load. Calls `ended` with each judged request, and returns the length of the judged part.
///
/// # Errors
/// If the load cannot be read, has too many requests, or ends within its warm-up.
pub(super) fn drive(
    setup: &Setup,
    server: &mut impl Server,
    ended: &mut dyn FnMut(EndedRequest),
) -> Result<Nanos> {
    let opened = source::open(setup)?;
    let all = opened.requests.into_iter().chain(setup.requests).min();
    let judged_from = match setup.warm_up {
        WarmUp::Time(time) => From::Time(time),
        WarmUp::Requests(requests) => From::Requests(requests),
        WarmUp::Share(share) => From::Requests((all.unwrap_or(0) as f64 * share) as u64),
    };
    let mut driver = Driver {
        server,
        ended,
        streams: Vec::new(),
        running: 0,
        wakes: BinaryHeap::new(),
        sequence: 0,
        tickets: Vec::new(),
        free: Vec::new(),
        meeting: Vec::new(),
        begun: 0,
        limit: all.unwrap_or(u64::MAX),
        judged_from,
        from: None,
        now: Nanos::ZERO,
    };
    driver.add(opened.source, setup);
    driver.run(setup.duration)
}

/// Beginning of the judged part.
#[derive(Clone, Copy)]
enum From {
    Time(Nanos),
    /// With the request after this number of requests.
    Requests(u64),
}

/// A source of requests.
struct Stream {
    kind: StreamKind,
    /// Requests begun.
    number: usize,
}

enum StreamKind {
    Queue(Queue),
    Client(Guest),
    Over,
}

struct Queue {
    requests: Box<dyn Iterator<Item = Result<Arrival>>>,
    next: Option<Arrival>,
    /// Further requests that may begin.
    idle: usize,
    /// Speed-up of arrivals over the written times; `None` if each request comes as soon as it may begin.
    speed: Option<f64>,
    think: Nanos,
    latest: Nanos,
    armed: Option<Nanos>,
}

struct Guest {
    steps: Client,
    until: Nanos,
    computing: Nanos,
    then: Option<Then>,
}

/// Action of a client after computing.
enum Then {
    Ask(Request),
    Meet,
}

struct Ticket {
    stream: usize,
    op: Op,
    len: Bytes,
    arrived: Nanos,
    is_judged: bool,
}

struct Driver<'a, S> {
    server: &'a mut S,
    ended: &'a mut dyn FnMut(EndedRequest),
    streams: Vec<Stream>,
    /// Running streams.
    running: usize,
    /// Times at which streams continue, in order of insertion within a time; true if one more request may
    /// begin.
    wakes: BinaryHeap<Reverse<(Nanos, u64, usize, bool)>>,
    sequence: u64,
    /// Outstanding requests, and free places among the tickets.
    tickets: Vec<Ticket>,
    free: Vec<usize>,
    /// Clients waiting for all other clients.
    meeting: Vec<usize>,
    begun: u64,
    limit: u64,
    judged_from: From,
    /// Beginning of the judged part.
    from: Option<Nanos>,
    now: Nanos,
}

impl<S: Server> Driver<'_, S> {
    fn add(&mut self, source: Source, setup: &Setup) {
        let queue = |requests, idle, speed, think| {
            StreamKind::Queue(Queue {
                requests,
                next: None,
                idle,
                speed,
                think,
                latest: Nanos::ZERO,
                armed: None,
            })
        };
        let client =
            |steps, until| StreamKind::Client(Guest { steps, until, computing: Nanos::ZERO, then: None });
        match source {
            Source::Open(arrivals) => {
                let arrivals: Box<dyn Iterator<Item = Result<Arrival>>> = match arrivals {
                    Arrivals::Generated(arrivals) => Box::new(arrivals.map(Ok)),
                    Arrivals::Recorded(arrivals) => arrivals,
                };
                let kind = queue(arrivals, setup.outstanding, Some(setup.speed), Nanos::ZERO);
                self.start(Nanos::ZERO, kind);
            }
            Source::Closed(clients) => {
                clients.into_iter().for_each(|steps| self.start(Nanos::ZERO, client(steps, Nanos::MAX)));
            }
            Source::Shared { requests, clients, think } => {
                let requests = requests.map(|request| Ok(Arrival { at: Nanos::ZERO, request: request? }));
                self.start(think, queue(Box::new(requests), clients, None, think));
            }
            Source::Parts(parts) => {
                for part in parts {
                    match part.source {
                        Source::Closed(clients) => {
                            let until = part.until;
                            clients.into_iter().for_each(|steps| self.start(part.from, client(steps, until)));
                        }
                        // Arrivals have times relative to the whole load.
                        other => self.add(other, setup),
                    }
                }
            }
        }
    }

    fn start(&mut self, from: Nanos, kind: StreamKind) {
        self.streams.push(Stream { kind, number: 0 });
        self.running += 1;
        self.wake(from, self.streams.len() - 1, false);
    }

    fn wake(&mut self, at: Nanos, stream: usize, is_idle: bool) {
        self.sequence += 1;
        self.wakes.push(Reverse((at, self.sequence, stream, is_idle)));
    }

    fn run(&mut self, duration: Option<Nanos>) -> Result<Nanos> {
        if let From::Requests(0) = self.judged_from {
            self.judged_from = From::Time(Nanos::ZERO);
        }
        let mut done = Vec::new();
        loop {
            let wake = self.wakes.peek().map(|Reverse(wake)| wake.0);
            let outstanding = self.tickets.len() - self.free.len();
            // Events inside devices count only while requests are outstanding.
            if wake.is_none() && outstanding == 0 {
                break;
            }
            let Some(next) = self.server.next_event().into_iter().chain(wake).min() else { break };
            if let (From::Time(from), None) = (self.judged_from, self.from)
                && next >= from
            {
                self.begin_judging(from);
            }
            let deadline = self.from.zip(duration).map(|(from, duration)| from + duration);
            if deadline.is_some_and(|deadline| next > deadline) {
                return Ok(duration.unwrap_or_default());
            }
            self.now = self.now.max(next);
            self.server.advance(self.now, &mut done);
            for ticket in done.drain(..) {
                self.end(ticket)?;
            }
            while let Some(&Reverse((at, _, stream, is_idle))) = self.wakes.peek()
                && at <= self.now
            {
                self.wakes.pop();
                self.step(stream, is_idle)?;
            }
        }
        let from = self.from.ok_or_else(|| {
            let now = self.now;
            Error::setup(format!("the load ended after {now}, within its warm-up: use a longer load"))
        })?;
        Ok(self.now - from)
    }

    fn begin_judging(&mut self, from: Nanos) {
        self.from = Some(from);
        self.server.judged_begins();
    }

    fn end(&mut self, ticket: usize) -> Result<()> {
        self.free.push(ticket);
        let Ticket { stream, op, len, arrived, is_judged } = self.tickets[ticket];
        let at = self.now;
        if let Some(from) = self.from.filter(|from| is_judged && at >= *from) {
            (self.ended)(EndedRequest { op, len, arrived, at, from });
        }
        match &self.streams[stream].kind {
            StreamKind::Queue(queue) if queue.think > Nanos::ZERO => {
                self.wake(at + queue.think, stream, true);
                Ok(())
            }
            StreamKind::Over => Ok(()),
            _ => self.step(stream, true),
        }
    }

    /// Continues a stream.
    fn step(&mut self, stream: usize, is_idle: bool) -> Result<()> {
        let mut kind = std::mem::replace(&mut self.streams[stream].kind, StreamKind::Over);
        let goes_on = match &mut kind {
            StreamKind::Queue(queue) => {
                queue.idle += usize::from(is_idle);
                self.take(stream, queue)?
            }
            StreamKind::Client(guest) => self.follow(stream, guest)?,
            StreamKind::Over => return Ok(()),
        };
        if goes_on {
            self.streams[stream].kind = kind;
        } else {
            self.running -= 1;
            self.meet();
        }
        Ok(())
    }

    /// Begins the due requests of a queue; returns false at the end of the queue.
    fn take(&mut self, stream: usize, queue: &mut Queue) -> Result<bool> {
        while queue.idle > 0 {
            if queue.next.is_none() {
                queue.next = queue.requests.next().transpose()?;
                let Some(next) = &mut queue.next else { return Ok(false) };
                if let Some(speed) = queue.speed {
                    let at = if speed == 1.0 { next.at } else { Nanos((next.at.0 as f64 / speed) as u64) };
                    queue.latest = queue.latest.max(at);
                }
                next.at = queue.latest;
            }
            let Some(next) = queue.next else { return Ok(false) };
            if queue.speed.is_some() && next.at > self.now {
                if queue.armed != Some(next.at) {
                    queue.armed = Some(next.at);
                    self.wake(next.at, stream, false);
                }
                return Ok(true);
            }
            queue.next = None;
            let arrived = if queue.speed.is_some() { next.at } else { self.now };
            if !self.begin(stream, &next.request, arrived)? {
                return Ok(false);
            }
            queue.idle -= 1;
        }
        Ok(true)
    }

    /// Advances a client to its next request or wait; returns false at the end.
    fn follow(&mut self, stream: usize, guest: &mut Guest) -> Result<bool> {
        loop {
            match guest.then.take() {
                Some(Then::Ask(request)) => return self.begin(stream, &request, self.now),
                Some(Then::Meet) => {
                    self.meeting.push(stream);
                    self.meet();
                    return Ok(true);
                }
                None if self.now >= guest.until => return Ok(false),
                None => {}
            }
            let mut pause = Nanos::ZERO;
            match guest.steps.next() {
                None => return Ok(false),
                Some(Step::Request { think, request }) => {
                    guest.computing += think;
                    guest.then = Some(Then::Ask(request));
                }
                Some(Step::Operation { think, .. }) => {
                    guest.computing += think;
                    if guest.computing < SLICE {
                        continue;
                    }
                }
                Some(Step::Pause(time)) => pause = time,
                Some(Step::Meet) => guest.then = Some(Then::Meet),
            }
            let wait = std::mem::take(&mut guest.computing) + pause;
            if wait > Nanos::ZERO {
                self.wake(self.now + wait, stream, false);
                return Ok(true);
            }
        }
    }

    /// Releases the clients at the meeting, if all running streams wait there.
    fn meet(&mut self) {
        if self.meeting.len() == self.running {
            for stream in std::mem::take(&mut self.meeting) {
                self.wake(self.now, stream, false);
            }
        }
    }

    /// Begins a request, unless the limit is reached.
    fn begin(&mut self, stream: usize, request: &Request, arrived: Nanos) -> Result<bool> {
        if self.begun == self.limit {
            return Ok(false);
        }
        if self.begun == MOST_REQUESTS {
            return Err(Error::setup(format!(
                "the load has more than {MOST_REQUESTS} requests, the limit of the bound's memory: use a \
                 shorter load"
            )));
        }
        if let From::Requests(unjudged) = self.judged_from
            && self.begun == unjudged
        {
            self.begin_judging(self.now);
        }
        self.begun += 1;
        // With a boundary by time, requests that end in the judged part are judged; by number, requests that
        // begin in it.
        let is_judged = self.from.is_some() || matches!(self.judged_from, From::Time(_));
        let ticket = Ticket { stream, op: request.op, len: request.len, arrived, is_judged };
        let place = self.free.pop().unwrap_or(self.tickets.len());
        match self.tickets.get_mut(place) {
            Some(free) => *free = ticket,
            None => self.tickets.push(ticket),
        }
        let number = self.streams[stream].number;
        self.streams[stream].number += 1;
        self.server.begin(place, Place { stream, number }, request, self.now);
        Ok(true)
    }
}
