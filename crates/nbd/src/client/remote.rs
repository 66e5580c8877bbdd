//! The connections of a device, their tasks, and their common end.
//!
//! Each connection has a sender and a receiver; one watchdog ends the device if a request gets no reply. The
//! tasks end together: when the device is lost, or dropped.

use super::pipeline::Pipeline;
use super::replies::{Command, ReplyStep};
use crate::inbox::Inbox;
use crate::wire::{NBD_CMD_DISC, NBD_ESHUTDOWN, Request};
use crate::within::within;
use braid_base::{Bytes, Nanos};
use braid_runtime::{Buf, Runtime, Signal};
use braid_uring::Ring;
use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Looks of the watchdog within the time of silence.
const LOOKS: u64 = 8;

/// All connections of a device.
pub struct Remote {
    ring: Ring,
    /// Address, for messages.
    address: String,
    links: Vec<Pipeline>,
    /// Time without a reply to a request after which the device is lost.
    silence: Nanos,
    /// Why the device cannot be used any more.
    lost: OnceCell<Lost>,
    /// A flush has failed: writes before it may be lost.
    flush_failed: Cell<bool>,
    /// The server has replied to a read, write or flush with an error.
    has_refused: Cell<bool>,
    /// The watchdog waits for the end.
    ended: Signal,
}

/// Reason for the end of all connections.
struct Lost {
    kind: ErrorKind,
    reason: String,
}

impl Remote {
    /// Starts the tasks of negotiated connections.
    pub fn start(ring: &Ring, address: String, links: Vec<(Pipeline, Inbox)>, silence: Nanos) -> Rc<Remote> {
        let (links, inboxes): (Vec<_>, Vec<_>) = links.into_iter().unzip();
        let remote = Rc::new(Remote {
            ring: ring.clone(),
            address,
            links,
            silence,
            lost: OnceCell::new(),
            flush_failed: Cell::new(false),
            has_refused: Cell::new(false),
            ended: Signal::default(),
        });
        for (link, inbox) in inboxes.into_iter().enumerate() {
            let (sender, receiver) = (remote.clone(), remote.clone());
            ring.spawn(async move { sender.run_sender(link).await });
            ring.spawn(async move { receiver.run_receiver(link, inbox).await });
        }
        let watchdog = remote.clone();
        ring.spawn(async move { watchdog.run_watchdog().await });
        remote
    }

    /// Starts a request on the connection with the fewest requests: on the first such connection, so a single
    /// caller keeps one connection busy. The request is sent after the tasks that are ready now, together
    /// with their requests.
    pub fn request(&self, command: Command, offset: Bytes, len: u32, buf: Option<&Buf>) -> Answer<'_> {
        if self.is_lost() {
            return Answer { remote: self, place: None };
        }
        let fewest = self.links.iter().enumerate().min_by_key(|(_, link)| link.in_flight());
        let (link, pipeline) = fewest.expect("a device has a connection");
        let slot = pipeline.begin(command, offset, len, buf, self.ring.now());
        Answer { remote: self, place: Some((link, slot)) }
    }

    /// Fails if the device is lost.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> io::Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(Lost { kind, reason }) => Err(io::Error::new(*kind, format!("{}: {reason}", self.address))),
        }
    }

    /// Ends all connections, for a caller that waits for no reply any more. Returns true if the server has
    /// replied to each request without an error.
    pub fn give_up(&self) -> bool {
        self.lose(
            ErrorKind::NotConnected,
            "the device was given up: replies came too late, or an error came",
        );
        !self.has_refused.get()
    }

    /// True if a flush has failed.
    pub fn has_flush_failed(&self) -> bool {
        self.flush_failed.get()
    }

    /// Address, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// Says goodbye on connections that are not within a request, and ends all connections.
    pub fn close(&self) {
        if self.is_lost() {
            return;
        }
        for link in self.links.iter().filter(|link| !link.has_unsent()) {
            say_goodbye(&link.channel);
            link.channel.close();
        }
        self.lose(ErrorKind::NotConnected, "the device is closed");
    }

    fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Ends all connections for good. The first reason counts.
    fn lose(&self, kind: ErrorKind, reason: impl Into<String>) {
        if self.lost.set(Lost { kind, reason: reason.into() }).is_ok() {
            self.links.iter().for_each(Pipeline::give_up);
            self.ended.notify();
        }
    }

    fn lose_connection(&self, error: &io::Error) {
        let reason = format!("the connection is lost ({error}), and writes since the last flush may be, too");
        self.lose(error.kind(), reason);
    }

    /// Sends requests, and waits while the server does not read.
    async fn run_sender(&self, link: usize) {
        let link = &self.links[link];
        loop {
            link.outgoing.wait_until(|| self.is_lost() || link.has_unsent()).await;
            if self.is_lost() {
                return;
            }
            let sent = match link.send() {
                Ok(true) => Ok(()),
                Ok(false) => link.channel.writable().await,
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                self.lose_connection(&error);
            }
        }
    }

    /// Receives replies until the connection ends.
    async fn run_receiver(&self, link: usize, inbox: Inbox) {
        if let Err(error) = self.receive(&self.links[link], inbox).await {
            self.lose_connection(&error);
        }
    }

    async fn receive(&self, link: &Pipeline, mut inbox: Inbox) -> io::Result<()> {
        while !self.is_lost() {
            let (used, step) = link.receive(inbox.bytes()).map_err(broken)?;
            inbox.consume(used);
            match step {
                ReplyStep::Next => {}
                ReplyStep::More => {
                    if inbox.receive().await? == 0 {
                        return Err(ended());
                    }
                    // TLS may have an answer of its own.
                    if link.channel.has_unsent() {
                        link.outgoing.notify();
                    }
                }
                ReplyStep::Payload(slot, range) => fill(&mut inbox, &link.target(slot, range)).await?,
                ReplyStep::Zeros(slot, range) => link.target(slot, range).fill_zero(),
                ReplyStep::Done(_, Err(NBD_ESHUTDOWN)) => {
                    return Err(io::Error::new(ErrorKind::ConnectionAborted, "the server stops"));
                }
                ReplyStep::Done(slot, result) => {
                    if result.is_err() {
                        let command = link.command(slot);
                        self.flush_failed.set(self.flush_failed.get() || command == Command::Flush);
                        self.has_refused.set(self.has_refused.get() || command != Command::Discard);
                    }
                    link.end(slot, result);
                }
            }
        }
        Ok(())
    }

    /// Ends the device if a request has no reply for too long. Two looks in a row must agree: after a pause
    /// of this process, replies may wait in the socket.
    async fn run_watchdog(&self) {
        let pause = Nanos((self.silence.0 / LOOKS).max(1));
        let mut was_silent = false;
        while within(self.ended.wait_until(|| self.is_lost()), self.ring.sleep(pause)).await.is_none() {
            let oldest = self.links.iter().filter_map(Pipeline::oldest).min();
            let is_silent = oldest.is_some_and(|since| since + self.silence <= self.ring.now());
            if is_silent && was_silent {
                let silent = format!("no reply to a request for {}", self.silence);
                self.lose_connection(&io::Error::new(ErrorKind::TimedOut, silent));
            }
            was_silent = is_silent;
        }
    }
}

/// Sends NBD_CMD_DISC, if the socket takes the request at once.
pub fn say_goodbye(channel: &crate::channel::Channel) {
    let goodbye = Request { flags: 0, command: NBD_CMD_DISC, cookie: 0, offset: 0, len: 0 }.encode();
    // A server that is gone or does not read misses the goodbye, and sees the end of the connection.
    let _ = channel.try_send(&[IoSlice::new(&goodbye)]).and_then(|_| channel.flush());
    channel.announce_end();
}

/// Moves payload from the stream to its buffer: copies bytes that arrived with the head; receives the rest in
/// place if long.
async fn fill(inbox: &mut Inbox, target: &Buf) -> io::Result<()> {
    let len = target.len();
    let mut done = Bytes::of_len(inbox.take_into(target));
    while done < len {
        match inbox.receive_into(&target.slice(done..len)).await? {
            0 => return Err(ended()),
            count => done += Bytes::of_len(count),
        }
    }
    Ok(())
}

fn ended() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server ended the connection")
}

fn broken(problem: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server breaks the NBD protocol: {problem}"))
}

/// The wait for the reply to a request. Dropped early, the request goes on without its result.
pub struct Answer<'a> {
    remote: &'a Remote,
    /// Connection and slot. `None` if the request was never sent, or the result is taken.
    place: Option<(usize, usize)>,
}

impl Future for Answer<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let remote = self.remote;
        let Some((link, slot)) = self.place else { return Poll::Ready(remote.check()) };
        match remote.links[link].poll(slot, cx.waker()) {
            Poll::Ready(result) => {
                self.place = None;
                Poll::Ready(result.map_err(error_of))
            }
            Poll::Pending if remote.is_lost() => Poll::Ready(remote.check()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if let Some((link, slot)) = self.place {
            self.remote.links[link].abandon(slot);
        }
    }
}

/// Error of a request, by the number of the server. The protocol's numbers are Linux's; any other number
/// counts as EINVAL.
fn error_of(number: u32) -> io::Error {
    use crate::wire::{NBD_EINVAL, NBD_EIO, NBD_ENOMEM, NBD_ENOSPC, NBD_ENOTSUP, NBD_EOVERFLOW, NBD_EPERM};
    let known = [NBD_EPERM, NBD_EIO, NBD_ENOMEM, NBD_EINVAL, NBD_ENOSPC, NBD_EOVERFLOW, NBD_ENOTSUP];
    let number = if known.contains(&number) { number } else { NBD_EINVAL };
    io::Error::from_raw_os_error(number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Channel;
    use braid_base::MIB;
    use braid_runtime::Arena;
    use braid_uring::Stream;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn closed_device_leaves_neither_tasks_nor_buffers() {
        let arena = Arena::new(MIB);
        let ring = Ring::new(8, &arena).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ring.block_on(async {
            let channel = Rc::new(Channel::new(Stream::from_fd(&ring, ours.into()).unwrap()));
            let inbox = Inbox::new(&ring, &channel);
            let links = vec![(Pipeline::new(channel, true), inbox)];
            let remote = Remote::start(&ring, "test".to_owned(), links, Nanos::from_secs(75));
            let buf = arena.try_alloc(Bytes(4096)).unwrap();
            drop(remote.request(Command::Write, Bytes::ZERO, 4096, Some(&buf)));
            drop(buf);
            ring.sleep(Nanos::from_millis(1)).await;
            remote.close();
            let tasks = Rc::downgrade(&remote);
            drop(remote);
            // The kernel wakes the receiver.
            for _ in 0..10_000 {
                if tasks.strong_count() > 0 {
                    ring.sleep(Nanos::from_millis(1)).await;
                }
            }
            assert_eq!(tasks.strong_count(), 0, "tasks are left");
        });
        assert_eq!(arena.available(), MIB, "buffers are left");
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).unwrap();
        assert_eq!(sent.len(), Request::LEN + 4096 + Request::LEN);
        let goodbye = Request::decode(sent.last_chunk().unwrap()).unwrap();
        assert_eq!(goodbye.command, NBD_CMD_DISC);
    }
}
