//! What a connection receives: one buffer that takes as many requests as are there, and how to wait for more.

use braid_base::Nanos;
use braid_runtime::{Buf, Runtime, yield_now};
use braid_uring::{Ring, Stream};
use std::io;

/// Room for 15 writes of 4 KiB, or two thousand reads. A larger one would only copy more of long writes:
/// their payload is received where it belongs, but for what comes with their head.
const ROOM: usize = 64 << 10;

/// Payload that is missing by at least so much is received directly into its place.
const DIRECT: usize = 16 << 10;

/// How long the receiver asks the socket again and again before it sleeps. A sleep and its wake-up cost 10 µs
/// on either side on one machine, 25 on another. There, clients that work one request at a time are back
/// after some 45 µs: with a limit of 40 the receiver slept before each request, and served half as many.
const SPIN: Nanos = Nanos::from_micros(80);

/// Times in a row that the socket may have something at once before the other tasks get their turn.
const TURNS: u32 = 8;

/// Bytes received and not yet used, and the socket that more come from.
pub struct Inbox<'a> {
    ring: &'a Ring,
    stream: &'a Stream,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// How long the next wait is likely to be.
    expected_wait: Nanos,
    /// How often in a row there was no wait.
    turns: u32,
}

impl<'a> Inbox<'a> {
    /// An empty one.
    pub fn new(ring: &'a Ring, stream: &'a Stream) -> Inbox<'a> {
        let bytes = vec![0; ROOM].into_boxed_slice();
        Inbox { ring, stream, bytes, start: 0, end: 0, expected_wait: Nanos::ZERO, turns: 0 }
    }

    /// What is there.
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

    /// Moves bytes to the start of `target`, as far as they go. Returns how many.
    pub fn take_into(&mut self, target: &Buf) -> usize {
        let count = self.bytes().len().min(target.len().as_usize());
        target.copy_from_slice(braid_base::Bytes::ZERO, &self.bytes()[..count]);
        self.consume(count);
        count
    }

    /// Receives what is there now; `None` if that is nothing, `Some(0)` at the end.
    pub fn try_receive(&mut self) -> io::Result<Option<usize>> {
        if self.end == ROOM {
            // What is left is the head of a request, or a part of an option.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        assert!(self.end < ROOM, "a message is larger than the inbox");
        let received = self.stream.try_recv(&mut self.bytes[self.end..])?;
        self.end += received.unwrap_or(0);
        Ok(received)
    }

    /// Receives, waiting for it. `Ok(0)` at the end.
    pub async fn receive(&mut self) -> io::Result<usize> {
        self.take_turns().await;
        if let Some(count) = self.try_receive()? {
            return Ok(count);
        }
        let start = self.ring.now();
        let mut waited = Nanos::ZERO;
        while self.expected_wait < SPIN && waited < SPIN {
            yield_now().await;
            let received = self.try_receive()?;
            waited = self.ring.now().saturating_sub(start);
            if let Some(count) = received {
                self.learn(waited);
                return Ok(count);
            }
        }
        loop {
            self.stream.readable().await?;
            if let Some(count) = self.try_receive()? {
                self.learn(self.ring.now().saturating_sub(start));
                return Ok(count);
            }
        }
    }

    /// Receives payload into the start of `target`: directly where much is missing, else together with what
    /// follows it. Returns how many bytes are there now; 0 at the end.
    pub async fn receive_into(&mut self, target: &Buf) -> io::Result<usize> {
        assert!(self.bytes().is_empty(), "what has been received goes first");
        if target.len().as_usize() < DIRECT {
            return Ok(if self.receive().await? == 0 { 0 } else { self.take_into(target) });
        }
        self.take_turns().await;
        loop {
            match target.with_bytes_mut(|bytes| self.stream.try_recv(bytes))? {
                Some(count) => return Ok(count),
                None => self.stream.readable().await?,
            }
        }
    }

    /// A client that always has something to say must not keep the others of this shard from being heard.
    async fn take_turns(&mut self) {
        self.turns += 1;
        if self.turns >= TURNS {
            self.turns = 0;
            yield_now().await;
        }
    }

    /// Two long waits in a row end the spinning, some short ones bring it back: an idle connection costs
    /// nothing.
    fn learn(&mut self, waited: Nanos) {
        self.expected_wait = (self.expected_wait * 7 + waited.min(SPIN * 5)) / 8;
    }
}
