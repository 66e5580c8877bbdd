//! Clients that break the rules of TLS, or have no right to come: nothing is served, and others are.

#[path = "support/certificates.rs"]
mod certificates;
mod support;
#[path = "support/tls.rs"]
mod tls;

use braid_base::{Nanos, Rng};
use braid_nbd::wire::options::*;
use braid_nbd::wire::*;
use certificates::{Authority, Identity, Wanted};
use rcgen::ExtendedKeyUsagePurpose;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::raw::RawClient;
use support::{Kind, Running, Setup};
use tls::{Secured, TlsClient, start_tls};

/// Writes and reads as a client with rights.
fn still_serves(secured: &Secured) {
    let mut client = secured.connect("good");
    assert_eq!(client.begin() & NBD_FLAG_READ_ONLY, 0);
    writes_and_reads(&mut client);
    client.request(NBD_CMD_DISC, 3, 0, 0);
    assert!(client.is_ended_cleanly(), "the server announces the end");
}

fn writes_and_reads(client: &mut TlsClient) {
    client.request(NBD_CMD_WRITE, 1, 8192, 4);
    client.send(b"good");
    assert_eq!(client.error(), 0);
    client.request(NBD_CMD_READ, 2, 8192, 4);
    assert_eq!((client.error(), client.receive(4)), (0, b"good".to_vec()));
}

/// True if the server refuses a certificate: TLS 1.3 tells the client after its own handshake is complete.
fn is_refused(secured: &Secured, identity: Option<&Identity>) -> bool {
    let told = secured.connect_as(identity).and_then(|mut client| {
        client.stream.write_all(&encode_option(NBD_OPT_LIST, &[]))?;
        client.try_receive(20)
    });
    told.is_err()
}

#[test]
fn certificates_of_strangers_are_refused() {
    let revoked = std::cell::OnceCell::new();
    let secured = Secured::start_with(Setup::default(), &[], |authority| {
        let lost = revoked.get_or_init(|| authority.sign(&Wanted::client("lost")));
        authority.revoke(lost)
    });
    let own = |wanted: Wanted<'_>| secured.authority.sign(&wanted);
    let client = Wanted::client("good");
    assert!(!is_refused(&secured, Some(&own(client))));
    let cases = [
        ("no certificate", None),
        ("of another authority with the same name", Some(Authority::new().sign(&Wanted::client("good")))),
        ("expired", Some(own(Wanted { years: (2000, 2020), ..Wanted::client("good") }))),
        ("not valid yet", Some(own(Wanted { years: (2190, 2200), ..Wanted::client("good") }))),
        ("a server's", Some(own(Wanted::server()))),
        (
            "for signing code",
            Some(own(Wanted { usage: ExtendedKeyUsagePurpose::CodeSigning, ..Wanted::client("good") })),
        ),
        ("revoked", revoked.into_inner()),
    ];
    for (before, (what, identity)) in cases.iter().enumerate() {
        assert!(is_refused(&secured, identity.as_ref()), "{what}");
        secured.server.wait_until(what, |state| state.counters.unsecured == before as u64 + 1);
    }
    still_serves(&secured);
    secured.server.stop();
}

#[test]
fn client_of_another_name_learns_why_and_nothing_else() {
    let secured = Secured::start(Setup::default(), &["good=vol", "reader=vol:ro", "other=pool"]);
    for stranger in ["bad", "other", "good.example.org", "Good"] {
        let mut client = secured.connect(stranger);
        for option in [NBD_OPT_LIST, NBD_OPT_INFO, NBD_OPT_GO, NBD_OPT_SET_META_CONTEXT] {
            let (reply, reason) = client.option(option, &[0; 6]);
            let reason = String::from_utf8(reason).expect("text");
            assert_eq!(reply, NBD_REP_ERR_POLICY, "{stranger}");
            assert!(reason.contains(&format!("\"{stranger}\"")) && !reason.contains("vol"), "{reason}");
        }
        client.send(&encode_option(NBD_OPT_EXPORT_NAME, b"vol"));
        assert!(client.is_ended_cleanly());
    }
    secured.server.wait_until("they are counted", |state| state.counters.refused == 4);
    still_serves(&secured);
    secured.server.stop();
}

#[test]
fn client_beyond_the_limit_hears_the_reason_within_tls() {
    let secured = Secured::start(Setup { max_connections: 2, ..Setup::default() }, &["good=vol"]);
    let mut clients = [secured.connect("good"), secured.connect("good")];
    clients.iter_mut().for_each(|client| assert_eq!(client.begin() & NBD_FLAG_READ_ONLY, 0));
    let mut late = secured.connect("good");
    let (reply, reason) = late.option(NBD_OPT_GO, &[0; 6]);
    let reason = String::from_utf8(reason).expect("text");
    assert!(reply == NBD_REP_ERR_POLICY && reason.contains("all 2 connections"), "{reason}");
    // A stranger takes no place, and learns nothing about the places.
    let mut stranger = secured.connect("bad");
    let (_, reason) = stranger.option(NBD_OPT_GO, &[0; 6]);
    assert!(String::from_utf8(reason).expect("text").contains("not allowed"));
    clients.iter_mut().for_each(writes_and_reads);
    drop(clients);
    secured.server.wait_until("both have left", |state| state.counters.open == 0);
    still_serves(&secured);
    secured.server.stop();
}

#[test]
fn reader_reads_and_changes_nothing() {
    let secured = Secured::start(Setup::default(), &["good=vol", "reader=vol:ro"]);
    still_serves(&secured);
    let mut reader = secured.connect("reader");
    assert_ne!(reader.begin() & NBD_FLAG_READ_ONLY, 0);
    reader.request(NBD_CMD_WRITE, 1, 8192, 4);
    reader.send(b"evil");
    assert_eq!(reader.error(), NBD_EPERM);
    for command in [NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES] {
        reader.request(command, 2, 8192, 4);
        assert_eq!(reader.error(), NBD_EPERM);
    }
    reader.request(NBD_CMD_READ, 3, 8192, 4);
    assert_eq!((reader.error(), reader.receive(4)), (0, b"good".to_vec()));
    secured.server.stop();
}

#[test]
fn plain_clients_are_told_to_begin_tls() {
    let secured = Secured::start(Setup::default(), &[]);
    let mut client = RawClient::connect(secured.socket());
    client.send(&3u32.to_be_bytes());
    for option in [NBD_OPT_LIST, NBD_OPT_INFO, NBD_OPT_GO, NBD_OPT_STRUCTURED_REPLY, 77] {
        client.send(&encode_option(option, &[0; 6]));
        assert_eq!(client.receive(20)[12..], [&NBD_REP_ERR_TLS_REQD.to_be_bytes()[..], &[0; 4]].concat());
    }
    client.send(&encode_option(NBD_OPT_EXPORT_NAME, b"vol"));
    client.expect_close();
    let mut client = RawClient::connect(secured.socket());
    client.send(&3u32.to_be_bytes());
    client.send(&encode_option(NBD_OPT_ABORT, b""));
    assert_eq!(client.receive(20)[12..16], NBD_REP_ACK.to_be_bytes());
    client.expect_close();
    still_serves(&secured);
    secured.server.wait_until("one was admitted", |state| state.counters.admitted == 1);
    secured.server.stop();

    let plain = Running::start(Setup::default());
    let mut client = RawClient::connect(&plain.socket);
    client.send(&3u32.to_be_bytes());
    client.send(&encode_option(NBD_OPT_STARTTLS, b""));
    assert_eq!(client.receive(20)[12..16], NBD_REP_ERR_UNSUP.to_be_bytes());
    plain.stop();
}

#[test]
fn options_before_tls_have_no_effect_within_tls() {
    let secured = Secured::start(Setup::default(), &[]);
    let mut client = secured.connect("good");
    assert_eq!(client.option(NBD_OPT_STARTTLS, b"").0, NBD_REP_ERR_INVALID);
    // Contexts need structured replies first.
    let contexts = [&[0; 4][..], &1u32.to_be_bytes(), &15u32.to_be_bytes(), b"base:allocation"].concat();
    assert_eq!(client.option(NBD_OPT_SET_META_CONTEXT, &contexts).0, NBD_REP_ERR_INVALID);
    assert_eq!(client.begin() & NBD_FLAG_SEND_DF, 0, "no structured replies");
    writes_and_reads(&mut client);
    secured.server.stop();
}

/// CVE-2021-3716 of nbdkit: an attacker on the way adds plain options behind NBD_OPT_STARTTLS, and the server
/// takes these for the client's.
#[test]
fn plain_bytes_behind_starttls_end_the_connection() {
    let secured = Secured::start(Setup::default(), &[]);
    let start = encode_option(NBD_OPT_STARTTLS, &[]);
    let write = Request { flags: 0, command: NBD_CMD_WRITE, cookie: 1, offset: 8192, len: 4 };
    let injected = [
        encode_option(NBD_OPT_STRUCTURED_REPLY, &[]),
        encode_option(NBD_OPT_STARTTLS, &[]),
        [encode_option(NBD_OPT_EXPORT_NAME, b"vol"), write.encode().to_vec(), b"evil".to_vec()].concat(),
        b"\x16".to_vec(),
        vec![0; 60_000],
    ];
    for (number, bytes) in injected.iter().enumerate() {
        let mut client = RawClient::connect(secured.socket());
        client.send(&[&3u32.to_be_bytes()[..], &start, bytes].concat());
        assert_eq!(client.receive(20)[12..16], NBD_REP_ACK.to_be_bytes());
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        assert_eq!(rest, b"", "case {number}: nothing is answered, neither in plain nor by TLS");
    }
    // In a segment of their own, they are not TLS either.
    let mut client = start_tls(secured.socket());
    client.send(&encode_option(NBD_OPT_EXPORT_NAME, b"vol"));
    client.expect_close();
    secured
        .server
        .wait_until("all have ended", |state| state.counters.unsecured == injected.len() as u64 + 1);
    assert_eq!(secured.server.state().counters.requests, 0);
    still_serves(&secured);
    secured.server.stop();
}

/// A client hello of an old version, with that version's ciphers: what is left of a hello if an attacker
/// removes the newer versions.
#[test]
fn old_versions_of_tls_are_refused() {
    let secured = Secured::start(Setup::default(), &[]);
    for minor in 0..=2 {
        let ciphers = [0x00, 0x2f, 0x00, 0x35, 0xc0, 0x13, 0xc0, 0x14, 0x00, 0x0a];
        let body = [&[3, minor][..], &[7; 32], &[0], &[0, 10], &ciphers, &[1, 0]].concat();
        let hello = [&[1, 0, 0, body.len() as u8][..], &body].concat();
        let record = [&[22, 3, minor.min(1), 0, hello.len() as u8][..], &hello].concat();
        let mut client = start_tls(secured.socket());
        client.send(&record);
        let mut answer = Vec::new();
        let _ = client.stream.read_to_end(&mut answer);
        assert!(answer.starts_with(&[21, 3]) && answer[5] == 2, "TLS 1.{minor}: a fatal alert: {answer:?}");
    }
    still_serves(&secured);
    secured.server.stop();
}

/// Strangers that never end their handshake wait apart from clients: their number is bounded, a guest goes
/// on, and a new client gets in.
#[test]
fn a_thousand_slow_handshakes_keep_nobody_out() {
    raise_open_files(4_000);
    let setup = Setup { negotiation_time: Nanos::from_secs(60), max_connections: 4, ..Setup::default() };
    let secured = Secured::start(setup, &[]);
    let mut guest = secured.connect("guest");
    guest.begin();
    let mut slow: Vec<UnixStream> = Vec::new();
    for number in 0..1_000 {
        let mut stream = UnixStream::connect(secured.socket()).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a time limit");
        // Some say nothing, some begin an option, some begin TLS, and stop.
        let (flags, start) = (3u32.to_be_bytes(), encode_option(NBD_OPT_STARTTLS, &[]));
        let _ = match number % 3 {
            0 => Ok(()),
            1 => stream.write_all(&[&flags[..], &start[..10]].concat()),
            _ => stream.write_all(&[&flags[..], &start].concat()),
        };
        slow.push(stream);
        if number % 50 == 0 {
            writes_and_reads(&mut guest);
        }
        let places = secured.server.state().counters.securing;
        assert!(places <= 66, "{places} connections are before TLS");
    }
    still_serves(&secured);
    writes_and_reads(&mut guest);
    let counters = secured.server.state().counters;
    assert_eq!(counters.refused, 0);
    drop(slow);
    secured.server.wait_until("all have left", |state| state.counters.securing == 0);
    still_serves(&secured);
    secured.server.stop();
}

/// Lifts the limit of open files of this process, as far as allowed.
fn raise_open_files(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).expect("a lower limit than the largest");
    }
}

#[test]
fn handshake_without_end_is_ended_at_the_deadline() {
    let setup = Setup { negotiation_time: Nanos::from_millis(300), ..Setup::default() };
    let secured = Secured::start(setup, &[]);
    let mut silent = start_tls(secured.socket());
    silent.expect_close();
    let mut trickling = start_tls(secured.socket());
    // The head of a large message of a handshake, and one byte at a time.
    let sent = [22, 3, 1, 0x40, 0].iter().chain(&[1, 0, 0x3f, 0xf0]).chain(std::iter::repeat_n(&0, 100_000));
    for byte in sent {
        if trickling.stream.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    trickling.expect_close();
    // A client with a certificate that then asks for nothing has the same time again.
    secured.connect("good").is_ended_cleanly();
    still_serves(&secured);
    secured.server.stop();
}

#[test]
fn noise_instead_of_a_handshake_ends_only_its_connection() {
    let secured = Secured::start(Setup::default(), &[]);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut client = start_tls(secured.socket());
        let len = rng.between(1, 40_000);
        let mut noise: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        if seed % 2 == 0 {
            // A record of a handshake in name.
            let head = [22, 3, rng.below(4) as u8, rng.below(80) as u8];
            let head = &head[..head.len().min(noise.len())];
            noise[..head.len()].copy_from_slice(head);
        }
        let _ = client.stream.write_all(&noise);
        client.stream.shutdown(Shutdown::Write).expect("half closed");
        client.expect_close();
    }
    secured.server.wait_until("all have ended", |state| state.counters.unsecured == 100);
    still_serves(&secured);
    secured.server.stop();
}

/// Passes bytes on, at most `most` at a time, and changes the byte at `changed`.
struct Wire<'a> {
    socket: &'a mut UnixStream,
    most: usize,
    sent: usize,
    changed: usize,
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut part = bytes[..bytes.len().min(self.most)].to_vec();
        if let Some(at) = self.changed.checked_sub(self.sent).filter(|at| *at < part.len()) {
            part[at] ^= 0x10;
        }
        let count = self.socket.write(&part)?;
        self.sent += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn changed_byte_of_a_record_ends_the_connection_before_its_request() {
    let secured = Secured::start(Setup::default(), &[]);
    for changed in [0, 3, 5, 20, 36, 40, 200] {
        let mut client = secured.connect("good");
        client.begin();
        let write = Request { flags: 0, command: NBD_CMD_WRITE, cookie: 1, offset: 8192, len: 200 };
        let TlsClient { stream } = &mut client;
        stream.conn.writer().write_all(&[&write.encode()[..], &[0x66; 200]].concat()).expect("room");
        let mut wire = Wire { socket: &mut stream.sock, most: usize::MAX, sent: 0, changed };
        while stream.conn.wants_write() {
            if stream.conn.write_tls(&mut wire).is_err() {
                break;
            }
        }
        stream.sock.shutdown(Shutdown::Write).expect("half closed");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "byte {changed}: {rest:?}");
    }
    assert_eq!(secured.server.state().counters.errors, 0);
    let mut client = secured.connect("good");
    client.begin();
    client.request(NBD_CMD_READ, 2, 8192, 200);
    assert_eq!((client.error(), client.receive(200)), (0, vec![0; 200]), "nothing was written");
    still_serves(&secured);
    secured.server.stop();
}

#[test]
fn records_arrive_in_pieces_of_any_size() {
    let secured = Secured::start(Setup::default(), &[]);
    for most in [1, 7, 4_000] {
        let mut client = secured.connect("good");
        client.begin();
        let len = 100_000;
        let content: Vec<u8> = (0..len).map(|at| (at * 7 + most) as u8).collect();
        let write = Request { flags: 0, command: NBD_CMD_WRITE, cookie: 1, offset: 4096, len: len as u32 };
        let bytes = [&write.encode()[..], &content].concat();
        let TlsClient { stream } = &mut client;
        let mut rest = &bytes[..];
        while !rest.is_empty() || stream.conn.wants_write() {
            let count = stream.conn.writer().write(rest).expect("a writer");
            rest = &rest[count..];
            let mut wire = Wire { socket: &mut stream.sock, most, sent: 0, changed: usize::MAX };
            stream.conn.write_tls(&mut wire).expect("the server receives");
        }
        assert_eq!(client.error(), 0);
        client.request(NBD_CMD_READ, 2, 4096, len as u32);
        assert_eq!(client.error(), 0);
        assert!(client.receive(len) == content, "pieces of {most}");
    }
    secured.server.stop();
}

#[test]
fn announced_end_is_followed_by_the_replies_in_flight() {
    let setup = Setup { kind: Kind::Slow(Nanos::from_millis(50)), ..Setup::default() };
    let secured = Secured::start(setup, &[]);
    for says_goodbye in [true, false] {
        let mut client = secured.connect("good");
        client.begin();
        (0..10).for_each(|cookie| client.request(NBD_CMD_READ, cookie, 0, 40_000));
        if says_goodbye {
            client.request(NBD_CMD_DISC, 99, 0, 0);
        } else {
            client.stream.conn.send_close_notify();
            client.stream.flush().expect("sent");
        }
        let mut all = Vec::new();
        client.stream.read_to_end(&mut all).expect("replies, then an announced end");
        assert_eq!(all.len(), 10 * (16 + 40_000), "goodbye: {says_goodbye}");
    }
    secured.server.stop();
}

#[test]
fn client_with_unread_replies_holds_bounded_memory_and_is_closed() {
    let setup = Setup { drain_time: Nanos::from_millis(300), ..Setup::default() };
    let secured = Secured::start(setup, &[]);
    let mut client = secured.connect("good");
    client.begin();
    (0..20).for_each(|cookie| client.request(NBD_CMD_READ, cookie, 0, 100_000));
    client.request(NBD_CMD_DISC, 99, 0, 0);
    secured.server.wait_until("it is closed", |state| state.counters.open == 0 && state.held.0 == 0);
    still_serves(&secured);
    secured.server.stop();
}

#[test]
fn vanished_client_leaves_no_memory_or_connection() {
    let setup = Setup { kind: Kind::Slow(Nanos::from_millis(5)), ..Setup::default() };
    let secured = Secured::start(setup, &[]);
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        if seed % 4 == 0 {
            drop(start_tls(secured.socket()));
            continue;
        }
        let mut client = secured.connect("good");
        client.begin();
        for cookie in 0..rng.between(1, 60) {
            client.request(NBD_CMD_READ, cookie, rng.below(32 << 20), rng.between(1, 60_000) as u32);
        }
        client.request(NBD_CMD_WRITE, 77, 0, 1 << 20);
        client.send(&vec![1; rng.between(1, 200_000) as usize]);
    }
    let is_empty = |state: support::State| state.counters.open == 0 && state.counters.securing == 0;
    secured.server.wait_until("all have gone", |state| is_empty(state) && state.held.0 == 0);
    still_serves(&secured);
    secured.server.stop();
}

#[test]
fn stopping_server_ends_clients_within_and_before_tls() {
    let setup = Setup { kind: Kind::Slow(Nanos::from_millis(300)), ..Setup::default() };
    let secured = Secured::start(setup, &[]);
    let mut before = start_tls(secured.socket());
    let (mut idle, mut busy) = (secured.connect("idle"), secured.connect("busy"));
    idle.begin();
    busy.begin();
    busy.request(NBD_CMD_FLUSH, 1, 0, 0);
    secured.server.wait_until("it is in flight", |state| state.counters.requests == 1);
    secured.server.begin_stop();
    assert_eq!(busy.error(), 0);
    assert!(busy.is_ended_cleanly() && idle.is_ended_cleanly());
    before.expect_close();
    secured.server.stop();
}
