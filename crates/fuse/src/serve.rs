//! Service of one request: the verbs of FUSE upon the verbs of an export.

use crate::connection::Connection;
use crate::protocol::{Node, Operation, Request};
use crate::reply::{Reply, Shape, Terms};
use braid_base::{Bytes, MIB, Op};
use braid_engine::{Allocation, Durability, Error, ErrorKind, Export, Zeroing};
use braid_runtime::{Arena, Buf, yield_now};
use rustix::io::Errno;
use std::rc::Rc;

/// Context of every serving task. Cheap to clone: handles.
#[derive(Clone)]
pub(crate) struct Service<E> {
    pub export: E,
    pub arena: Arena,
    pub connection: Rc<Connection>,
    /// Owner of the file.
    pub owner: (u32, u32),
    pub terms: Terms,
}

impl<E: Export> Service<E> {
    /// Serves a request and sends the answer. `bytes` are the bytes of a write.
    pub async fn answer(&self, request: Request, bytes: Option<Buf>) {
        let unique = request.unique;
        let served = match request.operation {
            Operation::Unanswered => return,
            Operation::Read { offset, len } => match self.read(offset, len).await {
                Ok(Some(bytes)) => return self.connection.send_bytes(unique, &bytes),
                Ok(None) => Ok(Reply::done(unique)),
                Err(error) => Err(error),
            },
            Operation::Write { offset, durability, .. } => {
                self.write(offset, bytes, durability).await.map(|written| Reply::written(unique, written))
            }
            Operation::Sync => self.sync().await.map(|()| Reply::done(unique)),
            Operation::PunchHole { offset, len } => {
                self.punch_hole(offset, len).await.map(|()| Reply::done(unique))
            }
            Operation::ZeroRange { offset, len, keep_size } => {
                self.zero_range(offset, len, keep_size).await.map(|()| Reply::done(unique))
            }
            Operation::Seek { offset, hole } => {
                self.seek(offset, hole).await.map(|found| Reply::found(unique, found))
            }
            _ => describe(request, &self.shape(), self.terms),
        };
        self.connection.send(&served.unwrap_or_else(|error| Reply::failed(unique, error)));
    }

    /// Bytes at `offset`, fewer at the end of the volume, `None` beyond the end.
    async fn read(&self, offset: Bytes, len: Bytes) -> Result<Option<Buf>, Errno> {
        let len = self.clip(offset, len).min(Arena::LARGEST);
        if len == Bytes::ZERO {
            return Ok(None);
        }
        self.asked(Op::Read, offset, len);
        let lead = lead_of(offset, len);
        let bytes = self.arena.alloc(lead + len).await;
        let bytes = if lead == Bytes::ZERO { bytes } else { bytes.slice(lead..lead + len) };
        self.export.read(offset, &bytes).await.map_err(|error| errno_of(&error))?;
        Ok(Some(bytes))
    }

    async fn write(&self, offset: Bytes, bytes: Option<Buf>, durability: Durability) -> Result<Bytes, Errno> {
        let bytes = bytes.ok_or(Errno::INVAL)?;
        if self.clip(offset, bytes.len()) < bytes.len() {
            return Err(Errno::NOSPC);
        }
        self.asked(Op::Write, offset, bytes.len());
        self.export.write(offset, &bytes, durability).await.map_err(|error| errno_of(&error))?;
        Ok(bytes.len())
    }

    async fn sync(&self) -> Result<(), Errno> {
        self.asked(Op::Flush, Bytes::ZERO, Bytes::ZERO);
        self.export.flush().await.map_err(|error| errno_of(&error))
    }

    /// Makes a hole, which reads as zeros. If the export cannot, the kernel writes zeros itself.
    async fn punch_hole(&self, offset: Bytes, len: Bytes) -> Result<(), Errno> {
        if !self.export.discards_to_zeros() {
            return Err(Errno::OPNOTSUPP);
        }
        let len = self.clip(offset, len);
        if len == Bytes::ZERO {
            return Ok(());
        }
        self.asked(Op::Discard, offset, len);
        self.export.discard(offset, len).await.map_err(|error| errno_of(&error))
    }

    /// Request of the kernel to zero a range of a block device and keep its room.
    async fn zero_range(&self, offset: Bytes, len: Bytes, keep_size: bool) -> Result<(), Errno> {
        let clipped = self.clip(offset, len);
        if clipped < len && !keep_size {
            return Err(Errno::NOSPC);
        }
        if clipped == Bytes::ZERO {
            return Ok(());
        }
        self.asked(Op::Write, offset, clipped);
        let zeroed = self.export.write_zeroes(offset, clipped, Zeroing::KeepAllocated, Durability::Volatile);
        zeroed.await.map_err(|error| errno_of(&error))
    }

    /// Next byte at or after `offset` in a hole, or in data; a hole follows the end.
    async fn seek(&self, offset: Bytes, hole: bool) -> Result<Bytes, Errno> {
        let wanted = if hole { Allocation::Hole } else { Allocation::Data };
        let (mut at, size) = (offset, self.export.size());
        while at < size {
            let (allocation, len) = self.export.allocation(at, size - at);
            if allocation == wanted {
                return Ok(at);
            }
            assert!(len > Bytes::ZERO, "an export says for how long an allocation goes on");
            at += len;
            yield_now().await;
        }
        if hole && offset < size { Ok(size) } else { Err(Errno::NXIO) }
    }

    fn asked(&self, op: Op, offset: Bytes, len: Bytes) {
        self.export.asked(braid_base::Request { op, offset, len });
    }

    /// Bytes of a range that lie within the volume.
    fn clip(&self, offset: Bytes, len: Bytes) -> Bytes {
        len.min(self.export.size().saturating_sub(offset))
    }

    /// Attributes of the file now: the size of a volume may change.
    fn shape(&self) -> Shape {
        let preferred_block = self.export.preferred_block().min(MIB);
        Shape { size: self.export.size(), preferred_block, owner: self.owner }
    }
}

/// Offset of a buffer's bytes within a page of memory: the same as within a page of the volume, so that a
/// range aligned on a device is aligned in memory, too. The longest buffer has no room for the offset and
/// begins at the page.
pub(crate) fn lead_of(offset: Bytes, len: Bytes) -> Bytes {
    let lead = Bytes(offset.0 % Buf::ALIGNMENT.0);
    if lead + len <= Arena::LARGEST { lead } else { Bytes::ZERO }
}

/// Answers requests about the directory and the file, not about bytes.
fn describe(request: Request, shape: &Shape, terms: Terms) -> Result<Reply, Errno> {
    let Request { unique, node, operation } = request;
    match operation {
        Operation::Init { major, minor, max_readahead, features } => {
            Reply::init(unique, major, minor, max_readahead, features, terms).ok_or(Errno::PROTO)
        }
        Operation::FileSystemSize => Ok(Reply::file_system_size(unique, shape)),
        Operation::Close => Ok(Reply::done(unique)),
        _ if node == Node::Unknown => Err(Errno::NOENT),
        Operation::Lookup { known: true } if node == Node::Root => Ok(Reply::entry(unique, shape)),
        Operation::Lookup { .. } => Err(Errno::NOENT),
        Operation::Attributes => Ok(Reply::attributes(unique, node, shape)),
        Operation::SetAttributes { size, other } => {
            let changes = other || size.is_some_and(|size| size != shape.size);
            if changes { Err(Errno::PERM) } else { Ok(Reply::attributes(unique, node, shape)) }
        }
        Operation::Open => Ok(Reply::opened_file(unique)),
        Operation::OpenDirectory => Ok(Reply::opened_directory(unique)),
        Operation::ListDirectory { from, room } => Ok(Reply::directory(unique, from, room)),
        Operation::Malformed => Err(Errno::INVAL),
        Operation::NotSupported => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::NOSYS),
    }
}

/// The kernel knows fewer kinds of failure than the engine.
fn errno_of(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Degraded | ErrorKind::Busy => Errno::IO,
    }
}
