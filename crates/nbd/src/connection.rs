//! A connection from its greeting to its end: negotiate, receive and start requests, drain.
//!
//! Three kinds of tasks share a [`Session`]: the receiver (here), the tags, which continue waiting requests,
//! and the sender, which continues when the client does not read. Before the receiver waits, the replies to
//! its requests are sent or handed to the sender: a client may wait for exactly these replies.

use crate::channel::Channel;
use crate::handshake::{Handshake, Step};
use crate::inbox::Inbox;
use crate::memory::{Fit, Held};
use crate::request::{LongWrite, Payload, Work, check, fail, is_change, longest_piece, needs_quiet, serve};
use crate::session::Session;
use crate::wire::{NBD_CMD_DISC, NBD_CMD_WRITE, NBD_EPERM, Request};
use braid_base::Bytes;
use braid_engine::Export;
use braid_runtime::{Tags, yield_now};
use braid_uring::Ring;
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// Negotiates with the client, after the greeting. Returns the last step: [`Step::Secure`], [`Step::Start`],
/// or [`Step::Close`] if the client ends or no agreement is possible.
pub async fn negotiate(
    channel: &Channel,
    inbox: &mut Inbox,
    mut handshake: Handshake<'_>,
) -> io::Result<Step> {
    let mut output = Vec::new();
    loop {
        let (used, step) = handshake.receive(inbox.bytes(), &mut output);
        inbox.consume(used);
        channel.send_all(&output).await?;
        output.clear();
        match step {
            Step::Next => {}
            Step::More if inbox.receive().await? == 0 => return Ok(Step::Close),
            Step::More => {}
            Step::Secure(_) | Step::Start(_) | Step::Close => return Ok(step),
        }
    }
}

/// Serves requests until the client says goodbye, vanishes or breaks the protocol. Then answers the requests
/// in flight.
///
/// Calls `drains` in between: from there on the client's time is limited.
pub async fn transmit<E: Export>(
    ring: &Ring,
    session: &Rc<Session>,
    inbox: Inbox,
    export: &Rc<E>,
    drains: impl FnOnce(),
) {
    let after_poll = session.clone();
    let tags = Tags::new(ring.clone(), Rc::new(move || after_poll.send_soon()));
    let sender = session.clone();
    ring.spawn(async move { sender.run_sender().await });

    let start = |work| tags.start(serve(session.clone(), export.clone(), work));
    let (size, is_read_only) = (export.size(), session.agreed.get().read_only);
    // An error means that the connection broke. As after its end, only the requests in flight are left.
    let _ = Receiver { session, inbox, size, is_read_only, start, put_off: Cell::new(false) }.run().await;
    drains();
    session.send();
    session.quiet().await;
    session.channel.announce_end();
    tags.close();
    session.finish();
}

/// Receives requests and starts them.
struct Receiver<'a, S> {
    session: &'a Session,
    inbox: Inbox,
    size: Bytes,
    is_read_only: bool,
    start: S,
    /// Sending was put off once, to see whether more requests have come.
    put_off: Cell<bool>,
}

impl<S: Fn(Work)> Receiver<'_, S> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            let Some(head) = self.inbox.bytes().first_chunk() else {
                self.more().await?;
                continue;
            };
            let Some(request) = Request::decode(head) else { return Ok(()) };
            self.inbox.consume(Request::LEN);
            if request.command == NBD_CMD_DISC {
                return Ok(());
            }
            self.session.count_request();
            self.tag().await;
            // A request that comes while the server stops gets no reply: a client that connects again then
            // sends the request again. NBD_ESHUTDOWN would become an error at the client's user: qemu and the
            // kernel's client do not send a refused request again.
            if self.session.is_abandoned() || self.session.is_stopping() {
                return Ok(());
            }
            match check(&request, self.size, self.session.agreed.get()) {
                Err(error) => self.refuse(&request, error).await?,
                Ok(()) if self.is_read_only && is_change(&request) => {
                    self.refuse(&request, NBD_EPERM).await?
                }
                Ok(()) if request.command == NBD_CMD_WRITE && request.len > 0 => self.write(request).await?,
                Ok(()) if needs_quiet(self.session, &request) => self.alone(request).await,
                Ok(()) => {
                    self.session.begin();
                    (self.start)(Work::Plain(request));
                }
            }
        }
    }

    /// Waits until a tag is free. Yields to the shard's other tasks in any case: a full inbox holds thousands
    /// of requests.
    async fn tag(&self) {
        if !self.session.has_tag() {
            self.session.send();
            yield_now().await;
            self.session.tag().await;
        }
    }

    /// Receives more. Sends ready replies first. Once in a while looks for more requests before sending, so
    /// that their replies leave together.
    async fn more(&mut self) -> io::Result<()> {
        let several = self.session.in_flight() > 1;
        if several && !self.put_off.replace(true) && self.inbox.try_receive()?.is_some_and(|count| count > 0)
        {
            return Ok(());
        }
        self.put_off.set(false);
        self.session.send();
        some(self.inbox.receive().await?).map(drop)
    }

    async fn refuse(&mut self, request: &Request, error: u32) -> io::Result<()> {
        let mut left = if request.command == NBD_CMD_WRITE { request.len as usize } else { 0 };
        while left > 0 {
            let count = left.min(self.inbox.bytes().len());
            self.inbox.consume(count);
            left -= count;
            if left > 0 {
                self.more().await?;
            }
        }
        self.session.begin();
        fail(self.session, request, error);
        Ok(())
    }

    /// Receives the bytes of a write and starts the write, in pieces if long.
    async fn write(&mut self, request: Request) -> io::Result<()> {
        let (mut offset, mut left) = (Bytes(request.offset), Bytes(u64::from(request.len)));
        let mut whole: Option<Rc<LongWrite>> = None;
        while left > Bytes::ZERO {
            self.tag().await;
            let held = self.alloc(offset, left.min(longest_piece(offset))).await;
            self.fill(&held).await?;
            let len = held.buf.len();
            if len < left && whole.is_none() {
                whole = Some(Rc::new(LongWrite { left: Cell::new(left), error: Cell::new(0) }));
            }
            self.session.begin();
            (self.start)(Work::Write(request, Payload { held, offset, whole: whole.clone() }));
            (offset, left) = (offset + len, left - len);
        }
        Ok(())
    }

    async fn alloc(&self, offset: Bytes, len: Bytes) -> Held {
        if let Some(held) = self.session.share.try_alloc(offset, len) {
            return held;
        }
        self.session.send();
        self.session.share.alloc(offset, len, Fit::AtMost).await
    }

    async fn fill(&mut self, held: &Held) -> io::Result<()> {
        let len = held.buf.len();
        let mut done = Bytes::of_len(self.inbox.take_into(&held.buf));
        while done < len {
            self.session.send();
            let rest = held.buf.slice(done..len);
            done += Bytes::of_len(some(self.inbox.receive_into(&rest).await?)?);
        }
        Ok(())
    }

    /// Serves a request while nothing else is in flight.
    async fn alone(&mut self, request: Request) {
        self.session.send();
        self.session.quiet().await;
        self.session.begin();
        (self.start)(Work::Plain(request));
        self.session.send();
        self.session.quiet().await;
    }
}

/// Turns zero bytes, the end of the stream, into an error.
fn some(count: usize) -> io::Result<usize> {
    if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
}
