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
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
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
    if result == 0 { Pid::from_raw(found.pid) } else { None }
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
    fn peer_process_is_known_only_for_unix_sockets() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(process_of(&one), Some(rustix::process::getpid()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(process_of(&stream), None);
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
