//! A connection to a device on another machine, as over TCP to an NBD server.
//!
//! Promises, and no more:
//! - A request is carried out at most once, at any time between its sending and its reply, and requests
//!   overtake each other.
//! - While the network is cut, nothing arrives in either direction; requests and replies wait, and arrive
//!   after the repair, unless the host has ended the connection.
//! - After the end of a connection, each of its requests has failed for the host. The server carries out
//!   those that it has received, each within [`LATE_REQUESTS`] of the next connection, and others or not.
//! - While the server is stopped, requests wait; no new connection begins.
//! - A server that dies ends all its connections, and with them the requests that it has not carried out.
//!
//! A request that fails has therefore been carried out, or will be, or never is.

use crate::World;
use braid_base::{Bytes, Nanos, Rng};
use braid_runtime::{Arena, Buf, Device, Event, Runtime};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// Longest time from a new connection until the requests of an earlier one are carried out.
pub const LATE_REQUESTS: Nanos = Nanos::from_secs(2);

/// Longest way of a message in one direction.
const LONGEST_WAY: Nanos = Nanos::from_millis(2);

/// The machine that serves a device, and the network before it. Cheap to clone: a handle.
#[derive(Clone)]
pub struct Server {
    world: World,
    state: Rc<ServerState>,
}

struct ServerState {
    rng: RefCell<Rng>,
    is_cut: Cell<bool>,
    is_stopped: Cell<bool>,
    /// Number of the life of the server.
    life: Cell<u64>,
    /// Number of the newest connection.
    newest: Cell<u64>,
    /// Requests carried out after the end of their connection.
    late: Cell<u64>,
    /// Notified at each change.
    changed: Event,
}

/// A connection of a host to a server. Cheap to clone: a handle.
#[derive(Clone)]
pub struct Connection {
    server: Server,
    number: u64,
    life: u64,
    ended: Rc<Cell<bool>>,
}

impl Server {
    /// A running server that the network reaches.
    pub fn new(world: &World) -> Server {
        let state = ServerState {
            rng: RefCell::new(world.fork_rng()),
            is_cut: Cell::new(false),
            is_stopped: Cell::new(false),
            life: Cell::new(0),
            newest: Cell::new(0),
            late: Cell::new(0),
            changed: Event::default(),
        };
        Server { world: world.clone(), state: Rc::new(state) }
    }

    /// Connects, once the network and the server let the host through.
    pub async fn connect(&self) -> Connection {
        self.reach().await;
        let number = self.state.newest.get() + 1;
        self.state.newest.set(number);
        self.state.changed.notify();
        Connection { server: self.clone(), number, life: self.state.life.get(), ended: Rc::default() }
    }

    /// Cuts or repairs the network.
    pub fn set_cut(&self, is_cut: bool) {
        self.state.is_cut.set(is_cut);
        self.state.changed.notify();
    }

    /// Stops the server, or lets it go on.
    pub fn set_stopped(&self, is_stopped: bool) {
        self.state.is_stopped.set(is_stopped);
        self.state.changed.notify();
    }

    /// The server dies, and another one takes its place at once. Unflushed writes of its device are lost if
    /// the caller makes the device lose its cache.
    pub fn die(&self) {
        self.state.life.set(self.state.life.get() + 1);
        self.state.changed.notify();
    }

    /// Number of requests that were carried out after the end of their connection.
    pub fn late(&self) -> u64 {
        self.state.late.get()
    }

    /// Waits until messages pass.
    async fn reach(&self) {
        let state = &self.state;
        let passes = || (!state.is_cut.get() && !state.is_stopped.get()).then_some(());
        state.changed.wait_for(passes).await;
    }

    fn random(&self, limit: Nanos) -> Nanos {
        Nanos(self.state.rng.borrow_mut().below(limit.0 + 1))
    }
}

impl Connection {
    /// Ends the connection on the side of the host: all its requests in flight fail, and all later ones.
    pub fn end(&self) {
        self.ended.set(true);
        self.server.state.changed.notify();
    }

    /// True if the connection has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.get() || self.has_died()
    }

    /// Reads through the connection.
    pub async fn read<D: Device + Clone>(&self, device: &D, offset: Bytes, into: &Buf) -> io::Result<()> {
        let (device, len) = (device.clone(), into.len());
        let bytes = self.carry(async move || {
            let own = Arena::new(len).alloc(len).await;
            device.read(offset, &own).await.map(|()| own)
        });
        into.copy_from(Bytes::ZERO, &bytes.await?);
        Ok(())
    }

    /// Writes through the connection.
    pub async fn write<D: Device + Clone>(&self, device: &D, offset: Bytes, from: &Buf) -> io::Result<()> {
        // The host may use the buffer again after the end of the connection, and the server has its own
        // bytes.
        let own = Arena::new(from.len()).alloc(from.len()).await;
        own.copy_from(Bytes::ZERO, from);
        let device = device.clone();
        self.carry(async move || device.write(offset, &own).await).await
    }

    /// Flushes through the connection.
    pub async fn flush<D: Device + Clone>(&self, device: &D) -> io::Result<()> {
        let device = device.clone();
        self.carry(async move || device.flush().await).await
    }

    /// Discards through the connection.
    pub async fn discard<D: Device + Clone>(&self, device: &D, offset: Bytes, len: Bytes) -> io::Result<()> {
        let device = device.clone();
        self.carry(async move || device.discard(offset, len).await).await
    }

    /// Carries a request to the server, and its result back.
    async fn carry<T: 'static>(&self, work: impl AsyncFnOnce() -> io::Result<T> + 'static) -> io::Result<T> {
        if self.has_ended() {
            return Err(lost());
        }
        let reply: Rc<RefCell<Option<io::Result<T>>>> = Rc::default();
        let (own, place) = (self.clone(), reply.clone());
        self.server.world.spawn(async move {
            if own.arrive().await {
                let result = work().await;
                own.reply().await;
                place.replace(Some(result));
                own.server.state.changed.notify();
            }
        });
        let state = &self.server.state;
        state
            .changed
            .wait_for(|| match self.has_ended() {
                true => Some(Err(lost())),
                false => reply.take(),
            })
            .await
    }

    /// Waits until the server carries a request out. False if the server never does.
    async fn arrive(&self) -> bool {
        let Server { world, state } = &self.server;
        world.sleep(self.server.random(LONGEST_WAY)).await;
        // A host that ends the connection forgets what the network has not taken. What the network has taken
        // may be anywhere on the way.
        let is_through = || !state.is_cut.get();
        let stays = || self.has_ended() && !state.rng.borrow_mut().chance(0.5);
        let fate = state.changed.wait_for(|| match (is_through(), self.has_ended()) {
            (true, _) => Some(!stays()),
            (false, true) => Some(false),
            (false, false) => None,
        });
        if !fate.await {
            return false;
        }
        // Received: a server that lives carries the request out, whatever becomes of the connection.
        let begins = || !state.is_stopped.get() || self.has_died();
        state.changed.wait_for(|| begins().then_some(())).await;
        if self.has_ended() && !self.has_died() {
            let follows = || state.newest.get() > self.number || self.has_died();
            state.changed.wait_for(|| follows().then_some(())).await;
            world.sleep(self.server.random(LATE_REQUESTS - Nanos::from_millis(500))).await;
            state.late.set(state.late.get() + u64::from(!self.has_died()));
        }
        !self.has_died()
    }

    /// Waits until a reply has reached the host.
    async fn reply(&self) {
        self.server.world.sleep(self.server.random(LONGEST_WAY)).await;
        let state = &self.server.state;
        state.changed.wait_for(|| (!state.is_cut.get() || self.has_ended()).then_some(())).await;
    }

    fn has_died(&self) -> bool {
        self.life != self.server.state.life.get()
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the connection to the server was lost")
}
