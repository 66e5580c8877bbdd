//! The process at the other end of a Unix socket.
#![allow(unsafe_code)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// The process that listens at the other end, or that connected. `None` for a TCP socket, and for a process
/// of another PID namespace.
///
/// The function of `rustix` has no value for such a process: the kernel's 0 is no `Pid`.
pub(crate) fn process_of(socket: impl AsFd) -> Option<Pid> {
    Pid::from_raw(credentials(socket)?.pid)
}

/// The user of the process that connected, at that time. `None` for a TCP socket. A user that this user
/// namespace does not know has the number of `nobody`.
pub(crate) fn user_of(socket: impl AsFd) -> Option<u32> {
    // Without a process, a socket has no user: the number is -1.
    credentials(socket).map(|found| found.uid).filter(|&user| user != u32::MAX)
}

fn credentials(socket: impl AsFd) -> Option<libc::ucred> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `found`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(found)
}

/// True if a process has ended. A zombie counts as ended.
pub(crate) fn has_ended(process: Pid) -> bool {
    match pidfd_open(process, PidfdFlags::empty()) {
        Ok(handle) => {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&at_once)) == Ok(1)
        }
        Err(error) => error == Errno::SRCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    #[test]
    fn peer_process_and_user_are_known_only_for_unix_sockets() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(process_of(&one), Some(rustix::process::getpid()));
        assert_eq!(user_of(&one), Some(rustix::process::geteuid().as_raw()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!((process_of(&stream), user_of(&stream)), (None, None));
    }

    #[test]
    fn process_counts_as_ended_before_the_parent_waits() {
        assert!(!has_ended(rustix::process::getpid()));
        let mut child = Command::new("true").spawn().unwrap();
        let process = Pid::from_child(&child);
        let handle = pidfd_open(process, PidfdFlags::empty()).unwrap();
        poll(&mut [PollFd::new(&handle, PollFlags::IN)], None).unwrap();
        assert!(has_ended(process));
        child.wait().unwrap();
        assert!(has_ended(process));
    }
}
