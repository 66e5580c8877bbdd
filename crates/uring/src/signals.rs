//! Signals that ask a daemon to stop, received by an asynchronous call.
#![allow(unsafe_code)]

use crate::Ring;
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// SIGTERM, SIGINT, SIGHUP and SIGUSR1 of this process: received as messages, without their default action.
pub struct Signals {
    ring: Ring,
    file: OwnedFd,
}

/// A request to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM: from the service manager, or `kill`.
    Terminate,
    /// SIGINT: control-C in the terminal.
    Interrupt,
    /// SIGHUP: the terminal is gone.
    Hangup,
    /// SIGUSR1: another process is about to take over.
    HandOver,
}

impl Signals {
    /// Blocks the signals in this thread and receives them. Threads inherit blocked signals, but a signal
    /// would still end existing threads: call this before the first thread is made. An ignored SIGHUP, as
    /// under nohup(1), stays ignored.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new(ring: &Ring) -> io::Result<Signals> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset makes the set valid for the calls after it; none keeps the pointer.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGUSR1);
            if !is_ignored(libc::SIGHUP) {
                libc::sigaddset(set.as_mut_ptr(), libc::SIGHUP);
            }
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else has.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { ring: ring.clone(), file })
    }

    /// The next signal. May be dropped at any time.
    ///
    /// # Errors
    /// No known error. An error of the kernel is passed on.
    pub async fn recv(&self) -> io::Result<Signal> {
        let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.file, &mut record) {
                Ok(_) => break,
                Err(Errno::WOULDBLOCK) => self.ring.readable(&self.file).await?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The record starts with the signal's number.
        let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
        Ok(match number {
            libc::SIGINT => Signal::Interrupt,
            libc::SIGHUP => Signal::Hangup,
            libc::SIGUSR1 => Signal::HandOver,
            _ => Signal::Terminate,
        })
    }
}

/// True if this process ignores the signal. A blocked signal would be received although ignored.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, this writes the current one to `action`, which any bytes are valid for.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
