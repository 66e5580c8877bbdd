//! The server: listens, admits one virtual machine at a time, stops.

use crate::budget::Budget;
use crate::device::QUEUES_MAX;
use crate::request::Service;
use crate::session::Session;
use crate::wire::{Facts, ID_LEN};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{Error, ErrorKind, Export, Result};
use braid_runtime::{Arena, Event, LogLimit, Runtime};
use braid_uring::{Listener, Ring, Stream};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Configuration of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Name of the disk for the guest: the first 20 bytes count.
    pub name: String,
    /// Arena for buffers: registered with the ring, and commonly shared with the engine.
    pub arena: Arena,
    /// Bytes of the arena that the server may hold.
    pub memory: Bytes,
    /// Time for a connection to end, if another one comes.
    pub patience: Nanos,
}

impl ServerConfig {
    /// Configuration for the disk `name`, with at most 16 MiB of `arena`.
    pub fn new(name: &str, arena: &Arena) -> ServerConfig {
        let (memory, patience) = (MIB * 16, Nanos::from_secs(5));
        ServerConfig { name: name.to_owned(), arena: arena.clone(), memory, patience }
    }
}

/// Counters of a server since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Virtual machines connected now: 0 or 1.
    pub open: u64,
    /// Connections admitted.
    pub admitted: u64,
    /// Connections refused because of another connection.
    pub refused: u64,
    /// Requests received.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Queues that stopped because a guest broke the rules.
    pub broken: u64,
}

/// Server of one export as a disk of a virtual machine. Cheap to clone: a handle.
pub struct Server<E> {
    inner: Rc<Inner<E>>,
}

struct Inner<E> {
    ring: Ring,
    service: Rc<Service<E>>,
    config: ServerConfig,
    counters: Rc<Cell<Counters>>,
    session: RefCell<Option<Rc<Session>>>,
    refusals: LogLimit,
    stopping: Cell<bool>,
    /// Notified when the server begins to stop, and when a connection has ended.
    changed: Event,
}

impl<E: Export> Server<E> {
    /// Makes a server of `export` without a listener.
    ///
    /// # Errors
    /// `Invalid` if the memory does not suffice, or the arena has less.
    pub fn new(ring: Ring, export: E, config: ServerConfig) -> Result<Server<E>> {
        let (memory, available) = (config.memory, config.arena.available());
        if memory > available || memory < Budget::SMALLEST {
            let problem = format!(
                "a vhost-user server with {memory} of memory: {available} are free, and {} are needed; give \
                 the server less memory, or enlarge the arena",
                Budget::SMALLEST
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let budget = Budget::new(config.arena.clone(), memory);
        let mut id = [0; ID_LEN];
        let name = &config.name.as_bytes()[..config.name.len().min(ID_LEN)];
        id[..name.len()].copy_from_slice(name);
        let inner = Inner {
            ring,
            service: Rc::new(Service { export, budget, id }),
            config,
            counters: Rc::default(),
            session: RefCell::default(),
            refusals: LogLimit::new(Nanos::from_secs(10)),
            stopping: Cell::new(false),
            changed: Event::default(),
        };
        Ok(Server { inner: Rc::new(inner) })
    }

    /// Accepts connections until [`Server::shutdown`].
    pub async fn serve(&self, listener: Listener) {
        let inner = &self.inner;
        loop {
            match inner.unless_stopped(listener.accept()).await {
                None => return,
                Some(Ok(stream)) => inner.admit(stream).await,
                // Too many open files: the connection waits in the listener, and the next try may succeed.
                Some(Err(_)) => inner.ring.sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    /// Stops: no new connections, no new requests; requests in flight are answered. Completes when the
    /// connection has ended: after the time that the export needs for requests in flight.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.stopping.set(true);
        inner.changed.notify();
        if let Some(session) = &*inner.session.borrow() {
            session.stop();
        }
        inner.changed.wait_for(|| inner.session.borrow().is_none().then_some(())).await;
    }

    /// Notes that the export has another size. Returns the process of the connected virtual machine if its
    /// guest cannot be told: the guest keeps the former size until the process connects again.
    pub fn note_size(&self) -> Option<String> {
        let session = self.inner.session.borrow().clone()?;
        (!session.note_size()).then(|| session.peer())
    }

    /// Present counters.
    pub fn counters(&self) -> Counters {
        self.inner.counters.get()
    }

    /// The process of the connected virtual machine.
    pub fn peer(&self) -> Option<String> {
        self.inner.session.borrow().as_ref().map(|session| session.peer())
    }
}

impl<E: Export> Inner<E> {
    /// Serves a new connection, once a former one has ended; refuses if the former one stays.
    async fn admit(self: &Rc<Self>, stream: Stream) {
        let is_free = || self.session.borrow().is_none();
        if !is_free() {
            let mut ended = pin!(self.changed.wait_for(|| is_free().then_some(())));
            let mut patience = self.ring.sleep(self.config.patience);
            poll_fn(|cx| match ended.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => pin!(&mut patience).poll(cx),
            })
            .await;
        }
        if self.stopping.get() {
            return;
        }
        if is_free() {
            return self.start(stream);
        }
        self.count(|counters| counters.refused += 1);
        if let Some(more) = self.refusals.admit(self.ring.now()) {
            let name = &self.config.name;
            tracing::warn!(
                "a virtual machine was refused ({more} more since the last such line): another one has the \
                 disk '{name}'; end it first"
            );
        }
    }

    fn start(self: &Rc<Self>, stream: Stream) {
        self.count(|counters| {
            counters.admitted += 1;
            counters.open += 1;
        });
        let session = Rc::new(Session::new(&self.ring, stream, self.facts(), &self.counters));
        *self.session.borrow_mut() = Some(session.clone());
        let inner = self.clone();
        self.ring.spawn(async move {
            session.run(&inner.service).await;
            *inner.session.borrow_mut() = None;
            inner.count(|counters| counters.open -= 1);
            inner.changed.notify();
        });
    }

    fn facts(&self) -> Facts {
        let export = &self.service.export;
        Facts {
            size: export.size(),
            preferred_block: export.preferred_block().clamp(KIB * 4, KIB * 64),
            queues: QUEUES_MAX,
            read_only: export.is_read_only(),
        }
    }

    /// The result of `work`, or `None` if the server stops first.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut stop = pin!(self.changed.wait_for(|| self.stopping.get().then_some(())));
        poll_fn(|cx| match stop.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(cx).map(Some),
        })
        .await
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}

impl<E> Clone for Server<E> {
    fn clone(&self) -> Server<E> {
        Server { inner: self.inner.clone() }
    }
}

/// Pause after a failure to accept a connection.
const ACCEPT_AGAIN: Nanos = Nanos::from_millis(100);
