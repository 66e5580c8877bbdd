//! A volume whose guests' requests can be noted while it is served: the export behind NBD and the attached
//! file. Notes serve recordings and the guard ([`crate::guard`]). The guard also needs the number of requests
//! in flight and their durations.
//!
//! Without a recording, each request costs the test of a flag, and a count for the heat of its cell. With a
//! recording, each request costs a look at the clock and a note of 24 bytes. Zeroing that may discard is
//! noted as a discard, other zeroing as a write. Prefetches are not noted.
//!
//! Requests are noted in [`Export::asked`], not in the verbs, although the verbs pass through this export,
//! too. An NBD front serves a long write in pieces, a read of a hole without reading, and a durable discard
//! with a flush. The verbs are the front's requests; a trace holds the guest's requests.

use crate::record::heat::Heat;
use crate::record::notes::{Note, Notes};
use braid_base::{Bytes, Nanos, Op, Request};
use braid_engine::{Allocation, Durability, Export, Hints, Result, Zeroing};
use braid_lab::guard::{Scale, Watch};
use braid_runtime::{Buf, Event, Runtime};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

/// An export with notes of its requests.
#[derive(Clone)]
pub(crate) struct Recorded<R, E> {
    export: E,
    recorder: Rc<Recorder<R>>,
}

/// Notes guests' requests while a recording or a watch is active.
pub(crate) struct Recorder<R> {
    runtime: R,
    records: Cell<bool>,
    notes: RefCell<Notes>,
    /// The requests for ghosts.
    watch: RefCell<Option<Watch>>,
    watches: Cell<bool>,
    in_flight: Cell<u64>,
    heat: Heat,
    /// Notified when a recording has ended.
    ended: Event,
    busy: Cell<bool>,
}

/// A recording. Ends when dropped.
pub(crate) struct ActiveRecording<R> {
    recorder: Rc<Recorder<R>>,
}

/// Capacity of the queue of notes: with a look every 20 ms, enough for three million requests per second.
const ROOM: usize = 1 << 16;
/// Limit of requests that ghosts serve at a time: some tenths of a second of a processor, and much longer if
/// guests take the processors. Ghosts of a suitable part of the volume get fewer requests in 5 s.
const ROOM_FOR_GHOSTS: usize = 1 << 14;
/// Longest write in a trace: no reader accepts a longer one, and only zeroing can be as long.
const LONGEST_WRITE: Bytes = Bytes(256 << 20);

impl<R: Runtime, E: Export> Recorded<R, E> {
    /// Wraps an export of a volume with these extents, and returns the wrapped export with its recorder.
    pub fn new(runtime: R, export: E, extent: Bytes) -> (Recorded<R, E>, Rc<Recorder<R>>) {
        let recorder = Rc::new(Recorder::new(runtime, export.size(), extent));
        (Recorded { export, recorder: recorder.clone() }, recorder)
    }
}

/// A request in flight. Ends also if a front drops the request.
struct UnderWay<'a, R: Runtime> {
    recorder: &'a Recorder<R>,
    /// Start of the request, if a watch was active.
    begun: Option<Nanos>,
}

impl<R: Runtime> Drop for UnderWay<'_, R> {
    fn drop(&mut self) {
        let recorder = self.recorder;
        recorder.in_flight.set(recorder.in_flight.get() - 1);
        if recorder.watches.get() {
            let now = recorder.runtime.now();
            recorder.with_watch(|watch| watch.ends(self.begun.map(|begun| now - begun)));
        }
    }
}

impl<R: Runtime> Recorder<R> {
    fn new(runtime: R, size: Bytes, extent: Bytes) -> Recorder<R> {
        Recorder {
            runtime,
            records: Cell::new(false),
            notes: RefCell::new(Notes::new(1)),
            watch: RefCell::default(),
            watches: Cell::new(false),
            in_flight: Cell::new(0),
            heat: Heat::new(size, extent),
            ended: Event::default(),
            busy: Cell::new(false),
        }
    }

    /// Starts a recording; `None` if a recording is active.
    pub fn start(self: &Rc<Self>) -> Option<ActiveRecording<R>> {
        if self.busy.replace(true) {
            return None;
        }
        *self.notes.borrow_mut() = Notes::new(ROOM);
        self.records.set(true);
        Some(ActiveRecording { recorder: self.clone() })
    }

    /// True if a recording is active.
    pub fn is_busy(&self) -> bool {
        self.busy.get()
    }

    /// Completes when no recording is active.
    pub async fn idle(&self) {
        self.ended.wait_for(|| (!self.busy.get()).then_some(())).await;
    }

    /// Starts a watch for ghosts of this scale, or ends the watch.
    pub fn watch(&self, scale: Option<Scale>) {
        let begun = |scale| Watch::new(self.runtime.now(), self.in_flight.get(), scale, ROOM_FOR_GHOSTS);
        self.watches.set(scale.is_some());
        *self.watch.borrow_mut() = scale.map(begun);
    }

    /// Calls `ask` with the watch; returns the default if there is none.
    pub fn with_watch<T: Default>(&self, ask: impl FnOnce(&mut Watch) -> T) -> T {
        self.watch.borrow_mut().as_mut().map_or_else(T::default, ask)
    }

    /// Returns the heat of the volume's cells.
    pub fn heat(&self) -> &Heat {
        &self.heat
    }

    /// Counts a request, and notes the request while a recording or a watch is active.
    #[inline]
    fn asked(&self, request: Request) {
        self.heat.note(request);
        if self.records.get() {
            self.note(request);
        }
        if self.watches.get() {
            self.with_watch(|watch| watch.asks(self.runtime.now(), request));
        }
    }

    /// Serves a request, and reports its start and end to the watch.
    async fn served<T>(&self, serve: impl Future<Output = T>) -> T {
        self.in_flight.set(self.in_flight.get() + 1);
        let mut under_way = UnderWay { recorder: self, begun: None };
        if self.watches.get() {
            under_way.begun = Some(self.runtime.now());
            self.with_watch(Watch::begins);
        }
        let result = serve.await;
        drop(under_way);
        result
    }

    fn note(&self, request: Request) {
        let Request { op, offset, len } = request;
        let now = self.runtime.now();
        let mut notes = self.notes.borrow_mut();
        if op != Op::Write || len <= LONGEST_WRITE {
            return notes.note(now, request);
        }
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let len = LONGEST_WRITE.min(end - at);
            notes.note(now, Request { op, offset: at, len });
            at += len;
        }
    }
}

impl<R> ActiveRecording<R> {
    /// Takes the oldest notes, and returns their number.
    pub fn take(&self, into: &mut [Note]) -> usize {
        self.recorder.notes.borrow_mut().take(into)
    }

    /// Returns the number of notes dropped for lack of room.
    pub fn dropped(&self) -> u64 {
        self.recorder.notes.borrow().dropped()
    }

    /// Stops noting; notes in the queue can still be taken.
    pub fn stop(&self) {
        self.recorder.records.set(false);
    }
}

impl<R> Drop for ActiveRecording<R> {
    fn drop(&mut self) {
        self.recorder.records.set(false);
        *self.recorder.notes.borrow_mut() = Notes::new(1);
        self.recorder.busy.set(false);
        self.recorder.ended.notify();
    }
}

impl<R: Runtime, E: Export> Export for Recorded<R, E> {
    fn size(&self) -> Bytes {
        self.export.size()
    }

    fn preferred_block(&self) -> Bytes {
        self.export.preferred_block()
    }

    fn is_read_only(&self) -> bool {
        self.export.is_read_only()
    }

    fn read(&self, offset: Bytes, into: &Buf) -> impl Future<Output = Result<()>> {
        self.recorder.served(self.export.read(offset, into))
    }

    fn write(&self, offset: Bytes, from: &Buf, durability: Durability) -> impl Future<Output = Result<()>> {
        self.recorder.served(self.export.write(offset, from, durability))
    }

    fn flush(&self) -> impl Future<Output = Result<()>> {
        self.recorder.served(self.export.flush())
    }

    fn discard(&self, offset: Bytes, len: Bytes) -> impl Future<Output = Result<()>> {
        self.recorder.served(self.export.discard(offset, len))
    }

    fn discards_to_zeros(&self) -> bool {
        self.export.discards_to_zeros()
    }

    fn write_zeroes(
        &self,
        offset: Bytes,
        len: Bytes,
        zeroing: Zeroing,
        durability: Durability,
    ) -> impl Future<Output = Result<()>> {
        self.recorder.served(self.export.write_zeroes(offset, len, zeroing, durability))
    }

    fn prefetch(&self, offset: Bytes, len: Bytes) -> impl Future<Output = Result<()>> {
        self.export.prefetch(offset, len)
    }

    fn allocation(&self, offset: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        self.export.allocation(offset, limit)
    }

    fn with_hints(&self, hints: Hints) -> Recorded<R, E> {
        Recorded { export: self.export.with_hints(hints), recorder: self.recorder.clone() }
    }

    #[inline]
    fn asked(&self, request: Request) {
        self.recorder.asked(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Arrival, KIB, MIB, Nanos};
    use braid_sim::World;
    use braid_trace::{BlockCompression, CompactWriter, Header};
    use std::time::{Duration, Instant};

    fn request(op: Op, offset: u64, len: Bytes) -> Request {
        Request { op, offset: Bytes(offset), len }
    }

    fn taken(recording: &ActiveRecording<World>, start: Nanos) -> Vec<Arrival> {
        let mut notes = [Note::default(); 64];
        let count = recording.take(&mut notes);
        notes[..count].iter().map(|note| note.arrival(start)).collect()
    }

    #[test]
    fn requests_are_noted_with_times_only_while_recording() {
        let world = World::new(1);
        let recorder = Rc::new(Recorder::new(world.clone(), MIB, KIB));
        world.clone().block_on(async move {
            let read = request(Op::Read, 512, Bytes(512));
            recorder.asked(read);
            let recording = recorder.start().expect("nobody records");
            let start = world.now();
            assert!(recorder.start().is_none(), "two record");
            recorder.asked(read);
            world.sleep(Nanos::from_millis(5)).await;
            recorder.asked(request(Op::Flush, 0, Bytes::ZERO));
            let notes = taken(&recording, start);
            assert_eq!(
                notes.iter().map(|note| note.at).collect::<Vec<_>>(),
                [Nanos::ZERO, Nanos::from_millis(5)]
            );
            assert_eq!((notes[0].request, notes[1].request.op), (read, Op::Flush));
            recorder.asked(read);
            recording.stop();
            recorder.asked(read);
            assert_eq!((taken(&recording, start).len(), recording.dropped()), (1, 0));
            drop(recording);
            recorder.idle().await;
            recorder.asked(read);
            let again = recorder.start().expect("nobody records any more");
            assert_eq!(taken(&again, start), []);
        });
    }

    #[test]
    fn watch_measures_the_number_of_requests_in_flight() {
        let world = World::new(1);
        let recorder = Rc::new(Recorder::new(world.clone(), MIB, KIB));
        world.clone().block_on(async move {
            let serve = |millis| {
                let (recorder, world) = (recorder.clone(), world.clone());
                async move { recorder.served(world.sleep(Nanos::from_millis(millis))).await }
            };
            world.spawn(serve(90));
            world.sleep(Nanos::from_millis(1)).await;
            assert_eq!(recorder.in_flight.get(), 1, "requests count before there is a watch");
            recorder.watch(Some(Scale::WHOLE));
            for _ in 0..20 {
                (0..8).for_each(|_| recorder.asked(request(Op::Read, 4096, Bytes(4096))));
                braid_runtime::join_all((0..8).map(|_| serve(2))).await;
            }
            // A front that drops a request.
            drop(first_poll(serve(1000)).await);
            world.sleep(Nanos::from_millis(60)).await;
            assert_eq!(recorder.in_flight.get(), 0);
            let batch = recorder.with_watch(|watch| watch.take(world.now())).expect("it is enough");
            assert!(format!("{batch:?}").contains("clients: 9"), "{batch:?}");
            recorder.watch(None);
            recorder.asked(request(Op::Read, 4096, Bytes(4096)));
            assert!(recorder.with_watch(|watch| watch.take(world.now())).is_none());
        });
    }

    async fn first_poll<F: Future>(future: F) -> std::pin::Pin<Box<F>> {
        let mut future = Box::pin(future);
        let _pending = std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx))).await;
        future
    }

    #[test]
    fn notes_beyond_the_buffer_are_dropped_and_counted() {
        let recorder = Rc::new(Recorder::new(World::new(1), MIB, KIB));
        let recording = recorder.start().expect("nobody records");
        (0..ROOM as u64 + 7).for_each(|n| recorder.asked(request(Op::Read, n, Bytes(512))));
        assert_eq!(recording.dropped(), 7);
        assert_eq!(taken(&recording, Nanos::ZERO)[3].request.offset, Bytes(3));
        drop(recording);
        let again = recorder.start().expect("nobody records any more");
        assert_eq!(again.dropped(), 0);
    }

    /// A guest may zero more in one request than a trace holds in one request.
    #[test]
    fn oversized_write_is_noted_in_pieces() {
        let recorder = Rc::new(Recorder::new(World::new(1), MIB, KIB));
        let recording = recorder.start().expect("nobody records");
        recorder.asked(request(Op::Write, 4096, MIB * 600));
        recorder.asked(request(Op::Discard, 0, MIB * 600));
        let pieces: Vec<Request> = taken(&recording, Nanos::ZERO).iter().map(|note| note.request).collect();
        let expected = [
            request(Op::Write, 4096, LONGEST_WRITE),
            request(Op::Write, 4096 + LONGEST_WRITE.0, LONGEST_WRITE),
            request(Op::Write, 4096 + 2 * LONGEST_WRITE.0, MIB * 88),
            request(Op::Discard, 0, MIB * 600),
        ];
        assert_eq!(pieces, expected);
    }

    /// `cargo test --release -p braid-control --lib measure -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn measure_cost_of_recording_a_request() {
        const AT_A_TIME: u64 = 4_000;
        const TIMES: u64 = 2_500;
        let ring = braid_uring::Ring::new(8, &braid_runtime::Arena::new(MIB)).expect("a ring");
        let recorder = Rc::new(Recorder::new(ring.clone(), MIB * 65_536, MIB));
        let recording = recorder.start().expect("nobody records");
        let (mut rng, start) = (braid_base::Rng::new(1), ring.now());
        let mut writer =
            CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None).expect("memory");
        let (mut noting, mut writing, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
        for _ in 0..TIMES {
            let offsets: Vec<u64> = (0..AT_A_TIME).map(|_| rng.next_u64() >> 36 << 12).collect();
            let begin = Instant::now();
            offsets.iter().for_each(|&offset| recorder.asked(request(Op::Read, offset, Bytes(4096))));
            let noted = Instant::now();
            let mut notes = [Note::default(); 256];
            while let taken @ 1.. = recording.take(&mut notes) {
                let write = |note: &Note| writer.push(&note.arrival(start)).expect("memory");
                notes[..taken].iter().for_each(write);
                bytes += writer.out().len();
                writer.out().clear();
            }
            noting += noted - begin;
            writing += noted.elapsed();
        }
        let each = |total: Duration| total.as_nanos() as f64 / (AT_A_TIME * TIMES) as f64;
        println!("noting {:.1} ns, writing {:.1} ns a request", each(noting), each(writing));
        println!(
            "{:.1} bytes a record, {} dropped",
            bytes as f64 / (AT_A_TIME * TIMES) as f64,
            recording.dropped()
        );
    }
}
