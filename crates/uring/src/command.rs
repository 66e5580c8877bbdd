//! Commands to a driver of the kernel (`IORING_OP_URING_CMD`), for frontends whose requests come from the
//! kernel itself.

use crate::Ring;
use crate::operation::Operation;
use crate::reactor::Keep;
use braid_runtime::Buf;
use io_uring::{opcode, types};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

impl Ring {
    /// Sends the driver of `file` a command: its number, and its 16 bytes in the layout of the driver. Gives
    /// the driver's result. The command is queued now, not when the future is first polled.
    ///
    /// `memory` is the memory that the driver reads or writes for the command, and is kept until the command
    /// is done. The kernel has no way to cancel a command. A command that waits for a guest therefore ends by
    /// another command, or with the process: dropping the future discards the result only, and a ring with a
    /// command in flight leaks its memory when dropped.
    ///
    /// # Errors
    /// Negative results of the driver, as errors of the operating system; `EINVAL` or `EOPNOTSUPP` before
    /// Linux 5.19.
    pub fn command(
        &self,
        file: BorrowedFd<'_>,
        number: u32,
        command: [u8; 16],
        memory: Option<Buf>,
    ) -> impl Future<Output = io::Result<u32>> + use<> {
        let fd = types::Fd(file.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, number).cmd(command).build();
        Operation::start(self, entry, Keep::Command(memory))
    }
}
