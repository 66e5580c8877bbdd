//! A directory with one file, served by the library `fuser`, on the terms of Braid's server: the same limits,
//! features, flags of an open file and times to remember attributes.

use crate::wire::IN_FLIGHT;
use crate::wire::memory::Memory;
use braid_base::{Bytes, MIB};
use braid_fuse::VOLUME_FILE;
use braid_runtime::Arena;
use braid_uring::Sender;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// The file system of the library's thread.
pub(super) struct Library {
    memory: Memory,
    answers: Answers,
}

/// Thread that serves and answers.
pub(super) enum Answers {
    /// The library's thread.
    Itself,
    /// The shard's thread, at the other end of the mailbox.
    Shard(Sender<Asked>, Arc<Spare>),
}

/// A request on the way to the shard, with its way to answer.
pub(super) enum Asked {
    Read { offset: Bytes, len: Bytes, reply: ReplyData },
    Write { offset: Bytes, bytes: Vec<u8>, reply: ReplyWrite },
}

/// Memory for bytes of writes on the way to the shard, for use again: without spare memory, the kernel would
/// map new pages for each write of 1 MiB.
#[derive(Default)]
pub(super) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    fn copy_of(&self, bytes: &[u8]) -> Vec<u8> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut copy = spare.unwrap_or_default();
        copy.extend_from_slice(bytes);
        copy
    }

    pub fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

thread_local! {
    /// Buffer for reads that the library's thread serves.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; Arena::LARGEST.as_usize()]);
}

const VOLUME: INodeNo = INodeNo(2);
/// As Braid's server: the kernel may remember attributes.
const FOR_EVER: Duration = Duration::from_secs(1 << 40);

impl Library {
    pub fn new(memory: Memory, answers: Answers) -> Library {
        Library { memory, answers }
    }

    fn attributes(&self, node: INodeNo) -> FileAttr {
        let (kind, perm, size, nlink) = match node {
            VOLUME => (FileType::RegularFile, 0o600, self.memory.size().0, 1),
            _ => (FileType::Directory, 0o700, 0, 2),
        };
        FileAttr {
            ino: node,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 128 << 10,
            flags: 0,
        }
    }
}

impl Filesystem for Library {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = |_| io::Error::other("the kernel refuses the terms of Braid's server");
        config.set_max_write(MIB.0 as u32).map_err(refused)?;
        config.set_max_background(IN_FLIGHT).map_err(|_| io::ErrorKind::InvalidInput)?;
        config.set_congestion_threshold(IN_FLIGHT).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The library itself asks for reads out of order, writes beyond a page and requests beyond 128 KiB.
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| io::ErrorKind::Unsupported.into())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match parent == INodeNo::ROOT && name == VOLUME_FILE {
            true => reply.entry(&FOR_EVER, &self.attributes(VOLUME), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(node));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let offset = Bytes(offset);
        let left = self.memory.size().saturating_sub(offset);
        let len = Bytes(size.into()).min(left).min(Arena::LARGEST);
        if len == Bytes::ZERO {
            return reply.data(&[]);
        }
        match &self.answers {
            Answers::Shard(sender, _) => send(sender, Asked::Read { offset, len, reply }),
            Answers::Itself => BUFFER.with_borrow_mut(|buffer| {
                let buffer = &mut buffer[..len.as_usize()];
                match self.memory.copy_to(offset, buffer) {
                    Ok(()) => reply.data(buffer),
                    Err(_) => reply.error(Errno::EIO),
                }
            }),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let offset = Bytes(offset);
        match &self.answers {
            Answers::Shard(sender, spare) => {
                send(sender, Asked::Write { offset, bytes: spare.copy_of(bytes), reply });
            }
            Answers::Itself => match self.memory.copy_from(offset, bytes) {
                Ok(()) => reply.written(bytes.len() as u32),
                Err(_) => reply.error(Errno::EIO),
            },
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

fn send(sender: &Sender<Asked>, asked: Asked) {
    // A request that the shard does not take any more fails: the library answers for a dropped reply.
    drop(sender.send(asked));
}
