//! One connection of a virtual machine's process: messages, one at a time.
//!
//! The library that decodes messages blocks on the socket. It is called only for a message that has arrived
//! in full, and only if the socket takes the answer: no client can block the thread.
//!
//! A message may change anything that the queues use. All queues are therefore stopped before the message and
//! started again after it; only the eventfd of a queue for calls changes while the queue runs.

use crate::channel::{Channel, HEAD_LEN, SET_BACKEND_REQ_FD};
use crate::device::Device;
use crate::queue::BlkQueue;
use crate::request::Service;
use crate::server::Counters;
use crate::wire::Facts;
use braid_base::Nanos;
use braid_engine::Export;
use braid_runtime::{Event, Runtime, yield_now};
use braid_uring::{Ring, Stream};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use vhost::vhost_user::{BackendReqHandler, Error};

/// Time for the rest of a message after its first byte.
const HALF_MESSAGE: Nanos = Nanos::from_secs(5);
/// Time between two looks at half a message.
const LOOK_AGAIN: Nanos = Nanos::from_millis(2);
/// Longest message: head and body.
const MESSAGE_MAX: u32 = 4096;
/// VHOST_USER_SET_VRING_CALL.
const SET_VRING_CALL: u32 = 13;
/// VHOST_USER_GET_VRING_BASE and VHOST_USER_GET_INFLIGHT_FD: the library has no answer to a refusal.
const WITHOUT_REFUSAL: [u32; 2] = [11, 31];
/// Flag of a message: the other side waits for the result.
const NEED_REPLY: u32 = 8;

/// What the session does next.
enum Next {
    /// Handles a message.
    Message(Arrived),
    /// Tells the other side that the disk has another size.
    Resized,
}

/// A message that waits in the socket.
struct Arrived {
    code: u32,
    /// The other side is told if the message is refused.
    is_answered: bool,
}

/// A connection.
pub struct Session {
    ring: Ring,
    stream: Stream,
    device: Arc<Mutex<Device>>,
    /// For messages to the other side, if the other side has such a channel.
    channel: RefCell<Option<Channel>>,
    /// Notified when a queue has stopped, when the disk has another size, and when the server stops.
    changed: Event,
    is_resized: Cell<bool>,
    is_stopping: Cell<bool>,
}

impl Session {
    /// A connection to the disk of these facts.
    #[expect(clippy::arc_with_non_send_sync, reason = "the library wants both; nothing leaves the thread")]
    pub fn new(ring: &Ring, stream: Stream, facts: Facts, counters: &Rc<Cell<Counters>>) -> Session {
        let changed = Event::default();
        let device = Arc::new(Mutex::new(Device::new(ring, facts, counters, &changed)));
        let (is_resized, is_stopping) = (Cell::new(false), Cell::new(false));
        Session {
            ring: ring.clone(),
            stream,
            device,
            channel: RefCell::default(),
            changed,
            is_resized,
            is_stopping,
        }
    }

    /// The process at the other end.
    pub fn peer(&self) -> String {
        self.stream.peer()
    }

    /// Begins to end the session: chains in service are returned, and no more are taken.
    pub fn stop(&self) {
        self.is_stopping.set(true);
        self.changed.notify();
    }

    /// Notes that the disk has another size. Returns true if the guest will be told; otherwise the guest
    /// keeps the former size until its process connects again.
    pub fn note_size(&self) -> bool {
        self.is_resized.set(true);
        self.changed.notify();
        self.channel.borrow().is_some()
    }

    /// Handles messages until the other side ends, breaks the protocol, or the server stops. All requests
    /// have ended then.
    pub async fn run<E: Export>(&self, service: &Rc<Service<E>>) {
        let ended = match self.messages(service).await {
            Ok(()) if self.is_stopping.get() => {
                self.pause().await;
                // The callers' tasks call for returned chains. The next daemon repeats a lost call.
                yield_now().await;
                None
            }
            Ok(()) => None,
            Err(problem) => Some(problem),
        };
        if let Some(problem) = ended {
            tracing::warn!("a virtual machine was disconnected: {problem}");
        }
        self.queues().iter().for_each(|queue| queue.abandon());
        self.pause().await;
        // Fails if the other side has closed already, with the same result.
        let _ = self.stream.shutdown();
    }

    async fn messages<E: Export>(&self, service: &Rc<Service<E>>) -> io::Result<()> {
        let socket = UnixStream::from(self.stream.duplicate()?);
        let mut handler = BackendReqHandler::from_stream(socket, self.device.clone());
        while let Some(next) = self.next().await? {
            let Next::Message(Arrived { code, is_answered }) = next else {
                self.resize(service).await;
                continue;
            };
            if code == SET_BACKEND_REQ_FD {
                *self.channel.borrow_mut() = Some(Channel::receive(&self.ring, &self.stream, is_answered)?);
                continue;
            }
            let is_quiet = code != SET_VRING_CALL;
            if is_quiet {
                self.pause().await;
            }
            match handler.handle_request() {
                Ok(()) => {}
                Err(Error::Disconnected) => return Ok(()),
                // The message was refused, and the other side told.
                Err(problem @ Error::InvalidOperation(_)) if is_answered => {
                    tracing::warn!("a message of a virtual machine was refused: {problem}");
                }
                Err(problem) => return Err(io::Error::other(format!("message {code}: {problem}"))),
            }
            if is_quiet {
                self.device().start(service);
            }
        }
        Ok(())
    }

    /// Gives the disk the size of the export, and tells the other side.
    async fn resize<E: Export>(&self, service: &Rc<Service<E>>) {
        self.pause().await;
        self.device().set_size(service.export.size());
        self.device().start(service);
        if let Some(Err(problem)) = self.channel.borrow().as_ref().map(Channel::tell_change) {
            tracing::warn!(
                "a virtual machine keeps the former size of its disk until it connects again: {problem}"
            );
        }
    }

    /// Waits for a whole message, or another size; `None` at the end.
    async fn next(&self) -> io::Result<Option<Next>> {
        let (mut head, mut deadline) = ([0; HEAD_LEN], None);
        loop {
            if self.is_stopping.get() {
                return Ok(None);
            }
            if self.is_resized.take() {
                return Ok(Some(Next::Resized));
            }
            match self.stream.try_peek(&mut head)? {
                None => {
                    self.unless_called(self.stream.readable()).await?;
                    continue;
                }
                Some(0) => return Ok(None),
                Some(HEAD_LEN) => {
                    let [code, flags, len] = words(&head);
                    if len > MESSAGE_MAX {
                        return Err(io::Error::other(format!("a message of {len} bytes")));
                    }
                    if self.stream.arrived()? >= HEAD_LEN as u64 + u64::from(len) {
                        self.unless_stopped(self.stream.writable()).await?;
                        let is_answered = flags & NEED_REPLY != 0 && !WITHOUT_REFUSAL.contains(&code);
                        let arrived = Next::Message(Arrived { code, is_answered });
                        return Ok((!self.is_stopping.get()).then_some(arrived));
                    }
                }
                Some(_) => {}
            }
            let now = self.ring.now();
            if now >= *deadline.get_or_insert(now + HALF_MESSAGE) {
                return Err(io::Error::other("half a message, and no rest"));
            }
            self.ring.sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits for `ready`, or until the server stops.
    async fn unless_stopped(&self, ready: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        self.unless(|| self.is_stopping.get(), ready).await
    }

    /// Waits for `ready`, or until the server stops or the disk has another size.
    async fn unless_called(&self, ready: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        self.unless(|| self.is_stopping.get() || self.is_resized.get(), ready).await
    }

    async fn unless(
        &self,
        is_over: impl Fn() -> bool,
        ready: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let mut ready = pin!(ready);
        let mut stopped = pin!(self.changed.wait_for(|| is_over().then_some(())));
        poll_fn(|cx| match ready.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => stopped.as_mut().poll(cx).map(Ok),
        })
        .await
    }

    /// Stops all queues, and waits until their requests have ended.
    async fn pause(&self) {
        let queues = self.queues();
        queues.iter().for_each(|queue| queue.pause());
        let is_running = || queues.iter().any(|queue| queue.is_running());
        self.changed.wait_for(|| (!is_running()).then_some(())).await;
    }

    fn queues(&self) -> Vec<Rc<BlkQueue>> {
        self.device().queues().to_vec()
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        // A message that panicked left a device that is about to end.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn words(head: &[u8; HEAD_LEN]) -> [u32; 3] {
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    [word(0), word(4), word(8)]
}
