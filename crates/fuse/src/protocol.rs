//! Requests of the kernel as values: the FUSE protocol (7.23 and later, `linux/fuse.h`), decoded.
//!
//! A directory with one file needs few kinds of requests. Kinds not listed here are answered "not
//! implemented", and the kernel then stops asking. Fields are in the byte order of the machine, because both
//! ends run on the same machine.
//!
//! Every request begins with 40 bytes of header. The rest fits in 40 more bytes for every kind of request,
//! except for the bytes of a write and for long names. The first 80 bytes are therefore received in one
//! place, and all further bytes in another. The bytes of a write then start at the beginning of a buffer of
//! their own, aligned for direct I/O on the devices.

use braid_base::Bytes;
use braid_engine::Durability;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A request of the kernel: its number for the answer, its file, its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub unique: u64,
    pub node: Node,
    pub operation: Operation,
}

/// File of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// The directory.
    Root,
    /// The file.
    Volume,
    /// Neither: a number that this server never gave out.
    Unknown,
}

/// Operations of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The first request of all: versions and limits.
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        features: u64,
    },
    /// Search for a name in the directory; `known` for the name of the volume.
    Lookup {
        known: bool,
    },
    /// Size, owner, mode.
    Attributes,
    /// A change of attributes; only a change to the present values can succeed.
    SetAttributes {
        size: Option<Bytes>,
        other: bool,
    },
    Open,
    OpenDirectory,
    /// Names of the directory, from the entry numbered `from`.
    ListDirectory {
        from: u64,
        room: u32,
    },
    Read {
        offset: Bytes,
        len: Bytes,
    },
    Write {
        offset: Bytes,
        len: Bytes,
        durability: Durability,
    },
    /// Make written data durable: fsync.
    Sync,
    /// Make a range read as zeros and take no room.
    PunchHole {
        offset: Bytes,
        len: Bytes,
    },
    /// Make a range read as zeros. Without `keep_size` the range may grow the file, which is refused.
    ZeroRange {
        offset: Bytes,
        len: Bytes,
        keep_size: bool,
    },
    /// Search for the next byte at or after `offset` in a hole, or in data.
    Seek {
        offset: Bytes,
        hole: bool,
    },
    FileSystemSize,
    /// A handle is closed (each `close`, then the last close). Nothing to do, because nothing is cached here.
    Close,
    /// No answer is expected.
    Unanswered,
    /// Not served.
    NotImplemented,
    /// Served, but not with the given arguments.
    NotSupported,
    /// Shorter than its kind needs.
    Malformed,
}

/// Bytes received apart from the bytes of a write: the header and the longest fixed part.
pub const HEAD: usize = 80;

/// Name of the only file.
pub const FILE_NAME: &str = "volume";

const HEADER: usize = 40;
const ROOT_NODE: u64 = 1;
pub(crate) const VOLUME_NODE: u64 = 2;

/// Open flag of the machine: each write is durable before its reply.
const O_DSYNC: u32 = 0o10000;
const FALLOC_KEEP_SIZE: u32 = 0x01;
const FALLOC_PUNCH_HOLE: u32 = 0x02;
const FALLOC_ZERO_RANGE: u32 = 0x10;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const SET_SIZE: u32 = 1 << 3;
const SET_MODE_OR_OWNER: u32 = 0b111;

/// Reads a request from its first bytes, of which `received` arrived. `None` if the header is incomplete.
pub(crate) fn decode(head: &[u8; HEAD], received: usize) -> Option<Request> {
    if received < HEADER {
        return None;
    }
    let (header, body) = Header::read_from_prefix(&head[..received.min(HEAD)]).ok()?;
    let node = match header.node {
        ROOT_NODE => Node::Root,
        VOLUME_NODE => Node::Volume,
        _ => Node::Unknown,
    };
    let operation = operation(header.opcode, body).unwrap_or(Operation::Malformed);
    Some(Request { unique: header.unique, node, operation })
}

/// Describes a request to people: from its first [`HEAD`] bytes, of which `received` arrived. `None` if the
/// header is incomplete.
pub fn describe_request(head: &[u8; HEAD], received: usize) -> Option<String> {
    decode(head, received).map(|request| format!("{request:?}"))
}

fn operation(opcode: u32, body: &[u8]) -> Option<Operation> {
    Some(match opcode {
        1 => Operation::Lookup { known: is_file_name(body) },
        // Forget, interrupt, batch forget. An interrupted request is answered when done: a request cannot be
        // undone.
        2 | 36 | 42 => Operation::Unanswered,
        3 => Operation::Attributes,
        4 => set_attributes(body)?,
        14 => Operation::Open,
        15 => read::<ReadOrWrite>(body)?.as_read(),
        16 => read::<ReadOrWrite>(body)?.as_write(),
        17 => Operation::FileSystemSize,
        // Release, flush (on each close: not a flush of the disk), release of a directory.
        18 | 25 | 29 => Operation::Close,
        20 => Operation::Sync,
        26 => init(body)?,
        27 => Operation::OpenDirectory,
        28 => read::<ReadOrWrite>(body)?.as_list(),
        // Destroy: the mount goes.
        38 => Operation::Close,
        43 => allocate(read(body)?),
        46 => seek(read(body)?),
        _ => Operation::NotImplemented,
    })
}

/// True if the name is the file's, ended by a zero. A longer name has no zero at this place.
fn is_file_name(body: &[u8]) -> bool {
    body.strip_prefix(FILE_NAME.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
}

fn read<T: FromBytes + KnownLayout + Immutable>(body: &[u8]) -> Option<T> {
    T::read_from_prefix(body).ok().map(|(value, _)| value)
}

fn init(body: &[u8]) -> Option<Operation> {
    let init: InitIn = read(body)?;
    let features = u64::from(init.flags) | u64::from(init.flags2) << 32;
    let InitIn { major, minor, max_readahead, .. } = init;
    Some(Operation::Init { major, minor, max_readahead, features })
}

fn set_attributes(body: &[u8]) -> Option<Operation> {
    let set: SetAttributes = read(body)?;
    let size = (set.valid & SET_SIZE != 0).then_some(Bytes(set.size));
    Some(Operation::SetAttributes { size, other: set.valid & SET_MODE_OR_OWNER != 0 })
}

fn allocate(allocate: Allocate) -> Operation {
    let (offset, len) = (Bytes(allocate.offset), Bytes(allocate.len));
    let keep_size = allocate.mode & FALLOC_KEEP_SIZE != 0;
    match allocate.mode & !FALLOC_KEEP_SIZE {
        FALLOC_PUNCH_HOLE if keep_size => Operation::PunchHole { offset, len },
        FALLOC_ZERO_RANGE => Operation::ZeroRange { offset, len, keep_size },
        _ => Operation::NotSupported,
    }
}

fn seek(seek: Seek) -> Operation {
    match seek.whence {
        SEEK_DATA => Operation::Seek { offset: Bytes(seek.offset), hole: false },
        SEEK_HOLE => Operation::Seek { offset: Bytes(seek.offset), hole: true },
        _ => Operation::NotSupported,
    }
}

impl ReadOrWrite {
    fn as_read(&self) -> Operation {
        Operation::Read { offset: Bytes(self.offset), len: Bytes(self.size.into()) }
    }

    fn as_write(&self) -> Operation {
        let durability = if self.flags & O_DSYNC != 0 { Durability::Fua } else { Durability::Volatile };
        Operation::Write { offset: Bytes(self.offset), len: Bytes(self.size.into()), durability }
    }

    fn as_list(&self) -> Operation {
        Operation::ListDirectory { from: self.offset, room: self.size }
    }
}

/// `fuse_in_header`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    len: u32,
    opcode: u32,
    unique: u64,
    node: u64,
    uid: u32,
    gid: u32,
    pid: u32,
    extension_len: u16,
    padding: u16,
}

/// `fuse_init_in`, only the fields in use.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct InitIn {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
    flags2: u32,
}

/// `fuse_setattr_in`, only the fields in use.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SetAttributes {
    valid: u32,
    padding: u32,
    handle: u64,
    size: u64,
}

/// `fuse_read_in` and `fuse_write_in`, of equal shape.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ReadOrWrite {
    handle: u64,
    offset: u64,
    size: u32,
    kind_flags: u32,
    lock_owner: u64,
    /// Open flags of the file.
    flags: u32,
    padding: u32,
}

/// `fuse_fallocate_in`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Allocate {
    handle: u64,
    offset: u64,
    len: u64,
    mode: u32,
    padding: u32,
}

/// `fuse_lseek_in`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Seek {
    handle: u64,
    offset: u64,
    whence: u32,
    padding: u32,
}

const _: () = assert!(size_of::<Header>() == HEADER);
const _: () = assert!(HEADER + size_of::<ReadOrWrite>() == HEAD);
const _: () = assert!(size_of::<Allocate>() == 32 && size_of::<Seek>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, node: u64, body: &[u8]) -> Operation {
        let mut head = [0; HEAD];
        head[4..8].copy_from_slice(&opcode.to_ne_bytes());
        head[8..16].copy_from_slice(&77u64.to_ne_bytes());
        head[16..24].copy_from_slice(&node.to_ne_bytes());
        head[40..40 + body.len()].copy_from_slice(body);
        let request = decode(&head, 40 + body.len()).unwrap();
        assert_eq!(request.unique, 77);
        request.operation
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn lookup_knows_only_the_volume_file() {
        assert_eq!(request(1, 1, b"volume\0"), Operation::Lookup { known: true });
        assert_eq!(request(1, 1, b"volumes\0"), Operation::Lookup { known: false });
        assert_eq!(request(1, 1, b"other\0"), Operation::Lookup { known: false });
    }

    #[test]
    fn write_to_a_dsync_file_is_decoded_as_fua() {
        let (offset, len) = (Bytes(8192), Bytes(4096));
        let volatile = words(&[0, 8192, 4096, 0, 0]);
        let durable = words(&[0, 8192, 4096, 0, 0o10000]);
        assert_eq!(
            request(16, 2, &volatile),
            Operation::Write { offset, len, durability: Durability::Volatile }
        );
        assert_eq!(request(16, 2, &durable), Operation::Write { offset, len, durability: Durability::Fua });
    }

    #[test]
    fn holes_and_zeros_are_distinguished_and_preallocation_is_refused() {
        let (offset, len) = (Bytes(4096), Bytes(8192));
        assert_eq!(request(43, 2, &words(&[0, 4096, 8192, 3])), Operation::PunchHole { offset, len });
        assert_eq!(
            request(43, 2, &words(&[0, 4096, 8192, 0x11])),
            Operation::ZeroRange { offset, len, keep_size: true }
        );
        assert_eq!(request(43, 2, &words(&[0, 4096, 8192, 0])), Operation::NotSupported);
    }

    #[test]
    fn truncated_request_is_malformed_and_truncated_header_is_none() {
        assert_eq!(request(16, 2, &[0; 39]), Operation::Malformed);
        assert_eq!(decode(&[0; HEAD], 39), None);
    }
    #[test]
    fn random_bytes_never_panic_the_decoder() {
        let mut rng = braid_base::Rng::new(3);
        for _ in 0..20_000 {
            let mut head = [0; HEAD];
            rng.fill(&mut head);
            head[4..8].copy_from_slice(&(rng.below(60) as u32).to_ne_bytes());
            let received = rng.below(200) as usize;
            assert_eq!(decode(&head, received).is_some(), received >= HEADER);
        }
    }
}
