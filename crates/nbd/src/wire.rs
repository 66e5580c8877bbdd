//! The NBD protocol as bytes: constants by their protocol names, and plain functions between messages and
//! bytes.
//!
//! After the protocol document of the NetworkBlockDevice project ("fixed newstyle" negotiation, simple and
//! structured replies). Everything is big-endian. Nothing here does I/O or keeps state. Decoding any bytes
//! gives a value, never a panic. The messages of the negotiation are in [`options`], the heads of replies as
//! a client reads them in [`replies`].

pub mod options;
pub mod replies;

/// The first eight bytes of a server.
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// Marks newstyle negotiation, and the head of each option.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// The head of each answer to an option.
pub const NBD_OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The head of each request.
pub const NBD_REQUEST_MAGIC: u32 = 0x2560_9513;
/// The head of a simple reply.
pub const NBD_SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The head of a part of a structured reply.
pub const NBD_STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Transmission flags, sent with the export's size.
pub const NBD_FLAG_HAS_FLAGS: u16 = 1 << 0;
/// The export takes no changes.
pub const NBD_FLAG_READ_ONLY: u16 = 1 << 1;
/// The export takes flush.
pub const NBD_FLAG_SEND_FLUSH: u16 = 1 << 2;
/// The export takes FUA.
pub const NBD_FLAG_SEND_FUA: u16 = 1 << 3;
/// The export takes trim.
pub const NBD_FLAG_SEND_TRIM: u16 = 1 << 5;
/// The export takes write-zeroes.
pub const NBD_FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Reads may ask not to be fragmented.
pub const NBD_FLAG_SEND_DF: u16 = 1 << 7;
/// A flush on one connection covers the writes acknowledged on all connections.
pub const NBD_FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// The export takes cache.
pub const NBD_FLAG_SEND_CACHE: u16 = 1 << 10;

/// Write, write-zeroes, trim: durable before the reply.
pub const NBD_CMD_FLAG_FUA: u16 = 1 << 0;
/// Write-zeroes: keep the room allocated.
pub const NBD_CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Read: a single piece or an error.
pub const NBD_CMD_FLAG_DF: u16 = 1 << 2;
/// Block status: one extent suffices.
pub const NBD_CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Write-zeroes: fail rather than write zeros out.
pub const NBD_CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

/// Read bytes.
pub const NBD_CMD_READ: u16 = 0;
/// Write bytes.
pub const NBD_CMD_WRITE: u16 = 1;
/// Goodbye: no reply.
pub const NBD_CMD_DISC: u16 = 2;
/// Make acknowledged writes durable.
pub const NBD_CMD_FLUSH: u16 = 3;
/// Free a range.
pub const NBD_CMD_TRIM: u16 = 4;
/// Bring a range into memory.
pub const NBD_CMD_CACHE: u16 = 5;
/// Make a range read as zeros.
pub const NBD_CMD_WRITE_ZEROES: u16 = 6;
/// Ask for the allocation of a range.
pub const NBD_CMD_BLOCK_STATUS: u16 = 7;

/// The last part of a structured reply.
pub const NBD_REPLY_FLAG_DONE: u16 = 1 << 0;
/// A part without content.
pub const NBD_REPLY_TYPE_NONE: u16 = 0;
/// A part with bytes read.
pub const NBD_REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// A part: a range that reads as zeros.
pub const NBD_REPLY_TYPE_OFFSET_HOLE: u16 = 2;
/// A part with extents of one metadata context.
pub const NBD_REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// The request failed.
pub const NBD_REPLY_TYPE_ERROR: u16 = NBD_REPLY_TYPE_ERROR_BIT | 1;
/// Set in the types of all error parts.
pub const NBD_REPLY_TYPE_ERROR_BIT: u16 = 1 << 15;

/// `base:allocation`: takes no room.
pub const NBD_STATE_HOLE: u32 = 1 << 0;
/// `base:allocation`: reads as zeros.
pub const NBD_STATE_ZERO: u32 = 1 << 1;

/// Error numbers of the protocol, equal to Linux's. The export takes no changes.
pub const NBD_EPERM: u32 = 1;
/// A device failed.
pub const NBD_EIO: u32 = 5;
/// The server lacks memory.
pub const NBD_ENOMEM: u32 = 12;
/// The request is wrong.
pub const NBD_EINVAL: u32 = 22;
/// No room, or a write beyond the end.
pub const NBD_ENOSPC: u32 = 28;
/// A read with the flag DF is too long for one piece.
pub const NBD_EOVERFLOW: u32 = 75;
/// This export does not offer the request.
pub const NBD_ENOTSUP: u32 = 95;
/// The server is about to stop.
pub const NBD_ESHUTDOWN: u32 = 108;

/// Head of a request; a write's payload follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// NBD_CMD_FLAG_….
    pub flags: u16,
    /// NBD_CMD_….
    pub command: u16,
    /// The client's name for the request, repeated in the reply.
    pub cookie: u64,
    /// In bytes from the start of the export.
    pub offset: u64,
    /// In bytes.
    pub len: u32,
}

impl Request {
    /// Bytes of a request's head.
    pub const LEN: usize = 28;

    /// Reads a request's head. `None` if the magic number is wrong: the rest of the stream cannot be trusted.
    pub fn decode(bytes: &[u8; Request::LEN]) -> Option<Request> {
        let (magic, rest) = split_u32(bytes)?;
        let (flags, rest) = split_u16(rest)?;
        let (command, rest) = split_u16(rest)?;
        let (cookie, rest) = split_u64(rest)?;
        let (offset, rest) = split_u64(rest)?;
        let (len, _) = split_u32(rest)?;
        (magic == NBD_REQUEST_MAGIC).then_some(Request { flags, command, cookie, offset, len })
    }

    /// Encodes the request as a client sends it.
    pub fn encode(&self) -> [u8; Request::LEN] {
        let mut bytes = [0; Request::LEN];
        bytes[0..4].copy_from_slice(&NBD_REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Head of a reply, or of a part of a reply: the bytes before the payload.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; Head::LARGEST],
    len: u8,
}

/// Position of a part in a structured reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// More parts follow.
    More,
    /// The reply ends here.
    Last,
}

impl Head {
    /// The longest head: a hole's.
    const LARGEST: usize = 32;

    /// No head: the payload continues the previous payload.
    pub const NONE: Head = Head { bytes: [0; Head::LARGEST], len: 0 };

    /// A simple reply; `error` 0 is success, and a read's payload follows.
    pub fn simple(cookie: u64, error: u32) -> Head {
        let mut head = Head::NONE;
        head.put(&NBD_SIMPLE_REPLY_MAGIC.to_be_bytes());
        head.put(&error.to_be_bytes());
        head.put(&cookie.to_be_bytes());
        head
    }

    /// A structured part with `len` bytes read from `offset`, in the payload.
    pub fn offset_data(cookie: u64, part: Part, offset: u64, len: u32) -> Head {
        let mut head = Head::structured(cookie, part, NBD_REPLY_TYPE_OFFSET_DATA, len + 8);
        head.put(&offset.to_be_bytes());
        head
    }

    /// A structured part: `len` bytes from `offset` read as zeros.
    pub fn offset_hole(cookie: u64, part: Part, offset: u64, len: u32) -> Head {
        let mut head = Head::structured(cookie, part, NBD_REPLY_TYPE_OFFSET_HOLE, 12);
        head.put(&offset.to_be_bytes());
        head.put(&len.to_be_bytes());
        head
    }

    /// The only structured part of a block status reply. `extents` of context `context` follow, encoded by
    /// [`encode_extent`].
    pub fn block_status(cookie: u64, context: u32, extents: u32) -> Head {
        let mut head = Head::structured(cookie, Part::Last, NBD_REPLY_TYPE_BLOCK_STATUS, 4 + extents * 8);
        head.put(&context.to_be_bytes());
        head
    }

    /// The last structured part of a failed request, with the error number and no message.
    pub fn error(cookie: u64, error: u32) -> Head {
        let mut head = Head::structured(cookie, Part::Last, NBD_REPLY_TYPE_ERROR, 6);
        head.put(&error.to_be_bytes());
        head.put(&0u16.to_be_bytes());
        head
    }

    /// The last structured part of a successful request without (further) content.
    pub fn done(cookie: u64) -> Head {
        Head::structured(cookie, Part::Last, NBD_REPLY_TYPE_NONE, 0)
    }

    /// The bytes to send before the payload.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn structured(cookie: u64, part: Part, kind: u16, len: u32) -> Head {
        let flags = if part == Part::Last { NBD_REPLY_FLAG_DONE } else { 0 };
        let mut head = Head::NONE;
        head.put(&NBD_STRUCTURED_REPLY_MAGIC.to_be_bytes());
        head.put(&flags.to_be_bytes());
        head.put(&kind.to_be_bytes());
        head.put(&cookie.to_be_bytes());
        head.put(&len.to_be_bytes());
        head
    }

    fn put(&mut self, field: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..][..field.len()].copy_from_slice(field);
        self.len += field.len() as u8;
    }
}

/// Bytes of an extent in a block status reply.
pub const EXTENT_LEN: usize = 8;

/// Encodes an extent of a block status reply.
pub fn encode_extent(len: u32, state: u32) -> [u8; EXTENT_LEN] {
    ((u64::from(len) << 32) | u64::from(state)).to_be_bytes()
}

fn split_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    bytes.split_first_chunk().map(|(field, rest)| (u16::from_be_bytes(*field), rest))
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes.split_first_chunk().map(|(field, rest)| (u32::from_be_bytes(*field), rest))
}

fn split_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk().map(|(field, rest)| (u64::from_be_bytes(*field), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn request_is_decoded_as_encoded(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) {
            let request = Request { flags, command, cookie, offset, len };
            prop_assert_eq!(Request::decode(&request.encode()), Some(request));
        }

        #[test]
        fn request_decodes_only_with_the_request_magic(bytes: [u8; Request::LEN]) {
            let decoded = Request::decode(&bytes);
            prop_assert_eq!(decoded.is_some(), bytes[..4] == NBD_REQUEST_MAGIC.to_be_bytes());
        }

        #[test]
        fn structured_header_announces_the_payload_length(cookie: u64, offset: u64, len in 0..=32u32 << 20) {
            let payload_of = |head: &Head| u32::from_be_bytes(head.as_bytes()[16..20].try_into().unwrap()) as usize;
            let data = Head::offset_data(cookie, Part::More, offset, len);
            prop_assert_eq!(payload_of(&data), data.as_bytes().len() - 20 + len as usize);
            let hole = Head::offset_hole(cookie, Part::Last, offset, len);
            for head in [hole, Head::error(cookie, NBD_EIO), Head::done(cookie)] {
                prop_assert_eq!(payload_of(&head), head.as_bytes().len() - 20);
                prop_assert_eq!(&head.as_bytes()[4..6], &[0, 1]);
                prop_assert_eq!(&head.as_bytes()[8..16], &cookie.to_be_bytes());
            }
        }
    }

    #[test]
    fn a_simple_reply_has_the_bytes_of_the_protocol() {
        let head = Head::simple(0x0102_0304_0506_0708, NBD_EINVAL);
        assert_eq!(head.as_bytes(), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_block_status_reply_has_the_bytes_of_the_protocol() {
        let head = Head::block_status(7, 1, 2);
        let expected = [
            [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5].as_slice(),
            &[0, 0, 0, 0, 0, 0, 0, 7],
            &[0, 0, 0, 20, 0, 0, 0, 1],
        ];
        assert_eq!(head.as_bytes(), expected.concat());
        assert_eq!(encode_extent(0x1000, NBD_STATE_HOLE | NBD_STATE_ZERO), [0, 0, 0x10, 0, 0, 0, 0, 3]);
    }
}
