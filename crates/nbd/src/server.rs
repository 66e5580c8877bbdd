//! The server: listens, admits connections within the limits, stops.

use crate::connection::transmit;
use crate::handshake::{Facts, PAYLOAD_LARGEST};
use crate::inbox::Inbox;
use crate::lobby::Lobby;
use crate::memory::{GUARANTEE_SMALLEST, Memory};
use crate::newcomer::Newcomer;
use crate::refusal::{Refusal, Refusals};
use crate::session::Session;
use crate::tls::Tls;
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

/// Configuration of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Name of the export. The empty name of a client means the same export.
    pub name: String,
    /// Arena for buffers: registered with the ring, and commonly shared with the engine.
    pub arena: Arena,
    /// Bytes of the arena that the server may hold. The engine needs the rest: a request in service must not
    /// wait for memory that only replies hold.
    pub memory: Bytes,
    /// Connections at the same time; further connections are refused. Each costs 64 KiB outside the arena,
    /// within TLS up to 200 KiB.
    pub max_connections: usize,
    /// Time after the negotiation in which a client may send no request. Later, the client has to make room
    /// for another.
    pub unused_time: Nanos,
    /// Time for a client to negotiate. With TLS, this time twice: for the TLS handshake, and for the rest.
    pub negotiation_time: Nanos,
    /// Time for a client to read its last replies, after its goodbye or when the server stops.
    pub drain_time: Nanos,
    /// TLS, without which no client is served then; `None` for plain connections.
    pub tls: Option<Tls>,
}

impl ServerConfig {
    /// Configuration for the export `name`, with 32 connections and at most half of the free memory of
    /// `arena`.
    pub fn new(name: &str, arena: &Arena) -> ServerConfig {
        ServerConfig {
            name: name.to_owned(),
            arena: arena.clone(),
            memory: (arena.available() / 2).align_down(MIB),
            max_connections: 32,
            unused_time: Nanos::from_secs(60),
            negotiation_time: Nanos::from_secs(10),
            drain_time: Nanos::from_secs(10),
            tls: None,
        }
    }
}

/// Counters of a server since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Connections open now.
    pub open: u64,
    /// Connections admitted.
    pub admitted: u64,
    /// Connections refused because of the limit, or because the client may not use the export.
    pub refused: u64,
    /// Connections before TLS now.
    pub securing: u64,
    /// Connections that ended before TLS, or were ended.
    pub unsecured: u64,
    /// Unused connections ended to make room for others.
    pub unused: u64,
    /// Requests received.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

/// Server of one export over NBD. Cheap to clone: a handle.
pub struct Server<E> {
    inner: Rc<Inner<E>>,
}

struct Inner<E> {
    ring: Ring,
    export: Rc<E>,
    config: ServerConfig,
    memory: Memory,
    counters: Rc<Cell<Counters>>,
    refusals: Refusals,
    lobby: Lobby,
    /// TLS of new connections.
    tls: RefCell<Option<Tls>>,
    sessions: RefCell<Vec<Rc<Session>>>,
    /// True if a task watches for overdue connections.
    watched: Cell<bool>,
    stopping: Cell<bool>,
    /// Notified when the server begins to stop, and when a connection has ended.
    changed: Event,
}

impl<E: Export> Server<E> {
    /// Makes a server of `export` without listeners.
    ///
    /// # Errors
    /// `Invalid` if the memory does not suffice for the connections, or the arena has less.
    pub fn new(ring: Ring, export: E, config: ServerConfig) -> Result<Server<E>> {
        let available = config.arena.available();
        if config.memory > available {
            let problem = format!("an NBD server with {} of memory: {available} are free", config.memory);
            return Err(Error::new(
                ErrorKind::Invalid,
                problem + "; give the server less memory, or enlarge the arena",
            ));
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
            export: Rc::new(export),
            memory,
            counters: Rc::default(),
            refusals: Refusals::default(),
            lobby: Lobby::default(),
            tls: RefCell::new(config.tls.clone()),
            sessions: RefCell::default(),
            watched: Cell::new(false),
            stopping: Cell::new(false),
            changed: Event::default(),
            config,
        };
        Ok(Server { inner: Rc::new(inner) })
    }

    /// Accepts connections until [`Server::shutdown`]. A server may serve several listeners at the same time.
    pub async fn serve(&self, listener: Listener) {
        let mut stop = pin!(self.inner.changed.wait_for(|| self.inner.stopping.get().then_some(())));
        loop {
            let mut accept = pin!(async {
                self.inner.lobby.place(&self.inner.ring).await;
                listener.accept().await
            });
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

    /// Stops: no new connections; requests in flight are answered, later requests get no reply. Completes
    /// when all connections have ended: at the latest after the configured time to drain plus the time that
    /// the export needs for requests in flight.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.stopping.set(true);
        inner.changed.notify();
        let deadline = inner.ring.now() + inner.config.drain_time;
        let sessions = inner.sessions.borrow().clone();
        sessions.iter().for_each(|session| session.stop(deadline));
        inner.lobby.end_all();
        inner.watch();
        inner.changed.wait_for(|| inner.sessions.borrow().is_empty().then_some(())).await;
    }

    /// Replaces the TLS of the server, for new connections: certificates expire and are renewed.
    pub fn set_tls(&self, tls: Tls) {
        self.inner.tls.replace(Some(tls));
    }

    /// Present counters.
    pub fn counters(&self) -> Counters {
        Counters { securing: self.inner.lobby.len() as u64, ..self.inner.counters.get() }
    }

    /// Peers: an address or a process for each connection, the first 100.
    pub fn peers(&self) -> Vec<String> {
        self.inner.sessions.borrow().iter().take(PEERS_SHOWN).map(|session| session.channel.peer()).collect()
    }

    /// Serves a new connection, or refuses the connection. With TLS, the connection passes the lobby first.
    fn admit(&self, stream: Stream) {
        let inner = self.inner.clone();
        // Each poll of `serve` adds a waker to the event. Notifying empties the event, however many
        // connections come.
        inner.changed.notify();
        let Some(tls) = inner.tls.borrow().clone() else {
            return inner.seat(Newcomer::plain(stream));
        };
        let channel = inner.lobby.enter(&inner.ring, stream);
        self.inner.ring.spawn(async move {
            let (ring, time) = (&inner.ring, inner.config.negotiation_time);
            match inner.lobby.secure(ring, channel, &inner.facts(), &tls, time).await {
                Some(newcomer) => inner.seat(newcomer),
                None => inner.count(|counters| counters.unsecured += 1),
            }
        });
    }
}

impl<E: Export> Inner<E> {
    /// Facts for a client that connects now: the size of the export may change.
    fn facts(&self) -> Facts {
        facts_of(&*self.export, &self.config)
    }

    fn is_full(&self) -> bool {
        self.sessions.borrow().len() >= self.config.max_connections
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Serves a client, or refuses the client. A client that comes too late is dropped.
    fn seat(self: &Rc<Self>, mut newcomer: Newcomer) {
        if self.stopping.get() {
            return;
        }
        if let Some(refusal) = newcomer.refusal() {
            let inner = self.clone();
            return self.ring.spawn(async move { inner.refuse(newcomer, refusal).await });
        }
        if !self.is_full() {
            return self.start(newcomer);
        }
        let inner = self.clone();
        self.ring.spawn(async move {
            if inner.end_unused() {
                inner.changed.wait_for(|| (!inner.is_full()).then_some(())).await;
            }
            if inner.is_full() || inner.stopping.get() {
                let connections = inner.config.max_connections;
                let reason = format!(
                    "all {connections} connections to this export are in use (--clients on the server)"
                );
                let remedy = "end one, or serve with a higher limit".to_owned();
                inner.refuse(newcomer, Refusal { reason, remedy }).await;
            } else {
                inner.start(newcomer);
            }
        });
    }

    async fn refuse(&self, newcomer: Newcomer, refusal: Refusal) {
        self.count(|counters| counters.refused += 1);
        self.refusals.refuse(&self.ring, newcomer, &self.facts(), refusal).await;
    }

    /// Ends the connection that has been unused for the longest time, if this time is too long. Returns false
    /// if no connection is overdue. A used connection is never ended: a file system may lie on the connection
    /// and would fail.
    fn end_unused(&self) -> bool {
        let latest = self.ring.now().saturating_sub(self.config.unused_time);
        let sessions = self.sessions.borrow();
        let since = |session: &&Rc<Session>| session.unused_since.get().filter(|since| *since <= latest);
        let Some(unused) = sessions.iter().filter(|s| since(s).is_some()).min_by_key(since) else {
            return false;
        };
        unused.unused_since.set(None);
        unused.count(|counters| counters.unused += 1);
        let time = self.config.unused_time;
        tracing::warn!("an NBD client without a request for {time} was disconnected for another client");
        unused.abandon();
        true
    }

    /// Serves a connection. There is room.
    fn start(self: &Rc<Self>, newcomer: Newcomer) {
        self.count(|counters| {
            counters.admitted += 1;
            counters.open += 1;
        });
        let deadline = self.ring.now() + self.config.negotiation_time;
        let (channel, share) = (newcomer.channel.clone(), self.memory.share());
        let session = Rc::new(Session::new(channel, share, self.counters.clone(), deadline));
        self.sessions.borrow_mut().push(session.clone());
        self.watch();
        let inner = self.clone();
        self.ring.spawn(async move {
            inner.run(newcomer, &session).await;
            inner.sessions.borrow_mut().retain(|other| !Rc::ptr_eq(other, &session));
            session.count(|counters| counters.open -= 1);
            inner.changed.notify();
        });
    }

    /// Runs one connection, from its negotiation to its end.
    async fn run(self: &Rc<Self>, newcomer: Newcomer, session: &Rc<Session>) {
        let mut inbox = Inbox::new(&self.ring, &session.channel);
        // An error means that the client is gone.
        let facts = self.facts();
        let Ok(Some(agreed)) = newcomer.negotiate(&mut inbox, &facts, None).await else { return };
        session.agreed.set(agreed);
        session.unused_since.set(Some(self.ring.now()));
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

    /// Closes overdue connections, as long as any connection has a deadline.
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

/// Refuses addresses that other machines can reach, for a server without TLS: anyone who reaches the port
/// would read and write the volume.
///
/// # Errors
/// `Invalid`, with the remedy.
pub fn check_address(address: SocketAddr) -> Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let port = address.port();
    let problem = format!(
        "NBD on {address} without TLS: any host that reaches this address could read and write the volume. Use \
         127.0.0.1:{port} or a Unix socket, and from another machine an SSH tunnel (ssh -L \
         {port}:127.0.0.1:{port} HOST)"
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// Facts for clients. Fast zeroing is not promised: an export may have to write zeros out.
fn facts_of(export: &impl Export, config: &ServerConfig) -> Facts {
    let flags = NBD_FLAG_HAS_FLAGS
        | NBD_FLAG_SEND_FLUSH
        | NBD_FLAG_SEND_FUA
        | NBD_FLAG_SEND_TRIM
        | NBD_FLAG_SEND_WRITE_ZEROES
        | NBD_FLAG_CAN_MULTI_CONN
        | NBD_FLAG_SEND_CACHE;
    let flags = if export.is_read_only() { flags | NBD_FLAG_READ_ONLY } else { flags };
    let preferred = export.preferred_block().clamp(KIB * 4, Bytes(u64::from(PAYLOAD_LARGEST)));
    Facts { name: config.name.clone(), size: export.size().0, preferred_block: preferred.0 as u32, flags }
}

/// Pause after a failure to accept a connection.
const ACCEPT_AGAIN: Nanos = Nanos::from_millis(100);
/// Largest number of connections named in one report.
const PEERS_SHOWN: usize = 100;

/// Longest delay of a forced close after the deadline.
const WATCH_INTERVAL: Nanos = Nanos::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_served() {
        for local in ["127.0.0.1:10809", "127.8.8.8:1", "[::1]:10809"] {
            assert_eq!(check_address(local.parse().unwrap()), Ok(()));
        }
        for open in ["0.0.0.0:10809", "192.168.0.7:10809", "[::]:10809", "[fe80::1]:10809"] {
            let error = check_address(open.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains("127.0.0.1:10809") && error.contains("ssh -L"), "{error}");
        }
    }
}
