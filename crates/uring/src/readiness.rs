//! Waiting for a file that is read by system calls beside the ring, such as `/dev/fuse`: the ring only says when.

use crate::Ring;
use crate::operation::Operation;
use crate::reactor::Keep;
use io_uring::{opcode, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

impl Ring {
    /// Completes once `file` has something to read, or has come to its end, or has failed: the next read tells which.
    pub async fn readable(&self, file: &impl AsFd) -> io::Result<()> {
        let fd = types::Fd(file.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
        Operation::start_wait(self, entry, Keep::Nothing).await.map(drop)
    }
}
