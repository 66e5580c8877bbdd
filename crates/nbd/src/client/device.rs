//! The device: requests cut to the server's limits, and the rules of flush and discard.

use super::address::Address;
use super::offer::Terms;
use super::open::{Limits, open};
use super::remote::Remote;
use super::replies::Command;
use crate::handshake::Access;
use braid_base::{Bytes, DeviceClass};
use braid_runtime::{Buf, Device, Geometry};
use braid_uring::Ring;
use std::fmt;
use std::io::{self, ErrorKind};
use std::rc::Rc;

/// An export of an NBD server as a device.
///
/// A lost connection is final: see the module. After a failed flush every later flush fails, too: the server
/// may have forgotten the data. Dropping the device says goodbye to the server and ends all tasks.
pub struct RemoteDevice {
    address: Address,
    access: Access,
    terms: Terms,
    remote: Rc<Remote>,
}

impl RemoteDevice {
    /// Connects to an export, with the usual [`Limits`].
    ///
    /// # Errors
    /// `TimedOut`, or errors of connect(2), if the server is not reached; `InvalidData` if the server breaks
    /// the protocol or TLS; `NotFound` without the export; `PermissionDenied` if the server refuses the
    /// client; `ReadOnlyFilesystem` if the export takes no writes; `Unsupported` if the server lacks TLS,
    /// flush, or a usable size or alignment. Messages name the address and the remedy.
    pub async fn connect(
        ring: &Ring,
        address: &Address,
        class: DeviceClass,
        access: Access,
    ) -> io::Result<RemoteDevice> {
        RemoteDevice::connect_within(ring, address, class, access, Limits::default()).await
    }

    /// As [`RemoteDevice::connect`], with other limits.
    ///
    /// # Errors
    /// As [`RemoteDevice::connect`].
    pub async fn connect_within(
        ring: &Ring,
        address: &Address,
        class: DeviceClass,
        access: Access,
        limits: Limits,
    ) -> io::Result<RemoteDevice> {
        let opened = open(ring, address, class, access, limits).await;
        let (terms, links) =
            opened.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
        let remote = Remote::start(ring, address.to_string(), links, limits.silence);
        Ok(RemoteDevice { address: address.clone(), access, terms, remote })
    }

    /// Address of the export.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Ends the connections of a device that is not used any more: requests in flight end with an error.
    /// Returns false if the server has replied to a read, write or flush with an error: a new connection
    /// would not help then.
    pub fn give_up(&self) -> bool {
        self.remote.give_up()
    }

    /// Number of connections to the server.
    pub fn connections(&self) -> usize {
        self.remote.connections()
    }

    /// Reads or writes a buffer, in pieces that the server takes. All pieces are in flight at the same time.
    async fn transfer(&self, command: Command, offset: Bytes, buf: &Buf) -> io::Result<()> {
        let (len, longest) = (buf.len(), self.terms.payload_longest);
        if len <= longest {
            return self.remote.request(command, offset, len.0 as u32, Some(buf)).await;
        }
        let mut answers = Vec::new();
        let mut done = Bytes::ZERO;
        while done < len {
            let end = (done + longest).min(len);
            let piece = buf.slice(done..end);
            answers.push(self.remote.request(command, offset + done, piece.len().0 as u32, Some(&piece)));
            done = end;
        }
        let mut result = Ok(());
        for answer in answers {
            result = result.and(answer.await);
        }
        result
    }

    /// Refuses a change by a reader.
    fn check_writable(&self) -> io::Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => {
                let problem = format!("{} was opened for reading only", self.remote.address());
                Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, problem))
            }
        }
    }

    /// Adds the request to an error of the server. Errors of a lost device say enough.
    fn failed(&self, attempt: fmt::Arguments<'_>, cause: io::Error) -> io::Error {
        if cause.raw_os_error().is_none() {
            return cause;
        }
        let problem = format!("cannot {attempt} {}: {cause}", self.remote.address());
        io::Error::new(cause.kind(), RequestFailed { problem, cause })
    }
}

impl Device for RemoteDevice {
    fn geometry(&self) -> Geometry {
        self.terms.geometry
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        let len = into.len();
        self.terms.geometry.check(offset, len)?;
        if len == Bytes::ZERO {
            return self.remote.check();
        }
        let result = self.transfer(Command::Read, offset, into).await;
        result.map_err(|error| self.failed(format_args!("read {len:?} at {offset:?} of"), error))
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        let len = from.len();
        self.terms.geometry.check(offset, len)?;
        self.check_writable()?;
        if len == Bytes::ZERO {
            return self.remote.check();
        }
        let result = self.transfer(Command::Write, offset, from).await;
        result.map_err(|error| self.failed(format_args!("write {len:?} at {offset:?} of"), error))
    }

    /// Flushes on one connection. The server promises the writes of all connections.
    async fn flush(&self) -> io::Result<()> {
        self.remote.check()?;
        let promise = || match self.remote.has_flush_failed() {
            false => Ok(()),
            true => {
                let lost = "an earlier flush failed, and writes before it may be lost";
                let problem = format!("cannot promise a flush of {}: {lost}", self.remote.address());
                Err(io::Error::other(problem))
            }
        };
        promise()?;
        // A reader has written nothing.
        if !self.terms.flushes {
            return Ok(());
        }
        let flushed = self.remote.request(Command::Flush, Bytes::ZERO, 0, None).await;
        flushed.map_err(|error| self.failed(format_args!("flush"), error))?;
        promise()
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.terms.geometry.check(offset, len)?;
        self.check_writable()?;
        self.remote.check()?;
        let Some(longest) = self.terms.discard_longest else { return Ok(()) };
        let mut done = Bytes::ZERO;
        while done < len {
            let piece = (len - done).min(longest);
            let result = self.remote.request(Command::Discard, offset + done, piece.0 as u32, None).await;
            match result {
                // A hint that the server's disk does not take.
                Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
                result => result
                    .map_err(|error| self.failed(format_args!("discard {len:?} at {offset:?} of"), error))?,
            }
            done += piece;
        }
        Ok(())
    }
}

impl Drop for RemoteDevice {
    fn drop(&mut self) {
        self.remote.close();
    }
}

/// A request that the server refused. The source has the server's error number.
#[derive(Debug)]
struct RequestFailed {
    problem: String,
    cause: io::Error,
}

impl fmt::Display for RequestFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for RequestFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
