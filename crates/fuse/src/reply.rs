//! Answers to the kernel as bytes: the FUSE protocol, encoded. No system call, no allocation.

use crate::protocol::{FILE_NAME, Node, VOLUME_NODE};
use braid_base::{Bytes, KIB};
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

/// An answer, without the bytes of a read, which follow the answer.
pub(crate) struct Reply {
    bytes: [u8; ROOM],
    len: usize,
}

/// Attributes of the file, as `stat` shows them.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Size of the file.
    pub size: Bytes,
    /// Request size with the least cost.
    pub preferred_block: Bytes,
    /// Owner of both file and directory: the daemon's user.
    pub owner: (u32, u32),
}

/// Limits that both ends agree on at the start.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// Requests in flight that the kernel may keep.
    pub in_flight: u16,
    /// The largest read or write.
    pub largest: Bytes,
}

/// The longest answer: a looked-up name with its attributes, behind a header.
const ROOM: usize = 160;
const HEADER: usize = 16;

impl Reply {
    /// Done, without content.
    pub fn done(unique: u64) -> Reply {
        let mut reply = Reply { bytes: [0; ROOM], len: HEADER };
        reply.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        reply.set_len(0);
        reply
    }

    /// Failed.
    pub fn failed(unique: u64, error: Errno) -> Reply {
        let mut reply = Reply::done(unique);
        reply.bytes[4..8].copy_from_slice(&(-error.raw_os_error()).to_ne_bytes());
        reply
    }

    /// Done; `len` bytes of a read follow.
    pub fn before_bytes(unique: u64, len: Bytes) -> Reply {
        let mut reply = Reply::done(unique);
        reply.set_len(len.as_usize());
        reply
    }

    /// All of a write was written.
    pub fn written(unique: u64, len: Bytes) -> Reply {
        Reply::done(unique).with(&Written { size: len.0 as u32, padding: 0 })
    }

    /// The file is open: past the page cache, and with writes in parallel.
    pub fn opened_file(unique: u64) -> Reply {
        const DIRECT_IO: u32 = 1;
        const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
        Reply::done(unique).with(&Opened { handle: 0, flags: DIRECT_IO | PARALLEL_DIRECT_WRITES, padding: 0 })
    }

    /// The directory is open.
    pub fn opened_directory(unique: u64) -> Reply {
        Reply::done(unique).with(&Opened { handle: 0, flags: 0, padding: 0 })
    }

    /// Start of the next data or hole.
    pub fn found(unique: u64, offset: Bytes) -> Reply {
        Reply::done(unique).with(&offset.0)
    }

    /// Attributes of `node`, as `stat` shows them.
    pub fn attributes(unique: u64, node: Node, shape: &Shape) -> Reply {
        let attributes = Attributes::of(node, shape);
        Reply::done(unique).with(&AttributeReply { valid: FOR_EVER, valid_ns: 0, padding: 0, attributes })
    }

    /// The file was found under its name.
    pub fn entry(unique: u64, shape: &Shape) -> Reply {
        Reply::done(unique).with(&Entry {
            node: VOLUME_NODE,
            generation: 0,
            entry_valid: FOR_EVER,
            attributes_valid: FOR_EVER,
            valid_ns: [0; 2],
            attributes: Attributes::of(Node::Volume, shape),
        })
    }

    /// Notice without a request: the remembered attributes of the file are out of date.
    pub fn attributes_changed() -> Reply {
        const INVALIDATE_NODE: u32 = 2;
        let mut reply = Reply::done(0).with(&InvalidateNode { node: VOLUME_NODE, offset: -1, len: 0 });
        reply.bytes[4..8].copy_from_slice(&INVALIDATE_NODE.to_ne_bytes());
        reply
    }

    /// Names of the directory after the first `from`, as many as fit in `room`.
    pub fn directory(unique: u64, from: u64, room: u32) -> Reply {
        const DIRECTORY: u32 = 4;
        const FILE: u32 = 8;
        let mut reply = Reply::done(unique);
        let names = [(1, DIRECTORY, "."), (1, DIRECTORY, ".."), (VOLUME_NODE, FILE, FILE_NAME)];
        for (number, (node, kind, name)) in (1..).zip(names).skip(from as usize) {
            let entry = NamedEntry { node, next: number, name_len: name.len() as u32, kind };
            let len = (size_of::<NamedEntry>() + name.len()).next_multiple_of(8);
            if reply.len - HEADER + len > room as usize {
                break;
            }
            reply.bytes[reply.len..][..size_of::<NamedEntry>()].copy_from_slice(entry.as_bytes());
            reply.bytes[reply.len + size_of::<NamedEntry>()..][..name.len()].copy_from_slice(name.as_bytes());
            reply.len += len;
        }
        reply.set_len(0);
        reply
    }

    /// Size of the file system. A loop device takes the block size for the granularity of discards.
    pub fn file_system_size(unique: u64, shape: &Shape) -> Reply {
        let block = KIB * 4;
        let blocks = shape.size.0.div_ceil(block.0);
        Reply::done(unique).with(&FileSystemSize {
            blocks,
            blocks_free: [0; 2],
            files: 1,
            files_free: 0,
            block_size: block.0 as u32,
            name_max: 255,
            fragment_size: block.0 as u32,
            padding: [0; 7],
        })
    }

    /// Answer to the first request: the agreed limits and features. `None` if the kernel's protocol is too
    /// old.
    pub fn init(
        unique: u64,
        major: u32,
        minor: u32,
        readahead: u32,
        offered: u64,
        terms: Terms,
    ) -> Option<Reply> {
        if major < MAJOR || (major == MAJOR && minor < OLDEST_MINOR) {
            return None;
        }
        let flags = WANTED & offered;
        Some(Reply::done(unique).with(&InitOut {
            major: MAJOR,
            minor: MINOR.min(minor),
            max_readahead: readahead,
            flags: flags as u32,
            max_background: terms.in_flight,
            congestion_threshold: terms.in_flight,
            max_write: terms.largest.0 as u32,
            time_granularity_ns: 1,
            max_pages: (terms.largest / (KIB * 4)) as u16,
            map_alignment: 0,
            flags2: (flags >> 32) as u32,
            unused: [0; 7],
        }))
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn with(mut self, body: &(impl IntoBytes + Immutable)) -> Reply {
        let body = body.as_bytes();
        self.bytes[HEADER..][..body.len()].copy_from_slice(body);
        self.len += body.len();
        self.set_len(0);
        self
    }

    /// Writes the length of the whole answer into its header: the bytes of this reply, and `following` more.
    fn set_len(&mut self, following: usize) {
        let len = (self.len + following) as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
    }
}

const MAJOR: u32 = 7;
/// The protocol as of Linux 5.4 has all features in use here.
const MINOR: u32 = 31;
/// Oldest version with the present lengths of the answers (Linux 3.15).
const OLDEST_MINOR: u32 = 23;

/// Reads need not be in order; writes beyond one page; direct I/O does not wait for each request; requests
/// beyond 128 KiB.
const WANTED: u64 = ASYNC_READ | BIG_WRITES | ASYNC_DIRECT_IO | MAX_PAGES;
const ASYNC_READ: u64 = 1;
const BIG_WRITES: u64 = 1 << 5;
const ASYNC_DIRECT_IO: u64 = 1 << 15;
const MAX_PAGES: u64 = 1 << 22;

/// Seconds that the kernel may remember attributes. Only the size ever changes, and
/// [`Reply::attributes_changed`] tells. With remembered attributes, the kernel can name the file under a loop
/// device even after the daemon has died.
const FOR_EVER: u64 = 1 << 40;

impl Attributes {
    fn of(node: Node, shape: &Shape) -> Attributes {
        let (number, size, mode, links) = match node {
            Node::Volume => (VOLUME_NODE, shape.size.0, 0o100_600, 1),
            Node::Root | Node::Unknown => (1, 0, 0o40_700, 2),
        };
        let (uid, gid) = shape.owner;
        Attributes {
            number,
            size,
            sectors: size / 512,
            times_s: [0; 3],
            times_ns: [0; 3],
            mode,
            links,
            uid,
            gid,
            device: 0,
            block_size: shape.preferred_block.0 as u32,
            flags: 0,
        }
    }
}

/// `fuse_attr`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Attributes {
    number: u64,
    size: u64,
    sectors: u64,
    times_s: [u64; 3],
    times_ns: [u32; 3],
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    device: u32,
    block_size: u32,
    flags: u32,
}

/// `fuse_attr_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct AttributeReply {
    valid: u64,
    valid_ns: u32,
    padding: u32,
    attributes: Attributes,
}

/// `fuse_entry_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    node: u64,
    generation: u64,
    entry_valid: u64,
    attributes_valid: u64,
    valid_ns: [u32; 2],
    attributes: Attributes,
}

/// `fuse_open_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Opened {
    handle: u64,
    flags: u32,
    padding: u32,
}

/// `fuse_write_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Written {
    size: u32,
    padding: u32,
}

/// `fuse_notify_inval_inode_out`: attributes alone if the offset is negative.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct InvalidateNode {
    node: u64,
    offset: i64,
    len: i64,
}

/// `fuse_dirent`; the name follows, padded to 8 bytes.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct NamedEntry {
    node: u64,
    next: u64,
    name_len: u32,
    kind: u32,
}

/// `fuse_statfs_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct FileSystemSize {
    blocks: u64,
    blocks_free: [u64; 2],
    files: u64,
    files_free: u64,
    block_size: u32,
    name_max: u32,
    fragment_size: u32,
    padding: [u32; 7],
}

/// `fuse_init_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct InitOut {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
    max_background: u16,
    congestion_threshold: u16,
    max_write: u32,
    time_granularity_ns: u32,
    max_pages: u16,
    map_alignment: u16,
    flags2: u32,
    unused: [u32; 7],
}

const _: () = assert!(size_of::<Attributes>() == 88 && size_of::<Entry>() == 128);
const _: () = assert!(size_of::<FileSystemSize>() == 80 && size_of::<InitOut>() == 64);
const _: () = assert!(HEADER + size_of::<Entry>() <= ROOM);

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;

    fn len_in_header(reply: &Reply) -> u32 {
        u32::from_ne_bytes(reply.as_bytes()[..4].try_into().unwrap())
    }

    #[test]
    fn header_length_includes_the_payload() {
        assert_eq!(len_in_header(&Reply::done(1)), 16);
        assert_eq!(len_in_header(&Reply::written(1, Bytes(512))), 24);
        let read = Reply::before_bytes(1, KIB * 4);
        assert_eq!((len_in_header(&read), read.as_bytes().len()), (16 + 4096, 16));
    }

    #[test]
    fn directory_listing_is_split_at_the_requested_size() {
        let whole = Reply::directory(1, 0, 4096);
        assert_eq!(whole.as_bytes().len(), 16 + 3 * 32);
        assert_eq!(Reply::directory(1, 0, 40).as_bytes().len(), 16 + 32);
        assert_eq!(Reply::directory(1, 3, 4096).as_bytes().len(), 16);
    }

    #[test]
    fn too_old_kernel_is_refused() {
        let terms = Terms { in_flight: 64, largest: MIB };
        assert!(Reply::init(1, 7, 22, 0, 0, terms).is_none());
        assert!(Reply::init(1, 7, 45, 0, u64::MAX, terms).is_some());
    }
}
