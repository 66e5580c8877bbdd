//! A closed loop on a real device: a fixed number of requests is always in flight, for a time.

use crate::device::open::OpenDevice;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, KIB, Nanos, Rng};
use braid_model::{Measure, Op, Request, Requests};
use braid_runtime::{Arena, Buf, Device, Event, Runtime};
use braid_uring::Ring;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// A device under load.
pub(super) struct Load {
    ring: Ring,
    arena: Arena,
    device: Rc<OpenDevice>,
}

/// State shared by the clients of a run.
struct Run {
    requests: RefCell<Requests>,
    /// Requests count if they end within this period.
    counted: (Nanos, Nanos),
    ended: Cell<u64>,
    /// Durations of requests, if the median is wanted.
    times: Option<RefCell<Vec<Nanos>>>,
    failed: RefCell<Option<io::Error>>,
    clients: Cell<usize>,
    over: Event,
}

/// Share of a read run that does not count.
const READS_SETTLE: f64 = 0.15;
/// Share of a write run that does not count: writes fill buffers first.
const WRITES_SETTLE: f64 = 0.5;
/// Limit of durations kept: enough for a median.
const MOST_TIMES: usize = 100_000;

impl Load {
    pub(super) fn new(ring: &Ring, arena: &Arena, device: Rc<OpenDevice>) -> Load {
        Load { ring: ring.clone(), arena: arena.clone(), device }
    }

    pub(super) fn device(&self) -> &OpenDevice {
        &self.device
    }

    pub(super) fn size(&self) -> Bytes {
        self.device.geometry().size
    }

    /// Runs a measure for a time, and returns its value.
    pub(super) async fn run(&self, measure: Measure, time: Nanos) -> Result<f64> {
        let settle = if measure.writes() { WRITES_SETTLE } else { READS_SETTLE };
        let start = self.ring.now();
        let begin = start + Nanos::from_secs_f64(time.as_secs_f64() * settle);
        let end = start + time;
        let run = Rc::new(Run {
            requests: RefCell::new(measure.requests(self.size(), SEED)),
            counted: (begin, end),
            ended: Cell::new(0),
            times: measure.of_median().then(RefCell::default),
            failed: RefCell::new(None),
            clients: Cell::new(measure.depth()),
            over: Event::default(),
        });
        for client in 0..measure.depth() {
            let buf = self.buffer(measure.len(), client as u64).await;
            self.ring.spawn(work(self.ring.clone(), self.device.clone(), buf, run.clone()));
        }
        run.over.wait_for(|| (run.clients.get() == 0).then_some(())).await;
        if let Some(error) = run.failed.take() {
            return Err(error.into());
        }
        if measure.writes() {
            self.device.flush().await?;
        }
        run.value(measure).ok_or_else(|| {
            let problem =
                format!("no request of {} ended in {time}: allow more time with --seconds", measure.len());
            Error::new(ErrorKind::Invalid, problem)
        })
    }

    /// Fills the whole device in order.
    pub(super) async fn fill(&self) -> Result<()> {
        let step = KIB * 128;
        let bufs = [self.buffer(step, 0).await, self.buffer(step, 1).await];
        let mut at = Bytes::ZERO;
        while at < self.size() {
            let len = step.min(self.size() - at).align_down(self.device.geometry().alignment);
            if len == Bytes::ZERO {
                break;
            }
            let buf = &bufs[(at / step) as usize % 2];
            self.device.write(at, &buf.slice(Bytes::ZERO..len)).await?;
            at += len;
        }
        Ok(self.device.flush().await?)
    }

    /// Returns the median duration of a flush after a single random write.
    pub(super) async fn flush(&self) -> Result<Nanos> {
        let len = KIB * 4;
        let (buf, mut rng) = (self.buffer(len, 0).await, Rng::new(SEED));
        let mut times = Vec::with_capacity(FLUSHES);
        for _ in 0..FLUSHES {
            self.device.write(len * rng.below(self.size() / len), &buf).await?;
            let begun = self.ring.now();
            self.device.flush().await?;
            times.push(self.ring.now() - begun);
        }
        times.sort_unstable();
        Ok(times[FLUSHES / 2])
    }

    /// Returns a buffer of random bytes, which no device can compress.
    async fn buffer(&self, len: Bytes, seed: u64) -> Buf {
        let buf = self.arena.alloc(len).await;
        buf.with_bytes_mut(|bytes| Rng::new(seed).fill(bytes));
        buf
    }
}

const SEED: u64 = 1;
const FLUSHES: usize = 15;

/// Runs one client: request after request until the time is over.
async fn work(ring: Ring, device: Rc<OpenDevice>, buf: Buf, run: Rc<Run>) {
    let (begin, end) = run.counted;
    let mut begun = ring.now();
    while begun < end && run.failed.borrow().is_none() {
        let Request { op, offset, len } = run.requests.borrow_mut().step();
        let part = buf.slice(Bytes::ZERO..len);
        let result = match op {
            Op::Write => device.write(offset, &part).await,
            _ => device.read(offset, &part).await,
        };
        if let Err(error) = result {
            run.failed.borrow_mut().get_or_insert(error);
            break;
        }
        let ended = ring.now();
        if (begin..end).contains(&ended) {
            run.ended.set(run.ended.get() + 1);
            if let Some(times) = &run.times
                && times.borrow().len() < MOST_TIMES
            {
                times.borrow_mut().push(ended - begun);
            }
        }
        begun = ended;
    }
    run.clients.set(run.clients.get() - 1);
    run.over.notify();
}

impl Run {
    /// Returns the measured value; `None` if no request ended in time.
    fn value(&self, measure: Measure) -> Option<f64> {
        if let Some(times) = &self.times {
            let mut times = times.take();
            times.sort_unstable();
            let median = times.get(times.len() / 2).filter(|time| **time > Nanos::ZERO)?;
            return Some(measure.value(1.0 / median.as_secs_f64()));
        }
        let time = (self.counted.1 - self.counted.0).as_secs_f64();
        Some(measure.value(self.ended.get() as f64 / time)).filter(|value| *value > 0.0)
    }
}
