//! Input of the doors: NBD clients, and the kernel's requests by FUSE and ublk.

use braid_nbd::handshake::{Access, Facts, Handshake, OPTION_LARGEST, Step, Zeroes};
use braid_nbd::wire::options::{ContextQuery, InfoQuery, OptionHead, encode_option};
use braid_nbd::wire::{NBD_CMD_READ, NBD_CMD_WRITE, Request};

/// The whole negotiation, without TLS, before TLS and within TLS: ends, uses no more bytes than given, and
/// answers the same for any cut of the bytes.
pub fn nbd_handshake(bytes: &[u8]) {
    let Some((&step, stream)) = bytes.split_first() else { return };
    let facts = Facts { name: "vault".to_owned(), size: 1 << 30, preferred_block: 4096, flags: 1 };
    let start = |part| match part {
        0 => Handshake::new(&facts),
        1 => Handshake::demanding_tls(&facts),
        _ => Handshake::within_tls(&facts, Zeroes::Sent, Access::ReadOnly),
    };
    for part in 0..3 {
        let whole = negotiate(start(part), stream, stream.len());
        let in_pieces = negotiate(start(part), stream, usize::from(step) + 1);
        assert_eq!(whole, in_pieces, "the answer depends on how the bytes arrived");
    }
}

/// Negotiates with bytes that arrive in pieces of `piece`. Returns the answer, and the number of unused
/// bytes.
fn negotiate(mut handshake: Handshake<'_>, stream: &[u8], piece: usize) -> (Vec<u8>, Option<usize>) {
    let (mut output, mut at, mut held) = (Vec::new(), 0, 0);
    loop {
        let before = output.len();
        let (used, step) = handshake.receive(&stream[at..held], &mut output);
        assert!(used <= held - at, "used {used} of {}", held - at);
        assert!(
            output.len() - before < 4096,
            "one message was answered with {} bytes",
            output.len() - before
        );
        at += used;
        match step {
            Step::More if held == stream.len() => return (output, Some(stream.len() - at)),
            Step::More => {
                let whole = OptionHead::LEN + OPTION_LARGEST as usize;
                assert!(held - at < whole, "more is wanted though a whole message is there");
                held = (held + piece.max(1)).min(stream.len());
            }
            Step::Next => assert!(used > 0, "nothing was used, and the next message is asked for"),
            Step::Start(_) | Step::Secure(_) => return (output, Some(stream.len() - at)),
            Step::Close => return (output, None),
        }
    }
}

pub fn handshakes() -> Vec<Vec<u8>> {
    let string = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
    let info = [string(b"vault"), vec![0, 2, 0, 3, 0, 1]].concat();
    let contexts = [string(b""), 1u32.to_be_bytes().to_vec(), string(b"base:allocation")].concat();
    let all = [
        vec![3, 0, 0, 0, 3],
        encode_option(8, &[]),
        encode_option(3, &[]),
        encode_option(9, &contexts),
        encode_option(10, &contexts),
        encode_option(6, &info),
        encode_option(5, &[]),
        encode_option(7, &info),
    ];
    let old = [vec![0, 0, 0, 0, 1], encode_option(1, b"vault")].concat();
    let abort = [vec![9, 0, 0, 0, 3], encode_option(2, &[])].concat();
    vec![all.concat(), old, abort]
}

/// Heads and contents of requests, each alone.
pub fn nbd_request(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk()
        && let Some(request) = Request::decode(head)
    {
        assert_eq!(request.encode(), *head);
    }
    if let Some(head) = bytes.first_chunk() {
        let _ = OptionHead::decode(head);
    }
    if let Some(query) = InfoQuery::decode(bytes) {
        let _ = query.wants(3);
    }
    if let Some(query) = ContextQuery::decode(bytes) {
        assert_eq!(query.queries().count(), query.count as usize);
    }
}

pub fn requests() -> Vec<Vec<u8>> {
    let request =
        |command| Request { flags: 1, command, cookie: 77, offset: 4096, len: 8192 }.encode().to_vec();
    let info = [0u32.to_be_bytes().to_vec(), vec![0, 1, 0, 3]].concat();
    let contexts =
        [vec![0; 4], 1u32.to_be_bytes().to_vec(), 4u32.to_be_bytes().to_vec(), b"base".to_vec()].concat();
    vec![request(NBD_CMD_READ), request(NBD_CMD_WRITE), info, contexts]
}

/// Requests of the kernel. The first byte is the number of received bytes.
pub fn fuse_request(bytes: &[u8]) {
    let Some((&received, rest)) = bytes.split_first() else { return };
    let mut head = [0; braid_fuse::REQUEST_HEAD];
    let len = rest.len().min(head.len());
    head[..len].copy_from_slice(&rest[..len]);
    let decoded = braid_fuse::describe_request(&head, received.into());
    assert_eq!(decoded.is_some(), received >= 40, "a request has a header of 40 bytes");
}

pub fn fuse_requests() -> Vec<Vec<u8>> {
    let request = |opcode: u32| {
        let body = [0u64, 4096, 8192, 3, 0].map(u64::to_ne_bytes).concat();
        [vec![80], 80u32.to_ne_bytes().to_vec(), opcode.to_ne_bytes().to_vec(), vec![1; 32], body].concat()
    };
    (1..=46).map(request).collect()
}

/// Entries of the kernel's table of requests. A range ends within 2^64 bytes, or is refused.
pub fn ublk_request(bytes: &[u8]) {
    let Some(entry) = bytes.first_chunk::<{ braid_ublk::REQUEST_ENTRY }>() else { return };
    let number = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
    let sectors = u32::from_ne_bytes(entry[4..8].try_into().expect("four bytes"));
    let end = u128::from(number(8)) * 512 + u128::from(sectors) * 512;
    let decoded = braid_ublk::describe_request(entry);
    let is_flush = u32::from_ne_bytes(entry[..4].try_into().expect("four bytes")) & 0xff == 2;
    assert_eq!(decoded.is_some(), is_flush || end <= u128::from(u64::MAX), "{decoded:?} ends at {end}");
}

pub fn ublk_requests() -> Vec<Vec<u8>> {
    let request = |operation: u32| {
        let head = [operation, 8].map(u32::to_ne_bytes).concat();
        [head, [4096u64, 0].map(u64::to_ne_bytes).concat()].concat()
    };
    (0..=18).chain([0x801, 0x2001, 0x8005]).map(request).collect()
}
