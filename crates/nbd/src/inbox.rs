//! Receiving side of a connection: one buffer for as many requests as have arrived, and the wait for more.

use crate::channel::Channel;
use braid_base::Nanos;
use braid_runtime::{Buf, Runtime, yield_now};
use braid_uring::Ring;
use std::io;
use std::rc::Rc;

/// Room for 15 writes of 4 KiB, or two thousand reads. A larger buffer would only copy more of long writes:
/// their payload is received in its final place, except for the bytes that arrive with the head.
const ROOM: usize = 64 << 10;

/// Missing payload of at least this length is received directly into its place.
const DIRECT: usize = 16 << 10;

/// Time that the receiver polls the socket before sleeping. A sleep and its wake-up cost 10 µs on either side
/// on one machine, 25 on another. There, clients with one request at a time are back after some 45 µs: with a
/// limit of 40 the receiver slept before each request, and served half as many.
const SPIN: Nanos = Nanos::from_micros(80);

/// Receives in a row before the other tasks get their turn.
const TURNS: u32 = 8;

/// Bytes received and not yet used, and their channel.
pub struct Inbox {
    ring: Ring,
    channel: Rc<Channel>,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Time to poll the socket before sleeping.
    spin: Nanos,
    /// Expected length of the next wait.
    expected_wait: Nanos,
    /// Receives in a row without a turn for other tasks.
    turns: u32,
}

impl Inbox {
    /// Makes an empty inbox of a server: short waits are spent polling the socket.
    pub fn new(ring: &Ring, channel: &Rc<Channel>) -> Inbox {
        Inbox { spin: SPIN, ..Inbox::sleeping(ring, channel) }
    }

    /// Makes an empty inbox of a client: each wait is a sleep. A remote server's replies take longer than the
    /// polling lasts. With a server on the same two busy processors, polling made no load faster, and took a
    /// third more processor time at one request at a time.
    pub fn sleeping(ring: &Ring, channel: &Rc<Channel>) -> Inbox {
        let (ring, channel) = (ring.clone(), channel.clone());
        let bytes = vec![0; ROOM].into_boxed_slice();
        let (spin, expected_wait) = (Nanos::ZERO, Nanos::ZERO);
        Inbox { ring, channel, bytes, start: 0, end: 0, spin, expected_wait, turns: 0 }
    }

    /// Bytes received and not yet used.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops the first `count` bytes.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "more was used than received");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves received bytes to the start of `target`, as many as fit. Returns their number.
    pub fn take_into(&mut self, target: &Buf) -> usize {
        let count = self.bytes().len().min(target.len().as_usize());
        target.copy_from_slice(braid_base::Bytes::ZERO, &self.bytes()[..count]);
        self.consume(count);
        count
    }

    /// Receives available bytes. `None` if there are none, `Some(0)` at the end.
    pub fn try_receive(&mut self) -> io::Result<Option<usize>> {
        if self.end == ROOM {
            // The rest is the head of a request, or a part of an option.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        assert!(self.end < ROOM, "a message is larger than the inbox");
        let received = self.channel.try_recv(&mut self.bytes[self.end..])?;
        self.end += received.unwrap_or(0);
        Ok(received)
    }

    /// Waits for bytes and receives them. `Ok(0)` at the end.
    pub async fn receive(&mut self) -> io::Result<usize> {
        self.take_turns().await;
        if let Some(count) = self.try_receive()? {
            return Ok(count);
        }
        let start = self.ring.now();
        let mut waited = Nanos::ZERO;
        while self.expected_wait < self.spin && waited < self.spin {
            yield_now().await;
            let received = self.try_receive()?;
            waited = self.ring.now().saturating_sub(start);
            if let Some(count) = received {
                self.learn(waited);
                return Ok(count);
            }
        }
        loop {
            self.channel.readable().await?;
            if let Some(count) = self.try_receive()? {
                self.learn(self.ring.now().saturating_sub(start));
                return Ok(count);
            }
        }
    }

    /// Receives payload into the start of `target`: directly if much is missing, else together with the bytes
    /// after the payload. Returns the number of bytes in `target` now; 0 at the end.
    pub async fn receive_into(&mut self, target: &Buf) -> io::Result<usize> {
        assert!(self.bytes().is_empty(), "what has been received goes first");
        if target.len().as_usize() < DIRECT {
            return Ok(if self.receive().await? == 0 { 0 } else { self.take_into(target) });
        }
        self.take_turns().await;
        loop {
            match target.with_bytes_mut(|bytes| self.channel.try_recv(bytes))? {
                Some(count) => return Ok(count),
                None => self.channel.readable().await?,
            }
        }
    }

    /// Yields now and then: a client that always sends must not keep other clients of this shard waiting.
    async fn take_turns(&mut self) {
        self.turns += 1;
        if self.turns >= TURNS {
            self.turns = 0;
            yield_now().await;
        }
    }

    /// Two long waits in a row end the spinning, some short waits resume it: an idle connection costs
    /// nothing.
    fn learn(&mut self, waited: Nanos) {
        self.expected_wait = (self.expected_wait * 7 + waited.min(SPIN * 5)) / 8;
    }
}
