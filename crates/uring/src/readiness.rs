//! Waiting for a file that is read and written by system calls beside the ring, such as a socket or
//! `/dev/fuse`: the ring only says when.

use crate::Ring;
use crate::operation::Operation;
use crate::reactor::Keep;
use io_uring::{opcode, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

impl Ring {
    /// Completes once `file` has bytes to read, or ends, or has failed: the next read tells which. May be
    /// dropped at any time.
    pub async fn readable(&self, file: &impl AsFd) -> io::Result<()> {
        self.ready(file, libc::POLLIN).await
    }

    /// Waits until `file` has one of the poll(2) `events`, or an error, or ends.
    pub(crate) async fn ready(&self, file: &impl AsFd, events: i16) -> io::Result<()> {
        let fd = types::Fd(file.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, events as u32).build();
        Operation::start_wait(self, entry, Keep::Nothing).await.map(drop)
    }
}
