//! A connected socket, by readiness: try now, and wait through the ring if nothing is possible now.
//!
//! The system calls are direct: over a local socket they cost less than a round through the ring, and a
//! server can collect many replies for one vectored send.

use crate::Ring;
use crate::peer::{process_of, user_of};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown,
    connect_unspec, recv, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A connected stream socket, Unix or TCP. Closed when dropped.
pub struct Stream {
    ring: Ring,
    socket: OwnedFd,
}

impl Stream {
    /// Takes over a connected stream socket. Makes the socket nonblocking; a TCP socket sends without delay.
    ///
    /// # Errors
    /// If the descriptor is no socket.
    pub fn from_fd(ring: &Ring, socket: OwnedFd) -> io::Result<Stream> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        if rustix::net::sockopt::socket_domain(&socket)? != rustix::net::AddressFamily::UNIX {
            rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
        }
        Ok(Stream { ring: ring.clone(), socket })
    }

    /// The other end: an address, or a process of this machine with its name.
    pub fn peer(&self) -> String {
        if let Some(process) = process_of(&self.socket) {
            let process = process.as_raw_nonzero();
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            return format!("process {process} ({})", name.trim());
        }
        let address = rustix::net::getpeername(&self.socket).ok().flatten();
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        address.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
    }

    /// The number of the user whose process connected; `None` for a TCP socket.
    pub fn peer_user(&self) -> Option<u32> {
        user_of(&self.socket)
    }

    /// Receives available bytes: `None` if there are none yet, `Some(0)` at the end (or if `into` has no
    /// room).
    ///
    /// # Errors
    /// `ConnectionReset` and the like; the connection is then of no more use.
    pub fn try_recv(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match recv(&self.socket, &mut *into, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(Some(count)),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives available bytes, and the file that came with them, if any. The kernel closes further files.
    ///
    /// # Errors
    /// As [`Stream::try_recv`]; `WouldBlock` if there are no bytes.
    pub fn try_recv_with_file(&self, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut came = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.socket, &mut [IoSliceMut::new(into)], &mut came, flags)?;
        let files = came.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let mut files: Vec<OwnedFd> = files.flatten().collect();
        Ok((received.bytes, (!files.is_empty()).then(|| files.swap_remove(0))))
    }

    /// Copies the first bytes that have arrived, without receiving them: `None` if there are none yet,
    /// `Some(0)` at the end.
    ///
    /// # Errors
    /// As [`Stream::try_recv`].
    pub fn try_peek(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match recv(&self.socket, &mut *into, RecvFlags::PEEK) {
                Ok((count, _)) => return Ok(Some(count)),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the number of bytes that have arrived and are not received.
    ///
    /// # Errors
    /// No known error. An error of the kernel is passed on.
    pub fn arrived(&self) -> io::Result<u64> {
        Ok(rustix::io::ioctl_fionread(&self.socket)?)
    }

    /// Returns a second handle of the socket, for a library that receives messages with files.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Sends as much as the socket takes now, of at most the first 1024 slices. `None` if the socket takes
    /// nothing.
    ///
    /// # Errors
    /// `BrokenPipe` and the like; the connection is then of no more use. No signal is raised.
    pub fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let from = &from[..from.len().min(SLICES)];
        loop {
            match sendmsg(&self.socket, from, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(Some(count)),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Completes once there are bytes to receive, the other side has ended, or the connection broke: try
    /// then. May be dropped at any time.
    pub async fn readable(&self) -> io::Result<()> {
        self.ring.ready(&self.socket, libc::POLLIN | libc::POLLRDHUP).await
    }

    /// Completes once there is room to send, or the connection broke: try then. May be dropped at any time.
    pub async fn writable(&self) -> io::Result<()> {
        self.ring.ready(&self.socket, libc::POLLOUT).await
    }

    /// Receives until `into` is full.
    ///
    /// # Errors
    /// `UnexpectedEof` if the other side ends before `into` is full.
    pub async fn recv_exact(&self, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            match self.try_recv(&mut into[done..])? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => done += count,
                None => self.readable().await?,
            }
        }
        Ok(())
    }

    /// Sends all of `from`.
    pub async fn send_all(&self, from: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < from.len() {
            match self.try_send(&[IoSlice::new(&from[done..])])? {
                Some(count) => done += count,
                None => self.writable().await?,
            }
        }
        Ok(())
    }

    /// Ends the connection at once: bytes that the other host has not received are dropped. Wakes the waiting
    /// tasks on both sides.
    pub fn reset(&self) {
        // A Unix socket has no unsent bytes, and refuses. Both calls fail if the other side was faster.
        let _ = connect_unspec(&self.socket);
        let _ = self.shutdown();
    }

    /// Ends the connection after the bytes that wait to be sent. Wakes the waiting tasks on both sides.
    ///
    /// # Errors
    /// As [`Stream::shutdown`].
    pub fn finish(&self) -> io::Result<()> {
        set_socket_linger(&self.socket, None)?;
        self.shutdown()
    }

    /// Ends the connection in both directions, and wakes the waiting tasks on both sides.
    ///
    /// # Errors
    /// `NotConnected` if the other side was faster.
    pub fn shutdown(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.socket, Shutdown::Both)?)
    }
}

/// Files that may come with one message; the kernel drops further ones.
const FILES: usize = 1;
/// Largest number of slices in one sendmsg(2) (IOV_MAX).
const SLICES: usize = 1024;
