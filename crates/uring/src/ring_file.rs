//! An open file of the ring: registered if possible, with one method for each operation.
//!
//! The kernel carries out an operation on the submitting thread, as long as nothing blocks. Some file systems
//! block all the same: FUSE for room in its queue, NFS for its server. Operations on files of such a file
//! system go to workers of the kernel from the start, so a server that hangs holds up its own requests, and
//! not the daemon. Each such file has [`AT_ONCE`] workers of its own: a file that hangs takes none from other
//! files.
#![allow(unsafe_code)]

use crate::Ring;
use crate::operation::Operation;
use crate::reactor::Keep;
use braid_base::Bytes;
use braid_runtime::{Buf, Semaphore};
use io_uring::{opcode, squeue, types};
use rustix::fs::{FlockOperation, flock};
use std::cell::Cell;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Operations that workers carry out at the same time for one file. Further operations wait in the semaphore,
/// visible to deadlines.
pub(crate) const AT_ONCE: u32 = 32;

/// A file used by operations of one ring.
pub(crate) struct RingFile {
    ring: Ring,
    /// None once dropped.
    file: Option<File>,
    /// Index in the ring's table of registered files.
    place: Option<u32>,
    /// Turns of operations on workers; none if this thread may carry out the operations.
    workers: Option<Semaphore>,
}

/// An operation that is started, or that waits for a worker.
pub(crate) enum Begun<'a> {
    Now(Operation),
    InTurn(Pin<Box<dyn Future<Output = io::Result<u32>> + 'a>>),
}

impl RingFile {
    /// Registers a file. `may_block` says that an operation on the file may put its thread to sleep.
    pub(crate) fn new(ring: &Ring, file: File, may_block: bool) -> RingFile {
        let mut reactor = ring.reactor();
        let place = reactor.register_file(file.as_raw_fd());
        let workers = may_block.then(|| {
            reactor.add_workers(AT_ONCE);
            Semaphore::new(AT_ONCE as usize)
        });
        drop(reactor);
        RingFile { ring: ring.clone(), file: Some(file), place, workers }
    }

    /// Reads to `into` from its byte `done` on. Returns the bytes read, maybe fewer than wanted.
    pub(crate) fn read(&self, offset: Bytes, into: &Buf, done: Bytes) -> Begun<'_> {
        let (start, len) = rest(into, done);
        let region = self.ring.reactor().buffer_of(into);
        let entry = match region {
            Some(region) => {
                opcode::ReadFixed::new(self.fd(), start, len, region).offset(offset.0 + done.0).build()
            }
            None => opcode::Read::new(self.fd(), start, len).offset(offset.0 + done.0).build(),
        };
        self.begin(entry, Keep::Buf(into.clone()))
    }

    /// Writes `from` from its byte `done` on. Returns the bytes written, maybe fewer than wanted.
    pub(crate) fn write(&self, offset: Bytes, from: &Buf, done: Bytes) -> Begun<'_> {
        let (start, len) = rest(from, done);
        let region = self.ring.reactor().buffer_of(from);
        let entry = match region {
            Some(region) => {
                opcode::WriteFixed::new(self.fd(), start, len, region).offset(offset.0 + done.0).build()
            }
            None => opcode::Write::new(self.fd(), start, len).offset(offset.0 + done.0).build(),
        };
        self.begin(entry, Keep::Buf(from.clone()))
    }

    /// fdatasync(2).
    pub(crate) fn sync(&self) -> Begun<'_> {
        let entry = opcode::Fsync::new(self.fd()).flags(types::FsyncFlags::DATASYNC).build();
        self.begin(entry, Keep::Device)
    }

    /// Frees a range of a file, whose length stays. On a block device: makes the range read as zeros without
    /// writing zeros.
    pub(crate) fn punch_hole(&self, offset: Bytes, len: Bytes) -> Begun<'_> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let entry = opcode::Fallocate::new(self.fd(), len.0).offset(offset.0).mode(mode).build();
        self.begin(entry, Keep::Device)
    }

    /// Discards a range of a block device (Linux 6.12).
    pub(crate) fn discard(&self, offset: Bytes, len: Bytes) -> Begun<'_> {
        // The start goes into the address field of other operations, the length into the first word of the
        // command.
        let mut command = [0; 16];
        command[..8].copy_from_slice(&len.0.to_ne_bytes());
        let entry =
            opcode::UringCmd16::new(self.fd(), BLOCK_URING_CMD_DISCARD).addr(Some(offset.0)).cmd(command);
        self.begin(entry.build(), Keep::Device)
    }

    /// Present length of the file: at 0.1 to 0.5 µs on this thread, or by a worker.
    pub(crate) async fn length(&self) -> io::Result<u64> {
        let Some(workers) = &self.workers else {
            return Ok(rustix::fs::fstat(self.file())?.st_size as u64);
        };
        // SAFETY: the structure consists of integers, for which zero is a value.
        let status = Rc::new(Cell::new(unsafe { std::mem::zeroed::<libc::statx>() }));
        let place = status.as_ptr().cast();
        let entry = opcode::Statx::new(types::Fd(self.file().as_raw_fd()), c"".as_ptr(), place)
            .flags(libc::AT_EMPTY_PATH)
            .mask(libc::STATX_SIZE)
            .build();
        // For this operation the kernel takes no registered file.
        let flags = squeue::Flags::ASYNC;
        self.in_turn(workers, entry.flags(flags), Keep::Status(status.clone())).await?;
        Ok(status.get().stx_size)
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("a file is open until it is dropped")
    }

    /// Descriptor for an entry, or an index in the table, which [`RingFile::begin`] marks as such.
    fn fd(&self) -> types::Fd {
        types::Fd(self.place.map_or_else(|| self.file().as_raw_fd(), |place| place as i32))
    }

    fn begin(&self, entry: squeue::Entry, keep: Keep) -> Begun<'_> {
        let flags = if self.place.is_some() { squeue::Flags::FIXED_FILE } else { squeue::Flags::empty() };
        match &self.workers {
            None => Begun::Now(Operation::start(&self.ring, entry.flags(flags), keep)),
            Some(workers) => {
                let entry = entry.flags(flags | squeue::Flags::ASYNC);
                Begun::InTurn(Box::pin(self.in_turn(workers, entry, keep)))
            }
        }
    }

    async fn in_turn(&self, workers: &Semaphore, entry: squeue::Entry, keep: Keep) -> io::Result<u32> {
        let _turn = workers.acquire(1).await;
        Operation::start(&self.ring, entry, keep).await
    }
}

impl Future for Begun<'_> {
    type Output = io::Result<u32>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u32>> {
        match &mut *self {
            Begun::Now(operation) => Pin::new(operation).poll(cx),
            Begun::InTurn(work) => work.as_mut().poll(cx),
        }
    }
}

impl Drop for RingFile {
    fn drop(&mut self) {
        let mut reactor = self.ring.reactor();
        match self.place {
            Some(place) => reactor.unregister_file(place),
            // Queued operations name the descriptor, which is about to close.
            None => reactor.submit_queued(),
        }
        let Some(file) = self.file.take() else { return };
        // Unlocks explicitly: older kernels close a registered file a little later than told. Drop cannot
        // report a failure, and closing unlocks, too.
        let close = move || {
            let _ = flock(&file, FlockOperation::Unlock);
        };
        if self.workers.is_none() {
            return close();
        }
        reactor.remove_workers(AT_ONCE);
        // Closing may block, too. Without a thread for `close`, dropping the closure closes the file here.
        drop(std::thread::Builder::new().name("close".to_owned()).spawn(close));
    }
}

/// Address and number of a buffer's bytes from `done` on.
fn rest(buf: &Buf, done: Bytes) -> (*mut u8, u32) {
    let len = (buf.len() - done).as_usize();
    (buf.as_ptr().wrapping_add(done.as_usize()), len as u32)
}

/// `_IO(0x12, 0)` of linux/blkdev.h.
const BLOCK_URING_CMD_DISCARD: u32 = 0x12 << 8;
