//! Sockets that the service manager opened and passed to this process: `sd_listen_fds(3)`.
#![allow(unsafe_code)]

use crate::{Listener, Ring};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first passed descriptor.
const FIRST: RawFd = 3;
/// Largest number of passed descriptors that make sense.
const MOST: u16 = 64;

/// Takes the listening sockets that were passed to this process, as `LISTEN_PID` and `LISTEN_FDS` tell. Empty
/// if there are none, and at every later call.
///
/// # Errors
/// `InvalidInput` if a descriptor is no listening stream socket with a path or a TCP address.
pub fn inherited(ring: &Ring) -> io::Result<Vec<Listener>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0).min(MOST.into()) as RawFd;
    (FIRST..FIRST + count).map(|descriptor| Listener::of_socket(ring, take(descriptor)?)).collect()
}

fn take(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: only the system call below uses the number; a closed descriptor gives an error.
    let passed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl_getfd(passed)?;
    // SAFETY: the descriptor is open, and by the protocol belongs to this process. `inherited` takes each
    // descriptor once.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(socket)
}
