//! A wrapper of the same shape as a device: [`Faulty`] makes requests to any device fail by seed, and
//! records the requests if a test supplies a [`Trace`]. Faults inside the cache of a disk belong to the
//! disk: see [`crate::Disk::faults`].

use crate::connection::Connection;
use crate::faults::{Faults, Operation};
use braid_base::{Bytes, Nanos, NodeId};
use braid_runtime::{Buf, Device, Geometry};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// A device with failing requests: of a plan, only the faults that are errors apply.
#[derive(Clone)]
pub struct Faulty<D> {
    device: D,
    faults: Faults,
    trace: Option<Trace>,
    connection: Option<Connection>,
    repair_time: Nanos,
}

impl<D: Device + Clone> Faulty<D> {
    /// Wraps `device` with `faults`.
    pub fn new(device: D, faults: &Faults) -> Faulty<D> {
        Faulty { device, faults: faults.clone(), trace: None, connection: None, repair_time: Nanos::ZERO }
    }

    /// Records all requests in `trace` from now on.
    #[must_use]
    pub fn traced(self, trace: &Trace) -> Faulty<D> {
        Faulty { trace: Some(trace.clone()), ..self }
    }

    /// Puts the device behind a connection.
    #[must_use]
    pub fn behind(self, connection: &Connection) -> Faulty<D> {
        Faulty { connection: Some(connection.clone()), ..self }
    }

    /// Says that the device may hang for this long and then answer by itself.
    #[must_use]
    pub fn repairing(self, repair_time: Nanos) -> Faulty<D> {
        Faulty { repair_time, ..self }
    }

    async fn read_by(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        match &self.connection {
            Some(connection) => connection.read(&self.device, offset, into).await,
            None => self.device.read(offset, into).await,
        }
    }

    async fn write_whole(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        match &self.connection {
            Some(connection) => connection.write(&self.device, offset, from).await,
            None => self.device.write(offset, from).await,
        }
    }

    async fn flush_by(&self) -> io::Result<()> {
        match &self.connection {
            Some(connection) => connection.flush(&self.device).await,
            None => self.device.flush().await,
        }
    }

    async fn discard_by(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        match &self.connection {
            Some(connection) => connection.discard(&self.device, offset, len).await,
            None => self.device.discard(offset, len).await,
        }
    }

    /// Performs an operation that may fail before reaching the device.
    async fn ask(&self, operation: Operation, work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        let asked = async {
            self.faults.draw(operation)?;
            work.await
        };
        self.noted(operation, asked).await
    }

    async fn noted(
        &self,
        operation: Operation,
        work: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        match &self.trace {
            Some(trace) => trace.around(operation, work).await,
            None => work.await,
        }
    }

    /// Writes everything, or only a part if the write is to fail.
    async fn write_by(
        &self,
        offset: Bytes,
        from: &Buf,
        write: impl AsyncFn(&Buf) -> io::Result<()>,
    ) -> io::Result<()> {
        let operation = Operation::Write(offset, from.len());
        let written = async {
            let Err(error) = self.faults.draw(operation) else {
                return write(from).await;
            };
            let part = self.faults.part_of(from.len(), self.geometry().alignment);
            if part > Bytes::ZERO {
                write(&from.slice(Bytes::ZERO..part)).await?;
            }
            Err(error)
        };
        self.noted(operation, written).await
    }
}

impl<D: Device + Clone> Device for Faulty<D> {
    const ALWAYS_ANSWERS: bool = D::ALWAYS_ANSWERS;

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn expect(&self, offset: Bytes) {
        self.device.expect(offset);
    }

    fn node(&self) -> Option<NodeId> {
        self.device.node()
    }

    /// True behind a connection: another host may connect, too.
    fn is_shared(&self) -> bool {
        self.connection.is_some() || self.device.is_shared()
    }

    fn repair_time(&self) -> Nanos {
        self.repair_time.max(self.device.repair_time())
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.ask(Operation::Read(offset, into.len()), self.read_by(offset, into)).await
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        self.write_by(offset, from, async |part| self.write_whole(offset, part).await).await
    }

    async fn read_to_move(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        let work = async {
            match &self.connection {
                Some(_) => self.read_by(offset, into).await,
                None => self.device.read_to_move(offset, into).await,
            }
        };
        self.ask(Operation::Read(offset, into.len()), work).await
    }

    async fn write_moved(&self, offset: Bytes, from: &Buf, node: Option<NodeId>) -> io::Result<()> {
        let write = async |part: &Buf| match &self.connection {
            Some(_) => self.write_whole(offset, part).await,
            None => self.device.write_moved(offset, part, node).await,
        };
        self.write_by(offset, from, write).await
    }

    async fn flush(&self) -> io::Result<()> {
        self.ask(Operation::Flush, self.flush_by()).await
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.ask(Operation::Discard(offset, len), self.discard_by(offset, len)).await
    }
}

/// The start or the end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The operation began.
    Begin(Operation),
    /// The operation succeeded.
    End(Operation),
    /// The operation failed.
    Fail(Operation),
}

/// Requests to a device, in order. Shared: keep a clone to inspect the trace. For tests: the trace grows
/// with every request.
#[derive(Clone, Default)]
pub struct Trace {
    steps: Rc<RefCell<Vec<Step>>>,
}

impl Trace {
    /// Returns the steps recorded so far, and empties the trace.
    pub fn take(&self) -> Vec<Step> {
        self.steps.take()
    }

    /// Number of operations accepted by `wanted` that began since the last [`Trace::take`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, DiskOptions, FaultPlan, World};
    use braid_base::{KIB, MIB};
    use braid_runtime::Arena;

    /// Runs one hundred reads, writes and flushes each, and counts the failures of each kind.
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

    /// A device on a node, with a record of the nodes that moves name.
    #[derive(Clone)]
    struct OnNode {
        device: Disk,
        moved: Rc<RefCell<Vec<Option<NodeId>>>>,
    }

    impl Device for OnNode {
        fn geometry(&self) -> Geometry {
            self.device.geometry()
        }

        fn node(&self) -> Option<NodeId> {
            Some(NodeId(3))
        }

        async fn read(&self, _: Bytes, _: &Buf) -> io::Result<()> {
            panic!("the host does not look at what moves")
        }

        async fn write(&self, _: Bytes, _: &Buf) -> io::Result<()> {
            panic!("what moves does not come from the host")
        }

        async fn read_to_move(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
            self.moved.borrow_mut().push(self.node());
            self.device.read(offset, into).await
        }

        async fn write_moved(&self, offset: Bytes, from: &Buf, node: Option<NodeId>) -> io::Result<()> {
            self.moved.borrow_mut().push(node);
            self.device.write(offset, from).await
        }

        async fn flush(&self) -> io::Result<()> {
            self.device.flush().await
        }

        async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
            self.device.discard(offset, len).await
        }
    }

    /// A wrapped device used to count as a device of the host: no policy saw its node, and moves within the
    /// node crossed the network.
    #[test]
    fn faulty_device_stays_on_node_of_inner_device() {
        let world = World::new(1);
        let (moved, trace) = (Rc::new(RefCell::new(Vec::new())), Trace::default());
        let device = OnNode { device: Disk::new(&world, DiskOptions::ssd(MIB)), moved: moved.clone() };
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let faulty = Faulty::new(device, &faults).traced(&trace);
        world.block_on(async move {
            assert_eq!(faulty.node(), Some(NodeId(3)));
            let buf = Arena::new(MIB).try_alloc(KIB * 4).unwrap();
            faulty.read_to_move(Bytes::ZERO, &buf).await.unwrap();
            faulty.write_moved(Bytes::ZERO, &buf, Some(NodeId(4))).await.unwrap();
        });
        world.halt();
        assert_eq!(moved.take(), [Some(NodeId(3)), Some(NodeId(4))]);
        assert_eq!(trace.take().len(), 4, "both begin and end");
    }

    #[test]
    fn a_trace_shows_begin_and_end() {
        let world = World::new(1);
        let trace = Trace::default();
        let faults = Faults::new(FaultPlan::default(), world.fork_rng());
        let device = Faulty::new(Disk::new(&world, DiskOptions::ssd(MIB)), &faults).traced(&trace);
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
