//! State shared by the tasks of one connection: limits, replies, end.

use crate::channel::Channel;
use crate::handshake::Agreed;
use crate::memory::{Held, Share};
use crate::outbox::{Ends, Outbox, Reply, Sent};
use crate::server::Counters;
use crate::wire::Head;
use braid_base::Nanos;
use braid_runtime::Signal;
use std::cell::Cell;
use std::rc::Rc;

/// Requests of one connection that are served at the same time. Further requests wait unread in the socket.
/// Clients of today send 64 at most unless told otherwise.
pub const TAGS: usize = 64;

/// A connection, as seen by its tasks.
pub struct Session {
    /// The client's bytes.
    pub channel: Rc<Channel>,
    /// Memory for the requests of the connection.
    pub share: Share,
    /// The server's counters.
    pub counters: Rc<Cell<Counters>>,
    /// Result of the negotiation.
    pub agreed: Cell<Agreed>,
    /// Time of a forced close; [`Nanos::MAX`] while all is well.
    pub deadline: Cell<Nanos>,
    /// Time of the negotiation's end, until the first request arrives.
    pub unused_since: Cell<Option<Nanos>>,
    outbox: Outbox,
    /// Requests received, and not yet answered to the last byte.
    in_flight: Cell<usize>,
    /// The receiver waits for fewer requests in flight, or fewer bytes unsent.
    fewer: Signal,
    /// The sender waits for replies or for the end.
    outgoing: Signal,
    /// The socket takes nothing: the sender waits for room.
    blocked: Cell<bool>,
    stage: Cell<Stage>,
}

/// Stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Serving,
    /// The server stops: no request begins, and the socket is closed once nothing is in flight.
    Stopping,
    /// Nothing is received any more.
    Ended,
}

impl Session {
    /// Makes a connection that may negotiate until `deadline`.
    pub fn new(channel: Rc<Channel>, share: Share, counters: Rc<Cell<Counters>>, deadline: Nanos) -> Session {
        Session {
            channel,
            share,
            counters,
            agreed: Cell::default(),
            deadline: Cell::new(deadline),
            unused_since: Cell::new(None),
            outbox: Outbox::default(),
            in_flight: Cell::new(0),
            fewer: Signal::default(),
            outgoing: Signal::default(),
            blocked: Cell::new(false),
            stage: Cell::new(Stage::Serving),
        }
    }

    /// Counts a request in flight, or a piece of a long write.
    pub fn begin(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// Counts `requests` as ended.
    pub fn end(&self, requests: usize) {
        if requests > 0 {
            self.in_flight.set(self.in_flight.get() - requests);
            self.fewer.notify();
        }
    }

    /// Requests in service, or with replies in the queue.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Waits until nothing is in flight, and no encrypted byte waits to be sent.
    pub async fn quiet(&self) {
        self.fewer.wait_until(|| self.is_quiet()).await;
    }

    /// True if one more request may begin.
    pub fn has_tag(&self) -> bool {
        self.in_flight.get() < TAGS && !self.outbox.is_full()
    }

    /// Waits until one more request may begin.
    pub async fn tag(&self) {
        self.fewer.wait_until(|| self.has_tag()).await;
    }

    /// Queues the last reply of a request, for the next [`Session::send`].
    pub fn reply(&self, head: Head, payload: Option<Held>) {
        self.end(self.outbox.push(Reply { head, payload, ends: Ends::Request }));
    }

    /// Queues a part of a reply, once there is room. Returns false if the client is gone and the rest is not
    /// needed.
    pub async fn reply_part(&self, head: Head, payload: Option<Held>) -> bool {
        self.outbox.room().await;
        self.outbox.push(Reply { head, payload, ends: Ends::Part });
        !self.is_abandoned()
    }

    /// True if the client is known to be gone.
    pub fn is_abandoned(&self) -> bool {
        self.outbox.is_abandoned()
    }

    /// Sends queued replies, as far as the socket takes them now. The sender's task sends the rest.
    pub fn send(&self) {
        if self.blocked.get() || !self.has_unsent() {
            return;
        }
        let (ended, sent) = self.outbox.send(&|slices| self.channel.try_send(slices));
        self.end(ended);
        let sent = sent.and_then(|sent| match self.channel.flush()? {
            true => Ok(sent),
            false => Ok(Sent::Blocked),
        });
        self.fewer.notify();
        match sent {
            Ok(Sent::All) => self.close_if_stopped(),
            Ok(Sent::Blocked) => {
                self.blocked.set(true);
                self.outgoing.notify();
            }
            Err(_) => self.abandon(),
        }
    }

    /// Makes the sender's task send, after the tasks that are ready now.
    pub fn send_soon(&self) {
        if self.has_unsent() {
            self.outgoing.notify();
        }
    }

    /// Sender's task: sends the replies that other tasks have queued, and waits if the client does not read.
    pub async fn run_sender(&self) {
        loop {
            let work = || self.stage.get() == Stage::Ended || self.blocked.get() || self.has_unsent();
            self.outgoing.wait_until(work).await;
            if self.blocked.get() {
                let writable = self.channel.writable().await;
                self.blocked.set(false);
                if writable.is_err() {
                    self.abandon();
                }
            }
            self.send();
            if self.stage.get() == Stage::Ended && !self.has_unsent() {
                return;
            }
        }
    }

    /// Drops all replies, present and future: the client is gone, or does not read. Requests in service
    /// continue to their end.
    pub fn abandon(&self) {
        self.channel.abandon();
        self.end(self.outbox.abandon());
        self.fewer.notify();
        self.channel.close();
    }

    /// Begins no request from now on, and closes once requests in flight are answered.
    pub fn stop(&self, deadline: Nanos) {
        if self.stage.get() == Stage::Serving {
            self.stage.set(Stage::Stopping);
        }
        self.deadline.set(self.deadline.get().min(deadline));
        self.send();
        self.close_if_stopped();
    }

    /// True if no request begins any more.
    pub fn is_stopping(&self) -> bool {
        self.stage.get() != Stage::Serving
    }

    /// Marks the end of receiving: the sender's task ends once the last reply is sent.
    pub fn finish(&self) {
        self.stage.set(Stage::Ended);
        self.outgoing.notify();
    }

    /// Counts a received request.
    pub fn count_request(&self) {
        self.unused_since.set(None);
        self.count(|counters| counters.requests += 1);
    }

    /// Changes the server's counters.
    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    fn close_if_stopped(&self) {
        if self.stage.get() == Stage::Stopping && self.is_quiet() {
            self.channel.close();
        }
    }

    fn is_quiet(&self) -> bool {
        self.in_flight.get() == 0 && !self.channel.has_unsent()
    }

    /// True if replies, or encrypted bytes of replies, wait to be sent.
    fn has_unsent(&self) -> bool {
        !self.outbox.is_empty() || self.channel.has_unsent()
    }
}
