//! The timing of a device model for any device, in real and in virtual time.
//!
//! [`Emulated`] has the interface of the wrapped device. A request does its real I/O on the inner device and
//! completes when both the I/O and the model are done. The excess of the real I/O or of the machine's
//! scheduling over the model is the request's lateness, counted by the wrapper: the smaller the lateness, the
//! better the emulation.
//!
//! The model does not run ahead of time. A task that waits for a request is woken at the model's next event,
//! and takes one event after another. To the model there is no difference from a device that is never late.
//!
//! [`Networked`] puts a device on another machine and adds the time of a network.
#![forbid(unsafe_code)]

mod driver;
mod lateness;
mod networked;
mod usage;

pub use lateness::Lateness;
pub use networked::{Networked, Shared};
pub use usage::Usage;

use braid_base::{Bytes, Nanos, NodeId};
use braid_model::{Counters, DeviceModel, Model, Op, Request};
use braid_runtime::{Buf, Device, Geometry, Runtime};
use driver::{Driver, Turn};
use std::cell::Cell;
use std::io;

/// A device with the timing of a model.
///
/// Geometry, bytes and errors are the inner device's; an error, too, takes the model's time.
pub struct Emulated<R: Runtime, D: Device, M: Model + 'static = DeviceModel> {
    inner: D,
    driver: Driver<R, M>,
    timed: Cell<bool>,
}

impl<R: Runtime, D: Device, M: Model + 'static> Emulated<R, D, M> {
    /// Gives `inner` the timing of `model`, a model of a device of at least the same size.
    pub fn new(runtime: R, inner: D, model: M) -> Emulated<R, D, M> {
        Emulated { inner, driver: Driver::new(runtime, model), timed: Cell::new(true) }
    }

    /// Device for the real I/O.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Lateness of requests since the start or the last [`Emulated::reset_lateness`].
    pub fn lateness(&self) -> Lateness {
        self.driver.lateness()
    }

    /// Counts lateness anew.
    pub fn reset_lateness(&self) {
        self.driver.reset_lateness();
    }

    /// Requests to the device and its busy time, since the start.
    pub fn usage(&self) -> Usage {
        self.driver.usage()
    }

    /// Counters of the model: for an SSD the writes and erasures of its flash, copies included.
    pub fn counters(&self) -> Counters {
        self.driver.counters()
    }

    /// Switches the model's time off or on. While off, requests take only the time of the real I/O and do not
    /// count, but the model learns the written ranges ([`Model::note`]): for filling a device before a
    /// simulation begins. The model is then in the state of a device that was filled in real time.
    pub fn set_timed(&self, timed: bool) {
        self.timed.set(timed);
    }

    /// Does `work`, the real I/O of a request, while the model's time runs: the request ends with the later
    /// of the two.
    async fn timed(
        &self,
        op: Op,
        offset: Bytes,
        len: Bytes,
        work: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let turn = self.begin(op, offset, len)?;
        let result = work.await;
        if let Some(turn) = turn {
            turn.await;
        }
        result
    }

    /// Submits a request to the model, whose time runs from now on. None if the model's time is off.
    fn begin(&self, op: Op, offset: Bytes, len: Bytes) -> io::Result<Option<Turn<'_, R, M>>> {
        // A model takes no request beyond its device: such a request is refused before, in no time.
        self.inner.geometry().check(offset, len)?;
        if !self.timed.get() {
            self.driver.note(Request { op, offset, len });
            return Ok(None);
        }
        // Overlaps the model's computing with the fetch from memory.
        self.inner.expect(offset);
        Ok(Some(self.driver.submit(Request { op, offset, len })))
    }
}

impl<R: Runtime, D: Device, M: Model + 'static> Device for Emulated<R, D, M> {
    const ALWAYS_ANSWERS: bool = D::ALWAYS_ANSWERS;

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn node(&self) -> Option<NodeId> {
        self.inner.node()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn repair_time(&self) -> Nanos {
        self.inner.repair_time()
    }

    fn read(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>> {
        self.timed(Op::Read, offset, into.len(), self.inner.read(offset, into))
    }

    fn write(&self, offset: Bytes, from: &Buf) -> impl Future<Output = io::Result<()>> {
        self.timed(Op::Write, offset, from.len(), self.inner.write(offset, from))
    }

    fn read_to_move(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>> {
        self.timed(Op::Read, offset, into.len(), self.inner.read_to_move(offset, into))
    }

    fn write_moved(
        &self,
        offset: Bytes,
        from: &Buf,
        node: Option<NodeId>,
    ) -> impl Future<Output = io::Result<()>> {
        self.timed(Op::Write, offset, from.len(), self.inner.write_moved(offset, from, node))
    }

    fn flush(&self) -> impl Future<Output = io::Result<()>> {
        self.timed(Op::Flush, Bytes::ZERO, Bytes::ZERO, self.inner.flush())
    }

    fn discard(&self, offset: Bytes, len: Bytes) -> impl Future<Output = io::Result<()>> {
        self.timed(Op::Discard, offset, len, self.inner.discard(offset, len))
    }
}
