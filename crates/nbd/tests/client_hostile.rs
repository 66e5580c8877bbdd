//! The client against servers that break the protocol, fall silent, or fail.

#![allow(clippy::unwrap_used, reason = "a test may unwrap")]

mod support;

use braid_base::{Bytes, KIB, MIB};
use braid_nbd::client::{Access, Limits, RemoteDevice};
use braid_nbd::wire::options::*;
use braid_nbd::wire::*;
use braid_runtime::{Buf, Device, join_all};
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::task::{Context, Waker};
use support::remote::{errno, filled, impatient, open, open_as, refusal, with_ring};
use support::scripted::{FLAGS, Peer, Scripted};

const BLOCK: Bytes = Bytes(4096);

/// Every request of a lost device fails with this kind.
async fn assert_lost(device: &RemoteDevice, buf: &Buf, kind: ErrorKind) {
    let results = [
        device.read(Bytes::ZERO, buf).await,
        device.write(Bytes::ZERO, buf).await,
        device.flush().await,
        device.discard(Bytes::ZERO, BLOCK).await,
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind(), kind);
    }
}

/// Ten reads in flight, then a hostile server: all end with the kind, and the device is lost.
fn reads_end_with(
    structured: bool,
    kind: ErrorKind,
    script: impl Fn(&mut Peer, Vec<Request>) + Send + Sync + 'static,
) {
    let server = Scripted::serving(structured, move |mut peer| {
        let requests = (0..10).map(|_| peer.request().0).collect();
        script(&mut peer, requests);
    });
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        let bufs = join_all((0..10).map(|_| filled(arena, BLOCK, 1))).await;
        let reads = bufs.iter().enumerate().map(|(at, buf)| device.read(BLOCK * at as u64, buf));
        for result in join_all(reads).await {
            assert_eq!(result.unwrap_err().kind(), kind);
        }
        assert_lost(&device, &bufs[0], kind).await;
    });
}

#[test]
fn reply_to_no_request_is_the_end() {
    reads_end_with(false, ErrorKind::InvalidData, |peer, requests| {
        peer.reply(Head::simple(!requests[0].cookie, 0));
        peer.rest();
    });
}

#[test]
fn flood_of_replies_is_the_end() {
    reads_end_with(true, ErrorKind::InvalidData, |peer, requests| {
        peer.send(&Head::error(!requests[0].cookie, 5).as_bytes().repeat(1_000_000));
    });
}

#[test]
fn bytes_that_are_no_reply_are_the_end() {
    for structured in [false, true] {
        reads_end_with(structured, ErrorKind::InvalidData, |peer, _| {
            peer.send(b"HTTP/1.1 400 Bad Request\r\n");
            peer.rest();
        });
    }
}

#[test]
fn end_within_a_payload_is_the_end() {
    reads_end_with(false, ErrorKind::UnexpectedEof, |peer, requests| {
        peer.reply(Head::simple(requests[3].cookie, 0));
        peer.send(&[7; 4095]);
    });
    reads_end_with(true, ErrorKind::UnexpectedEof, |peer, requests| {
        let Request { cookie, offset, .. } = requests[3];
        peer.reply(Head::offset_data(cookie, Part::Last, offset, 4096));
        peer.send(&[7; 4095]);
    });
}

#[test]
fn doubled_missing_and_foreign_parts_are_the_end() {
    let wrong: [fn(u64, u64) -> Vec<Head>; 4] = [
        |cookie, at| vec![Head::offset_hole(cookie, Part::Last, at, 4097)],
        |cookie, at| vec![Head::offset_hole(cookie, Part::Last, at, 4095)],
        |cookie, at| {
            vec![
                Head::offset_hole(cookie, Part::More, at, 9),
                Head::offset_hole(cookie, Part::Last, at + 8, 9),
            ]
        },
        |cookie, _| vec![Head::done(cookie)],
    ];
    for heads in wrong {
        reads_end_with(true, ErrorKind::InvalidData, move |peer, requests| {
            let Request { cookie, offset, .. } = requests[9];
            heads(cookie, offset).into_iter().for_each(|head| peer.reply(head));
            peer.rest();
        });
    }
}

#[test]
fn server_that_stops_is_the_end() {
    reads_end_with(true, ErrorKind::ConnectionAborted, |peer, requests| {
        peer.reply(Head::error(requests[5].cookie, NBD_ESHUTDOWN));
        peer.rest();
    });
}

#[test]
fn end_of_one_connection_is_the_end_of_all() {
    let server = Scripted::start(4, |number, mut peer| {
        peer.negotiate(FLAGS | NBD_FLAG_CAN_MULTI_CONN, true);
        if number == 2 {
            drop(peer.request());
        } else {
            peer.rest();
        }
    });
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        assert_eq!(device.connections(), 4);
        let bufs = join_all((0..20).map(|_| filled(arena, BLOCK, 1))).await;
        let writes = bufs.iter().map(|buf| device.write(Bytes::ZERO, buf));
        let kinds = join_all(writes).await.into_iter().map(|result| result.unwrap_err().kind());
        let kinds: Vec<ErrorKind> = kinds.collect();
        assert!(kinds.iter().all(|kind| *kind == kinds[0]), "{kinds:?}");
        assert_lost(&device, &bufs[0], kinds[0]).await;
    });
}

#[test]
fn connections_with_different_exports_are_refused() {
    let server = Scripted::start(4, |number, mut peer| {
        let other = if number == 3 { NBD_FLAG_SEND_CACHE } else { 0 };
        peer.negotiate(FLAGS | NBD_FLAG_CAN_MULTI_CONN | other, true);
        peer.rest();
    });
    assert_eq!(refusal(&server.uri()), ErrorKind::InvalidData);
}

#[test]
fn replies_byte_by_byte_and_in_any_order_are_taken() {
    let server = Scripted::serving(true, |mut peer| {
        let requests: Vec<Request> = (0..10).map(|_| peer.request().0).collect();
        for Request { cookie, offset, .. } in requests.into_iter().rev() {
            let (half, mark) = (offset + 2048, [(offset >> 12) as u8; 2048]);
            let later = Head::offset_data(cookie, Part::More, half, 2048);
            let first = Head::offset_hole(cookie, Part::Last, offset, 2048);
            for byte in [later.as_bytes(), &mark, first.as_bytes()].concat() {
                peer.send(&[byte]);
            }
        }
        peer.rest();
    });
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        let bufs = join_all((0..10).map(|_| filled(arena, BLOCK, 0xee))).await;
        let reads = bufs.iter().enumerate().map(|(at, buf)| device.read(BLOCK * at as u64, buf));
        assert!(join_all(reads).await.iter().all(Result::is_ok));
        for (at, buf) in bufs.iter().enumerate() {
            assert_eq!(buf.to_vec(), [vec![0; 2048], vec![at as u8; 2048]].concat());
        }
    });
}

/// Story: with a full send buffer no byte leaves, and the futures of writes must end all the same.
#[test]
fn server_that_never_reads_is_lost_after_the_silence() {
    let server = Scripted::serving(false, |peer| {
        // The peer stays open until the client gives up.
        let mut events = [rustix::event::PollFd::new(&peer.stream, rustix::event::PollFlags::HUP)];
        rustix::event::poll(&mut events, None).expect("a poll");
    });
    with_ring(async |ring, arena| {
        let limits = impatient();
        let device = open_as(ring, &server.uri(), Access::ReadWrite, limits).await.expect("a device");
        let bufs = join_all((0..32).map(|_| filled(arena, MIB, 1))).await;
        let writes = bufs.iter().map(|buf| device.write(Bytes::ZERO, buf));
        for result in join_all(writes).await {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        }
        assert_lost(&device, &bufs[0], ErrorKind::TimedOut).await;
    });
}

#[test]
fn errors_of_the_server_keep_their_numbers() {
    let numbers =
        [NBD_EPERM, NBD_EIO, NBD_ENOMEM, NBD_EINVAL, NBD_ENOSPC, NBD_EOVERFLOW, NBD_ENOTSUP, 77, u32::MAX];
    for structured in [false, true] {
        let server = Scripted::serving(structured, move |mut peer| {
            for error in numbers {
                let cookie = peer.request().0.cookie;
                peer.reply(if structured { Head::error(cookie, error) } else { Head::simple(cookie, error) });
            }
            peer.rest();
        });
        with_ring(async |ring, arena| {
            let device = open(ring, &server.uri()).await.expect("a device");
            let buf = filled(arena, BLOCK, 1).await;
            for (at, number) in numbers.into_iter().enumerate() {
                let result = match at % 2 {
                    0 => device.read(BLOCK, &buf).await,
                    _ => device.write(BLOCK, &buf).await,
                };
                let expected = if number == 77 || number == u32::MAX { NBD_EINVAL } else { number };
                assert_eq!(errno(&result.unwrap_err()), Some(expected as i32));
            }
        });
    }
}

#[test]
fn failed_flush_fails_all_later_flushes() {
    let server = Scripted::serving(true, |mut peer| {
        let (flush, _) = peer.request();
        assert_eq!(flush.command, NBD_CMD_FLUSH);
        peer.reply(Head::error(flush.cookie, NBD_EIO));
        // No flush, but the write.
        let (write, payload) = peer.request();
        assert_eq!((write.command, payload), (NBD_CMD_WRITE, vec![1; 4096]));
        peer.reply(Head::done(write.cookie));
        peer.rest();
    });
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        assert_eq!(errno(&device.flush().await.unwrap_err()), Some(5));
        assert!(device.flush().await.is_err());
        device.write(Bytes::ZERO, &filled(arena, BLOCK, 1).await).await.expect("a write");
        assert!(device.flush().await.is_err());
    });
}

/// Story: a flush whose future was dropped failed unseen, and the next flush promised the lost data.
#[test]
fn failure_of_a_dropped_flush_counts() {
    let server = Scripted::serving(true, |mut peer| {
        let (flush, _) = peer.request();
        peer.reply(Head::error(flush.cookie, NBD_EIO));
        let (read, _) = peer.request();
        peer.reply(Head::offset_hole(read.cookie, Part::Last, read.offset, read.len));
        peer.rest();
    });
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        assert!(pin!(device.flush()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        device.read(Bytes::ZERO, &filled(arena, BLOCK, 1).await).await.expect("a read");
        assert!(device.flush().await.is_err());
    });
}

#[test]
fn dropped_requests_leave_the_stream_whole() {
    let server = Scripted::serving(false, |mut peer| {
        for _ in 0..3 {
            let (read, _) = peer.request();
            let (write, payload) = peer.request();
            assert_eq!((read.command, write.command, payload.len()), (NBD_CMD_READ, NBD_CMD_WRITE, 262_144));
            peer.reply(Head::simple(write.cookie, 0));
            peer.reply(Head::simple(read.cookie, 0));
            peer.send(&vec![9; read.len as usize]);
        }
        peer.rest();
    });
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        let (into, from) = (filled(arena, KIB * 256, 1).await, filled(arena, KIB * 256, 2).await);
        for round in 0..3 {
            let (mut read, mut write) =
                (pin!(device.read(Bytes::ZERO, &into)), pin!(device.write(Bytes::ZERO, &from)));
            let mut nobody = Context::from_waker(Waker::noop());
            assert!(
                read.as_mut().poll(&mut nobody).is_pending() && write.as_mut().poll(&mut nobody).is_pending()
            );
            if round == 2 {
                write.await.expect("a write");
                read.await.expect("a read");
                assert!(into.to_vec().iter().all(|&byte| byte == 9));
            }
        }
    });
}

#[test]
fn dropped_device_says_goodbye() {
    let server = Scripted::serving(true, |mut peer| {
        assert_eq!(peer.request().0.command, NBD_CMD_DISC);
        assert!(peer.rest().is_empty());
    });
    with_ring(async |ring, _| drop(open(ring, &server.uri()).await.expect("a device")));
}

#[test]
fn server_without_trim_is_asked_for_none() {
    let server = Scripted::start(1, |_, mut peer| {
        peer.negotiate(FLAGS & !NBD_FLAG_SEND_TRIM, true);
        assert_eq!(peer.request().0.command, NBD_CMD_DISC);
    });
    with_ring(async |ring, _| {
        let device = open(ring, &server.uri()).await.expect("a device");
        device.discard(Bytes::ZERO, MIB).await.expect("a hint");
    });
}

#[test]
fn hostile_negotiations_are_refused() {
    let facts = |peer: &mut Peer| {
        peer.send(&greeting());
        let mut reply = Vec::new();
        put_option_reply(&mut reply, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, &[]);
        peer.send(&reply);
        reply.clear();
        put_option_reply(&mut reply, NBD_OPT_GO, NBD_REP_INFO, &[&[0, 77], &[0; 1000]]);
        peer.send(&reply.repeat(10_000));
        peer.rest();
    };
    let garbage = |peer: &mut Peer| {
        peer.send(&[0x55; 100_000]);
        peer.rest();
    };
    let end = |peer: &mut Peer| peer.send(&greeting());
    type Script = fn(&mut Peer);
    let cases: [(Script, ErrorKind); 3] =
        [(facts, ErrorKind::InvalidData), (garbage, ErrorKind::InvalidData), (end, ErrorKind::UnexpectedEof)];
    for (script, kind) in cases {
        let server = Scripted::start(1, move |_, mut peer| script(&mut peer));
        let found = refusal(&server.uri());
        // The client's own bytes may meet the end first.
        let is_end = kind == ErrorKind::UnexpectedEof
            && matches!(found, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
        assert!(found == kind || is_end, "{found:?}");
    }
}

#[test]
fn silent_negotiation_ends_at_its_limit() {
    let server = Scripted::start(1, |_, mut peer| {
        peer.send(&greeting());
        peer.rest();
    });
    let kind = with_ring(async |ring, _| {
        let limits = Limits { silence: Limits::default().silence, ..impatient() };
        open_as(ring, &server.uri(), Access::ReadWrite, limits).await.err().expect("a refusal").kind()
    });
    assert_eq!(kind, ErrorKind::TimedOut);
}

/// Story: bytes that an attacker adds behind the answer to STARTTLS would count as bytes of the server.
#[test]
fn plain_bytes_before_tls_are_refused() {
    let authority = tempfile::tempdir().expect("a directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::default();
    let pem = params.self_signed(&key).expect("a certificate").pem();
    std::fs::write(authority.path().join("ca-cert.pem"), pem).expect("room");
    let server = Scripted::start(1, |_, mut peer| {
        peer.send(&greeting());
        peer.receive(4);
        assert_eq!(peer.option().0, NBD_OPT_STARTTLS);
        let mut reply = Vec::new();
        put_option_reply(&mut reply, NBD_OPT_STARTTLS, NBD_REP_ACK, &[]);
        put_option_reply(&mut reply, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, &[]);
        peer.send(&reply);
        assert!(peer.rest().is_empty(), "the client went on");
    });
    let uri = server.uri().replace("nbd+", "nbds+");
    assert_eq!(
        refusal(&format!("{uri}&tls-certificates={}", authority.path().display())),
        ErrorKind::InvalidData
    );
}
