//! Paths of Unix sockets. The kernel takes paths of at most 107 bytes. A longer path is reached through an
//! open descriptor of its directory.

use crate::peer::{has_ended, process_of};
use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest path of a socket, in bytes: `sun_path` without the zero at its end.
pub const LONGEST_SOCKET_PATH: usize = 107;

/// A path that the kernel takes for a socket, valid while this value lives.
pub(crate) struct ShortPath {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl ShortPath {
    /// The path itself if short enough, else a path through `/proc/self/fd`.
    ///
    /// # Errors
    /// `InvalidInput` if the last name alone is too long; errors of opening the directory.
    pub fn of(path: &Path) -> io::Result<ShortPath> {
        if path.as_os_str().len() <= LONGEST_SOCKET_PATH {
            return Ok(ShortPath { path: path.to_owned(), _directory: None });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
        if path.as_os_str().len() > LONGEST_SOCKET_PATH {
            let problem = format!(
                "the name {} has {} bytes: the path of a socket has at most {LONGEST_SOCKET_PATH}: use a \
                 shorter name",
                name.display(),
                name.as_bytes().len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(ShortPath { path, _directory: Some(directory) })
    }

    /// Path for the kernel.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Connects to a Unix socket, however long its path is.
///
/// The kernel closes the sockets of a killed process with an `io_uring` after the end of the process. Until
/// then a connection succeeds, and gets no reply.
///
/// # Errors
/// As [`UnixStream::connect`]; `ConnectionRefused` also if the listening process has ended; `InvalidInput` if
/// the last name alone is too long; `WouldBlock` if the queue of the listener is full for five seconds.
pub fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let stream = connect_unix_of_any(path)?;
    match process_of(&stream) {
        Some(listener) if has_ended(listener) => Err(io::ErrorKind::ConnectionRefused.into()),
        _ => Ok(stream),
    }
}

/// As [`connect_unix`], for a server of any kind: the process that began to listen may have ended, and have
/// left the socket to a child.
pub(crate) fn connect_unix_of_any(path: &Path) -> io::Result<UnixStream> {
    let short = ShortPath::of(path)?;
    let address = SocketAddrUnix::new(short.path())?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    connect(&socket, &address)?;
    drop(short);
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(UnixStream::from(socket))
}

/// How long to wait for a place in the queue of a listener: a process that is stopped accepts no connection.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5_000 });

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Story: once the queue of a stopped daemon was full, each further command waited without a limit.
    #[test]
    fn connect_to_a_full_listener_fails_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = connect_unix(&path).unwrap();
        assert_eq!(connect_unix(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(listener.accept().unwrap());
        connect_unix(&path).unwrap();
    }

    #[test]
    fn a_socket_deep_in_directories_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(90)).join("e".repeat(90));
        std::fs::create_dir_all(&deep).unwrap();
        let socket = deep.join("admin.sock");
        assert!(UnixStream::connect(&socket).is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput));
        assert!(connect_unix(&socket).is_err_and(|e| e.kind() == io::ErrorKind::NotFound));
        let _listener = UnixListener::bind(ShortPath::of(&socket).unwrap().path()).unwrap();
        connect_unix(&socket).unwrap();
        let long = deep.join("n".repeat(120));
        assert!(connect_unix(&long).is_err_and(|e| e.to_string().contains("107")));
    }
}
