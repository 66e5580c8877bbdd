//! An open file as the ring sees it: registered where possible, with one method for each operation.

use crate::Ring;
use crate::operation::Operation;
use crate::reactor::Keep;
use braid_base::Bytes;
use braid_runtime::Buf;
use io_uring::{opcode, squeue, types};
use std::fs::File;
use std::os::fd::AsRawFd;

/// A file that operations of one ring work on.
pub(crate) struct RingFile {
    ring: Ring,
    file: File,
    /// Its place in the ring's table of registered files.
    place: Option<u32>,
}

impl RingFile {
    pub(crate) fn new(ring: &Ring, file: File) -> RingFile {
        let place = ring.reactor().register_file(file.as_raw_fd());
        RingFile { ring: ring.clone(), file, place }
    }

    /// Reads to `into` from its byte `done` on; gives the bytes read, maybe fewer than wanted.
    pub(crate) fn read(&self, offset: Bytes, into: &Buf, done: Bytes) -> Operation {
        let (start, len) = rest(into, done);
        let entry = match self.ring.reactor().buffer_of(into) {
            Some(region) => {
                opcode::ReadFixed::new(self.fd(), start, len, region).offset(offset.0 + done.0).build()
            }
            None => opcode::Read::new(self.fd(), start, len).offset(offset.0 + done.0).build(),
        };
        self.start(entry, Keep::Buf(into.clone()))
    }

    /// Writes `from` from its byte `done` on; gives the bytes written, maybe fewer than wanted.
    pub(crate) fn write(&self, offset: Bytes, from: &Buf, done: Bytes) -> Operation {
        let (start, len) = rest(from, done);
        let entry = match self.ring.reactor().buffer_of(from) {
            Some(region) => {
                opcode::WriteFixed::new(self.fd(), start, len, region).offset(offset.0 + done.0).build()
            }
            None => opcode::Write::new(self.fd(), start, len).offset(offset.0 + done.0).build(),
        };
        self.start(entry, Keep::Buf(from.clone()))
    }

    /// fdatasync(2).
    pub(crate) fn sync(&self) -> Operation {
        let entry = opcode::Fsync::new(self.fd()).flags(types::FsyncFlags::DATASYNC).build();
        self.start(entry, Keep::Device)
    }

    /// Frees a range of a file, whose length stays. Of a block device: makes it read as zeros without writing it.
    pub(crate) fn punch_hole(&self, offset: Bytes, len: Bytes) -> Operation {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let entry = opcode::Fallocate::new(self.fd(), len.0).offset(offset.0).mode(mode).build();
        self.start(entry, Keep::Device)
    }

    /// Discards a range of a block device (Linux 6.12).
    pub(crate) fn discard(&self, offset: Bytes, len: Bytes) -> Operation {
        // The start goes where other operations have their address, the length into the first word of the command.
        let mut command = [0; 16];
        command[..8].copy_from_slice(&len.0.to_ne_bytes());
        let entry =
            opcode::UringCmd16::new(self.fd(), BLOCK_URING_CMD_DISCARD).addr(Some(offset.0)).cmd(command);
        self.start(entry.build(), Keep::Device)
    }

    /// The file, for system calls beside the ring.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The descriptor for an entry: [`RingFile::start`] marks it where it is a place in the table.
    fn fd(&self) -> types::Fd {
        types::Fd(self.place.map_or_else(|| self.file.as_raw_fd(), |place| place as i32))
    }

    fn start(&self, entry: squeue::Entry, keep: Keep) -> Operation {
        let flags = if self.place.is_some() { squeue::Flags::FIXED_FILE } else { squeue::Flags::empty() };
        Operation::start(&self.ring, entry.flags(flags), keep)
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
    }
}

/// Where a buffer's bytes from `done` on lie, and how many they are.
fn rest(buf: &Buf, done: Bytes) -> (*mut u8, u32) {
    let len = (buf.len() - done).as_usize();
    (buf.as_ptr().wrapping_add(done.as_usize()), len as u32)
}

/// `_IO(0x12, 0)` of linux/blkdev.h.
const BLOCK_URING_CMD_DISCARD: u32 = 0x12 << 8;
