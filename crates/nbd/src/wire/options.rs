//! The messages of the negotiation: greeting, options, answers.

use super::{IHAVEOPT, NBD_OPTION_REPLY_MAGIC, NBDMAGIC, split_u16, split_u32, split_u64};

/// Marks oldstyle negotiation, in the place of [`IHAVEOPT`].
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;

/// Server and client: even unknown options are answered.
pub const NBD_FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Server and client: no 124 zeros after the answer to NBD_OPT_EXPORT_NAME.
pub const NBD_FLAG_NO_ZEROES: u16 = 1 << 1;

/// Choose an export and start; cannot be refused but by closing.
pub const NBD_OPT_EXPORT_NAME: u32 = 1;
/// End the session.
pub const NBD_OPT_ABORT: u32 = 2;
/// Name the exports.
pub const NBD_OPT_LIST: u32 = 3;
/// Encrypt.
pub const NBD_OPT_STARTTLS: u32 = 5;
/// Describe an export.
pub const NBD_OPT_INFO: u32 = 6;
/// Describe an export and start.
pub const NBD_OPT_GO: u32 = 7;
/// Use structured replies from now on.
pub const NBD_OPT_STRUCTURED_REPLY: u32 = 8;
/// List the metadata contexts.
pub const NBD_OPT_LIST_META_CONTEXT: u32 = 9;
/// Choose metadata contexts.
pub const NBD_OPT_SET_META_CONTEXT: u32 = 10;

/// Done.
pub const NBD_REP_ACK: u32 = 1;
/// An export's name.
pub const NBD_REP_SERVER: u32 = 2;
/// A fact about an export.
pub const NBD_REP_INFO: u32 = 3;
/// A metadata context and its number.
pub const NBD_REP_META_CONTEXT: u32 = 4;
/// The option is not known here.
pub const NBD_REP_ERR_UNSUP: u32 = (1 << 31) | 1;
/// The server's policy forbids; the content gives the reason.
pub const NBD_REP_ERR_POLICY: u32 = (1 << 31) | 2;
/// The option's content makes no sense.
pub const NBD_REP_ERR_INVALID: u32 = (1 << 31) | 3;
/// The server's platform, or its build, lacks the option.
pub const NBD_REP_ERR_PLATFORM: u32 = (1 << 31) | 4;
/// TLS must begin first.
pub const NBD_REP_ERR_TLS_REQD: u32 = (1 << 31) | 5;
/// No export has the name.
pub const NBD_REP_ERR_UNKNOWN: u32 = (1 << 31) | 6;
/// The server is about to stop.
pub const NBD_REP_ERR_SHUTDOWN: u32 = (1 << 31) | 7;
/// The client must ask for NBD_INFO_BLOCK_SIZE.
pub const NBD_REP_ERR_BLOCK_SIZE_REQD: u32 = (1 << 31) | 8;
/// The option exceeds the server's limit.
pub const NBD_REP_ERR_TOO_BIG: u32 = (1 << 31) | 9;

/// Size and transmission flags.
pub const NBD_INFO_EXPORT: u16 = 0;
/// The export's canonical name.
pub const NBD_INFO_NAME: u16 = 1;
/// Request sizes.
pub const NBD_INFO_BLOCK_SIZE: u16 = 3;

/// First bytes of the server: the protocol is fixed newstyle.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&NBDMAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&IHAVEOPT.to_be_bytes());
    bytes[16..].copy_from_slice(&(NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// First bytes of a server, as a client reads them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Greeting {
    /// Newstyle negotiation, with the flags of the server (NBD_FLAG_FIXED_NEWSTYLE, NBD_FLAG_NO_ZEROES).
    Newstyle(u16),
    /// Oldstyle negotiation: the server of the protocol's first decade names its export unasked.
    Oldstyle,
    /// Another protocol.
    Foreign,
}

impl Greeting {
    /// Bytes of a greeting.
    pub const LEN: usize = 18;

    /// Reads the greeting of a server.
    pub fn decode(bytes: &[u8; Greeting::LEN]) -> Greeting {
        let fields = split_u64(bytes).and_then(|(first, rest)| {
            let (second, rest) = split_u64(rest)?;
            let (flags, _) = split_u16(rest)?;
            Some((first, second, flags))
        });
        match fields {
            Some((NBDMAGIC, IHAVEOPT, flags)) => Greeting::Newstyle(flags),
            Some((NBDMAGIC, OLDSTYLE_MAGIC, _)) => Greeting::Oldstyle,
            _ => Greeting::Foreign,
        }
    }
}

/// The head of an answer to an option; `len` bytes of content follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionReplyHead {
    /// NBD_OPT_… of the option.
    pub option: u32,
    /// NBD_REP_….
    pub reply: u32,
    /// Bytes of content.
    pub len: u32,
}

impl OptionReplyHead {
    /// Bytes of an answer's head.
    pub const LEN: usize = 20;

    /// Reads an answer's head; `None` if the magic number is wrong.
    pub fn decode(bytes: &[u8; OptionReplyHead::LEN]) -> Option<OptionReplyHead> {
        let (magic, rest) = split_u64(bytes)?;
        let (option, rest) = split_u32(rest)?;
        let (reply, rest) = split_u32(rest)?;
        let (len, _) = split_u32(rest)?;
        (magic == NBD_OPTION_REPLY_MAGIC).then_some(OptionReplyHead { option, reply, len })
    }
}

/// The content of NBD_REP_INFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fact {
    /// NBD_INFO_EXPORT.
    Export {
        /// Size of the export in bytes.
        size: u64,
        /// NBD_FLAG_….
        flags: u16,
    },
    /// NBD_INFO_BLOCK_SIZE, in bytes.
    BlockSize {
        /// Offsets and lengths are multiples of this value.
        minimum: u32,
        /// Request size with the least cost.
        preferred: u32,
        /// Largest payload of a request; `u32::MAX` is no limit.
        maximum: u32,
    },
    /// A fact of no use here.
    Unknown(u16),
}

impl Fact {
    /// Reads the content of NBD_REP_INFO; `None` if its length does not fit its type.
    pub fn decode(content: &[u8]) -> Option<Fact> {
        let (kind, rest) = split_u16(content)?;
        let (info, rest) = match kind {
            NBD_INFO_EXPORT => {
                let (size, rest) = split_u64(rest)?;
                let (flags, rest) = split_u16(rest)?;
                (Fact::Export { size, flags }, rest)
            }
            NBD_INFO_BLOCK_SIZE => {
                let (minimum, rest) = split_u32(rest)?;
                let (preferred, rest) = split_u32(rest)?;
                let (maximum, rest) = split_u32(rest)?;
                (Fact::BlockSize { minimum, preferred, maximum }, rest)
            }
            _ => return Some(Fact::Unknown(kind)),
        };
        rest.is_empty().then_some(info)
    }
}

/// The answer to NBD_OPT_EXPORT_NAME without its zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportNameReply {
    /// Size of the export in bytes.
    pub size: u64,
    /// NBD_FLAG_….
    pub flags: u16,
}

impl ExportNameReply {
    /// Bytes of the answer.
    pub const LEN: usize = 10;
    /// Zeros after the answer, unless both sides have NBD_FLAG_NO_ZEROES.
    pub const ZEROES: usize = 124;

    /// Reads the answer.
    pub fn decode(bytes: &[u8; ExportNameReply::LEN]) -> ExportNameReply {
        let [size @ .., high, low] = *bytes;
        ExportNameReply { size: u64::from_be_bytes(size), flags: u16::from_be_bytes([high, low]) }
    }
}

/// The head of an option; `len` bytes of content follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHead {
    /// NBD_OPT_….
    pub option: u32,
    /// Bytes of content.
    pub len: u32,
}

impl OptionHead {
    /// Bytes of an option's head.
    pub const LEN: usize = 16;

    /// Reads an option's head; `None` if the magic number is wrong.
    pub fn decode(bytes: &[u8; OptionHead::LEN]) -> Option<OptionHead> {
        let (magic, rest) = split_u64(bytes)?;
        let (option, rest) = split_u32(rest)?;
        let (len, _) = split_u32(rest)?;
        (magic == IHAVEOPT).then_some(OptionHead { option, len })
    }
}

/// Encodes an option as a client does: head and content.
pub fn encode_option(option: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OptionHead::LEN + content.len());
    bytes.extend(IHAVEOPT.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend((content.len() as u32).to_be_bytes());
    bytes.extend(content);
    bytes
}

/// The content of NBD_OPT_INFO and NBD_OPT_GO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InfoQuery<'a> {
    /// Name of the export; empty for the default export.
    pub name: &'a [u8],
    /// The facts asked for, two bytes each.
    wanted: &'a [u8],
}

impl<'a> InfoQuery<'a> {
    /// Reads the content; `None` if lengths do not add up.
    pub fn decode(content: &'a [u8]) -> Option<InfoQuery<'a>> {
        let (name, rest) = split_string(content)?;
        let (count, wanted) = split_u16(rest)?;
        (wanted.len() == usize::from(count) * 2).then_some(InfoQuery { name, wanted })
    }

    /// Encodes the content as a client does: the export, and the facts asked for.
    pub fn encode(name: &[u8], wanted: &[u16]) -> Vec<u8> {
        let mut content = Vec::with_capacity(6 + name.len() + wanted.len() * 2);
        content.extend((name.len() as u32).to_be_bytes());
        content.extend(name);
        content.extend((wanted.len() as u16).to_be_bytes());
        wanted.iter().for_each(|info| content.extend(info.to_be_bytes()));
        content
    }

    /// True if the client asks for a fact (NBD_INFO_…).
    pub fn wants(&self, info: u16) -> bool {
        self.wanted.chunks_exact(2).any(|field| field == info.to_be_bytes())
    }
}

/// The content of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextQuery<'a> {
    /// Name of the export; empty for the default export.
    pub name: &'a [u8],
    /// How many queries `queries` gives.
    pub count: u32,
    queries: &'a [u8],
}

impl<'a> ContextQuery<'a> {
    /// Reads the content; `None` if lengths do not add up.
    pub fn decode(content: &'a [u8]) -> Option<ContextQuery<'a>> {
        let (name, rest) = split_string(content)?;
        let (count, queries) = split_u32(rest)?;
        let mut rest = queries;
        // Each query takes at least four bytes, so a large count ends the loop early.
        for _ in 0..count {
            rest = split_string(rest)?.1;
        }
        rest.is_empty().then_some(ContextQuery { name, count, queries })
    }

    /// The queries, such as `base:allocation` or, in a list, `base:`.
    pub fn queries(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.queries;
        std::iter::from_fn(move || {
            let (query, after) = split_string(rest)?;
            rest = after;
            Some(query)
        })
    }
}

/// Adds the answer to an option.
pub fn put_option_reply(out: &mut Vec<u8>, option: u32, reply: u32, content: &[&[u8]]) {
    let len: usize = content.iter().map(|field| field.len()).sum();
    out.extend(NBD_OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(reply.to_be_bytes());
    out.extend((len as u32).to_be_bytes());
    content.iter().for_each(|field| out.extend(*field));
}

/// Splits off a string with its length before the bytes.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = split_u32(bytes)?;
    rest.split_at_checked(len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn string(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes(), text].concat()
    }

    proptest! {
        #[test]
        fn random_query_content_never_panics_the_decoder(content in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(query) = InfoQuery::decode(&content) {
                prop_assert!(query.name.len() <= content.len());
            }
            if let Some(query) = ContextQuery::decode(&content) {
                prop_assert_eq!(query.queries().count(), query.count as usize);
            }
        }

        #[test]
        fn context_query_is_decoded_as_encoded(
            name in prop::collection::vec(any::<u8>(), 0..50),
            queries in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5),
            cut in 1usize..20,
        ) {
            let count = queries.len() as u32;
            let strings: Vec<u8> = queries.iter().flat_map(|query| string(query)).collect();
            let content = [string(&name), count.to_be_bytes().to_vec(), strings].concat();
            let query = ContextQuery::decode(&content).expect("well formed");
            prop_assert_eq!(query.name, &name[..]);
            prop_assert!(query.queries().eq(queries.iter().map(|query| &query[..])));
            prop_assert_eq!(ContextQuery::decode(&content[..content.len().saturating_sub(cut)]), None);
        }

        #[test]
        fn option_decodes_only_with_the_option_magic(bytes: [u8; OptionHead::LEN]) {
            let decoded = OptionHead::decode(&bytes);
            prop_assert_eq!(decoded.is_some(), bytes[..8] == IHAVEOPT.to_be_bytes());
        }
    }

    #[test]
    fn info_query_lists_the_requested_infos() {
        let content = [string(b"vol"), vec![0, 2, 0, 3, 0, 1]].concat();
        let query = InfoQuery::decode(&content).unwrap();
        assert_eq!(query.name, b"vol");
        assert!(
            query.wants(NBD_INFO_BLOCK_SIZE) && query.wants(NBD_INFO_NAME) && !query.wants(NBD_INFO_EXPORT)
        );
        assert_eq!(InfoQuery::decode(&content[..content.len() - 1]), None);
    }

    #[test]
    fn info_query_is_decoded_as_encoded() {
        let content = InfoQuery::encode(b"vol", &[NBD_INFO_BLOCK_SIZE]);
        let query = InfoQuery::decode(&content).unwrap();
        assert_eq!(query.name, b"vol");
        assert!(query.wants(NBD_INFO_BLOCK_SIZE) && !query.wants(NBD_INFO_NAME));
    }

    #[test]
    fn greeting_names_the_style_of_negotiation() {
        let flags = NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES;
        assert_eq!(Greeting::decode(&greeting()), Greeting::Newstyle(flags));
        let mut old = greeting();
        old[8..16].copy_from_slice(&OLDSTYLE_MAGIC.to_be_bytes());
        assert_eq!(Greeting::decode(&old), Greeting::Oldstyle);
        assert_eq!(Greeting::decode(b"SSH-2.0-OpenSSH_9."), Greeting::Foreign);
    }

    #[test]
    fn answers_are_decoded_as_encoded() {
        let mut bytes = Vec::new();
        let sizes = [512u32, 4096, 1 << 20].map(u32::to_be_bytes);
        let [minimum, preferred, maximum] = &sizes;
        let content: [&[u8]; 4] = [&NBD_INFO_BLOCK_SIZE.to_be_bytes(), minimum, preferred, maximum];
        put_option_reply(&mut bytes, NBD_OPT_GO, NBD_REP_INFO, &content);
        let (head, content) = bytes.split_first_chunk().unwrap();
        let expected = OptionReplyHead { option: NBD_OPT_GO, reply: NBD_REP_INFO, len: 14 };
        assert_eq!(OptionReplyHead::decode(head), Some(expected));
        let expected = Fact::BlockSize { minimum: 512, preferred: 4096, maximum: 1 << 20 };
        assert_eq!(Fact::decode(content), Some(expected));
        assert_eq!(Fact::decode(&content[..13]), None);
        assert_eq!(Fact::decode(&[content, &[0]].concat()), None);
        assert_eq!(Fact::decode(&[0, 2, 7, 7]), Some(Fact::Unknown(2)));
        let answer = ExportNameReply::decode(&[0, 0, 0, 0, 0, 0, 1, 0, 0, 5]);
        assert_eq!(answer, ExportNameReply { size: 256, flags: 5 });
    }

    #[test]
    fn a_count_beyond_the_content_is_refused_without_a_long_loop() {
        let content = [string(b""), u32::MAX.to_be_bytes().to_vec()].concat();
        assert_eq!(ContextQuery::decode(&content), None);
    }
}
