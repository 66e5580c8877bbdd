//! Wrappers of the same shape as a device: [`Faulty`] makes requests fail by seed, [`Traced`] writes down what is asked.
//!
//! A write that fails may have changed what it should: nothing, a first part, or all of it, as on a real device.

use braid_base::{Bytes, Rng, SECTOR};
use braid_runtime::{Buf, Device, Geometry};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// Which requests fail. Shared: change it through [`Faults::set`] while the device is in use.
#[derive(Clone)]
pub struct Faults {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    plan: FaultPlan,
    rng: Rng,
    injected: u64,
    /// What was written since the plan was set.
    written: Vec<Range<Bytes>>,
}

/// What fails, and how often. The default is nothing.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Probability that a read fails.
    pub reads: f64,
    /// Probability that a write fails.
    pub writes: f64,
    /// Probability that a flush fails. Nothing that it would have made durable is then certain to be.
    pub flushes: f64,
    /// Reads that touch this range always fail: a bad spot.
    pub bad_reads: Option<Range<Bytes>>,
    /// A bad spot is good again once all of a read has been written.
    pub bad_until_written: bool,
    /// Writes that touch this range always fail.
    pub bad_writes: Option<Range<Bytes>>,
    /// The device is gone: every request fails.
    pub vanished: bool,
}

impl Faults {
    /// Faults by `plan`, drawn from `rng`.
    pub fn new(plan: FaultPlan, rng: Rng) -> Faults {
        Faults { inner: Rc::new(RefCell::new(Inner { plan, rng, injected: 0, written: Vec::new() })) }
    }

    /// Faults by another plan from now on.
    pub fn set(&self, plan: FaultPlan) {
        let mut inner = self.inner.borrow_mut();
        (inner.plan, inner.written) = (plan, Vec::new());
    }

    /// Takes the device away: every request fails from now on.
    pub fn vanish(&self) {
        self.inner.borrow_mut().plan.vanished = true;
    }

    /// How many requests were made to fail.
    pub fn injected(&self) -> u64 {
        self.inner.borrow().injected
    }

    /// Decides whether a request fails, and with what.
    fn draw(&self, request: Operation) -> io::Result<()> {
        let mut inner = self.inner.borrow_mut();
        let Inner { plan, rng, injected, written } = &mut *inner;
        if let (true, Operation::Write(offset, len)) = (plan.bad_until_written, request) {
            written.push(offset..offset + len);
        }
        let touches = |bad: &Option<Range<Bytes>>, offset: Bytes, len: Bytes| {
            bad.as_ref().is_some_and(|bad| offset < bad.end && bad.start < offset + len)
        };
        let fails = match request {
            _ if plan.vanished => true,
            Operation::Read(offset, len) => {
                let mended = written.iter().any(|w| w.start <= offset && offset + len <= w.end);
                touches(&plan.bad_reads, offset, len) && !mended || rng.chance(plan.reads)
            }
            Operation::Write(offset, len) => {
                touches(&plan.bad_writes, offset, len) || rng.chance(plan.writes)
            }
            Operation::Flush => rng.chance(plan.flushes),
            Operation::Discard(..) => false,
        };
        if !fails {
            return Ok(());
        }
        *injected += 1;
        let kind = if plan.vanished { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
        Err(io::Error::new(kind, format!("injected fault: {request:?}")))
    }

    /// How much of a failing write reaches the device.
    fn part_of(&self, len: Bytes, alignment: Bytes) -> Bytes {
        let mut inner = self.inner.borrow_mut();
        match inner.rng.below(3) {
            _ if inner.plan.vanished => Bytes::ZERO,
            0 => Bytes::ZERO,
            1 => len,
            _ => Bytes(inner.rng.below(len.0)).align_down(alignment.max(SECTOR)),
        }
    }
}

/// A device some of whose requests fail.
#[derive(Clone)]
pub struct Faulty<D> {
    device: D,
    faults: Faults,
}

impl<D: Device> Faulty<D> {
    /// `device` with `faults`.
    pub fn new(device: D, faults: &Faults) -> Faulty<D> {
        Faulty { device, faults: faults.clone() }
    }
}

impl<D: Device> Device for Faulty<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.faults.draw(Operation::Read(offset, into.len()))?;
        self.device.read(offset, into).await
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        let Err(error) = self.faults.draw(Operation::Write(offset, from.len())) else {
            return self.device.write(offset, from).await;
        };
        let part = self.faults.part_of(from.len(), self.geometry().alignment);
        if part > Bytes::ZERO {
            self.device.write(offset, &from.slice(Bytes::ZERO..part)).await?;
        }
        Err(error)
    }

    async fn flush(&self) -> io::Result<()> {
        self.faults.draw(Operation::Flush)?;
        self.device.flush().await
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.faults.draw(Operation::Discard(offset, len))?;
        self.device.discard(offset, len).await
    }
}

/// What a device was asked to do: offset, length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read a range.
    Read(Bytes, Bytes),
    /// Write a range.
    Write(Bytes, Bytes),
    /// Flush.
    Flush,
    /// Discard a range.
    Discard(Bytes, Bytes),
}

/// The start or the end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It was asked for.
    Begin(Operation),
    /// It ended well.
    End(Operation),
    /// It ended with an error.
    Fail(Operation),
}

/// What was asked of a device, in order. Shared: keep a clone to look at it. It grows with every request: for tests.
#[derive(Clone, Default)]
pub struct Trace {
    steps: Rc<RefCell<Vec<Step>>>,
}

impl Trace {
    /// Takes what was written down so far, and starts anew.
    pub fn take(&self) -> Vec<Step> {
        self.steps.take()
    }

    /// How many operations that `wanted` accepts have begun since the last [`Trace::take`].
    pub fn count(&self, wanted: impl Fn(Operation) -> bool) -> usize {
        let steps = self.steps.borrow();
        steps.iter().filter(|step| matches!(step, Step::Begin(operation) if wanted(*operation))).count()
    }

    async fn around(
        &self,
        operation: Operation,
        work: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        self.steps.borrow_mut().push(Step::Begin(operation));
        let result = work.await;
        let step = if result.is_ok() { Step::End(operation) } else { Step::Fail(operation) };
        self.steps.borrow_mut().push(step);
        result
    }
}

/// A device that writes down what it is asked.
#[derive(Clone)]
pub struct Traced<D> {
    device: D,
    trace: Trace,
}

impl<D: Device> Traced<D> {
    /// `device`, writing to `trace`.
    pub fn new(device: D, trace: &Trace) -> Traced<D> {
        Traced { device, trace: trace.clone() }
    }
}

impl<D: Device> Device for Traced<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.trace.around(Operation::Read(offset, into.len()), self.device.read(offset, into)).await
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        self.trace.around(Operation::Write(offset, from.len()), self.device.write(offset, from)).await
    }

    async fn flush(&self) -> io::Result<()> {
        self.trace.around(Operation::Flush, self.device.flush()).await
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.trace.around(Operation::Discard(offset, len), self.device.discard(offset, len)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, DiskOptions, World};
    use braid_base::{KIB, MIB};
    use braid_runtime::Arena;

    /// Runs `reads`, `writes` and `flushes`, one hundred each, and counts those that fail.
    fn failures_under(plan: FaultPlan) -> (usize, usize, usize) {
        let world = World::new(1);
        let disk = Disk::new(&world, DiskOptions::ssd(MIB));
        let faults = Faults::new(plan, world.fork_rng());
        let device = Faulty::new(disk, &faults);
        let failed = world.block_on(async move {
            let buf = Arena::new(MIB).try_alloc(KIB * 4).unwrap();
            let mut failed = (0, 0, 0);
            for at in 0..100 {
                failed.0 += usize::from(device.read(KIB * 4 * at, &buf).await.is_err());
                failed.1 += usize::from(device.write(KIB * 4 * at, &buf).await.is_err());
                failed.2 += usize::from(device.flush().await.is_err());
            }
            failed
        });
        world.halt();
        assert_eq!(faults.injected(), (failed.0 + failed.1 + failed.2) as u64);
        failed
    }

    #[test]
    fn faults_strike_as_planned() {
        assert_eq!(failures_under(FaultPlan::default()), (0, 0, 0));
        let (reads, writes, flushes) =
            failures_under(FaultPlan { reads: 0.5, flushes: 0.2, ..FaultPlan::default() });
        assert!((30..70).contains(&reads) && writes == 0 && (5..40).contains(&flushes));
        let bad_spot = Some(KIB * 40..KIB * 48);
        assert_eq!(failures_under(FaultPlan { bad_writes: bad_spot, ..FaultPlan::default() }), (0, 2, 0));
        assert_eq!(failures_under(FaultPlan { vanished: true, ..FaultPlan::default() }), (100, 100, 100));
    }

    #[test]
    fn a_trace_shows_begin_and_end() {
        let world = World::new(1);
        let trace = Trace::default();
        let device = Traced::new(Disk::new(&world, DiskOptions::ssd(MIB)), &trace);
        world.block_on(async move {
            device.flush().await.unwrap();
            device.discard(MIB, KIB).await.unwrap_err();
        });
        world.halt();
        let discard = Operation::Discard(MIB, KIB);
        assert_eq!(trace.count(|operation| operation == discard), 1);
        let (flush, begin) = (Operation::Flush, Step::Begin);
        assert_eq!(trace.take(), [begin(flush), Step::End(flush), begin(discard), Step::Fail(discard)]);
    }
}
