//! Input of the NBD client: bytes of a hostile server.

use braid_nbd::client::{Command, Negotiation, Replies, ReplyStep, Security, Turn};
use braid_nbd::handshake::OPTION_LARGEST;
use braid_nbd::wire::options::*;
use braid_nbd::wire::*;
use std::ops::Range;

/// The whole negotiation, in plain, before TLS and within TLS: ends, uses no more bytes than given, and does
/// the same for any cut of the bytes.
pub fn nbd_server_handshake(bytes: &[u8]) {
    let Some((&step, stream)) = bytes.split_first() else { return };
    for security in [Security::Plain, Security::Tls] {
        let whole = negotiate(security, stream, stream.len());
        let in_pieces = negotiate(security, stream, usize::from(step) + 1);
        assert_eq!(whole, in_pieces, "the outcome depends on how the bytes arrived");
    }
}

/// Negotiates with bytes that arrive in pieces of `piece`. Returns the client's bytes, and the outcome with
/// the number of unused bytes.
fn negotiate(security: Security, stream: &[u8], piece: usize) -> (Vec<u8>, Result<(Turn, usize), String>) {
    let mut negotiation = Negotiation::new("vault", security);
    let (mut output, mut at, mut held) = (Vec::new(), 0, 0);
    loop {
        let before = output.len();
        let (used, turn) = match negotiation.receive(&stream[at..held], &mut output) {
            Ok(next) => next,
            Err(error) => return (output, Err(error.to_string())),
        };
        assert!(used <= held - at, "used {used} of {}", held - at);
        assert!(output.len() - before < 100, "one message was answered at length");
        at += used;
        match turn {
            Turn::More if held == stream.len() => return (output, Ok((turn, stream.len() - at))),
            Turn::More => {
                let whole = OptionReplyHead::LEN + OPTION_LARGEST as usize;
                assert!(held - at < whole, "more is wanted though a whole message is there");
                held = (held + piece.max(1)).min(stream.len());
            }
            Turn::Next => assert!(used > 0, "nothing was used, and the next message is asked for"),
            Turn::Secure => negotiation.within_tls(&mut output),
            Turn::Start(_) => return (output, Ok((turn, stream.len() - at))),
        }
    }
}

/// Negotiations of servers: with everything, with the oldest option alone, with refusals, with TLS.
pub fn server_handshakes() -> Vec<Vec<u8>> {
    let answer = |option, reply, content: &[u8]| {
        let mut bytes = Vec::new();
        put_option_reply(&mut bytes, option, reply, &[content]);
        bytes
    };
    let export = [&[0, 0][..], &(1u64 << 30).to_be_bytes(), &[0, 13]].concat();
    let sizes = [&[0, 3][..], &[512u32, 4096, 1 << 25].map(u32::to_be_bytes).concat()].concat();
    let go = [
        answer(NBD_OPT_GO, NBD_REP_INFO, &export),
        answer(NBD_OPT_GO, NBD_REP_INFO, &sizes),
        answer(NBD_OPT_GO, NBD_REP_INFO, b"\0\x01vault"),
        answer(NBD_OPT_GO, NBD_REP_ACK, b""),
    ]
    .concat();
    let hello = [&[7][..], &greeting()].concat();
    let structured = answer(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, b"");
    let simple = answer(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_UNSUP, b"");
    let tls = answer(NBD_OPT_STARTTLS, NBD_REP_ACK, b"");
    let no_go = answer(NBD_OPT_GO, NBD_REP_ERR_UNSUP, b"what?");
    let unknown = answer(NBD_OPT_GO, NBD_REP_ERR_UNKNOWN, b"no vault here");
    let old = [&(1u64 << 30).to_be_bytes()[..], &[0, 13]].concat();
    vec![
        [&hello[..], &structured, &go].concat(),
        [&hello[..], &tls, &structured, &go].concat(),
        [&hello[..], &simple, &no_go, &old].concat(),
        [&hello[..], &simple, &unknown].concat(),
    ]
}

/// Requests in flight: command, offset and length.
const REQUESTS: [(Command, u64, u32); 5] = [
    (Command::Read, 0, 8192),
    (Command::Read, 1 << 40, 512),
    (Command::Write, 4096, 4096),
    (Command::Flush, 0, 0),
    (Command::Discard, 0, 1 << 30),
];

/// Replies to a few requests, simple or structured: each byte of a read comes at most once and inside the
/// request, each request ends once, a successful read is whole, and any cut of the bytes gives the same.
pub fn nbd_reply(bytes: &[u8]) {
    let Some((&first, stream)) = bytes.split_first() else { return };
    let (structured, piece) = (first & 1 != 0, usize::from(first >> 1) + 1);
    assert_eq!(
        decode(structured, stream, stream.len().max(1)),
        decode(structured, stream, piece),
        "the outcome depends on how the bytes arrived"
    );
}

/// Result of a stream: steps up to the end or a fault.
type Outcome = (Vec<ReplyStep>, Option<&'static str>);

fn decode(structured: bool, stream: &[u8], piece: usize) -> Outcome {
    let mut replies = Replies::new(structured);
    let mut missing: Vec<Vec<Range<u64>>> = Vec::new();
    for (command, offset, len) in REQUESTS {
        replies.expect(command, offset, len);
        let whole = (command == Command::Read).then_some(0..u64::from(len));
        missing.push(whole.into_iter().collect());
    }
    let (mut at, mut held, mut steps, mut ended) = (0, 0, Vec::new(), [false; REQUESTS.len()]);
    loop {
        let (used, step) = match replies.receive(&stream[at..held]) {
            Ok(next) => next,
            Err(fault) => return (steps, Some(fault)),
        };
        assert!(used <= held - at, "used {used} of {}", held - at);
        at += used;
        match &step {
            ReplyStep::More if held == stream.len() => return (steps, None),
            ReplyStep::More => {
                assert!(held - at < 8192, "more is wanted though a whole head is there");
                held = (held + piece).min(stream.len());
                continue;
            }
            ReplyStep::Next => assert!(used > 0, "nothing was used, and the next part is asked for"),
            ReplyStep::Payload(slot, range) => {
                fill(&mut missing[*slot], range);
                at += (range.end - range.start) as usize;
                if at > stream.len() {
                    return (steps, None);
                }
                held = held.max(at);
            }
            ReplyStep::Zeros(slot, range) => fill(&mut missing[*slot], range),
            ReplyStep::Done(slot, result) => {
                assert!(!std::mem::replace(&mut ended[*slot], true), "a request ended twice");
                assert!(result.is_err() || missing[*slot].is_empty(), "a read lacks bytes");
                replies.release(*slot);
            }
        }
        steps.push(step);
    }
}

/// Takes a range out of the missing ranges.
fn fill(missing: &mut Vec<Range<u64>>, range: &Range<u64>) {
    let whole = missing.iter().position(|left| left.start <= range.start && range.end <= left.end);
    let left = missing.swap_remove(whole.expect("bytes came twice, or outside the request"));
    let rest = [left.start..range.start, range.end..left.end];
    missing.extend(rest.into_iter().filter(|part| !part.is_empty()));
}

/// Streams of replies to all requests: simple, and structured in several parts.
pub fn replies() -> Vec<Vec<u8>> {
    let cookies = || {
        let mut replies = Replies::new(true);
        REQUESTS.map(|(command, offset, len)| replies.expect(command, offset, len).1)
    };
    let [long, short, write, flush, discard] = cookies();
    let bytes =
        |heads: &[Head]| -> Vec<u8> { heads.iter().flat_map(|head| head.as_bytes().to_vec()).collect() };
    let simple = [
        vec![14],
        bytes(&[Head::simple(flush, 0), Head::simple(short, 0)]),
        vec![1; 512],
        bytes(&[Head::simple(write, NBD_ENOSPC), Head::simple(discard, 0), Head::simple(long, NBD_EIO)]),
    ];
    let structured = [
        vec![15],
        bytes(&[Head::offset_data(long, Part::More, 4096, 1024)]),
        vec![2; 1024],
        bytes(&[Head::done(write), Head::offset_hole(long, Part::More, 0, 4096)]),
        bytes(&[Head::offset_data(short, Part::Last, 1 << 40, 512)]),
        vec![3; 512],
        bytes(&[Head::error(discard, NBD_ENOTSUP), Head::offset_hole(long, Part::Last, 5120, 3072)]),
        bytes(&[Head::simple(flush, 0)]),
    ];
    vec![simple.concat(), structured.concat()]
}
