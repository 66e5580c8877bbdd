//! The server: listens, admits connections within the limits, stops.

use crate::connection::{negotiate, transmit};
use crate::handshake::{Facts, PAYLOAD_LARGEST};
use crate::inbox::Inbox;
use crate::memory::{GUARANTEE_SMALLEST, Memory};
use crate::session::Session;
use crate::wire::*;
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{Error, ErrorKind, Export, Result};
use braid_runtime::{Arena, Event, Runtime};
use braid_uring::{Listener, Ring, Stream};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// How a server is set up.
#[derive(Clone)]
pub struct ServerConfig {
    /// The export's name. Clients that give none get the same export.
    pub name: String,
    /// Where buffers come from: registered with the ring, and commonly shared with the engine.
    pub arena: Arena,
    /// How much of the arena the server may hold. The engine needs the rest: a request that is served must not wait for
    /// memory that only replies hold.
    pub memory: Bytes,
    /// Connections at the same time; further ones are closed at once. Each costs 64 KiB outside the arena.
    pub max_connections: usize,
    /// How long a client may take to negotiate.
    pub negotiation_time: Nanos,
    /// How long a client may take to read its last replies, after its goodbye or when the server stops.
    pub drain_time: Nanos,
}

impl ServerConfig {
    /// A server of `name` with 32 connections that holds at most half of what is free in `arena`.
    pub fn new(name: &str, arena: &Arena) -> ServerConfig {
        ServerConfig {
            name: name.to_owned(),
            arena: arena.clone(),
            memory: (arena.available() / 2).align_down(MIB),
            max_connections: 32,
            negotiation_time: Nanos::from_secs(10),
            drain_time: Nanos::from_secs(10),
        }
    }
}

/// What a server has counted since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Connections that are open now.
    pub open: u64,
    /// Connections admitted.
    pub admitted: u64,
    /// Connections closed at once, for there were too many.
    pub refused: u64,
    /// Requests received.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

/// Serves one export by NBD. Cheap to clone: a handle.
pub struct Server<E> {
    inner: Rc<Inner<E>>,
}

struct Inner<E> {
    ring: Ring,
    export: Rc<E>,
    facts: Facts,
    config: ServerConfig,
    memory: Memory,
    counters: Rc<Cell<Counters>>,
    sessions: RefCell<Vec<Rc<Session>>>,
    /// A task looks for connections that are overdue.
    watched: Cell<bool>,
    stopping: Cell<bool>,
    /// Notified when the server begins to stop, and when a connection has ended.
    changed: Event,
}

impl<E: Export> Server<E> {
    /// A server of `export` that listens nowhere yet.
    ///
    /// # Errors
    /// `Invalid` where the memory does not suffice for so many connections, or the arena has less.
    pub fn new(ring: Ring, export: E, config: ServerConfig) -> Result<Server<E>> {
        let available = config.arena.available();
        if config.memory > available {
            let problem = format!("an NBD server with {} of memory: {available} are free", config.memory);
            return Err(Error::new(ErrorKind::Invalid, problem + "; give it less, or the arena more"));
        }
        let memory = Memory::new(config.arena.clone(), config.memory, config.max_connections);
        let Some(memory) = memory else {
            let (limit, connections) = (config.memory, config.max_connections);
            let least = GUARANTEE_SMALLEST * 2;
            let problem = format!("{limit} of memory for {connections} NBD connections: each needs {least}");
            return Err(Error::new(
                ErrorKind::Invalid,
                problem + "; allow fewer connections or give more memory",
            ));
        };
        let inner = Inner {
            ring,
            facts: facts_of(&export, &config),
            export: Rc::new(export),
            config,
            memory,
            counters: Rc::default(),
            sessions: RefCell::default(),
            watched: Cell::new(false),
            stopping: Cell::new(false),
            changed: Event::default(),
        };
        Ok(Server { inner: Rc::new(inner) })
    }

    /// Accepts connections until [`Server::shutdown`]. A server may serve several listeners at the same time.
    pub async fn serve(&self, listener: Listener) {
        let mut stop = pin!(self.inner.changed.wait_for(|| self.inner.stopping.get().then_some(())));
        loop {
            let mut accept = pin!(listener.accept());
            let accepted = poll_fn(|cx| match stop.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => accept.as_mut().poll(cx).map(Some),
            });
            match accepted.await {
                None => return,
                Some(Ok(stream)) => self.admit(stream),
                // Too many open files: the connection waits in the listener, and the next try may succeed.
                Some(Err(_)) => self.inner.ring.sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    /// Stops: no new connections, no new requests (NBD_ESHUTDOWN); requests in flight are answered. Completes when all
    /// connections have ended, at the latest after the configured time to drain and what the export needs to complete
    /// the requests that it has begun.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.stopping.set(true);
        inner.changed.notify();
        let deadline = inner.ring.now() + inner.config.drain_time;
        let sessions = inner.sessions.borrow().clone();
        sessions.iter().for_each(|session| session.stop(deadline));
        inner.watch();
        inner.changed.wait_for(|| inner.sessions.borrow().is_empty().then_some(())).await;
    }

    /// What has been counted until now.
    pub fn counters(&self) -> Counters {
        self.inner.counters.get()
    }

    fn admit(&self, stream: Stream) {
        let inner = &self.inner;
        // Each poll of `serve` adds a waker to the event; this empties it, however many connections come.
        inner.changed.notify();
        let mut counters = inner.counters.get();
        if inner.sessions.borrow().len() >= inner.config.max_connections {
            counters.refused += 1;
            inner.counters.set(counters);
            return;
        }
        counters.admitted += 1;
        counters.open += 1;
        inner.counters.set(counters);
        let deadline = inner.ring.now() + inner.config.negotiation_time;
        let session = Session::new(stream, inner.memory.share(), inner.counters.clone(), deadline);
        let session = Rc::new(session);
        inner.sessions.borrow_mut().push(session.clone());
        inner.watch();
        let inner = inner.clone();
        self.inner.ring.spawn(async move {
            inner.run(&session).await;
            inner.sessions.borrow_mut().retain(|other| !Rc::ptr_eq(other, &session));
            session.count(|counters| counters.open -= 1);
            inner.changed.notify();
        });
    }
}

impl<E: Export> Inner<E> {
    /// One connection, from greeting to end.
    async fn run(self: &Rc<Self>, session: &Rc<Session>) {
        let mut inbox = Inbox::new(&self.ring, &session.stream);
        // An error says that the client has gone.
        let Ok(Some(agreed)) = negotiate(session, &mut inbox, &self.facts).await else { return };
        session.agreed.set(agreed);
        if !session.is_stopping() {
            session.deadline.set(Nanos::MAX);
        }
        let drains = || {
            let deadline = self.ring.now() + self.config.drain_time;
            session.deadline.set(session.deadline.get().min(deadline));
            self.watch();
        };
        transmit(&self.ring, session, inbox, &self.export, drains).await;
    }

    /// Sees to it that overdue connections are closed, as long as any has a deadline.
    fn watch(self: &Rc<Self>) {
        if self.watched.replace(true) {
            return;
        }
        let inner = self.clone();
        self.ring.spawn(async move {
            while inner.sessions.borrow().iter().any(|session| session.deadline.get() < Nanos::MAX) {
                inner.ring.sleep(WATCH_INTERVAL).await;
                let now = inner.ring.now();
                let overdue = |session: &&Rc<Session>| session.deadline.get() <= now;
                let sessions: Vec<_> = inner.sessions.borrow().iter().filter(overdue).cloned().collect();
                sessions.iter().for_each(|session| session.abandon());
            }
            inner.watched.set(false);
        });
    }
}

impl<E> Clone for Server<E> {
    fn clone(&self) -> Server<E> {
        Server { inner: self.inner.clone() }
    }
}

/// Refuses addresses that others than this machine reach: without TLS, whoever reaches the port reads and writes the
/// volume.
///
/// # Errors
/// `Invalid`, with what to do instead.
pub fn check_address(address: SocketAddr) -> Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let port = address.port();
    let problem = format!(
        "NBD on {address}: there is no TLS yet, so that whoever reaches this address could read and write the volume. \
         Use 127.0.0.1:{port} or a Unix socket, and from another machine an SSH tunnel \
         (ssh -L {port}:127.0.0.1:{port} HOST)"
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// What clients are told. Zeroing is not promised to be fast: an export may have to write zeros out.
fn facts_of(export: &impl Export, config: &ServerConfig) -> Facts {
    let flags = NBD_FLAG_HAS_FLAGS
        | NBD_FLAG_SEND_FLUSH
        | NBD_FLAG_SEND_FUA
        | NBD_FLAG_SEND_TRIM
        | NBD_FLAG_SEND_WRITE_ZEROES
        | NBD_FLAG_CAN_MULTI_CONN
        | NBD_FLAG_SEND_CACHE;
    let preferred = export.preferred_block().clamp(KIB * 4, Bytes(u64::from(PAYLOAD_LARGEST)));
    Facts { name: config.name.clone(), size: export.size().0, preferred_block: preferred.0 as u32, flags }
}

/// How long to wait where no connection can be accepted.
const ACCEPT_AGAIN: Nanos = Nanos::from_millis(100);

/// How late a connection may be closed after its time is over.
const WATCH_INTERVAL: Nanos = Nanos::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_served() {
        for local in ["127.0.0.1:10809", "127.8.8.8:1", "[::1]:10809"] {
            assert_eq!(check_address(local.parse().unwrap()), Ok(()));
        }
        for open in ["0.0.0.0:10809", "192.168.0.7:10809", "[::]:10809", "[fe80::1]:10809"] {
            let error = check_address(open.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains("127.0.0.1:10809") && error.contains("ssh -L"), "{error}");
        }
    }
}
