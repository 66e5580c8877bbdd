//! The bytes of a connection: a socket, plain or with TLS over it. For a server and for a client.
//!
//! As a socket, a channel never waits by itself: it receives or sends what is possible now. In plain, a call
//! is one system call, as without this file.

use crate::tls::{Layer, names_in, printable};
use braid_base::Nanos;
use braid_runtime::Runtime;
use braid_uring::{Ring, Stream};
use std::cell::{Cell, OnceCell, RefCell};
use std::io::{self, ErrorKind, IoSlice};

/// A connection to a client or to a server.
pub struct Channel {
    stream: Stream,
    tls: OnceCell<RefCell<Layer>>,
    /// Names in the certificate of the other side.
    names: OnceCell<Vec<String>>,
    /// The other side is gone: encrypted bytes that wait are dropped.
    abandoned: Cell<bool>,
}

impl Channel {
    /// Makes a plain channel of a socket.
    pub fn new(stream: Stream) -> Channel {
        let (tls, names) = (OnceCell::new(), OnceCell::new());
        Channel { stream, tls, names, abandoned: Cell::new(false) }
    }

    /// Makes TLS of the plain channel: all later bytes of both sides belong to TLS. Tells `worked` the
    /// processor time of each step.
    ///
    /// # Errors
    /// If the other side has no valid certificate, breaks the protocol, or ends. The other side gets the
    /// reason, if the socket takes it at once.
    pub async fn secure(&self, ring: &Ring, layer: Layer, worked: impl Fn(Nanos)) -> io::Result<()> {
        let layer = self.tls.get_or_init(|| RefCell::new(layer));
        loop {
            self.send_all(&[]).await?;
            if !layer.borrow().is_handshaking() {
                break;
            }
            self.stream.readable().await?;
            let mut layer = layer.borrow_mut();
            match self.stream.try_recv(layer.room())? {
                None => continue,
                Some(0) => return Err(ended_early()),
                Some(count) => layer.received(count),
            }
            let start = ring.now();
            let advanced = layer.advance();
            worked(ring.now().saturating_sub(start));
            advanced.inspect_err(|_| self.tell_reason(&mut layer))?;
        }
        let names = layer.borrow().peer().map(|certificate| names_in(certificate));
        self.names.get_or_init(|| names.unwrap_or_default());
        Ok(())
    }

    /// Names in the certificate of the other side. Empty in plain.
    pub fn names(&self) -> &[String] {
        self.names.get().map_or(&[], Vec::as_slice)
    }

    /// The other end, as [`Stream::peer`], with the name in its certificate.
    pub fn peer(&self) -> String {
        match self.names().first() {
            Some(name) => format!("{} ({})", self.stream.peer(), printable(name)),
            None => self.stream.peer(),
        }
    }

    /// Receives available bytes, as [`Stream::try_recv`]. `None` within TLS also means that too few bytes of
    /// a record have arrived.
    ///
    /// # Errors
    /// `UnexpectedEof` if the socket ends within TLS without an announcement, `InvalidData` if the bytes are
    /// not from the other side.
    pub fn try_recv(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(layer) = self.tls.get() else { return self.stream.try_recv(into) };
        let mut layer = layer.borrow_mut();
        let received = layer.read(into).and_then(|read| match read {
            Some(count) => Ok(Some(count)),
            None => match self.stream.try_recv(layer.room())? {
                None => Ok(None),
                Some(0) => Err(ended_early()),
                Some(count) => {
                    layer.received(count);
                    layer.read(into)
                }
            },
        });
        received.inspect_err(|_| self.tell_reason(&mut layer))
    }

    /// Sends as much as possible now, as [`Stream::try_send`]. Within TLS, a part of the taken bytes may wait
    /// for [`Channel::flush`].
    ///
    /// # Errors
    /// As [`Stream::try_send`].
    pub fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let Some(layer) = self.tls.get() else { return self.stream.try_send(from) };
        let mut layer = layer.borrow_mut();
        let send = |slices: &[IoSlice<'_>]| self.stream.try_send(slices);
        if !layer.flush(&send)? {
            return Ok(None);
        }
        let count = layer.write(from)?;
        layer.flush(&send)?;
        Ok(Some(count))
    }

    /// Sends encrypted bytes that wait, as many as the socket takes. Returns true if none are left.
    ///
    /// # Errors
    /// As [`Stream::try_send`].
    pub fn flush(&self) -> io::Result<bool> {
        let Some(layer) = self.tls.get().filter(|_| !self.abandoned.get()) else { return Ok(true) };
        layer.borrow_mut().flush(&|slices| self.stream.try_send(slices))
    }

    /// True if encrypted bytes wait for [`Channel::flush`].
    pub fn has_unsent(&self) -> bool {
        self.tls.get().is_some_and(|layer| !self.abandoned.get() && layer.borrow().has_unsent())
    }

    /// Sends all of `from`, and all bytes that wait.
    ///
    /// # Errors
    /// As [`Stream::try_send`].
    pub async fn send_all(&self, mut from: &[u8]) -> io::Result<()> {
        while !from.is_empty() {
            match self.try_send(&[IoSlice::new(from)])? {
                Some(count) => from = &from[count..],
                None => self.stream.writable().await?,
            }
        }
        while !self.flush()? {
            self.stream.writable().await?;
        }
        Ok(())
    }

    /// As [`Stream::readable`].
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// As [`Stream::writable`].
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Drops encrypted bytes that wait, present and future.
    pub fn abandon(&self) {
        self.abandoned.set(true);
    }

    /// Announces the end to the other side within TLS, if the socket takes the announcement now. Nothing is
    /// sent afterwards.
    pub fn announce_end(&self) {
        if let Some(layer) = self.tls.get().filter(|_| !self.abandoned.get()) {
            let mut layer = layer.borrow_mut();
            layer.end();
            self.tell_reason(&mut layer);
        }
    }

    /// Ends the connection in both directions, and wakes the waiting tasks on both sides.
    pub fn close(&self) {
        self.announce_end();
        // Fails if the other side has closed already, with the same result.
        let _ = self.stream.finish();
    }

    /// Ends the connection at once, as [`Stream::reset`]: nothing more reaches the other side.
    pub fn reset(&self) {
        self.stream.reset();
    }

    /// Sends the reason for an end, if the socket takes the reason at once: nobody waits for a broken
    /// connection.
    fn tell_reason(&self, layer: &mut Layer) {
        let _ = layer.flush(&|slices| self.stream.try_send(slices));
    }
}

fn ended_early() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the other side ended the connection without an announcement")
}
