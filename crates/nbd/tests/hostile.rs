//! Clients that break the rules, vanish or dawdle: memory stays bounded, nothing leaks, others are served.
//!
//! Each test ends by stopping its server, which fails where connections or buffers are left.

mod support;

use braid_base::{GIB, KIB, MIB, Nanos, Rng};
use braid_nbd::wire::options::*;
use braid_nbd::wire::*;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::raw::{RawClient, Reply};
use support::{Kind, Running, Setup};

/// Another client writes and reads.
fn still_serves(server: &Running) {
    let mut client = RawClient::simple(&server.socket);
    client.request(NBD_CMD_WRITE, 0, 1, 8192, 4);
    client.send(b"good");
    assert_eq!(client.reply(), Reply::Simple(1, 0));
    client.request(NBD_CMD_READ, 0, 2, 8192, 4);
    assert_eq!(client.reply(), Reply::Simple(2, 0));
    assert_eq!(client.receive(4), b"good");
    client.request(NBD_CMD_DISC, 0, 3, 0, 0);
    client.expect_close();
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    let len = rng.between(1, 5_000);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// Sends what the server may not want to have; it may close at any time.
fn send_anyway(client: &mut RawClient, bytes: &[u8]) {
    let _ = client.stream.write_all(bytes);
}

#[test]
fn noise_ends_only_the_originating_connection() {
    let server = Running::start(Setup { negotiation_time: Nanos::from_secs(1), ..Setup::default() });
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut client = match seed % 5 {
            0 => RawClient::connect(&server.socket),
            1 => {
                let mut client = RawClient::connect(&server.socket);
                client.send(&3u32.to_be_bytes());
                client
            }
            2 => {
                let mut client = RawClient::connect(&server.socket);
                client.send(&3u32.to_be_bytes());
                let option = rng.below(12) as u32;
                let content = noise(&mut rng);
                client.send(&encode_option(option, &content));
                client
            }
            3 => RawClient::simple(&server.socket),
            _ => {
                let mut client = RawClient::structured(&server.socket);
                let (command, flags) = (rng.below(9) as u16, rng.below(32) as u16);
                client.request(command, flags, seed, rng.below(1 << 27), rng.below(1 << 32) as u32);
                client
            }
        };
        for _ in 0..3 {
            send_anyway(&mut client, &noise(&mut rng));
        }
        if seed % 3 > 0 {
            client.stream.shutdown(Shutdown::Write).expect("half closed");
            client.expect_close();
        }
    }
    server.wait_until("all that noise is gone", |state| state.counters.open == 0);
    still_serves(&server);
    server.stop();
}

#[test]
fn an_option_of_four_gibibytes_is_refused_and_never_stored() {
    let server = Running::start(Setup { negotiation_time: Nanos::from_secs(1), ..Setup::default() });
    let mut client = RawClient::connect(&server.socket);
    client.send(&3u32.to_be_bytes());
    let mut head = encode_option(NBD_OPT_INFO, &[]);
    head[12..].fill(0xff);
    client.send(&head);
    let reply = client.receive(20);
    assert_eq!(reply[12..16], NBD_REP_ERR_TOO_BIG.to_be_bytes());
    still_serves(&server);
    client.expect_close();
    server.stop();
}

#[test]
fn client_without_negotiation_is_closed_after_the_time_limit() {
    let server = Running::start(Setup { negotiation_time: Nanos::from_millis(300), ..Setup::default() });
    RawClient::connect(&server.socket).expect_close();
    let mut patient = RawClient::simple(&server.socket);
    std::thread::sleep(Duration::from_millis(1_000));
    patient.request(NBD_CMD_FLUSH, 0, 9, 0, 0);
    assert_eq!(patient.reply(), Reply::Simple(9, 0), "the limit is for the negotiation only");
    server.stop();
}

#[test]
fn payload_of_a_refused_write_is_skipped() {
    let server = Running::start(Setup::default());
    let mut client = RawClient::simple(&server.socket);
    let len = 40 << 20;
    client.request(NBD_CMD_WRITE, 0, 1, 0, len);
    client.send(&vec![0x55; len as usize]);
    client.request(NBD_CMD_WRITE, 0, 2, MIB.0 * 64 - 1, 2);
    client.send(&[1, 2]);
    client.request(NBD_CMD_FLUSH, 0, 3, 0, 0);
    assert_eq!(client.reply(), Reply::Simple(1, NBD_EINVAL));
    assert_eq!(client.reply(), Reply::Simple(2, NBD_ENOSPC));
    assert_eq!(client.reply(), Reply::Simple(3, 0));
    server.stop();
}

#[test]
fn non_reading_clients_hold_bounded_memory() {
    // A slow disk: a fast one's reads are not begun before the client takes the replies to those before.
    let kind = Kind::Slow(Nanos::from_millis(20));
    let setup = Setup { kind, arena: MIB * 16, max_connections: 8, ..Setup::default() };
    let server = Running::start(setup);
    let mut fill = RawClient::simple(&server.socket);
    for at in 0..2 {
        fill.request(NBD_CMD_WRITE, 0, at, at * MIB.0 * 32, 32 << 20);
        fill.send(&vec![7; 32 << 20]);
        assert_eq!(fill.reply(), Reply::Simple(at, 0));
    }
    drop(fill);
    let mut slow: Vec<RawClient> = (0..6).map(|_| RawClient::structured(&server.socket)).collect();
    for client in &mut slow {
        client.stream.set_nonblocking(true).expect("nonblocking");
        for cookie in 0..1_000 {
            let len = if cookie % 2 == 0 { 32 << 20 } else { 4096 };
            let request = Request { flags: 0, command: NBD_CMD_READ, cookie, offset: 0, len };
            send_anyway(client, &request.encode());
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    let held = server.state().held;
    assert!(held > MIB * 8, "the test is meant to use up memory, but holds {held}");
    assert!(held <= MIB * 14, "two connections' guarantees must be left, but {held} are held");
    still_serves(&server);
    drop(slow);
    server.wait_until("buffers come back", |state| state.held.0 == 0 && state.counters.open == 0);
    server.stop();
}

#[test]
fn flooding_client_does_not_block_new_clients() {
    let server = Running::start(Setup::default());
    let mut flood = RawClient::simple(&server.socket);
    let mut replies = flood.stream.try_clone().expect("a second handle");
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 20];
        while replies.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let writer = std::thread::spawn(move || {
        let request = Request { flags: 0, command: NBD_CMD_READ, cookie: 0, offset: 0, len: 1 };
        let batch: Vec<u8> = request.encode().repeat(2_000);
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            send_anyway(&mut flood, &batch);
        }
        flood.stream.shutdown(Shutdown::Write).expect("half closed");
    });
    (0..20).for_each(|_| still_serves(&server));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().expect("the writer ends");
    reader.join().expect("the reader ends");
    server.stop();
}

#[test]
fn vanished_client_leaves_no_memory_or_connection() {
    for kind in [Kind::Fast, Kind::Slow(Nanos::from_millis(30))] {
        let server = Running::start(Setup { kind, ..Setup::default() });
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let mut client = match seed % 2 {
                0 => RawClient::simple(&server.socket),
                _ => RawClient::structured(&server.socket),
            };
            for cookie in 0..rng.between(1, 100) {
                let (offset, len) = (rng.below(32 << 20), rng.between(1, 600_000) as u32);
                match rng.below(4) {
                    0 => {
                        client.request(NBD_CMD_WRITE, 0, cookie, offset, len);
                        send_anyway(&mut client, &vec![1; len as usize]);
                    }
                    1 => client.request(NBD_CMD_TRIM, 0, cookie, offset, len),
                    _ => client.request(NBD_CMD_READ, 0, cookie, offset, len.min(8192)),
                }
            }
            // Goes in the middle of a write's bytes, or of a request's head.
            client.request(NBD_CMD_WRITE, 0, 0, 0, 1 << 20);
            let rest = rng.between(0, 300_000) as usize;
            send_anyway(&mut client, &vec![2; rest]);
            if seed % 3 == 0 {
                send_anyway(&mut client, &NBD_REQUEST_MAGIC.to_be_bytes());
            }
        }
        server.wait_until("all have gone", |state| state.counters.open == 0 && state.held.0 == 0);
        still_serves(&server);
        server.stop();
    }
}

#[test]
fn connection_closes_after_all_replies_are_sent() {
    let server = Running::start(Setup { kind: Kind::Slow(Nanos::from_millis(50)), ..Setup::default() });
    for says_goodbye in [true, false] {
        let mut client = RawClient::simple(&server.socket);
        (0..10).for_each(|cookie| client.request(NBD_CMD_READ, 0, cookie, 0, 512));
        match says_goodbye {
            true => client.request(NBD_CMD_DISC, 0, 99, 0, 0),
            false => client.stream.shutdown(Shutdown::Write).expect("half closed"),
        }
        let mut all = Vec::new();
        client.stream.read_to_end(&mut all).expect("replies, then the end");
        assert_eq!(all.len(), 10 * (16 + 512), "goodbye: {says_goodbye}");
    }
    server.stop();
}

#[test]
fn client_with_unread_replies_is_closed_after_drain_time() {
    let setup = Setup { drain_time: Nanos::from_millis(300), ..Setup::default() };
    let server = Running::start(setup);
    let mut client = RawClient::simple(&server.socket);
    // More than a socket takes, and less than the server queues: it goes on to receive.
    (0..20).for_each(|cookie| client.request(NBD_CMD_READ, 0, cookie, 0, 16 << 10));
    client.request(NBD_CMD_DISC, 0, 99, 0, 0);
    server.wait_until("all is received", |state| state.counters.requests == 20);
    server.wait_until("it is closed", |state| state.counters.open == 0 && state.held.0 == 0);
    server.stop();
}

/// A client that was refused saw a bare end of file, and the log had no line.
#[test]
fn client_beyond_the_limit_is_refused_with_reason() {
    let server = Running::start(Setup { max_connections: 4, ..Setup::default() });
    let mut admitted: Vec<RawClient> = (0..4).map(|_| RawClient::simple(&server.socket)).collect();
    for option in [NBD_OPT_INFO, NBD_OPT_GO] {
        let mut refused = RawClient::connect(&server.socket);
        refused.send(&3u32.to_be_bytes());
        refused.send(&encode_option(option, &[0; 6]));
        let head = refused.receive(20);
        assert_eq!(head[12..16], NBD_REP_ERR_POLICY.to_be_bytes());
        let len = u32::from_be_bytes(head[16..20].try_into().unwrap());
        let reason = String::from_utf8(refused.receive(len as usize)).unwrap();
        assert!(reason.contains("all 4 connections") && reason.contains("--clients"), "{reason}");
        refused.send(&encode_option(NBD_OPT_ABORT, &[]));
        refused.expect_close();
    }
    let mut oldest_way = RawClient::connect(&server.socket);
    oldest_way.send(&3u32.to_be_bytes());
    oldest_way.send(&encode_option(NBD_OPT_EXPORT_NAME, b""));
    oldest_way.expect_close();
    // However many come, and say nothing: each is closed, and none of them holds up the clients that are
    // served.
    let mut silent: Vec<_> =
        (0..200).map(|_| UnixStream::connect(&server.socket).expect("it listens")).collect();
    server.wait_until("they are counted", |state| state.counters.refused == 203);
    admitted[0].request(NBD_CMD_FLUSH, 0, 5, 0, 0);
    assert_eq!(admitted[0].reply(), Reply::Simple(5, 0));
    for stream in &mut silent {
        stream.read_to_end(&mut Vec::new()).expect("an end");
    }
    drop(admitted.pop());
    server.wait_until("one has left", |state| state.counters.open == 3);
    still_serves(&server);
    server.stop();
}

/// Clients that connected and then did nothing held all connections for ever.
#[test]
fn unused_clients_make_room_and_used_clients_stay() {
    let unused_time = Nanos::from_millis(50);
    let server = Running::start(Setup { max_connections: 4, unused_time, ..Setup::default() });
    let mut clients: Vec<RawClient> = (0..4).map(|_| RawClient::simple(&server.socket)).collect();
    let flush = |client: &mut RawClient| {
        client.request(NBD_CMD_FLUSH, 0, 5, 0, 0);
        assert_eq!(client.reply(), Reply::Simple(5, 0));
    };
    flush(&mut clients[0]);
    flush(&mut clients[2]);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut newcomers: Vec<RawClient> = (0..2).map(|_| RawClient::simple(&server.socket)).collect();
    clients[1].expect_close();
    clients[3].expect_close();
    newcomers.iter_mut().for_each(flush);
    flush(&mut clients[0]);
    flush(&mut clients[2]);
    server.wait_until("two are ended", |state| state.counters.unused == 2);
    let mut refused = RawClient::connect(&server.socket);
    refused.send(&3u32.to_be_bytes());
    refused.send(&encode_option(NBD_OPT_EXPORT_NAME, b""));
    refused.expect_close();
    server.stop();
}

#[test]
fn stopping_server_completes_requests_in_flight_and_leaves_new_without_reply() {
    let setup = Setup { kind: Kind::Slow(Nanos::from_millis(500)), ..Setup::default() };
    let server = Running::start(setup);
    let idle = RawClient::simple(&server.socket);
    let talking = RawClient::connect(&server.socket);
    let mut client = RawClient::simple(&server.socket);
    client.request(NBD_CMD_FLUSH, 0, 1, 0, 0);
    server.wait_until("it is in flight", |state| state.counters.requests == 1);
    server.begin_stop();
    std::thread::sleep(Duration::from_millis(150));
    client.request(NBD_CMD_FLUSH, 0, 2, 0, 0);
    client.request(NBD_CMD_WRITE, 0, 3, 0, 4096);
    client.send(&[1; 4096]);
    assert_eq!(client.reply(), Reply::Simple(1, 0));
    let mut rest = Vec::new();
    // The end may come as an error, because the last requests are unread.
    let _end = client.stream.read_to_end(&mut rest);
    assert_eq!(rest, [], "no reply to later requests");
    [idle, talking].iter_mut().for_each(RawClient::expect_close);
    server.stop();
}

/// More requests than are served at a time: no refusal may reach a client that will connect again.
#[test]
fn stopping_server_refuses_no_request_of_a_full_pipeline() {
    const REQUESTS: usize = 200;
    let setup = Setup { kind: Kind::Slow(Nanos::from_millis(500)), ..Setup::default() };
    let server = Running::start(setup);
    let mut client = RawClient::simple(&server.socket);
    (0..REQUESTS as u64).for_each(|cookie| client.request(NBD_CMD_FLUSH, 0, cookie, 0, 0));
    server.wait_until("the pipeline is full", |state| state.counters.requests > 32);
    server.begin_stop();
    let mut replies = Vec::new();
    // The end may come as an error, because the last requests are unread.
    let _end = client.stream.read_to_end(&mut replies);
    let (whole, rest) = replies.as_chunks::<16>();
    assert!(rest.is_empty() && !whole.is_empty() && whole.len() < REQUESTS, "{} replies", whole.len());
    assert!(whole.iter().all(|reply| reply[4..8] == [0; 4]), "no reply is an error");
    server.stop();
}

#[test]
fn an_idle_connection_costs_no_processor_time() {
    let server = Running::start(Setup { size: GIB, ..Setup::default() });
    let mut client = RawClient::simple(&server.socket);
    for cookie in 0..1_000 {
        client.request(NBD_CMD_READ, 0, cookie, KIB.0 * cookie, 512);
        client.receive(16 + 512);
    }
    let cpu = || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", server.thread_id));
        stat.expect("schedstat")
            .split(' ')
            .next()
            .and_then(|nanos| nanos.parse::<u64>().ok())
            .expect("a number")
    };
    let before = cpu();
    std::thread::sleep(Duration::from_secs(1));
    let used = Duration::from_nanos(cpu() - before);
    // The test's own server looks every 20 ms whether it should stop.
    assert!(used < Duration::from_millis(30), "an idle second took {used:?}");
    server.stop();
}
