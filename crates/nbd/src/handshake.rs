//! The negotiation: a pure state machine, bytes in and bytes out.
//!
//! One call handles one message, so the caller can send the answer before looking at the next message. A
//! client that asks much and reads nothing gets no further than its socket. There is one export; the empty
//! name means this export, too.
//!
//! With TLS (the protocol's mode FORCEDTLS) a connection has two negotiations: the first one, in plain,
//! admits NBD_OPT_STARTTLS and NBD_OPT_ABORT alone; the second one runs within TLS. Only the client's flags
//! pass from the first to the second, so no option of an attacker before TLS has an effect within TLS.

use crate::wire::options::*;
use crate::wire::*;

/// Longest option content: a name (4096 at most, says the protocol) and room for context queries. A longer
/// option is answered with NBD_REP_ERR_TOO_BIG and skipped.
pub const OPTION_LARGEST: u32 = 32 << 10;
/// Largest payload of a request, announced as the maximum block size: the value that all clients of today
/// expect.
pub const PAYLOAD_LARGEST: u32 = 32 << 20;
/// Number of `base:allocation` in replies.
pub const ALLOCATION_CONTEXT: u32 = 1;

const ALLOCATION: &[u8] = b"base:allocation";

/// Facts about the export, for the negotiation.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the export.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Request size with the least cost, in bytes.
    pub preferred_block: u32,
    /// NBD_FLAG_…, except SEND_DF, which depends on the client.
    pub flags: u16,
}

/// Features that client and server have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreed {
    /// Reads are answered with structured replies.
    pub structured: bool,
    /// Block status may be asked for `base:allocation`.
    pub allocation: bool,
    /// Changes are refused.
    pub read_only: bool,
}

/// Rights of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The client may change the export, unless the export itself is read-only.
    ReadWrite,
    /// The client may not change the export.
    ReadOnly,
}

/// Next step after a call of [`Handshake::receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing was taken: more bytes are needed first.
    More,
    /// A message was handled: send the output, then call again.
    Next,
    /// Send the output; a TLS handshake follows, then a negotiation by [`Handshake::within_tls`].
    Secure(Zeroes),
    /// Send the output; requests follow.
    Start(Agreed),
    /// Send the output, then close.
    Close,
}

/// Negotiation with one client.
pub struct Handshake<'a> {
    facts: &'a Facts,
    cover: Cover,
    state: State,
    zeroes: Zeroes,
    agreed: Agreed,
    /// Why the client cannot be served.
    refusal: Option<&'a str>,
}

enum State {
    /// The client's flags come first.
    Flags,
    /// Options, one by one.
    Options,
    /// Rest of an option that is too long: bytes left.
    Skip(u32),
}

/// Zeros after the answer to NBD_OPT_EXPORT_NAME: clients of the protocol's first decade want 124 zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zeroes {
    /// The client wants the zeros.
    Sent,
    /// The client's flags say that the zeros are left out.
    Omitted,
}

/// Place of TLS in a negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cover {
    /// The server has no TLS.
    None,
    /// TLS must begin first.
    Demanded,
    /// The negotiation runs within TLS.
    Present,
}

impl<'a> Handshake<'a> {
    /// Starts a negotiation in plain about the export of `facts`, after [`greeting`] has been sent.
    pub fn new(facts: &'a Facts) -> Handshake<'a> {
        let agreed = Agreed { read_only: facts.flags & NBD_FLAG_READ_ONLY != 0, ..Agreed::default() };
        let (cover, state, zeroes) = (Cover::None, State::Flags, Zeroes::Sent);
        Handshake { facts, cover, state, zeroes, agreed, refusal: None }
    }

    /// Starts the plain part of a connection with TLS, after [`greeting`] has been sent. The part ends with
    /// [`Step::Secure`] or [`Step::Close`].
    pub fn demanding_tls(facts: &'a Facts) -> Handshake<'a> {
        Handshake { cover: Cover::Demanded, ..Handshake::new(facts) }
    }

    /// Starts the negotiation within TLS, of a client with these rights. `zeroes` comes from the plain part.
    pub fn within_tls(facts: &'a Facts, zeroes: Zeroes, access: Access) -> Handshake<'a> {
        let plain = Handshake::new(facts);
        let read_only = plain.agreed.read_only || access == Access::ReadOnly;
        let agreed = Agreed { read_only, ..plain.agreed };
        Handshake { cover: Cover::Present, state: State::Options, zeroes, agreed, ..plain }
    }

    /// Refuses the client. When the client asks about the export, the answer is the `reason`. (The oldest
    /// request, NBD_OPT_EXPORT_NAME, has no negative reply but the end of the connection.)
    pub fn refusing(self, reason: &'a str) -> Handshake<'a> {
        Handshake { refusal: Some(reason), ..self }
    }

    /// Handles at most one message at the start of `input` and adds the answer to `output`. Returns the
    /// number of input bytes used.
    ///
    /// `input` may hold any amount; a whole message has at most [`OptionHead::LEN`] + [`OPTION_LARGEST`]
    /// bytes.
    pub fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        match self.state {
            State::Flags => match input.first_chunk() {
                Some(flags) => (4, self.client_flags(u32::from_be_bytes(*flags))),
                None => (0, Step::More),
            },
            State::Options => match input.first_chunk() {
                Some(head) => self.option(OptionHead::decode(head), &input[OptionHead::LEN..], output),
                None => (0, Step::More),
            },
            State::Skip(_) if input.is_empty() => (0, Step::More),
            State::Skip(left) => {
                let skipped = left.min(u32::try_from(input.len()).unwrap_or(u32::MAX));
                self.state = if skipped == left { State::Options } else { State::Skip(left - skipped) };
                (skipped as usize, Step::Next)
            }
        }
    }

    /// Closes if a flag is unknown: the client speaks another protocol.
    fn client_flags(&mut self, flags: u32) -> Step {
        let known = NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES;
        if flags & !u32::from(known) != 0 {
            return Step::Close;
        }
        if flags & u32::from(NBD_FLAG_NO_ZEROES) != 0 {
            self.zeroes = Zeroes::Omitted;
        }
        self.state = State::Options;
        Step::Next
    }

    fn option(&mut self, head: Option<OptionHead>, rest: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        let Some(OptionHead { option, len }) = head else { return (0, Step::Close) };
        if len > OPTION_LARGEST {
            if option == NBD_OPT_EXPORT_NAME {
                return (0, Step::Close);
            }
            let reply = match self.cover {
                Cover::Demanded if option != NBD_OPT_STARTTLS => NBD_REP_ERR_TLS_REQD,
                _ => NBD_REP_ERR_TOO_BIG,
            };
            put_option_reply(output, option, reply, &[]);
            self.state = State::Skip(len);
            return (OptionHead::LEN, Step::Next);
        }
        let Some(content) = rest.get(..len as usize) else { return (0, Step::More) };
        (OptionHead::LEN + content.len(), self.answer(option, content, output))
    }

    fn answer(&mut self, option: u32, content: &[u8], output: &mut Vec<u8>) -> Step {
        if self.cover == Cover::Demanded {
            return self.before_tls(option, content, output);
        }
        if let Some(reason) = self.refusal {
            match option {
                NBD_OPT_EXPORT_NAME => return Step::Close,
                NBD_OPT_GO
                | NBD_OPT_INFO
                | NBD_OPT_LIST
                | NBD_OPT_LIST_META_CONTEXT
                | NBD_OPT_SET_META_CONTEXT => {
                    put_option_reply(output, option, NBD_REP_ERR_POLICY, &[reason.as_bytes()]);
                    return Step::Next;
                }
                _ => {}
            }
        }
        let outcome = match option {
            NBD_OPT_EXPORT_NAME => return self.export_name(content, output),
            NBD_OPT_GO => match self.info(option, content, output) {
                Ok(()) => {
                    put_option_reply(output, option, NBD_REP_ACK, &[]);
                    return Step::Start(self.agreed);
                }
                refused => refused,
            },
            NBD_OPT_ABORT => {
                put_option_reply(output, option, NBD_REP_ACK, &[]);
                return Step::Close;
            }
            NBD_OPT_INFO => self.info(option, content, output),
            NBD_OPT_LIST => self.list(content, output),
            NBD_OPT_STRUCTURED_REPLY => self.structured_reply(content),
            NBD_OPT_LIST_META_CONTEXT => self.list_contexts(content, output),
            NBD_OPT_SET_META_CONTEXT => self.set_contexts(content, output),
            NBD_OPT_STARTTLS if self.cover == Cover::Present => Err(NBD_REP_ERR_INVALID),
            _ => Err(NBD_REP_ERR_UNSUP),
        };
        put_option_reply(output, option, outcome.err().unwrap_or(NBD_REP_ACK), &[]);
        Step::Next
    }

    /// Answers an option in plain on a server with TLS.
    fn before_tls(&self, option: u32, content: &[u8], output: &mut Vec<u8>) -> Step {
        let (reply, step) = match option {
            NBD_OPT_STARTTLS if content.is_empty() => (NBD_REP_ACK, Step::Secure(self.zeroes)),
            NBD_OPT_STARTTLS => (NBD_REP_ERR_INVALID, Step::Next),
            NBD_OPT_ABORT => (NBD_REP_ACK, Step::Close),
            // The protocol has no negative reply to this option.
            NBD_OPT_EXPORT_NAME => return Step::Close,
            _ => (NBD_REP_ERR_TLS_REQD, Step::Next),
        };
        put_option_reply(output, option, reply, &[]);
        step
    }

    fn export_name(&mut self, name: &[u8], output: &mut Vec<u8>) -> Step {
        if !self.is_export(name) {
            return Step::Close;
        }
        output.extend(self.facts.size.to_be_bytes());
        output.extend(self.flags().to_be_bytes());
        if matches!(self.zeroes, Zeroes::Sent) {
            output.extend([0; 124]);
        }
        Step::Start(self.agreed)
    }

    fn info(&self, option: u32, content: &[u8], output: &mut Vec<u8>) -> Result<(), u32> {
        let query = InfoQuery::decode(content).ok_or(NBD_REP_ERR_INVALID)?;
        if !self.is_export(query.name) {
            return Err(NBD_REP_ERR_UNKNOWN);
        }
        let mut put = |info: u16, fields: [&[u8]; 3]| {
            let [first, second, third] = fields;
            put_option_reply(output, option, NBD_REP_INFO, &[&info.to_be_bytes(), first, second, third]);
        };
        let (size, flags) = (self.facts.size.to_be_bytes(), self.flags().to_be_bytes());
        put(NBD_INFO_EXPORT, [&size, &flags, &[]]);
        if query.wants(NBD_INFO_NAME) {
            put(NBD_INFO_NAME, [self.facts.name.as_bytes(), &[], &[]]);
        }
        if query.wants(NBD_INFO_BLOCK_SIZE) {
            let (preferred, largest) =
                (self.facts.preferred_block.to_be_bytes(), PAYLOAD_LARGEST.to_be_bytes());
            put(NBD_INFO_BLOCK_SIZE, [&1u32.to_be_bytes(), &preferred, &largest]);
        }
        Ok(())
    }

    fn list(&self, content: &[u8], output: &mut Vec<u8>) -> Result<(), u32> {
        if !content.is_empty() {
            return Err(NBD_REP_ERR_INVALID);
        }
        let name = self.facts.name.as_bytes();
        let len = (name.len() as u32).to_be_bytes();
        put_option_reply(output, NBD_OPT_LIST, NBD_REP_SERVER, &[&len, name]);
        Ok(())
    }

    fn structured_reply(&mut self, content: &[u8]) -> Result<(), u32> {
        if !content.is_empty() {
            return Err(NBD_REP_ERR_INVALID);
        }
        self.agreed.structured = true;
        Ok(())
    }

    /// No query, the namespace alone, and the whole name all give the only context.
    fn list_contexts(&self, content: &[u8], output: &mut Vec<u8>) -> Result<(), u32> {
        let query = self.context_query(content)?;
        if query.count == 0 || query.queries().any(|q| q == b"base:" || q == ALLOCATION) {
            put_context(output, NBD_OPT_LIST_META_CONTEXT, 0);
        }
        Ok(())
    }

    /// Each choice replaces the previous choice, even if it fails.
    fn set_contexts(&mut self, content: &[u8], output: &mut Vec<u8>) -> Result<(), u32> {
        self.agreed.allocation = false;
        let query = self.context_query(content)?;
        if query.queries().any(|q| q == ALLOCATION) {
            self.agreed.allocation = true;
            put_context(output, NBD_OPT_SET_META_CONTEXT, ALLOCATION_CONTEXT);
        }
        Ok(())
    }

    fn context_query<'b>(&self, content: &'b [u8]) -> Result<ContextQuery<'b>, u32> {
        let query = ContextQuery::decode(content).ok_or(NBD_REP_ERR_INVALID)?;
        if !self.agreed.structured {
            return Err(NBD_REP_ERR_INVALID);
        }
        self.is_export(query.name).then_some(query).ok_or(NBD_REP_ERR_UNKNOWN)
    }

    fn is_export(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.facts.name.as_bytes()
    }

    fn flags(&self) -> u16 {
        let read_only = if self.agreed.read_only { NBD_FLAG_READ_ONLY } else { 0 };
        self.facts.flags | read_only | if self.agreed.structured { NBD_FLAG_SEND_DF } else { 0 }
    }
}

fn put_context(output: &mut Vec<u8>, option: u32, context: u32) {
    put_option_reply(output, option, NBD_REP_META_CONTEXT, &[&context.to_be_bytes(), ALLOCATION]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts() -> Facts {
        let flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH;
        Facts { name: "vol".into(), size: 1 << 30, preferred_block: 4096, flags }
    }

    fn string(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
    }

    /// Runs a whole conversation. Returns the types of the answers, and the last step.
    fn converse(options: &[(u32, Vec<u8>)]) -> (Vec<u32>, Step, Vec<u8>) {
        let facts = facts();
        conversation(Handshake::new(&facts), vec![0, 0, 0, 3], options)
    }

    fn conversation(
        mut handshake: Handshake<'_>,
        mut input: Vec<u8>,
        options: &[(u32, Vec<u8>)],
    ) -> (Vec<u32>, Step, Vec<u8>) {
        options.iter().for_each(|(option, content)| input.extend(encode_option(*option, content)));
        let (mut output, mut last, mut at) = (Vec::new(), Step::Next, 0);
        while last == Step::Next {
            let (used, step) = handshake.receive(&input[at..], &mut output);
            (at, last) = (at + used, step);
        }
        (replies_in(&output), last, output)
    }

    fn replies_in(mut output: &[u8]) -> Vec<u32> {
        let mut replies = Vec::new();
        while output.len() >= 20 && output[..8] == NBD_OPTION_REPLY_MAGIC.to_be_bytes() {
            replies.push(u32::from_be_bytes(output[12..16].try_into().unwrap()));
            let len = u32::from_be_bytes(output[16..20].try_into().unwrap()) as usize;
            output = &output[20 + len..];
        }
        replies
    }

    fn go(name: &str, wanted: &[u16]) -> (u32, Vec<u8>) {
        let mut content = string(name);
        content.extend((wanted.len() as u16).to_be_bytes());
        wanted.iter().for_each(|info| content.extend(info.to_be_bytes()));
        (NBD_OPT_GO, content)
    }

    fn contexts(option: u32, queries: &[&str]) -> (u32, Vec<u8>) {
        let mut content = string("");
        content.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| content.extend(string(query)));
        (option, content)
    }

    #[test]
    fn a_modern_client_gets_structured_replies_and_allocation() {
        let (replies, step, output) = converse(&[
            (NBD_OPT_STRUCTURED_REPLY, vec![]),
            contexts(NBD_OPT_SET_META_CONTEXT, &["base:allocation", "qemu:dirty-bitmap"]),
            go("vol", &[NBD_INFO_BLOCK_SIZE, NBD_INFO_NAME]),
        ]);
        let set = [NBD_REP_ACK, NBD_REP_META_CONTEXT, NBD_REP_ACK];
        let start = [NBD_REP_INFO, NBD_REP_INFO, NBD_REP_INFO, NBD_REP_ACK];
        assert_eq!(replies, [&set[..], &start].concat());
        assert_eq!(step, Step::Start(Agreed { structured: true, allocation: true, read_only: false }));
        let block_sizes =
            [&[0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0], PAYLOAD_LARGEST.to_be_bytes().as_slice()].concat();
        assert!(output.windows(block_sizes.len()).any(|window| window == block_sizes));
    }

    #[test]
    fn an_old_client_starts_by_name_alone() {
        let (_, step, output) = converse(&[(NBD_OPT_EXPORT_NAME, b"vol".to_vec())]);
        assert_eq!(step, Step::Start(Agreed::default()));
        assert_eq!(output, [&(1u64 << 30).to_be_bytes(), [0, 5].as_slice()].concat());
        let (_, step, _) = converse(&[(NBD_OPT_EXPORT_NAME, b"other".to_vec())]);
        assert_eq!(step, Step::Close);
    }

    #[test]
    fn invalid_options_are_refused_and_negotiation_continues() {
        let (replies, step, _) = converse(&[
            (NBD_OPT_STARTTLS, vec![]),
            (99, vec![1, 2, 3]),
            (NBD_OPT_LIST, vec![0]),
            (NBD_OPT_LIST, vec![]),
            (NBD_OPT_GO, vec![0, 0]),
            go("other", &[]),
            contexts(NBD_OPT_SET_META_CONTEXT, &["base:allocation"]),
            (NBD_OPT_INFO, vec![0; OPTION_LARGEST as usize + 1]),
            (NBD_OPT_ABORT, vec![]),
        ]);
        let expected = [
            NBD_REP_ERR_UNSUP,
            NBD_REP_ERR_UNSUP,
            NBD_REP_ERR_INVALID,
            NBD_REP_SERVER,
            NBD_REP_ACK,
            NBD_REP_ERR_INVALID,
            NBD_REP_ERR_UNKNOWN,
            NBD_REP_ERR_INVALID,
            NBD_REP_ERR_TOO_BIG,
            NBD_REP_ACK,
        ];
        assert_eq!((replies.as_slice(), step), (expected.as_slice(), Step::Close));
    }

    #[test]
    fn before_tls_only_starttls_and_abort_are_served() {
        let facts = facts();
        let before = |options: &[(u32, Vec<u8>)]| {
            let (replies, step, _) =
                conversation(Handshake::demanding_tls(&facts), vec![0, 0, 0, 3], options);
            (replies, step)
        };
        let refused = [
            (NBD_OPT_LIST, vec![]),
            (NBD_OPT_STRUCTURED_REPLY, vec![]),
            contexts(NBD_OPT_LIST_META_CONTEXT, &[]),
            contexts(NBD_OPT_SET_META_CONTEXT, &["base:allocation"]),
            go("vol", &[]),
            (NBD_OPT_INFO, go("vol", &[]).1),
            (99, vec![]),
        ];
        let (replies, step) = before(&refused);
        assert_eq!((replies, step), (vec![NBD_REP_ERR_TLS_REQD; 7], Step::More));
        let starts = (NBD_OPT_STARTTLS, vec![]);
        let (replies, step) = before(&[(NBD_OPT_STARTTLS, vec![0]), starts]);
        let zeroes = Zeroes::Omitted;
        assert_eq!((replies, step), (vec![NBD_REP_ERR_INVALID, NBD_REP_ACK], Step::Secure(zeroes)));
        assert_eq!(before(&[(NBD_OPT_ABORT, vec![])]), (vec![NBD_REP_ACK], Step::Close));
        assert_eq!(before(&[(NBD_OPT_EXPORT_NAME, b"vol".to_vec())]), (vec![], Step::Close));
    }

    #[test]
    fn within_tls_nothing_of_the_plain_part_holds_but_the_flags() {
        let facts = facts();
        let within = |access, options: &[(u32, Vec<u8>)]| {
            conversation(Handshake::within_tls(&facts, Zeroes::Omitted, access), vec![], options)
        };
        let options = [contexts(NBD_OPT_SET_META_CONTEXT, &["base:allocation"]), (NBD_OPT_STARTTLS, vec![])];
        let (replies, step, _) = within(Access::ReadWrite, &options);
        assert_eq!((replies, step), (vec![NBD_REP_ERR_INVALID; 2], Step::More));
        for (access, read_only) in [(Access::ReadWrite, false), (Access::ReadOnly, true)] {
            let (_, step, output) = within(access, &[(NBD_OPT_EXPORT_NAME, vec![])]);
            assert_eq!(step, Step::Start(Agreed { read_only, ..Agreed::default() }));
            assert_eq!(output.len(), 10, "no zeros follow");
            assert_eq!(output[9] & NBD_FLAG_READ_ONLY as u8 != 0, read_only);
        }
    }

    #[test]
    fn refused_client_learns_the_reason_and_nothing_else() {
        let facts = facts();
        let handshake = Handshake::within_tls(&facts, Zeroes::Omitted, Access::ReadWrite).refusing("not you");
        let mut options = vec![
            (NBD_OPT_STRUCTURED_REPLY, vec![]),
            (NBD_OPT_LIST, vec![]),
            contexts(NBD_OPT_LIST_META_CONTEXT, &[]),
            contexts(NBD_OPT_SET_META_CONTEXT, &[]),
            (NBD_OPT_INFO, go("vol", &[]).1),
            go("vol", &[]),
        ];
        options.push((NBD_OPT_EXPORT_NAME, b"vol".to_vec()));
        let (replies, step, output) = conversation(handshake, vec![], &options);
        assert_eq!((&replies[1..], step), (&[NBD_REP_ERR_POLICY; 5][..], Step::Close));
        assert_eq!(output.windows(7).filter(|part| part == b"not you").count(), 5);
        assert!(!output.windows(3).any(|part| part == b"vol"), "the export's name is not told");
    }

    #[test]
    fn contexts_are_listed_by_namespace() {
        for (queries, found) in [(&[][..], true), (&["base:"], true), (&["qemu:"], false)] {
            let listed = contexts(NBD_OPT_LIST_META_CONTEXT, queries);
            let (replies, ..) = converse(&[(NBD_OPT_STRUCTURED_REPLY, vec![]), listed]);
            assert_eq!(replies.contains(&NBD_REP_META_CONTEXT), found, "{queries:?}");
        }
    }

    proptest! {
        /// However the bytes are cut, the conversation is the same, and each message is answered once
        /// complete.
        #[test]
        fn handshake_replies_do_not_depend_on_message_boundaries(
            options in prop::collection::vec((0u32..12, prop::collection::vec(0u8..8, 0..40)), 0..8),
            noise in prop::collection::vec(any::<u8>(), 0..40),
            cut in 1usize..30,
        ) {
            let mut input = vec![0, 0, 0, 3];
            options.iter().for_each(|(option, content)| input.extend(encode_option(*option, content)));
            input.extend(noise);
            prop_assert_eq!(answers_to(&input, cut), answers_to(&input, input.len()));
        }

        #[test]
        fn noise_never_panics(input in prop::collection::vec(any::<u8>(), 0..300)) {
            answers_to(&input, input.len().max(1));
        }
    }

    /// Feeds `input` with at most `cut` more bytes at a time.
    fn answers_to(input: &[u8], cut: usize) -> (Vec<u8>, Step) {
        let facts = facts();
        let mut handshake = Handshake::new(&facts);
        let (mut output, mut start, mut end) = (Vec::new(), 0, 0);
        loop {
            let (used, step) = handshake.receive(&input[start..end], &mut output);
            start += used;
            match step {
                Step::Next => {}
                Step::More if end < input.len() => end = (end + cut).min(input.len()),
                last => return (output, last),
            }
        }
    }
}
