//! The client's side of the negotiation: a pure state machine, bytes in and bytes out.
//!
//! ```text
//! greeting → [STARTTLS → TLS] → STRUCTURED_REPLY → GO → start
//!                                                   └ unknown to the server → EXPORT_NAME → start
//! ```
//!
//! One call handles one message of the server, and every message has a limit. With TLS, nothing is asked in
//! plain but TLS itself: a server without TLS is refused.
//!
//! NBD_OPT_EXPORT_NAME is for servers without NBD_OPT_GO. The protocol defines the block sizes for this case
//! (any alignment, 32 MiB), so the fallback loses nothing but the reason of a refusal. Servers without fixed
//! newstyle negotiation are refused: they close the connection at the first unknown option.

use super::offer::{BlockSizes, Offer};
use crate::handshake::OPTION_LARGEST;
use crate::wire::options::*;
use std::io::{self, ErrorKind};

/// Longest content of an answer: a longer answer is refused. An answer's strings have at most 4096 bytes.
const ANSWER_LARGEST: u32 = OPTION_LARGEST;
/// Largest number of answers to one option. The protocol has five facts of an export.
const MOST_ANSWERS: u32 = 64;
/// Characters of a server's message in an error.
const MESSAGE_SHOWN: usize = 200;

/// Protection of the connection, by the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Security {
    /// No protection.
    Plain,
    /// TLS, or no connection.
    Tls,
}

/// Next step after a call of [`Negotiation::receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Nothing was taken: more bytes are needed first.
    More,
    /// A message was handled: send the output, then call again.
    Next,
    /// A TLS handshake follows. Bytes that have arrived already come from an attacker. Then
    /// [`Negotiation::within_tls`].
    Secure,
    /// The export is open: requests may be sent.
    Start(Offer),
}

/// Negotiation with one server.
pub struct Negotiation {
    export: Vec<u8>,
    security: Security,
    question: Question,
    /// The server leaves out the zeros after the answer to NBD_OPT_EXPORT_NAME.
    omits_zeroes: bool,
    structured: bool,
    size_and_flags: Option<(u64, u16)>,
    block_sizes: Option<BlockSizes>,
    /// Answers to the present option.
    answers: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// The server's greeting comes first.
    Greeting,
    /// Answers to this option come.
    Option(u32),
    /// TLS runs, or the export is open.
    Over,
}

impl Negotiation {
    /// Starts a negotiation about the export of this name.
    pub fn new(export: &str, security: Security) -> Negotiation {
        Negotiation {
            export: export.as_bytes().to_vec(),
            security,
            question: Question::Greeting,
            omits_zeroes: false,
            structured: false,
            size_and_flags: None,
            block_sizes: None,
            answers: 0,
        }
    }

    /// Continues within TLS, after [`Turn::Secure`]: send the output.
    pub fn within_tls(&mut self, output: &mut Vec<u8>) {
        self.ask(NBD_OPT_STRUCTURED_REPLY, &[], output);
    }

    /// Handles at most one message at the start of `input`, and adds the client's next message to `output`.
    /// Returns the number of input bytes used.
    ///
    /// # Errors
    /// If the server breaks the protocol (`InvalidData`), or refuses, or lacks a needed feature. Names the
    /// reason and the remedy.
    pub fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<(usize, Turn)> {
        match self.question {
            Question::Greeting => match input.first_chunk() {
                Some(bytes) => Ok((Greeting::LEN, self.greeting(Greeting::decode(bytes), output)?)),
                None => Ok((0, Turn::More)),
            },
            Question::Option(NBD_OPT_EXPORT_NAME) => Ok(self.export_name(input)),
            Question::Option(option) => self.answer(option, input, output),
            Question::Over => Ok((0, Turn::More)),
        }
    }

    fn greeting(&mut self, greeting: Greeting, output: &mut Vec<u8>) -> io::Result<Turn> {
        let flags = match greeting {
            Greeting::Newstyle(flags) if flags & NBD_FLAG_FIXED_NEWSTYLE != 0 => flags,
            Greeting::Newstyle(_) | Greeting::Oldstyle => {
                let problem = "the server speaks a negotiation from before 2012 (not \"fixed newstyle\"), \
                               without errors and TLS: use a newer server, or its newstyle option";
                return Err(io::Error::new(ErrorKind::Unsupported, problem));
            }
            Greeting::Foreign => return Err(broken("its greeting is not NBD's: check host and port")),
        };
        self.omits_zeroes = flags & NBD_FLAG_NO_ZEROES != 0;
        let own = NBD_FLAG_FIXED_NEWSTYLE | (flags & NBD_FLAG_NO_ZEROES);
        output.extend(u32::from(own).to_be_bytes());
        match self.security {
            Security::Tls => self.ask(NBD_OPT_STARTTLS, &[], output),
            Security::Plain => self.ask(NBD_OPT_STRUCTURED_REPLY, &[], output),
        }
        Ok(Turn::Next)
    }

    fn ask(&mut self, option: u32, content: &[u8], output: &mut Vec<u8>) {
        output.extend(encode_option(option, content));
        self.question = Question::Option(option);
        self.answers = 0;
    }

    fn answer(&mut self, option: u32, input: &[u8], output: &mut Vec<u8>) -> io::Result<(usize, Turn)> {
        let Some((bytes, rest)) = input.split_first_chunk() else { return Ok((0, Turn::More)) };
        let head = OptionReplyHead::decode(bytes)
            .filter(|head| head.option == option)
            .ok_or_else(|| broken("it sent something else in place of an answer to an option"))?;
        self.answers += 1;
        if head.len > ANSWER_LARGEST || self.answers > MOST_ANSWERS {
            return Err(broken("its answers to an option are too long"));
        }
        let Some(content) = rest.get(..head.len as usize) else {
            self.answers -= 1;
            return Ok((0, Turn::More));
        };
        let turn = match option {
            NBD_OPT_STARTTLS => self.start_tls(head.reply, content)?,
            NBD_OPT_STRUCTURED_REPLY => self.structured_reply(head.reply, content, output)?,
            _ => self.go(head.reply, content, output)?,
        };
        Ok((OptionReplyHead::LEN + content.len(), turn))
    }

    fn start_tls(&mut self, reply: u32, content: &[u8]) -> io::Result<Turn> {
        match reply {
            NBD_REP_ACK => {
                self.question = Question::Over;
                Ok(Turn::Secure)
            }
            reply if is_error(reply) => {
                let problem = format!(
                    "the server has no TLS{}: set up its TLS, or write nbd in place of nbds in the address \
                     if everybody on the network may read and change the data",
                    said(content)
                );
                Err(io::Error::new(ErrorKind::Unsupported, problem))
            }
            _ => Err(unexpected()),
        }
    }

    fn structured_reply(&mut self, reply: u32, content: &[u8], output: &mut Vec<u8>) -> io::Result<Turn> {
        match reply {
            NBD_REP_ACK => self.structured = true,
            NBD_REP_ERR_TLS_REQD => return Err(self.refused(reply, content)),
            reply if is_error(reply) => {}
            _ => return Err(unexpected()),
        }
        let query = InfoQuery::encode(&self.export, &[NBD_INFO_BLOCK_SIZE]);
        self.ask(NBD_OPT_GO, &query, output);
        Ok(Turn::Next)
    }

    fn go(&mut self, reply: u32, content: &[u8], output: &mut Vec<u8>) -> io::Result<Turn> {
        match reply {
            NBD_REP_INFO => {
                self.learn(Fact::decode(content).ok_or_else(unexpected)?);
                Ok(Turn::Next)
            }
            NBD_REP_ACK => {
                let (size, flags) = self.size_and_flags.ok_or_else(unexpected)?;
                Ok(self.start(size, flags))
            }
            NBD_REP_ERR_UNSUP => {
                let name = self.export.clone();
                self.ask(NBD_OPT_EXPORT_NAME, &name, output);
                Ok(Turn::Next)
            }
            reply if is_error(reply) => Err(self.refused(reply, content)),
            _ => Err(unexpected()),
        }
    }

    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Export { size, flags } => self.size_and_flags = Some((size, flags)),
            Fact::BlockSize { minimum, preferred, maximum } => {
                self.block_sizes = Some(BlockSizes { minimum, preferred, maximum });
            }
            Fact::Unknown(_) => {}
        }
    }

    fn export_name(&mut self, input: &[u8]) -> (usize, Turn) {
        let zeroes = if self.omits_zeroes { 0 } else { ExportNameReply::ZEROES };
        let len = ExportNameReply::LEN + zeroes;
        match input.get(..len).and_then(|answer| answer.first_chunk()) {
            Some(answer) => {
                let ExportNameReply { size, flags } = ExportNameReply::decode(answer);
                self.block_sizes = None;
                (len, self.start(size, flags))
            }
            None => (0, Turn::More),
        }
    }

    fn start(&mut self, size: u64, flags: u16) -> Turn {
        self.question = Question::Over;
        Turn::Start(Offer { size, flags, structured: self.structured, block_sizes: self.block_sizes })
    }

    fn refused(&self, reply: u32, content: &[u8]) -> io::Error {
        let export = String::from_utf8_lossy(&self.export);
        let (kind, problem) = match reply {
            NBD_REP_ERR_UNKNOWN => (
                ErrorKind::NotFound,
                format!("the server has no export `{export}`: list the exports (nbdinfo --list)"),
            ),
            NBD_REP_ERR_TLS_REQD => (
                ErrorKind::PermissionDenied,
                "the server demands TLS: write nbds in place of nbd, and add tls-certificates".to_owned(),
            ),
            NBD_REP_ERR_POLICY => (
                ErrorKind::PermissionDenied,
                "the server forbids this client: allow the client there".to_owned(),
            ),
            NBD_REP_ERR_SHUTDOWN => {
                (ErrorKind::ConnectionRefused, "the server is about to stop: start the server".to_owned())
            }
            _ => (
                ErrorKind::Unsupported,
                format!("the server refuses the export `{export}` with error {reply:#x}: see its log"),
            ),
        };
        io::Error::new(kind, format!("{problem}{}", said(content)))
    }
}

fn is_error(reply: u32) -> bool {
    reply & (1 << 31) != 0
}

/// The server's message, for a person.
fn said(content: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(content).chars().take(MESSAGE_SHOWN).collect();
    if text.is_empty() { text } else { format!(" (it says: \"{}\")", text.escape_debug()) }
}

fn broken(problem: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server breaks the NBD protocol: {problem}"))
}

fn unexpected() -> io::Error {
    broken("its answer does not fit the option")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{Access, Facts, Handshake, Step, Zeroes};
    use crate::wire::*;

    /// Runs the machine against prepared bytes of a server. Returns all output, and the last turn.
    fn run(security: Security, input: &[u8]) -> (Vec<u8>, io::Result<Turn>) {
        let (mut negotiation, mut output, mut at) = (Negotiation::new("vol", security), Vec::new(), 0);
        loop {
            match negotiation.receive(&input[at..], &mut output) {
                Ok((used, Turn::Next)) => at += used,
                Ok((_, turn)) => return (output, Ok(turn)),
                Err(error) => return (output, Err(error)),
            }
        }
    }

    fn reply(option: u32, reply: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_option_reply(&mut bytes, option, reply, &[content]);
        bytes
    }

    fn export_fact() -> Vec<u8> {
        [&[0, 0][..], &1_000_000u64.to_be_bytes(), &[0, 5]].concat()
    }

    fn kind(security: Security, input: &[&[u8]]) -> ErrorKind {
        run(security, &input.concat()).1.expect_err("a refusal").kind()
    }

    /// Client and server of this crate talk. Returns the offer.
    fn converse(facts: &Facts, security: Security) -> Offer {
        let mut client = Negotiation::new("vol", security);
        let mut server = match security {
            Security::Plain => Handshake::new(facts),
            Security::Tls => Handshake::demanding_tls(facts),
        };
        let (mut to_server, mut to_client) = (Vec::new(), greeting().to_vec());
        let mut zeroes = Zeroes::Sent;
        loop {
            let (used, turn) = client.receive(&to_client, &mut to_server).expect("agreement");
            to_client.drain(..used);
            match turn {
                Turn::Start(offer) => return offer,
                Turn::Secure => {
                    assert!(to_client.is_empty() && to_server.is_empty());
                    server = Handshake::within_tls(facts, zeroes, Access::ReadWrite);
                    client.within_tls(&mut to_server);
                }
                Turn::Next => {}
                Turn::More => assert!(!to_server.is_empty(), "both sides wait"),
            }
            loop {
                let (used, step) = server.receive(&to_server, &mut to_client);
                to_server.drain(..used);
                match step {
                    Step::Next => {}
                    Step::Secure(wanted) => zeroes = wanted,
                    _ => break,
                }
                if to_server.is_empty() {
                    break;
                }
            }
        }
    }

    #[test]
    fn client_and_server_of_this_crate_agree() {
        let flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH;
        let facts = Facts { name: "vol".into(), size: 1 << 30, preferred_block: 4096, flags };
        for security in [Security::Plain, Security::Tls] {
            let offer = converse(&facts, security);
            let block_sizes = Some(BlockSizes { minimum: 1, preferred: 4096, maximum: 32 << 20 });
            let expected =
                Offer { size: 1 << 30, flags: flags | NBD_FLAG_SEND_DF, structured: true, block_sizes };
            assert_eq!(offer, expected, "{security:?}");
        }
    }

    #[test]
    fn server_without_new_options_is_asked_in_the_old_way() {
        let unsupported = |option| reply(option, NBD_REP_ERR_UNSUP, b"");
        for zeroes in [true, false] {
            let mut greeting = greeting();
            greeting[17] = if zeroes { 1 } else { 3 };
            let (structured, go) = (unsupported(NBD_OPT_STRUCTURED_REPLY), unsupported(NBD_OPT_GO));
            let answer = [&1_000_000u64.to_be_bytes()[..], &[0, 5]].concat();
            let rest = vec![0; if zeroes { 124 } else { 0 }];
            let input = [&greeting[..], &structured, &go, &answer, &rest].concat();
            let (output, turn) = run(Security::Plain, &input);
            let offer = Offer { size: 1_000_000, flags: 5, structured: false, block_sizes: None };
            assert_eq!(turn.unwrap(), Turn::Start(offer));
            assert!(output.ends_with(&encode_option(NBD_OPT_EXPORT_NAME, b"vol")));
            let (_, turn) = run(Security::Plain, &input[..input.len() - 1]);
            assert_eq!(turn.unwrap(), Turn::More);
        }
    }

    #[test]
    fn nothing_but_tls_is_asked_in_plain_and_a_server_without_tls_is_refused() {
        for error in [NBD_REP_ERR_UNSUP, NBD_REP_ERR_POLICY, NBD_REP_ERR_PLATFORM] {
            let answer = reply(NBD_OPT_STARTTLS, error, b"no");
            let (output, turn) = run(Security::Tls, &[&greeting()[..], &answer].concat());
            assert_eq!(turn.unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(output, [&3u32.to_be_bytes()[..], &encode_option(NBD_OPT_STARTTLS, b"")].concat());
        }
    }

    #[test]
    fn refusals_have_kinds() {
        let hello = greeting();
        let structured = reply(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, b"");
        let refused =
            |error| kind(Security::Plain, &[&hello, &structured, &reply(NBD_OPT_GO, error, b"reason")]);
        assert_eq!(refused(NBD_REP_ERR_UNKNOWN), ErrorKind::NotFound);
        assert_eq!(refused(NBD_REP_ERR_POLICY), ErrorKind::PermissionDenied);
        assert_eq!(refused(NBD_REP_ERR_TLS_REQD), ErrorKind::PermissionDenied);
        assert_eq!(refused(NBD_REP_ERR_SHUTDOWN), ErrorKind::ConnectionRefused);
        assert_eq!(refused(NBD_REP_ERR_BLOCK_SIZE_REQD), ErrorKind::Unsupported);
        let tls = reply(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_TLS_REQD, b"");
        assert_eq!(kind(Security::Plain, &[&hello, &tls]), ErrorKind::PermissionDenied);
        let mut old = hello;
        old[17] = 0;
        assert_eq!(kind(Security::Plain, &[&old]), ErrorKind::Unsupported);
        old[8..16].copy_from_slice(&OLDSTYLE_MAGIC.to_be_bytes());
        assert_eq!(kind(Security::Plain, &[&old]), ErrorKind::Unsupported);
    }

    #[test]
    fn protocol_errors_are_invalid_data() {
        let hello = greeting();
        let structured = reply(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, b"");
        let mut long = reply(NBD_OPT_GO, NBD_REP_INFO, b"");
        long[16..20].copy_from_slice(&(ANSWER_LARGEST + 1).to_be_bytes());
        let many = reply(NBD_OPT_GO, NBD_REP_INFO, &[0, 9]).repeat(MOST_ANSWERS as usize + 1);
        let short_fact = reply(NBD_OPT_GO, NBD_REP_INFO, &export_fact()[..11]);
        for answers in [
            &reply(NBD_OPT_GO, NBD_REP_ACK, b"")[..],
            &reply(NBD_OPT_LIST, NBD_REP_ACK, b""),
            &reply(NBD_OPT_GO, NBD_REP_SERVER, b""),
            &[0; 20],
            &long,
            &many,
            &short_fact,
        ] {
            assert_eq!(kind(Security::Plain, &[&hello, &structured, answers]), ErrorKind::InvalidData);
        }
        assert_eq!(kind(Security::Plain, &[b"SSH-2.0-OpenSSH_9.2p1\r\n"]), ErrorKind::InvalidData);
    }
}
