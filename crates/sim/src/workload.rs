//! A seeded guest: clients that read, write, flush, discard and zero concurrently, in overlapping places,
//! and check every byte read against the [`Oracle`].

use crate::{Mismatch, Oracle, World};
use braid_base::{Bytes, KIB, Nanos, Rng};
use braid_engine::{Durability, Error, Export, Zeroing};
use braid_runtime::{Arena, Buf, Event, Runtime};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The oracle of one volume, shared by all its clients.
pub type SharedOracle = Rc<RefCell<Oracle>>;

/// The load of the guests on a volume.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Number of concurrent clients.
    pub clients: u64,
    /// Requests of all clients together.
    pub requests: u64,
    /// The largest request. At most [`Arena::LARGEST`]. A request's bytes lie anywhere in memory, half the
    /// time as far into a page as on the volume.
    pub largest: Bytes,
    /// The longest pause between two requests of a client; most are far shorter.
    pub pause: Nanos,
    /// If not 0: the period of bursts. At its start all clients work for 60 ms, and rest for the remainder.
    pub bursts_every: Nanos,
    /// Frequency of each kind of request.
    pub mix: Mix,
    /// Share of requests replaced by the next read of a stream, in order or by a stride. Each client has one
    /// stream.
    pub streams: f64,
    /// Meaning of an error of the export.
    pub errors: Errors,
    /// Longest duration of a request in virtual time: a longer request hangs, and a hang is a bug.
    pub limit: Nanos,
}

/// Shares of the kinds of requests, relative to their sum.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Reads, each verified.
    pub read: u64,
    /// Writes that may wait in volatile caches.
    pub write: u64,
    /// Writes that are durable when acknowledged.
    pub fua: u64,
    /// Flushes.
    pub flush: u64,
    /// Discards.
    pub discard: u64,
    /// Write-zeroes, of either kind and durability.
    pub zero: u64,
    /// Prefetches.
    pub prefetch: u64,
}

/// Meaning of an error of the export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errors {
    /// A bug: nothing fails underneath.
    Forbidden,
    /// Expected: devices fail. A failed write may have happened.
    Tolerated,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix { read: 30, write: 42, fua: 6, flush: 8, discard: 6, zero: 6, prefetch: 2 }
    }
}

/// Longest request that the engine's deadlines allow on two devices. A device that does not answer is late
/// after 61 s, and silent 61 s later; a silent device receives no more requests. So all requests that need
/// the device end within 122 s, however many wait for one another. Requests that also need the other device
/// end within 244 s.
const LONGEST_REQUEST: Nanos = Nanos::from_secs(250);

/// Time within which the requests of a burst begin.
const BURST: Nanos = Nanos::from_millis(60);

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            clients: 4,
            requests: 150,
            largest: KIB * 64,
            pause: Nanos::from_millis(2),
            bursts_every: Nanos::ZERO,
            mix: Mix::default(),
            streams: 0.0,
            errors: Errors::Forbidden,
            limit: LONGEST_REQUEST,
        }
    }
}

impl Workload {
    /// The same with another number of requests.
    pub fn with_requests(&self, requests: u64) -> Workload {
        Workload { requests, ..self.clone() }
    }

    /// Length of each client's buffer: its requests lie anywhere within.
    pub fn room(&self) -> Bytes {
        (self.largest + Buf::ALIGNMENT).min(Arena::LARGEST)
    }

    /// Runs all clients to their end, or to the first failure. `arena` provides one buffer for each client.
    ///
    /// # Errors
    /// The first wrong byte, or the first error if errors are forbidden, as a sentence.
    /// The first wrong byte, or the first error where these are forbidden, as a sentence.
    pub async fn run<E: Export>(
        &self,
        world: &World,
        export: &E,
        oracle: &SharedOracle,
        arena: &Arena,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let shared = Rc::new(Shared {
            workload: self.clone(),
            left: Cell::new(self.requests),
            running: Cell::new(self.clients),
            failure: RefCell::default(),
            ended: Event::default(),
        });
        let hot_spots = std::array::from_fn(|_| Bytes(rng.below(export.size().0)));
        for _ in 0..self.clients {
            let rng = rng.fork();
            let client = Client {
                shared: shared.clone(),
                world: world.clone(),
                export: export.clone(),
                oracle: oracle.clone(),
                buf: arena.alloc(self.room()).await,
                places: RefCell::new(rng.clone()),
                rng,
                hot_spots,
                stream: Stream::default(),
            };
            world.spawn(client.run());
        }
        let outcome = || match &*shared.failure.borrow() {
            Some(failure) => Some(Err(failure.clone())),
            None => (shared.running.get() == 0).then_some(Ok(())),
        };
        shared.ended.wait_for(outcome).await
    }
}

/// Shared state of the clients of one run.
struct Shared {
    workload: Workload,
    /// Requests that have not begun.
    left: Cell<u64>,
    running: Cell<u64>,
    failure: RefCell<Option<String>>,
    ended: Event,
}

struct Client<E> {
    shared: Rc<Shared>,
    world: World,
    export: E,
    oracle: SharedOracle,
    buf: Buf,
    rng: Rng,
    /// Stream that decides the places of requests in memory. A separate stream: the requests themselves do
    /// not depend on the places.
    places: RefCell<Rng>,
    /// Places in which the clients collide.
    hot_spots: [Bytes; 3],
    stream: Stream,
}

/// A sequence of reads of one client.
#[derive(Clone, Copy, Default)]
struct Stream {
    next: Bytes,
    len: Bytes,
    step: Bytes,
}

/// Result of a client's request.
type RequestResult = Result<(), String>;

impl<E: Export> Client<E> {
    async fn run(mut self) {
        while self.shared.left.get() > 0 && self.shared.failure.borrow().is_none() {
            self.shared.left.set(self.shared.left.get() - 1);
            self.rest().await;
            if self.buf.is_shared() {
                // A late device may still use the buffer.
                self.buf = own_buffer(self.shared.workload.room());
            }
            let (world, limit) = (self.world.clone(), self.shared.workload.limit);
            let outcome = world.within(limit, self.request()).await;
            let late = || Err(format!("a request has not ended after {limit}"));
            if let Err(failure) = outcome.unwrap_or_else(late) {
                self.shared.failure.borrow_mut().get_or_insert(failure);
                self.shared.ended.notify();
            }
        }
        self.shared.running.set(self.shared.running.get() - 1);
        self.shared.ended.notify();
    }

    /// Pauses before the next request. Half of the requests follow at once. Few wait for the longest pause,
    /// to give background work its turn. Between bursts all clients wait for the next burst.
    async fn rest(&mut self) {
        let pause = self.shared.workload.pause.0;
        let longest = [0, 0, pause / 16, pause][self.rng.below(4) as usize];
        if longest > 0 {
            self.world.sleep(Nanos(self.rng.below(longest))).await;
        }
        let every = self.shared.workload.bursts_every.0;
        let since = self.world.now().0.checked_rem(every).map_or(Nanos::ZERO, Nanos);
        if since > BURST {
            self.world.sleep(Nanos(every - since.0)).await;
        }
    }

    async fn request(&mut self) -> RequestResult {
        if self.shared.workload.streams > 0.0 && self.rng.chance(self.shared.workload.streams) {
            let Stream { next, len, .. } = self.next_of_stream();
            return self.read(next, len).await;
        }
        let Mix { read, write, fua, flush, discard, zero, prefetch } = self.shared.workload.mix;
        let verbs = [read, write, fua, flush, discard, zero, prefetch];
        let mut drawn = self.rng.below(verbs.iter().sum());
        let verb = verbs.iter().position(|&share| {
            let is_chosen = drawn < share;
            drawn = drawn.saturating_sub(share);
            is_chosen
        });
        let (offset, len) = self.choose_range();
        match verb {
            Some(0) => self.read(offset, len).await,
            Some(1) => self.write(offset, len, Durability::Volatile).await,
            Some(2) => self.write(offset, len, Durability::Fua).await,
            Some(3) => self.flush().await,
            Some(4) => self.discard(offset, len).await,
            Some(5) => self.write_zeroes(offset, len).await,
            _ => self.accept("prefetch", offset, self.export.prefetch(offset, len).await),
        }
    }

    /// Chooses the place of a request's bytes in memory: as far into a page as on the volume, as with
    /// frontends, or anywhere.
    fn place(&self, offset: Bytes, len: Bytes) -> Buf {
        let mut rng = self.places.borrow_mut();
        let any = Bytes(rng.below(Buf::ALIGNMENT.0));
        let lead = if rng.chance(0.5) { Bytes(offset.0 % Buf::ALIGNMENT.0) } else { any };
        let lead = lead.min(self.buf.len() - len);
        self.buf.slice(lead..lead + len)
    }

    async fn read(&self, offset: Bytes, len: Bytes) -> RequestResult {
        let into = self.place(offset, len);
        let id = self.oracle.borrow_mut().begin_read();
        let result = self.export.read(offset, &into).await;
        let mut oracle = self.oracle.borrow_mut();
        if result.is_err() {
            oracle.fail_read(id);
            return self.accept("read", offset, result);
        }
        into.with_bytes(|bytes| oracle.end_read(id, offset, bytes)).map_err(|m| describe("a read", &m))
    }

    async fn write(&self, offset: Bytes, len: Bytes, durability: Durability) -> RequestResult {
        let from = self.place(offset, len);
        let id = {
            let mut oracle = self.oracle.borrow_mut();
            from.with_bytes_mut(|bytes| oracle.stamp_next(offset, bytes));
            from.with_bytes(|bytes| oracle.begin_write(offset, bytes))
        };
        let result = self.export.write(offset, &from, durability).await;
        match &result {
            Ok(()) => self.oracle.borrow_mut().end_write(id, durability),
            Err(_) => self.oracle.borrow_mut().fail_write(id),
        }
        self.accept("write", offset, result)
    }

    async fn flush(&self) -> RequestResult {
        let id = self.oracle.borrow_mut().begin_flush();
        let result = self.export.flush().await;
        match &result {
            Ok(()) => self.oracle.borrow_mut().end_flush(id),
            Err(_) => self.oracle.borrow_mut().fail_flush(id),
        }
        self.accept("flush", Bytes::ZERO, result)
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> RequestResult {
        let id = self.oracle.borrow_mut().begin_zero(offset, len);
        let result = self.export.discard(offset, len).await;
        match &result {
            Ok(()) => self.oracle.borrow_mut().end_write(id, Durability::Volatile),
            Err(_) => self.oracle.borrow_mut().fail_write(id),
        }
        self.accept("discard", offset, result)
    }

    async fn write_zeroes(&mut self, offset: Bytes, len: Bytes) -> RequestResult {
        let zeroing = if self.rng.chance(0.5) { Zeroing::MayDiscard } else { Zeroing::KeepAllocated };
        let durability = if self.rng.chance(0.2) { Durability::Fua } else { Durability::Volatile };
        let id = self.oracle.borrow_mut().begin_zero(offset, len);
        let result = self.export.write_zeroes(offset, len, zeroing, durability).await;
        match &result {
            Ok(()) => self.oracle.borrow_mut().end_write(id, durability),
            Err(_) => self.oracle.borrow_mut().fail_write(id),
        }
        self.accept("write-zeroes", offset, result)
    }

    fn accept(&self, verb: &str, offset: Bytes, result: Result<(), Error>) -> RequestResult {
        match (result, self.shared.workload.errors) {
            (Err(error), Errors::Forbidden) => {
                Err(format!("{verb} at {:#x} failed: {:?}: {error}", offset.0, error.kind()))
            }
            _ => Ok(()),
        }
    }

    /// The next read of the client's stream, or the first one of a new stream.
    fn next_of_stream(&mut self) -> Stream {
        let (size, largest) = (self.export.size(), self.shared.workload.largest);
        let Stream { next, len, step } = self.stream;
        let rng = &mut self.rng;
        let read = if len == Bytes::ZERO || next + len > size || rng.chance(0.05) {
            let unit = [KIB * 4, Bytes(512)][rng.below(2) as usize];
            let len = unit * (1 + rng.below(8)).min(largest.min(size) / unit);
            let step = if rng.chance(0.6) { len } else { len * (2 + rng.below(12)) };
            Stream { next: Bytes(rng.below((size - len).0 + 1)).align_down(unit), len, step }
        } else {
            Stream { next, len, step }
        };
        self.stream = Stream { next: read.next + read.step, ..read };
        read
    }

    /// Chooses a range: half in the hot spots; whole blocks, whole sectors, or any bytes.
    fn choose_range(&mut self) -> (Bytes, Bytes) {
        let (size, largest) = (self.export.size(), self.shared.workload.largest.min(self.export.size()));
        let rng = &mut self.rng;
        let unit = [self.export.preferred_block(), KIB * 4, Bytes(512), Bytes(1)][rng.below(4) as usize];
        let unit = if unit > largest { Bytes(512).min(largest) } else { unit };
        let longest = (largest / unit).min(1 << rng.below(17));
        let len = unit * (1 + rng.below(longest));
        let start = match rng.chance(0.5) {
            true => self.hot_spots[rng.below(3) as usize] + Bytes(rng.below(16 << 10)),
            false => Bytes(rng.below(size.0)),
        };
        let start = start.min(size - len).align_down(unit);
        (start, len)
    }
}

/// Returns a buffer without other views.
pub(crate) fn own_buffer(len: Bytes) -> Buf {
    Arena::new(len).try_alloc(len).expect("a new arena has room")
}

pub(crate) fn describe(occasion: &str, mismatch: &Mismatch) -> String {
    format!("{occasion} found {mismatch}")
}
