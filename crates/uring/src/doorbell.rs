//! Eventfds shared with another process, as virtqueues use them: one side rings, the other wakes.
//!
//! The other process may not be trusted, and may pass any file. No call here blocks the thread: the wait is
//! an operation of the ring, the read never waits, and a ring that does not fit the counter waits in the
//! kernel.

use crate::Ring;
use crate::operation::Operation;
use crate::reactor::Keep;
use io_uring::{opcode, types};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

/// An eventfd of another process.
pub struct Doorbell {
    ring: Ring,
    file: OwnedFd,
    /// Source of the write: the number of rings to add.
    one: Rc<Cell<u64>>,
}

impl Doorbell {
    /// Takes over an eventfd.
    pub fn new(ring: &Ring, file: OwnedFd) -> Doorbell {
        Doorbell { ring: ring.clone(), file, one: Rc::new(Cell::new(1)) }
    }

    /// Completes once the other process has rung, however often. May be dropped at any time without losing a
    /// ring.
    ///
    /// # Errors
    /// If the file is no eventfd.
    pub async fn rung(&self) -> io::Result<()> {
        let mut count = [0; 8];
        loop {
            self.ring.readable(&self.file).await?;
            match preadv2(&self.file, &mut [IoSliceMut::new(&mut count)], AT_POSITION, ReadWriteFlags::NOWAIT)
            {
                Ok(8) => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                // The other process has taken the ring itself.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Rings. Waits as long as the counter of the eventfd is full.
    ///
    /// # Errors
    /// If the file is no eventfd.
    pub async fn ring(&self) -> io::Result<()> {
        let word = self.one.as_ptr().cast::<u8>();
        let entry = opcode::Write::new(types::Fd(self.file.as_raw_fd()), word, 8).build();
        Operation::start_wait(&self.ring, entry, Keep::Word(self.one.clone())).await.map(drop)
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // Queued operations name the eventfd by its number, which may soon belong to another file.
        self.ring.reactor().submit_queued();
    }
}

/// Offset of a read without an offset.
const AT_POSITION: u64 = u64::MAX;
