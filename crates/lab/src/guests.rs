//! Requests of guests to the volume, and their times.
//!
//! Open loop: requests come at their times. A fixed number of tasks take requests in order (`gate.rs`). If
//! all tasks are busy, a request waits for a free task; the wait is the request's queue time. Closed loop:
//! each client is a task that waits for its last request before making the next.
//!
//! Requests are widened to whole sectors, as a kernel would do. A request longer than a buffer is made in
//! parts, in sequence, and counts as one request.

mod ask;

use crate::computing::{Burst, Processors};
use crate::dram::Dram;
use crate::gate::Gate;
use crate::guard::Watch;
use crate::memory::Memory;
use crate::parts::TimedSource;
use crate::recorder::Recorder;
use crate::series::NoteSeries;
use crate::settling::Course;
use crate::source::Source;
use crate::sweep::Gauge;
use crate::verify::Verifier;
use crate::{Beyond, Error, ErrorKind, Result, Setup};
use braid_base::{Arrival, Bytes, Nanos, Op, Request, SECTOR};
use braid_engine::{Export, Hints, Volume};
use braid_runtime::{Device, Event, Runtime};
use braid_sim::World;
use braid_workload::{Client, Step};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// All guests of a volume, and their measurements.
pub(crate) struct Guests<D: Device> {
    pub rt: World,
    pub volume: Volume<World, D>,
    /// Handle for metadata requests, and the ranges of metadata.
    for_metadata: Volume<World, D>,
    metadata: Vec<Range<Bytes>>,
    pub recorder: RefCell<Recorder>,
    pub series: RefCell<NoteSeries>,
    pub course: RefCell<Course>,
    pub verifier: Option<Rc<RefCell<Verifier>>>,
    /// Requests left out.
    pub dropped: Cell<u64>,
    memory: Memory,
    dram: Option<Dram>,
    size: Bytes,
    beyond: Beyond,
    /// Start of the load.
    start: Nanos,
    speed: f64,
    /// Requests begun, and the limit.
    begun: Cell<u64>,
    limit: u64,
    /// Requests still to begin that are not recorded, and whether a later request has begun.
    unrecorded_left: Cell<u64>,
    past_unrecorded: Cell<bool>,
    /// Tasks that have not ended.
    running: Cell<usize>,
    meeting: Meeting,
    processors: Processors,
    failure: RefCell<Option<Error>>,
    ended: Event,
    gauge: Arc<Gauge>,
    /// Requests of the clients, recorded for the guard's ghosts.
    pub watch: RefCell<Option<Watch>>,
}

/// Barrier at which clients wait for each other.
#[derive(Default)]
struct Meeting {
    waiting: Cell<usize>,
    number: Cell<u64>,
    met: Event,
}

/// Requests between two checks for a stop, and between updates of the progress display.
const LOOK: u64 = 1024;

impl<D: Device> Guests<D> {
    /// Clients of a volume that have not begun, for a run whose length may be known.
    pub fn new(
        rt: &World,
        volume: Volume<World, D>,
        setup: &Setup,
        unrecorded: u64,
        verifier: Option<Rc<RefCell<Verifier>>>,
        gauge: Arc<Gauge>,
        length: Option<Nanos>,
    ) -> Guests<D> {
        let memory = if verifier.is_some() { Memory::own(setup.outstanding) } else { Memory::shared() };
        let size = volume.size().align_down(SECTOR);
        let batches = setup.batches.iter().map(|&from| rt.now() + from).collect();
        Guests {
            rt: rt.clone(),
            for_metadata: volume.with_hints(Hints { metadata: true, ..Hints::default() }),
            metadata: Vec::new(),
            volume,
            recorder: RefCell::new(Recorder::new(setup.burstiness, setup.block_costs).with_batches(batches)),
            series: RefCell::new(NoteSeries::new(setup.interval, setup.duration)),
            course: RefCell::new(Course::new(rt.now(), length)),
            verifier,
            dropped: Cell::new(0),
            memory,
            dram: (setup.dram > Bytes::ZERO).then(|| Dram::new(rt, setup.dram, setup.block_size)),
            size,
            beyond: setup.beyond,
            start: rt.now(),
            speed: setup.speed,
            begun: Cell::new(0),
            limit: setup.requests.unwrap_or(u64::MAX),
            unrecorded_left: Cell::new(unrecorded),
            past_unrecorded: Cell::new(unrecorded == 0),
            running: Cell::new(0),
            meeting: Meeting::default(),
            processors: Processors::new(setup.processors),
            failure: RefCell::default(),
            ended: Event::default(),
            gauge,
            watch: RefCell::default(),
        }
    }

    /// Marks requests that begin in these ranges, which are in order, as metadata requests.
    pub fn with_metadata(self, metadata: Vec<Range<Bytes>>) -> Guests<D> {
        Guests { metadata, ..self }
    }

    /// Starts the load.
    pub fn begin(self: &Rc<Self>, source: Source, outstanding: usize) {
        match source {
            Source::Open(arrivals) => {
                let gate = Rc::new(Gate::new(&self.rt, arrivals, self.start, self.speed));
                for place in 0..outstanding {
                    self.spawn(self.clone().serve(gate.clone(), place));
                }
            }
            Source::Closed(clients) => {
                clients.into_iter().for_each(|client| self.spawn(self.clone().follow(client, Nanos::MAX)));
            }
            Source::Parts(parts) => parts.into_iter().for_each(|part| self.begin_part(part, outstanding)),
            Source::Shared { requests, clients, think } => {
                let requests = Rc::new(RefCell::new(requests));
                for _ in 0..clients {
                    self.spawn(self.clone().replay(requests.clone(), think));
                }
            }
        }
    }

    fn begin_part(self: &Rc<Self>, part: TimedSource, outstanding: usize) {
        let TimedSource { from, until, source } = part;
        let Source::Closed(clients) = source else { return self.begin(source, outstanding) };
        let (from, until) = (self.start + from, Nanos(self.start.0.saturating_add(until.0)));
        for client in clients {
            let guests = self.clone();
            self.spawn(async move {
                guests.rt.sleep_until(from).await;
                guests.follow(client, until).await
            });
        }
    }

    /// Completes when the load has ended, or failed.
    pub async fn end(&self) -> Result<()> {
        let over = || (self.running.get() == 0 || self.failure.borrow().is_some()).then_some(());
        self.ended.wait_for(over).await;
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Completes when the first recorded request begins.
    pub async fn recorded(&self) {
        self.ended.wait_for(|| self.past_unrecorded.get().then_some(())).await;
    }

    /// Requests begun.
    pub fn begun(&self) -> u64 {
        self.begun.get()
    }

    fn spawn(self: &Rc<Self>, task: impl Future<Output = Result<()>> + 'static) {
        self.running.set(self.running.get() + 1);
        let guests = self.clone();
        self.rt.spawn(async move {
            if let Err(error) = task.await {
                guests.failure.borrow_mut().get_or_insert(error);
            }
            guests.running.set(guests.running.get() - 1);
            guests.meet_if_all_wait();
            guests.ended.notify();
        });
    }

    /// A task of an open loop.
    async fn serve(self: Rc<Self>, gate: Rc<Gate>, place: usize) -> Result<()> {
        loop {
            gate.admit(place).await;
            let Some(arrival) = gate.take() else { return gate.end() };
            if !self.may_begin() {
                gate.close();
                return Ok(());
            }
            if let Some(verifier) = &self.verifier
                && let Some(next) = gate.next()
            {
                verifier.borrow().expect(next.request.offset);
            }
            self.request(&arrival).await?;
        }
    }

    /// A client of a closed loop, which ends at `until`.
    async fn follow(self: Rc<Self>, client: Client, until: Nanos) -> Result<()> {
        let mut burst = Burst::new(self.rt.now());
        for step in client {
            if self.rt.now() >= until {
                return Ok(());
            }
            match step {
                Step::Request { think, request } => {
                    if !self.may_begin() {
                        return Ok(());
                    }
                    burst.time += think;
                    self.compute(&mut burst).await;
                    self.request(&Arrival { at: self.rt.now(), request }).await?;
                }
                Step::Operation { think, bytes } => {
                    burst.add_operation(think, bytes);
                    // A burst without computing does not wait for a processor: its operations end with a
                    // request.
                    if burst.time == Nanos::ZERO || burst.is_full() {
                        self.compute(&mut burst).await;
                    }
                }
                Step::Pause(time) => {
                    self.compute(&mut burst).await;
                    self.processors.wait(self.rt.now());
                    self.rt.sleep(time).await;
                    self.processors.done(self.rt.now());
                    burst.begin_operation(self.rt.now());
                }
                Step::Meet => {
                    self.compute(&mut burst).await;
                    self.meet().await;
                }
            }
        }
        Ok(())
    }

    /// A client that takes its requests from a trace.
    async fn replay(
        self: Rc<Self>,
        requests: Rc<RefCell<Box<dyn Iterator<Item = Result<Request>>>>>,
        think: Nanos,
    ) -> Result<()> {
        while self.may_begin() {
            let Some(request) = requests.borrow_mut().next().transpose()? else { return Ok(()) };
            self.think(think).await;
            self.request(&Arrival { at: self.rt.now(), request }).await?;
        }
        Ok(())
    }

    async fn think(&self, time: Nanos) {
        if time > Nanos::ZERO {
            self.rt.sleep_until(self.processors.take(self.rt.now(), time)).await;
            self.processors.done(self.rt.now());
        }
    }

    /// Computes a burst, and records the operations completed by the burst.
    async fn compute(&self, burst: &mut Burst) {
        self.think(burst.time).await;
        let mut recorder = self.recorder.borrow_mut();
        burst.finish(self.rt.now()).for_each(|ended| recorder.record_operation(ended));
    }

    /// Total time that clients have spent thinking.
    pub fn thought(&self) -> Nanos {
        self.processors.thought(self.rt.now())
    }

    /// Counts a request as begun, unless the limit is reached.
    fn may_begin(&self) -> bool {
        let begun = self.begun.get();
        if begun == self.limit {
            return false;
        }
        self.begun.set(begun + 1);
        if begun.is_multiple_of(LOOK) {
            if self.gauge.is_stopped() {
                self.failure.borrow_mut().get_or_insert_with(Error::stopped);
                return false;
            }
            self.gauge.show(begun, self.rt.now().saturating_sub(self.start));
        }
        true
    }

    async fn meet(&self) {
        let number = self.meeting.number.get();
        self.meeting.waiting.set(self.meeting.waiting.get() + 1);
        self.meet_if_all_wait();
        let met = || (self.meeting.number.get() != number).then_some(());
        self.meeting.met.wait_for(met).await;
    }

    fn meet_if_all_wait(&self) {
        let meeting = &self.meeting;
        if meeting.waiting.get() > 0 && meeting.waiting.get() == self.running.get() {
            meeting.waiting.set(0);
            meeting.number.set(meeting.number.get() + 1);
            meeting.met.notify();
        }
    }

    /// Makes a request that has arrived, and records its latency.
    pub async fn request(&self, &Arrival { at, request }: &Arrival) -> Result<()> {
        let is_recorded = self.past_unrecorded.get() || self.passes_unrecorded();
        self.recorder.borrow_mut().arrive(request.op, self.rt.now());
        let request = match self.fits(&request) {
            true => request,
            false => match self.fit(request)? {
                Some(request) => request,
                None => {
                    self.dropped.set(self.dropped.get() + 1);
                    return Ok(());
                }
            },
        };
        let (admitted, Request { op, offset, len }) = (self.rt.now(), request);
        match &self.dram {
            None => self.ask_volume(request).await?,
            Some(dram) => Box::pin(self.ask_through(dram, request)).await?,
        }
        if is_recorded || !self.past_unrecorded.get() {
            let (mut recorder, now) = (self.recorder.borrow_mut(), self.rt.now());
            recorder.record(op, offset, len, at, admitted, now);
            recorder.add_cost(op, offset, len, now - at);
        }
        Ok(())
    }

    /// Counts a request that begins; returns true for the first recorded request.
    #[cold]
    fn passes_unrecorded(&self) -> bool {
        let left = self.unrecorded_left.get();
        if left > 0 {
            self.unrecorded_left.set(left - 1);
            return false;
        }
        self.recorder.borrow_mut().restart(self.rt.now());
        self.past_unrecorded.set(true);
        self.ended.notify();
        true
    }

    /// True if a request asks for whole sectors of the volume, as nearly all do.
    fn fits(&self, Request { offset, len, .. }: &Request) -> bool {
        let end = offset.checked_add(*len);
        offset.is_aligned(SECTOR) && len.is_aligned(SECTOR) && end.is_some_and(|end| end <= self.size)
    }

    /// Widens a request to whole sectors and fits the request to the volume; `None` if the request is left
    /// out.
    fn fit(&self, request: Request) -> Result<Option<Request>> {
        let Request { op, offset, len } = request;
        if op == Op::Flush {
            return Ok(Some(request));
        }
        let beyond = |end: Option<Bytes>| match self.beyond {
            Beyond::Drop => Ok(None),
            Beyond::Wrap => {
                let len = len.max(SECTOR).align_up(SECTOR).min(self.size);
                let offset = (offset.align_down(SECTOR) % self.size).min(self.size - len);
                Ok(Some(Request { op, offset, len }))
            }
            Beyond::Refuse => Err(Error::new(
                ErrorKind::Setup,
                format!(
                    "request {} needs {len} at byte {}{}, and the volume has {} bytes: use a larger --size, \
                     or --beyond wrap or drop",
                    self.begun.get(),
                    offset.0,
                    if end.is_none() { ", beyond 2^64" } else { "" },
                    self.size.0,
                ),
            )),
        };
        match offset.checked_add(len) {
            Some(end) if end <= self.size => {
                let offset = offset.align_down(SECTOR);
                Ok(Some(Request { op, offset, len: end.align_up(SECTOR) - offset }))
            }
            end => beyond(end),
        }
    }
}
