//! Replies to the byte, by a client by hand: what the usual clients do not show.

mod support;

use braid_base::{Bytes, KIB, MIB, Op, Request};
use braid_nbd::wire::*;
use support::raw::{RawClient, Reply};
use support::{BAD_BYTE, Kind, Running, Setup};

/// Writes data at 0..4 KiB and 64..68 KiB; the rest stays a hole.
fn with_two_blocks(server: &Running) -> RawClient {
    let mut client = RawClient::structured(&server.socket);
    for (cookie, offset) in [(1, 0), (2, 64 << 10)] {
        client.request(NBD_CMD_WRITE, NBD_CMD_FLAG_FUA, cookie, offset, 4096);
        client.send(&[cookie as u8; 4096]);
        assert_eq!(client.reply(), Reply::Simple(cookie, 0));
    }
    client
}

fn part(reply: Reply) -> (u16, u16, Vec<u8>) {
    match reply {
        Reply::Part(_, flags, kind, payload) => (flags, kind, payload),
        simple => panic!("a structured reply was expected: {simple:?}"),
    }
}

#[test]
fn holes_in_a_read_take_no_bytes() {
    let server = Running::start(Setup::default());
    let mut client = with_two_blocks(&server);
    client.request(NBD_CMD_READ, 0, 3, 0, 1 << 20);
    let (flags, kind, payload) = part(client.reply());
    assert_eq!((flags, kind, payload.len()), (0, NBD_REPLY_TYPE_OFFSET_DATA, 8 + 4096));
    assert!(payload[8..].iter().all(|&byte| byte == 1));
    let (flags, kind, payload) = part(client.reply());
    assert_eq!((flags, kind), (0, NBD_REPLY_TYPE_OFFSET_HOLE));
    assert_eq!(payload, [&4096u64.to_be_bytes()[..], &(60u32 << 10).to_be_bytes()].concat());
    let (_, kind, payload) = part(client.reply());
    assert_eq!((kind, payload[8]), (NBD_REPLY_TYPE_OFFSET_DATA, 2));
    let (flags, kind, _) = part(client.reply());
    assert_eq!((flags, kind), (NBD_REPLY_FLAG_DONE, NBD_REPLY_TYPE_OFFSET_HOLE));
    server.stop();
}

/// Whatever a request becomes, the export hears of it once and as it was: a recorder depends on that.
#[test]
fn export_is_told_of_each_guest_request_once() {
    let server = Running::start(Setup { keep_asked: true, ..Setup::default() });
    let mut client = with_two_blocks(&server);
    let asked = |op, offset, len| Request { op, offset: Bytes(offset), len };
    let block = KIB * 4;
    assert_eq!(server.asked(), [asked(Op::Write, 0, block), asked(Op::Write, 64 << 10, block)]);
    let plain = [
        (NBD_CMD_READ, 0, 0, 1 << 20, Some(Op::Read)),
        (NBD_CMD_READ, 0, 8 << 20, 4096, Some(Op::Read)),
        (NBD_CMD_READ, 0, 0, 0, None),
        (NBD_CMD_TRIM, NBD_CMD_FLAG_FUA, 1 << 20, 1 << 20, Some(Op::Discard)),
        (NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FUA, 1 << 20, 8 << 20, Some(Op::Discard)),
        (NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE, 1 << 20, 8 << 20, Some(Op::Write)),
        (NBD_CMD_FLUSH, 0, 0, 0, Some(Op::Flush)),
        (NBD_CMD_CACHE, 0, 0, 4096, None),
        (NBD_CMD_BLOCK_STATUS, 0, 0, 1 << 20, None),
        // Refused: beyond the end.
        (NBD_CMD_READ, 0, 1 << 40, 4096, None),
    ];
    for (number, (command, flags, offset, len, op)) in plain.into_iter().enumerate() {
        client.request(command, flags, 3 + number as u64, offset, len);
        while matches!(client.reply(), Reply::Part(_, flags, ..) if flags & NBD_REPLY_FLAG_DONE == 0) {}
        let expected: Vec<Request> =
            op.into_iter().map(|op| asked(op, offset, Bytes(u64::from(len)))).collect();
        assert_eq!(server.asked(), expected, "command {command} at {offset}");
    }
    // A write that is served in pieces of 256 KiB.
    client.request(NBD_CMD_WRITE, 0, 99, 4096, 1 << 20);
    client.send(&[7; 1 << 20]);
    assert_eq!((client.reply(), server.asked()), (Reply::Simple(99, 0), vec![asked(Op::Write, 4096, MIB)]));
    server.stop();
}

#[test]
fn unfragmented_read_is_a_single_part_or_an_error() {
    let server = Running::start(Setup::default());
    let mut client = with_two_blocks(&server);
    client.request(NBD_CMD_READ, NBD_CMD_FLAG_DF, 3, 2048, 64 << 10);
    let (flags, kind, payload) = part(client.reply());
    assert_eq!(
        (flags, kind, payload.len()),
        (NBD_REPLY_FLAG_DONE, NBD_REPLY_TYPE_OFFSET_DATA, 8 + (64 << 10))
    );
    assert_eq!((payload[8], payload[8 + 2048], payload[8 + (62 << 10)]), (1, 0, 2));
    client.request(NBD_CMD_READ, NBD_CMD_FLAG_DF, 4, 0, 1 << 20);
    let (_, kind, payload) = part(client.reply());
    assert_eq!((kind, &payload[..4]), (NBD_REPLY_TYPE_ERROR, &NBD_EOVERFLOW.to_be_bytes()[..]));
    server.stop();
}

#[test]
fn block_status_reports_all_extents_or_only_the_first() {
    let server = Running::start(Setup::default());
    let mut client = with_two_blocks(&server);
    let (data, hole) = (0u32, NBD_STATE_HOLE | NBD_STATE_ZERO);
    let all = [(4 << 10, data), (60 << 10, hole), (4 << 10, data), (956 << 10, hole)];
    for (flags, expected) in [(0, &all[..]), (NBD_CMD_FLAG_REQ_ONE, &all[..1])] {
        client.request(NBD_CMD_BLOCK_STATUS, flags, 5, 0, 1 << 20);
        let (flags, kind, payload) = part(client.reply());
        assert_eq!((flags, kind), (NBD_REPLY_FLAG_DONE, NBD_REPLY_TYPE_BLOCK_STATUS));
        let extents: Vec<u8> = expected.iter().flat_map(|&(len, state)| encode_extent(len, state)).collect();
        assert_eq!(payload[4..], extents);
    }
    client.request(NBD_CMD_TRIM, NBD_CMD_FLAG_FUA, 6, 0, 68 << 10);
    assert_eq!(client.reply(), Reply::Simple(6, 0));
    client.request(NBD_CMD_BLOCK_STATUS, 0, 7, 0, 64 << 20);
    let (.., payload) = part(client.reply());
    assert_eq!(payload[4..], encode_extent(64 << 20, hole));
    server.stop();
}

#[test]
fn zero_length_and_unknown_requests_are_answered() {
    let server = Running::start(Setup::default());
    let mut client = RawClient::structured(&server.socket);
    for (command, flags, error) in [
        (NBD_CMD_WRITE, 0, 0),
        (NBD_CMD_TRIM, 0, 0),
        (NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE, 0),
        (NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, NBD_ENOTSUP),
        (NBD_CMD_CACHE, 0, 0),
        (NBD_CMD_FLUSH, NBD_CMD_FLAG_FUA, 0),
        (77, 0, NBD_EINVAL),
    ] {
        client.request(command, flags, 8, 0, 0);
        assert_eq!(client.reply(), Reply::Simple(8, error), "command {command}");
    }
    client.request(NBD_CMD_READ, 0, 9, 0, 0);
    assert_eq!(part(client.reply()), (NBD_REPLY_FLAG_DONE, NBD_REPLY_TYPE_NONE, vec![]));
    client.request(NBD_CMD_BLOCK_STATUS, 0, 9, 0, 0);
    assert_eq!(part(client.reply()).1, NBD_REPLY_TYPE_ERROR);
    server.wait_until("errors are counted", |state| state.counters.errors == 3);
    server.stop();
}

#[test]
fn long_simple_read_is_a_single_reply_in_order() {
    let server = Running::start(Setup { arena: MIB * 8, ..Setup::default() });
    let mut client = RawClient::simple(&server.socket);
    let image: Vec<u8> = (0..8u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    client.request(NBD_CMD_WRITE, 0, 1, MIB.0, image.len() as u32);
    client.send(&image);
    assert_eq!(client.reply(), Reply::Simple(1, 0));
    client.request(NBD_CMD_READ, 0, 2, MIB.0, 512);
    client.request(NBD_CMD_READ, 0, 3, MIB.0, image.len() as u32);
    client.request(NBD_CMD_READ, 0, 4, MIB.0 + KIB.0, 512);
    assert_eq!(client.reply(), Reply::Simple(2, 0));
    assert_eq!(client.receive(512), image[..512]);
    assert_eq!(client.reply(), Reply::Simple(3, 0));
    assert!(client.receive(image.len()) == image);
    assert_eq!(client.reply(), Reply::Simple(4, 0));
    assert_eq!(client.receive(512), image[1024..1536]);
    server.stop();
}

#[test]
fn an_error_in_the_middle_of_a_read_never_looks_like_success() {
    let server = Running::start(Setup { kind: Kind::Broken, ..Setup::default() });
    let mut modern = RawClient::structured(&server.socket);
    modern.request(NBD_CMD_READ, 0, 1, 0, 4 << 20);
    let replies: Vec<_> = std::iter::from_fn(|| Some(part(modern.reply())))
        .take((BAD_BYTE / (KIB * 256)) as usize + 1)
        .collect();
    let (last, data) = replies.split_last().unwrap();
    assert!(data.iter().all(|(flags, kind, _)| (*flags, *kind) == (0, NBD_REPLY_TYPE_OFFSET_DATA)));
    assert_eq!((last.0, last.1), (NBD_REPLY_FLAG_DONE, NBD_REPLY_TYPE_ERROR));
    let mut old = RawClient::simple(&server.socket);
    old.request(NBD_CMD_READ, 0, 1, BAD_BYTE.0 - 1, 2);
    assert_eq!(old.reply(), Reply::Simple(1, NBD_EIO));
    old.request(NBD_CMD_READ, 0, 2, 0, 32 << 20);
    assert!(old.try_receive(16 + (32 << 20)).is_err(), "the connection ends before the bytes do");
    modern.request(NBD_CMD_WRITE, 0, 3, 0, 4 << 20);
    modern.send(&vec![1; 4 << 20]);
    assert_eq!(modern.reply(), Reply::Simple(3, NBD_EIO));
    server.stop();
}
