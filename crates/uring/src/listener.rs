//! Sockets that accept connections.

use crate::open::PAUSE;
use crate::short_path::{ShortPath, connect_unix};
use crate::{Ring, Stream};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getsockname, listen,
    socket_with,
};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;

/// A socket that accepts connections. Closed when dropped; a Unix socket's file then goes too.
pub struct Listener {
    ring: Ring,
    socket: OwnedFd,
    address: Address,
    /// Device and inode of a Unix socket's file, so that only this listener's own file is removed.
    file: Option<(u64, u64)>,
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The file of a Unix socket.
    Unix(PathBuf),
    /// Address and port of a TCP socket. If port 0 was requested, the port that the system chose.
    Tcp(SocketAddr),
}

impl Listener {
    /// Listens on a Unix socket at `path`. Only its owner and root may connect, regardless of the umask. A
    /// socket file is replaced if no process listens on it.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens there, `AlreadyExists` if another kind of file is there.
    pub fn bind_unix(ring: &Ring, path: &Path) -> io::Result<Listener> {
        remove_stale(path)?;
        let socket = listen_unix(path).map_err(|e| cannot_listen(path.display(), e))?;
        let file = std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
        let address = Address::Unix(path.to_owned());
        Ok(Listener { ring: ring.clone(), socket, address, file })
    }

    /// As [`Listener::bind_unix`], but members of the socket's group may connect, too. A directory with the
    /// set-group-ID bit gives its group to the socket.
    ///
    /// # Errors
    /// As [`Listener::bind_unix`].
    pub fn bind_unix_for_group(ring: &Ring, path: &Path) -> io::Result<Listener> {
        let listener = Listener::bind_unix(ring, path)?;
        // Afterwards: while binding, the umask would take the group's rights away.
        rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
        Ok(listener)
    }

    /// Listens on a TCP address; port 0 lets the system choose a port. Waits up to two seconds for an address
    /// in use, possibly held by a killed process.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens there, `AddrNotAvailable`, `PermissionDenied` for ports below 1024.
    pub fn bind_tcp(ring: &Ring, address: SocketAddr) -> io::Result<Listener> {
        let mut bound = TcpListener::bind(address);
        for _ in 0..TCP_TRIES {
            if !bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
                break;
            }
            thread::sleep(PAUSE);
            bound = TcpListener::bind(address);
        }
        let listener = bound.map_err(|e| cannot_listen(address, e))?;
        listener.set_nonblocking(true)?;
        let address = Address::Tcp(listener.local_addr()?);
        Ok(Listener { ring: ring.clone(), socket: listener.into(), address, file: None })
    }

    /// Takes over a listening stream socket. The file of a Unix socket belongs to the process that made it.
    ///
    /// # Errors
    /// `InvalidInput` if the socket does not listen, or has no path and no TCP address.
    pub(crate) fn of_socket(ring: &Ring, socket: OwnedFd) -> io::Result<Listener> {
        let wrong = |problem: &str| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("a socket of the service manager {problem}"))
        };
        let is_stream = socket_type(&socket)? == SocketType::STREAM;
        if !is_stream || !socket_acceptconn(&socket)? {
            return Err(wrong("is no listening stream socket: use ListenStream= and Accept=no"));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        let name = getsockname(&socket)?;
        let unix = SocketAddrUnix::try_from(name.clone()).ok();
        let path =
            unix.as_ref().and_then(|name| name.path_bytes()).map(|path| Path::new(OsStr::from_bytes(path)));
        let address = match (path, SocketAddr::try_from(name)) {
            (Some(path), _) => Address::Unix(path.to_owned()),
            (None, Ok(address)) => Address::Tcp(address),
            (None, Err(_)) => return Err(wrong("has no path and no TCP address")),
        };
        Ok(Listener { ring: ring.clone(), socket, address, file: None })
    }

    /// Address of the listener.
    pub fn local_address(&self) -> &Address {
        &self.address
    }

    /// The next connection. May be dropped at any time.
    ///
    /// # Errors
    /// If the process has too many open files. The connection then stays in the queue, and the caller should
    /// wait before the next try.
    pub async fn accept(&self) -> io::Result<Stream> {
        loop {
            match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => return Stream::from_fd(&self.ring, socket),
                Err(Errno::WOULDBLOCK) => self.ring.readable(&self.socket).await?,
                // The client has gone again.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address
            && std::fs::metadata(path).is_ok_and(|m| self.file == Some((m.dev(), m.ino())))
        {
            // Drop cannot report a failure. The next bind finds the file stale.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// A socket file takes the mode of its socket, less the umask: set before the file appears, it is never
/// wider.
fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    let short = ShortPath::of(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(short.path())?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connections that wait to be accepted; the kernel's own limit (net.core.somaxconn) may be lower.
const BACKLOG: i32 = 128;

/// How often a TCP address in use is tried again.
const TCP_TRIES: u32 = 100;

/// Removes the socket file of a process that has ended.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        let problem = format!("{} exists and is not a socket: choose another path", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
    }
    match connect_unix(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(cannot_listen(path.display(), io::ErrorKind::AddrInUse.into())),
    }
}

fn cannot_listen(place: impl fmt::Display, error: io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => ": another process listens there; stop it or choose another address",
        io::ErrorKind::PermissionDenied => ": choose a directory that you may write to, or a port above 1023",
        io::ErrorKind::NotFound => ": its directory does not exist; make it first",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot listen on {place}: {error}{remedy}"))
}
