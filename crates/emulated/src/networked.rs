//! A device on another machine: requests and answers travel over a network.
//!
//! - A request and its answer each take the network's latency. The bytes of a write travel with the request,
//!   the bytes of a read with the answer.
//! - Bytes read for a move stay on the device's node, and the move's write takes the bytes from there. Within
//!   a node nothing crosses the network, and between nodes the bytes do not pass the host.
//! - All other copies of the engine pass the host: blocks that are cached, written back or resynchronised,
//!   and moves from the memory cache.

use braid_base::{Bytes, Nanos, NodeId};
use braid_model::network::{Carried, Network};
use braid_runtime::{Buf, Device, Geometry, Runtime};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// A network shared by devices.
pub struct Shared<R> {
    runtime: R,
    network: RefCell<Network>,
    timed: Cell<bool>,
    moved: Cell<Bytes>,
}

/// A device and its network.
#[derive(Clone)]
pub struct Networked<R, D> {
    inner: D,
    /// None if there is no network at all.
    network: Option<Rc<Shared<R>>>,
    node: Option<NodeId>,
}

impl<R: Runtime> Shared<R> {
    /// Makes a shared `network`, which takes time from now on.
    pub fn new(runtime: R, network: Network) -> Shared<R> {
        let (timed, moved) = (Cell::new(true), Cell::new(Bytes::ZERO));
        Shared { runtime, network: RefCell::new(network), timed, moved }
    }

    /// Switches the network's time off or on. While off, nothing is carried and nothing counts.
    pub fn set_timed(&self, timed: bool) {
        self.timed.set(timed);
    }

    /// Traffic of a machine's link; none for a host without a link.
    pub fn carried(&self, machine: Option<NodeId>) -> Option<Carried> {
        self.network.borrow().carried(machine)
    }

    /// Bytes of moves from one machine to another.
    pub fn moved(&self) -> Bytes {
        self.moved.get()
    }

    /// Sends bytes from one machine to another, and waits for their arrival.
    async fn send(&self, from: Option<NodeId>, to: Option<NodeId>, len: Bytes) {
        if from != to && self.timed.get() {
            let arrived = self.network.borrow_mut().send(from, to, len, self.runtime.now());
            self.runtime.sleep_until(arrived).await;
        }
    }

    /// As [`Shared::send`], for bytes of a move.
    async fn pass_on(&self, from: Option<NodeId>, to: Option<NodeId>, len: Bytes) {
        if from != to && self.timed.get() {
            self.moved.set(self.moved.get() + len);
        }
        self.send(from, to, len).await;
    }
}

impl<R: Runtime, D: Device> Networked<R, D> {
    /// A device of the host, without a network.
    pub fn local(inner: D) -> Networked<R, D> {
        Networked { inner, network: None, node: None }
    }

    /// A device on a node, or on the host of a volume with devices on nodes.
    pub fn on(inner: D, network: Rc<Shared<R>>, node: Option<NodeId>) -> Networked<R, D> {
        Networked { inner, network: Some(network), node }
    }

    /// Lets the device do `work` for the host, with `sent` bytes to the device and `received` bytes back.
    async fn ask(
        &self,
        sent: Bytes,
        received: Bytes,
        work: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let Some(network) = &self.network else { return work.await };
        network.send(None, self.node, sent).await;
        let result = work.await;
        network.send(self.node, None, received).await;
        result
    }
}

impl<R: Runtime, D: Device> Device for Networked<R, D> {
    const ALWAYS_ANSWERS: bool = D::ALWAYS_ANSWERS;

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn expect(&self, offset: Bytes) {
        self.inner.expect(offset);
    }

    fn node(&self) -> Option<NodeId> {
        self.node
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn repair_time(&self) -> Nanos {
        self.inner.repair_time()
    }

    fn read(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>> {
        self.ask(Bytes::ZERO, into.len(), self.inner.read(offset, into))
    }

    fn write(&self, offset: Bytes, from: &Buf) -> impl Future<Output = io::Result<()>> {
        self.ask(from.len(), Bytes::ZERO, self.inner.write(offset, from))
    }

    fn read_to_move(&self, offset: Bytes, into: &Buf) -> impl Future<Output = io::Result<()>> {
        self.ask(Bytes::ZERO, Bytes::ZERO, self.inner.read_to_move(offset, into))
    }

    async fn write_moved(&self, offset: Bytes, from: &Buf, node: Option<NodeId>) -> io::Result<()> {
        let Some(network) = &self.network else { return self.inner.write(offset, from).await };
        // The host asks the node with the bytes to send them.
        network.send(None, node, Bytes::ZERO).await;
        network.pass_on(node, self.node, from.len()).await;
        let result = self.inner.write(offset, from).await;
        network.send(self.node, None, Bytes::ZERO).await;
        result
    }

    fn flush(&self) -> impl Future<Output = io::Result<()>> {
        self.ask(Bytes::ZERO, Bytes::ZERO, self.inner.flush())
    }

    fn discard(&self, offset: Bytes, len: Bytes) -> impl Future<Output = io::Result<()>> {
        self.ask(Bytes::ZERO, Bytes::ZERO, self.inner.discard(offset, len))
    }
}
