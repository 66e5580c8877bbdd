//! TLS of one connection without I/O: bytes of the network become plain bytes, and plain bytes become bytes
//! of the network.
//!
//! Memory is bounded. Received bytes wait in a buffer of [`WIRE`] bytes, and rustls holds at most one record
//! beside them. Bytes to send wait up to [`UNSENT`] bytes, then [`Layer::write`] takes nothing more.

use crate::gather::Send;
use rustls::Connection;
use rustls::pki_types::CertificateDer;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

/// Room for received bytes: two records of the largest size, or seven writes of 4 KiB. One receive fills it.
const WIRE: usize = 32 << 10;

/// Plain bytes that are encrypted ahead of the network: what a socket takes at once, and small enough to stay
/// in the processor's cache between encryption and sending.
const UNSENT: usize = 64 << 10;

/// One side of a TLS connection: the server's, or the client's.
pub struct Layer {
    connection: Connection,
    /// Received bytes, from `start` to `end` not taken by `connection` yet.
    wire: Box<[u8]>,
    start: usize,
    end: usize,
    /// The other side has announced the end: later bytes are dropped.
    ended: bool,
    /// The first error: every later call repeats the error.
    failure: Option<rustls::Error>,
}

impl Layer {
    /// Starts a handshake of this side.
    pub fn new(connection: impl Into<Connection>) -> Layer {
        let mut connection = connection.into();
        connection.set_buffer_limit(Some(UNSENT));
        let wire = vec![0; WIRE].into_boxed_slice();
        Layer { connection, wire, start: 0, end: 0, ended: false, failure: None }
    }

    /// True until both sides may send data.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Certificate of the other side, checked against the authority. `None` before the end of the handshake.
    pub fn peer(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates()?.first()
    }

    /// Room for bytes of the network, once all earlier bytes are taken: after [`Layer::read`] returned
    /// `None`, or after [`Layer::advance`].
    pub fn room(&mut self) -> &mut [u8] {
        assert!(self.start == self.end, "received bytes are taken before more are received");
        (self.start, self.end) = (0, 0);
        &mut self.wire
    }

    /// Notes that the first `count` bytes of the room were received.
    pub fn received(&mut self, count: usize) {
        self.end = count;
    }

    /// Continues the handshake with the received bytes.
    ///
    /// # Errors
    /// `InvalidData` if the other side breaks the protocol, or has no valid certificate. The reason for the
    /// other side waits to be sent. `UnexpectedEof` if the other side gives up.
    pub fn advance(&mut self) -> io::Result<()> {
        while self.connection.is_handshaking() && self.take_some()? {}
        match self.ended && self.connection.is_handshaking() {
            true => Err(io::Error::new(ErrorKind::UnexpectedEof, "the other side ended the TLS handshake")),
            false => Ok(()),
        }
    }

    /// Decrypts received bytes into `into`, as many as fit. `None` if bytes of the network are missing,
    /// `Some(0)` at the announced end (or if `into` has no room).
    ///
    /// # Errors
    /// `InvalidData` for bytes that are not from the other side.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if into.is_empty() {
            return Ok(Some(0));
        }
        let mut filled = 0;
        while filled < into.len() {
            match self.connection.reader().read(&mut into[filled..]) {
                Ok(0) => return Ok(Some(filled)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.take_some() {
                    Ok(true) => {}
                    Ok(false) => break,
                    // The next call reports the error.
                    Err(_) if filled > 0 => break,
                    Err(error) => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok((filled > 0).then_some(filled))
    }

    /// Encrypts plain bytes. Returns their number: less than all of them if too many wait to be sent.
    ///
    /// # Errors
    /// None in practice: rustls reports other errors when bytes are received.
    pub fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(from)
    }

    /// True if encrypted bytes wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Hands encrypted bytes to `send`, as many as `send` takes. Returns true if nothing is left.
    ///
    /// # Errors
    /// The error of `send`.
    pub fn flush(&mut self, send: Send<'_>) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Network { send }) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Announces the end to the other side. Nothing can be written afterwards.
    pub fn end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Gives rustls at most 4 KiB of the received bytes: at most one record of plain bytes waits then.
    /// Returns false if nothing is left. An error is reported by the next call: plain bytes before the error
    /// count.
    fn take_some(&mut self) -> io::Result<bool> {
        if let Some(error) = &self.failure {
            return Err(io::Error::new(ErrorKind::InvalidData, error.to_string()));
        }
        if self.ended {
            self.start = self.end;
        }
        let mut rest = &self.wire[self.start..self.end];
        if rest.is_empty() {
            return Ok(false);
        }
        self.start += self.connection.read_tls(&mut rest)?;
        match self.connection.process_new_packets() {
            Ok(state) => self.ended = state.peer_has_closed(),
            Err(error) => self.failure = Some(error),
        }
        Ok(true)
    }
}

/// A network as rustls wants it.
struct Network<'a> {
    send: Send<'a>,
}

impl Write for Network<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.send)(slices)?.ok_or_else(|| ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
