//! The heads of replies as a client reads them: the decoding side of [`Head`](super::Head).

use super::{
    NBD_REPLY_FLAG_DONE, NBD_SIMPLE_REPLY_MAGIC, NBD_STRUCTURED_REPLY_MAGIC, Part, split_u16, split_u32,
    split_u64,
};

/// Longest message in an error part, in bytes: the protocol's limit of strings.
pub const ERROR_MESSAGE_LARGEST: u32 = 4096;

/// Head of a reply, or of a part of a reply, without the fields that depend on the part's type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyHead {
    /// A simple reply. A successful read's payload follows; its length is the request's.
    Simple {
        /// Name of the request.
        cookie: u64,
        /// NBD_E…; 0 is success.
        error: u32,
    },
    /// A part of a structured reply; `len` bytes follow.
    Structured {
        /// Name of the request.
        cookie: u64,
        /// Position of the part.
        part: Part,
        /// NBD_REPLY_TYPE_….
        kind: u16,
        /// Bytes that follow.
        len: u32,
    },
}

/// Bytes that are no head of a reply: the rest of the stream cannot be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAReply;

impl ReplyHead {
    /// Bytes of a simple reply's head.
    pub const SIMPLE_LEN: usize = 16;
    /// Bytes of a structured part's head.
    pub const STRUCTURED_LEN: usize = 20;

    /// Reads a head, and the number of its bytes. `None` if bytes are missing.
    ///
    /// # Errors
    /// If the magic number is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Option<(ReplyHead, usize)>, NotAReply> {
        let Some((magic, rest)) = split_u32(bytes) else { return Ok(None) };
        Ok(match magic {
            NBD_SIMPLE_REPLY_MAGIC => ReplyHead::simple(rest).map(|head| (head, ReplyHead::SIMPLE_LEN)),
            NBD_STRUCTURED_REPLY_MAGIC => {
                ReplyHead::structured(rest).map(|head| (head, ReplyHead::STRUCTURED_LEN))
            }
            _ => return Err(NotAReply),
        })
    }

    fn simple(rest: &[u8]) -> Option<ReplyHead> {
        let (error, rest) = split_u32(rest)?;
        let (cookie, _) = split_u64(rest)?;
        Some(ReplyHead::Simple { cookie, error })
    }

    fn structured(rest: &[u8]) -> Option<ReplyHead> {
        let (flags, rest) = split_u16(rest)?;
        let (kind, rest) = split_u16(rest)?;
        let (cookie, rest) = split_u64(rest)?;
        let (len, _) = split_u32(rest)?;
        let part = if flags & NBD_REPLY_FLAG_DONE != 0 { Part::Last } else { Part::More };
        Some(ReplyHead::Structured { cookie, part, kind, len })
    }
}

/// Reads the offset before the bytes of NBD_REPLY_TYPE_OFFSET_DATA. `None` if bytes are missing.
pub fn decode_offset(bytes: &[u8]) -> Option<u64> {
    split_u64(bytes).map(|(offset, _)| offset)
}

/// Reads offset and length in NBD_REPLY_TYPE_OFFSET_HOLE. `None` if bytes are missing.
pub fn decode_hole(bytes: &[u8]) -> Option<(u64, u32)> {
    let (offset, rest) = split_u64(bytes)?;
    let (len, _) = split_u32(rest)?;
    Some((offset, len))
}

/// Reads the error number of a whole error part, and the length of its message. `None` if the message exceeds
/// the part.
pub fn decode_error(content: &[u8]) -> Option<(u32, u16)> {
    let (error, rest) = split_u32(content)?;
    let (message, rest) = split_u16(rest)?;
    (usize::from(message) <= rest.len()).then_some((error, message))
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use proptest::prelude::*;

    fn decoded(head: &Head) -> (ReplyHead, usize) {
        let bytes = head.as_bytes();
        for len in 0..bytes.len().min(ReplyHead::SIMPLE_LEN) {
            assert_eq!(ReplyHead::decode(&bytes[..len]), Ok(None), "of {len} bytes");
        }
        ReplyHead::decode(bytes).unwrap().unwrap()
    }

    proptest! {
        #[test]
        fn heads_are_decoded_as_encoded(cookie: u64, error: u32, offset: u64, len in 0..=32u32 << 20) {
            let simple = (ReplyHead::Simple { cookie, error }, 16);
            prop_assert_eq!(decoded(&Head::simple(cookie, error)), simple);
            let structured = |part, kind, len| (ReplyHead::Structured { cookie, part, kind, len }, 20);
            let data = Head::offset_data(cookie, Part::More, offset, len);
            prop_assert_eq!(decoded(&data), structured(Part::More, NBD_REPLY_TYPE_OFFSET_DATA, len + 8));
            prop_assert_eq!(decode_offset(&data.as_bytes()[20..]), Some(offset));
            let hole = Head::offset_hole(cookie, Part::Last, offset, len);
            prop_assert_eq!(decoded(&hole), structured(Part::Last, NBD_REPLY_TYPE_OFFSET_HOLE, 12));
            prop_assert_eq!(decode_hole(&hole.as_bytes()[20..]), Some((offset, len)));
            let failed = Head::error(cookie, error);
            prop_assert_eq!(decoded(&failed), structured(Part::Last, NBD_REPLY_TYPE_ERROR, 6));
            prop_assert_eq!(decode_error(&failed.as_bytes()[20..]), Some((error, 0)));
            let done = structured(Part::Last, NBD_REPLY_TYPE_NONE, 0);
            prop_assert_eq!(decoded(&Head::done(cookie)), done);
        }

        #[test]
        fn wrong_magic_is_an_error(bytes in prop::collection::vec(any::<u8>(), 4..40)) {
            let known = [NBD_SIMPLE_REPLY_MAGIC, NBD_STRUCTURED_REPLY_MAGIC].map(u32::to_be_bytes);
            let is_reply = known.iter().any(|magic| bytes.starts_with(magic));
            prop_assert_eq!(ReplyHead::decode(&bytes).is_ok(), is_reply);
        }
    }

    #[test]
    fn message_beyond_the_error_part_is_refused() {
        let content = [&5u32.to_be_bytes()[..], &3u16.to_be_bytes(), b"abc"].concat();
        assert_eq!(decode_error(&content), Some((5, 3)));
        assert_eq!(decode_error(&content[..8]), None);
        assert_eq!(decode_error(&content[..5]), None);
    }
}
