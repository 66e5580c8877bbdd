//! Requests in flight on one connection: a queue of requests to send, and the requests that wait for replies.
//!
//! A request holds its buffer from the start to the reply, so a dropped future is a lost result only: the
//! request is still sent whole, and the reply still finds its buffer.

use super::replies::{Command, Replies, ReplyStep};
use crate::channel::Channel;
use crate::gather::{Message, gather};
use crate::wire::{NBD_CMD_FLUSH, NBD_CMD_READ, NBD_CMD_TRIM, NBD_CMD_WRITE, Request};
use braid_base::{Bytes, Nanos};
use braid_runtime::{Buf, Signal};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A connection of a device, and its requests.
pub struct Pipeline {
    /// The server's bytes.
    pub channel: Rc<Channel>,
    /// The sender waits for requests or for the end.
    pub outgoing: Signal,
    replies: RefCell<Replies>,
    /// By slot of `replies`.
    waiting: RefCell<Vec<Waiting>>,
    queue: RefCell<VecDeque<Outgoing>>,
    /// Bytes of the first request in the queue that are already sent.
    started: Cell<usize>,
    in_flight: Cell<usize>,
}

/// A request, as sent.
struct Outgoing {
    head: [u8; Request::LEN],
    payload: Option<Buf>,
}

/// A request that waits for its reply, or a result that waits for its future.
struct Waiting {
    /// Buffer of a read.
    into: Option<Buf>,
    since: Nanos,
    future: Waiter,
}

/// The future of a request.
enum Waiter {
    /// The slot is free.
    Nobody,
    /// Not polled yet.
    New,
    Waits(Waker),
    Dropped,
    /// The result waits for the future.
    Has(Result<(), u32>),
}

impl Pipeline {
    /// No requests on a negotiated connection.
    pub fn new(channel: Rc<Channel>, structured: bool) -> Pipeline {
        Pipeline {
            channel,
            outgoing: Signal::default(),
            replies: RefCell::new(Replies::new(structured)),
            waiting: RefCell::default(),
            queue: RefCell::default(),
            started: Cell::new(0),
            in_flight: Cell::new(0),
        }
    }

    /// Requests without a reply.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Queues a request of the time `now`. Returns its slot. The sender's task sends.
    pub fn begin(&self, command: Command, offset: Bytes, len: u32, buf: Option<&Buf>, now: Nanos) -> usize {
        let (slot, cookie) = self.replies.borrow_mut().expect(command, offset.0, len);
        let (code, payload, into) = match command {
            Command::Read => (NBD_CMD_READ, None, buf.cloned()),
            Command::Write => (NBD_CMD_WRITE, buf.cloned(), None),
            Command::Flush => (NBD_CMD_FLUSH, None, None),
            Command::Discard => (NBD_CMD_TRIM, None, None),
        };
        let head = Request { flags: 0, command: code, cookie, offset: offset.0, len }.encode();
        self.queue.borrow_mut().push_back(Outgoing { head, payload });
        let waits = Waiting { into, since: now, future: Waiter::New };
        let mut waiting = self.waiting.borrow_mut();
        match waiting.get_mut(slot) {
            Some(place) => *place = waits,
            None => waiting.push(waits),
        }
        self.in_flight.set(self.in_flight.get() + 1);
        self.outgoing.notify();
        slot
    }

    /// Result of a request, or remembers the waker. The slot is free after the result.
    pub fn poll(&self, slot: usize, waker: &Waker) -> Poll<Result<(), u32>> {
        let mut waiting = self.waiting.borrow_mut();
        let future = &mut waiting[slot].future;
        match future {
            Waiter::Has(result) => {
                let result = *result;
                *future = Waiter::Nobody;
                self.replies.borrow_mut().release(slot);
                Poll::Ready(result)
            }
            Waiter::Waits(known) => {
                known.clone_from(waker);
                Poll::Pending
            }
            _ => {
                *future = Waiter::Waits(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Notes that the future of a request is gone.
    pub fn abandon(&self, slot: usize) {
        let future = &mut self.waiting.borrow_mut()[slot].future;
        if let Waiter::Has(_) = std::mem::replace(future, Waiter::Dropped) {
            *future = Waiter::Nobody;
            self.replies.borrow_mut().release(slot);
        }
    }

    /// Decodes at most one head of the received bytes: see [`Replies::receive`].
    pub fn receive(&self, input: &[u8]) -> Result<(usize, ReplyStep), &'static str> {
        self.replies.borrow_mut().receive(input)
    }

    /// Kind of the request in a slot.
    pub fn command(&self, slot: usize) -> Command {
        self.replies.borrow().command(slot)
    }

    /// Part of the buffer of a read.
    pub fn target(&self, slot: usize, range: std::ops::Range<u64>) -> Buf {
        let waiting = self.waiting.borrow();
        let into = waiting[slot].into.as_ref().expect("the decoder gives bytes to reads only");
        into.slice(Bytes(range.start)..Bytes(range.end))
    }

    /// Gives a result to the future of the request.
    pub fn end(&self, slot: usize, result: Result<(), u32>) {
        self.in_flight.set(self.in_flight.get() - 1);
        let waits = &mut self.waiting.borrow_mut()[slot];
        waits.into = None;
        match std::mem::replace(&mut waits.future, Waiter::Has(result)) {
            Waiter::Waits(waker) => waker.wake(),
            Waiter::Dropped => {
                waits.future = Waiter::Nobody;
                self.replies.borrow_mut().release(slot);
            }
            _ => {}
        }
    }

    /// Start of the oldest request without a reply.
    pub fn oldest(&self) -> Option<Nanos> {
        let waiting = self.waiting.borrow();
        let in_flight = waiting.iter().filter(|waits| waits.future.is_in_flight());
        in_flight.map(|waits| waits.since).min()
    }

    /// True if requests, or encrypted bytes of requests, wait to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.queue.borrow().is_empty() || self.channel.has_unsent()
    }

    /// Sends as much as the socket takes now. Returns true if nothing is left.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn send(&self) -> io::Result<bool> {
        loop {
            let queue = self.queue.borrow();
            if queue.is_empty() {
                return self.channel.flush();
            }
            let sent = gather(queue.iter(), self.started.get(), &|slices| self.channel.try_send(slices))?;
            drop(queue);
            match sent {
                Some(bytes) => self.advance(bytes),
                None => return Ok(false),
            }
        }
    }

    /// Drops the requests covered by `bytes` more sent bytes.
    fn advance(&self, bytes: usize) {
        let mut queue = self.queue.borrow_mut();
        let mut sent = self.started.get() + bytes;
        while let Some(first) = queue.front().filter(|first| first.len() <= sent) {
            sent -= first.len();
            queue.pop_front();
        }
        self.started.set(sent);
    }

    /// Gives up all requests: the connection is lost. Their futures wake, and buffers are free. Requests that
    /// the server has not received never reach the server.
    pub fn give_up(&self) {
        self.queue.borrow_mut().clear();
        self.channel.abandon();
        self.channel.reset();
        for waits in self.waiting.borrow_mut().iter_mut() {
            waits.into = None;
            if let Waiter::Waits(waker) = &waits.future {
                waker.wake_by_ref();
            }
        }
        self.outgoing.notify();
    }
}

impl Waiter {
    fn is_in_flight(&self) -> bool {
        matches!(self, Waiter::New | Waiter::Waits(_) | Waiter::Dropped)
    }
}

impl Outgoing {
    fn len(&self) -> usize {
        self.head.len() + self.payload.as_ref().map_or(0, |payload| payload.len().as_usize())
    }
}

impl Message for Outgoing {
    fn head(&self) -> &[u8] {
        &self.head
    }

    fn payload(&self) -> Option<&Buf> {
        self.payload.as_ref()
    }
}
