//! Outgoing replies: a queue, and one vectored send for all ready replies.
//!
//! The queue is bounded: it holds at most one last part of every request, and further parts wait for room.
//! Heads and payloads go to the kernel without a copy.

use crate::gather::{Message, Send, gather};
use crate::memory::Held;
use crate::request::PIECE;
use crate::wire::Head;
use braid_runtime::{Buf, Event};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;

/// Largest number of waiting parts beyond each request's last part.
const EXTRA_PARTS: usize = 64;

/// One piece of a long read, or 64 replies of 4 KiB: the bytes of a full queue.
const FULL: usize = PIECE.as_usize();

/// Reply to a request, or a part of the reply.
pub struct Reply {
    /// Head of the protocol.
    pub head: Head,
    /// Bytes after the head.
    pub payload: Option<Held>,
    /// Effect on the request: end, or more parts to come.
    pub ends: Ends,
}

/// Position of a reply: the last of its request, or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// Last reply: the request's tag is free once sent.
    Request,
    /// More parts follow.
    Part,
}

/// Progress of a call of [`Outbox::send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The queue is empty.
    All,
    /// The client must read first.
    Blocked,
}

/// Queue of one connection.
#[derive(Default)]
pub struct Outbox {
    queue: RefCell<VecDeque<Reply>>,
    /// Bytes of all replies in the queue.
    bytes: Cell<usize>,
    /// Bytes of the first reply that are already sent.
    started: Cell<usize>,
    /// The client is gone: replies are dropped.
    abandoned: Cell<bool>,
    /// Notified when parts have left.
    left: Event,
}

impl Outbox {
    /// Adds a reply. Returns the number of requests that end unsent: 1 if the client is gone and this is the
    /// last reply, else 0.
    pub fn push(&self, reply: Reply) -> usize {
        if self.abandoned.get() {
            return usize::from(reply.ends == Ends::Request);
        }
        self.bytes.set(self.bytes.get() + reply.len());
        self.queue.borrow_mut().push_back(reply);
        0
    }

    /// Waits until another part may be added.
    pub async fn room(&self) {
        let has_room = || !self.is_full() && self.queue.borrow().len() < EXTRA_PARTS;
        self.left.wait_for(|| has_room().then_some(())).await;
    }

    /// True if the queue should be sent before more is made ready: the freed buffers are then still in the
    /// processor's cache for the next request. (Without this limit, nbdcopy's 64 requests of 256 KiB went
    /// through memory twice.)
    pub fn is_full(&self) -> bool {
        self.bytes.get() >= FULL
    }

    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Sends as much as the socket takes: `send` hands slices to the socket. Returns the number of requests
    /// that end with this call, and the progress. An error means that the client is gone.
    pub fn send(&self, send: Send<'_>) -> (usize, io::Result<Sent>) {
        let mut ended = 0;
        while !self.is_empty() {
            let sent = gather(self.queue.borrow().iter(), self.started.get(), send);
            match sent {
                Ok(Some(bytes)) => ended += self.advance(bytes),
                Ok(None) => return (ended, Ok(Sent::Blocked)),
                Err(error) => return (ended, Err(error)),
            }
        }
        (ended, Ok(Sent::All))
    }

    /// Drops all waiting and all future replies. Returns the number of requests that end with this call.
    pub fn abandon(&self) -> usize {
        self.abandoned.set(true);
        let dropped = std::mem::take(&mut *self.queue.borrow_mut());
        self.bytes.set(0);
        self.left.notify();
        dropped.iter().filter(|reply| reply.ends == Ends::Request).count()
    }

    /// True after [`Outbox::abandon`].
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    /// Drops the replies covered by `bytes` more sent bytes. Returns the number of requests that end.
    fn advance(&self, bytes: usize) -> usize {
        let mut queue = self.queue.borrow_mut();
        let (mut sent, mut ended) = (self.started.get() + bytes, 0);
        while let Some(first) = queue.front().filter(|first| first.len() <= sent) {
            sent -= first.len();
            self.bytes.set(self.bytes.get() - first.len());
            ended += usize::from(first.ends == Ends::Request);
            queue.pop_front();
        }
        self.started.set(sent);
        drop(queue);
        self.left.notify();
        ended
    }
}

impl Reply {
    fn len(&self) -> usize {
        self.head.as_bytes().len() + self.payload.as_ref().map_or(0, |held| held.buf.len().as_usize())
    }
}

impl Message for Reply {
    fn head(&self) -> &[u8] {
        self.head.as_bytes()
    }

    fn payload(&self) -> Option<&Buf> {
        self.payload.as_ref().map(|held| &held.buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use braid_base::{Bytes, MIB, Rng};
    use braid_runtime::Arena;
    use std::io::IoSlice;

    /// Replies with and without payload, and their bytes.
    fn replies(rng: &mut Rng, count: u64) -> (Outbox, Vec<u8>) {
        let memory = Memory::new(Arena::new(MIB * 4), MIB * 4, 1).unwrap();
        let (share, outbox, mut bytes) = (memory.share(), Outbox::default(), Vec::new());
        for cookie in 0..count {
            let payload =
                rng.chance(0.5).then(|| share.try_alloc(Bytes::ZERO, Bytes(rng.between(1, 9_000))).unwrap());
            let head = Head::simple(cookie, 0);
            bytes.extend(head.as_bytes());
            if let Some(held) = &payload {
                held.buf.with_bytes_mut(|b| b.fill(cookie as u8));
                bytes.extend(held.buf.to_vec());
            }
            assert_eq!(outbox.push(Reply { head, payload, ends: Ends::Request }), 0);
        }
        (outbox, bytes)
    }

    #[test]
    fn replies_arrive_in_order_however_little_the_socket_takes() {
        for seed in 0..200 {
            let rng = RefCell::new(Rng::new(seed));
            let (outbox, expected) = replies(&mut rng.borrow_mut(), 1 + seed);
            let (arrived, mut ended) = (RefCell::new(Vec::new()), 0);
            let socket = |slices: &[IoSlice]| {
                let mut takes = rng.borrow_mut().below(20_000) as usize;
                if takes < 5_000 {
                    return Ok(None);
                }
                let before = arrived.borrow().len();
                for slice in slices {
                    assert!(!slice.is_empty());
                    let part = slice.len().min(takes);
                    arrived.borrow_mut().extend_from_slice(&slice[..part]);
                    takes -= part;
                }
                Ok(Some(arrived.borrow().len() - before))
            };
            while !outbox.is_empty() {
                ended += outbox.send(&socket).0;
            }
            assert_eq!(ended as u64, 1 + seed, "seed {seed}");
            assert!(*arrived.borrow() == expected, "seed {seed}");
        }
    }

    #[test]
    fn abandoned_replies_end_requests() {
        let (outbox, _) = replies(&mut Rng::new(1), 5);
        assert_eq!(outbox.abandon(), 5);
        let late = |ends| outbox.push(Reply { head: Head::simple(1, 0), payload: None, ends });
        assert_eq!((late(Ends::Request), late(Ends::Part), outbox.is_empty()), (1, 0, true));
    }
}
