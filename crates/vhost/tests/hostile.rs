//! Guests and processes that break the rules: the server lives on, and serves the next one.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod support;

use braid_base::MIB;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use support::guest::{AVAILABLE, Connection, GuestRam, MEMORY, PAGE, QUEUE, STATUSES, UNANSWERED, USED};
use support::{Kind, Running};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserInflight;

/// A new guest reads a page: the server works.
fn works(running: &Running) {
    running.wait_until("the former connection ends", |counters| counters.open == 0);
    let mut ram = GuestRam::new();
    let mut connection = Connection::open(&running.socket);
    connection.start(&ram, None, 0);
    ram.submit(0, 0, 0);
    connection.kick();
    ram.wait_for(1);
    assert_eq!(ram.status(0), 0);
}

fn connected(running: &Running) -> (GuestRam, Connection) {
    let ram = GuestRam::new();
    let mut connection = Connection::open(&running.socket);
    connection.start(&ram, None, 0);
    (ram, connection)
}

#[test]
fn bad_chains_are_returned_and_good_ones_go_on() {
    let running = Running::start(MIB, Kind::Plain);
    let (mut ram, connection) = connected(&running);
    // A loop; a place outside of memory; no place for a status; a table of a wrong size; a status outside.
    ram.descriptor(0, 0x5000, 16, 1, 0);
    ram.descriptor(1, u64::MAX - 4, 16, 1, 2);
    ram.descriptor(2, STATUSES, 1, 2, 0);
    ram.descriptor(3, 0x5000, 16, 0, 0);
    ram.descriptor(4, 0x5000, 17, 4, 0);
    ram.descriptor(5, 0x5000, 16, 1, 6);
    ram.descriptor(6, MEMORY as u64, 1, 2, 0);
    ram.put(STATUSES, &[UNANSWERED]);
    for head in [0, 1, 3, 4, 5] {
        ram.offer(head);
    }
    ram.submit(10, 0, 7);
    connection.kick();
    ram.wait_for(6);
    assert_eq!((ram.status(0), ram.status(10)), (1, 0), "the second chain has a status");
    let lengths: Vec<(u32, u32)> = (0..5).map(|number| ram.returned_chain(number)).collect();
    assert_eq!(lengths, [(0, 0), (1, 1), (3, 0), (4, 0), (5, 0)]);
    running.wait_until("errors are counted", |counters| counters.errors == 5 && counters.requests == 6);
    drop(connection);
    works(&running);
}

#[test]
fn requests_beyond_the_disk_fail() {
    let running = Running::start(MIB, Kind::Plain);
    let (mut ram, connection) = connected(&running);
    for (number, page) in [(0, 256), (1, 255), (2, u64::MAX / 8)] {
        ram.submit(number, 0, page);
    }
    connection.kick();
    ram.wait_for(3);
    assert_eq!([0, 1, 2].map(|number| ram.status(number)), [1, 0, 1]);
}

#[test]
fn errors_of_the_disk_reach_the_guest() {
    let running = Running::start(MIB, Kind::Broken);
    let (mut ram, connection) = connected(&running);
    for (number, kind) in [(0, 0), (1, 1), (2, 4)] {
        ram.submit(number, kind, 0);
    }
    connection.kick();
    ram.wait_for(3);
    assert_eq!([0, 1, 2].map(|number| ram.status(number)), [1, 1, 1]);
    drop(connection);
    let running = Running::start(MIB, Kind::ReadOnly);
    let (mut ram, connection) = connected(&running);
    ram.submit(0, 1, 0);
    ram.submit(1, 0, 0);
    connection.kick();
    ram.wait_for(2);
    assert_eq!((ram.status(0), ram.status(1)), (1, 0));
}

/// The index of the available ring jumps by more than the queue holds, or a chain begins beyond the table.
#[test]
fn broken_queue_stops_alone() {
    let running = Running::start(MIB, Kind::Plain);
    let (ram, connection) = connected(&running);
    ram.put_u16(AVAILABLE + 2, QUEUE + 1);
    connection.kick();
    running.wait_until("the queue stops", |counters| counters.broken == 1);
    drop(connection);
    works(&running);
    running.wait_until("the former connection ends", |counters| counters.open == 0);
    let (mut ram, connection) = connected(&running);
    ram.offer(QUEUE);
    connection.kick();
    running.wait_until("the queue stops", |counters| counters.broken == 2);
    assert_eq!(ram.returned(), 0);
    drop(connection);
    works(&running);
}

/// More requests than the queue may have in service, with pieces of memory that are shared by all.
#[test]
fn all_requests_of_a_full_queue_are_served() {
    let running = Running::start(MIB, Kind::Plain);
    let (mut ram, connection) = connected(&running);
    let mut expected = 0u16;
    for round in 0..200u16 {
        for number in 0..21 {
            ram.put(support::guest::DATA + u64::from(number) * PAGE, &[round as u8; PAGE as usize]);
            ram.submit(number, 1, u64::from(number));
        }
        connection.kick();
        expected = expected.wrapping_add(21);
        ram.wait_for(expected);
    }
    let bytes = std::fs::read(&running.disk).unwrap();
    assert!(bytes[..21 * 4096].iter().all(|&byte| byte == 199));
}

#[test]
fn memory_that_is_shorter_than_announced_is_refused() {
    let running = Running::start(MIB, Kind::Plain);
    let ram = GuestRam::new();
    for change in 0..4 {
        running.wait_until("the former connection ends", |counters| counters.open == 0);
        let connection = Connection::open(&running.socket);
        let mut region = ram.region();
        match change {
            0 => region.memory_size = MEMORY as u64 + PAGE,
            1 => region.mmap_offset = PAGE,
            2 => (region.mmap_offset, region.memory_size) = (1 << 62, 1 << 62),
            _ => region.mmap_handle = std::fs::File::open("/dev/zero").unwrap().as_raw_fd(),
        }
        assert!(connection.frontend.set_mem_table(&[region]).is_err(), "change {change}");
    }
    running.wait_until("the former connection ends", |counters| counters.open == 0);
    let connection = Connection::open(&running.socket);
    let mut overlapping = ram.region();
    overlapping.guest_phys_addr = PAGE;
    assert!(connection.frontend.set_mem_table(&[ram.region(), overlapping]).is_err());
    drop(connection);
    works(&running);
}

#[test]
fn rings_outside_of_memory_do_not_run() {
    let running = Running::start(MIB, Kind::Plain);
    let ram = GuestRam::new();
    let mut connection = Connection::open(&running.socket);
    connection.frontend.set_mem_table(&[ram.region()]).unwrap();
    connection.frontend.set_vring_num(0, QUEUE).unwrap();
    // The rings begin within memory, and end outside.
    let end = ram.host(0) + MEMORY as u64 - 16;
    let rings = vhost::VringConfigData {
        queue_max_size: QUEUE,
        queue_size: QUEUE,
        flags: 0,
        desc_table_addr: end,
        used_ring_addr: ram.host(USED),
        avail_ring_addr: ram.host(AVAILABLE),
        log_addr: None,
    };
    connection.frontend.set_vring_addr(0, &rings).unwrap();
    connection.frontend.set_vring_kick(0, &connection.kick).unwrap();
    connection.frontend.set_vring_enable(0, true).unwrap();
    running.wait_until("the queue stops", |counters| counters.broken == 1);
    let outside = vhost::VringConfigData { desc_table_addr: end + 4096, ..rings };
    assert!(connection.frontend.set_vring_addr(0, &outside).is_err());
    drop(connection);
    works(&running);
}

#[test]
fn wrong_memory_for_requests_in_flight_is_refused() {
    let running = Running::start(MIB, Kind::Plain);
    let mut connection = Connection::open(&running.socket);
    let kept = connection.inflight();
    let short = VhostUserInflight { mmap_size: 64, ..kept.given };
    assert!(connection.frontend.set_inflight_fd(&short, kept.file.as_raw_fd()).is_err());
    drop(connection);
    running.wait_until("the former connection ends", |counters| counters.open == 0);
    let mut connection = Connection::open(&running.socket);
    let many = VhostUserInflight { num_queues: 65, queue_size: QUEUE, ..kept.given };
    assert!(connection.frontend.get_inflight_fd(&many).is_err());
    drop(connection);
    works(&running);
}

/// Half a message, unknown messages and long ones: the server's thread never waits for the rest.
#[test]
fn half_messages_do_not_hold_up_the_thread() {
    let running = Running::start(MIB, Kind::Plain);
    let head = |code: u32, len: u32| [code, 1, len].map(u32::to_ne_bytes).concat();
    let mut half = UnixStream::connect(&running.socket).unwrap();
    half.write_all(&head(2, 8)).unwrap();
    running.wait_until("the connection is there", |counters| counters.open == 1);
    // The counters change, so the thread runs.
    running.wait_until("half a message ends its connection", |counters| counters.open == 0);
    for bytes in [head(99, 0), head(2, 1 << 30), vec![0xff; 64], head(1, 8)] {
        let mut stream = UnixStream::connect(&running.socket).unwrap();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        // Closed by the server, with or without a word.
        let _ = stream.read_to_end(&mut rest);
        running.wait_until("the connection ends", |counters| counters.open == 0);
    }
    works(&running);
}

/// A process that asks and never reads an answer.
#[test]
fn unread_answers_do_not_hold_up_the_thread() {
    let running = Running::start(MIB, Kind::Plain);
    let mut stream = UnixStream::connect(&running.socket).unwrap();
    stream.set_nonblocking(true).unwrap();
    let get_features = [1u32, 1, 0].map(u32::to_ne_bytes).concat();
    // Until the socket takes no more: neither side reads.
    while stream.write(&get_features).is_ok() {}
    running.wait_until("the connection is there", |counters| counters.open == 1);
    drop(stream);
    works(&running);
}

#[test]
fn second_virtual_machine_is_refused_while_the_first_one_stays() {
    let running = Running::start(MIB, Kind::Plain);
    let (mut ram, connection) = connected(&running);
    let mut second = UnixStream::connect(&running.socket).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 0, "closed");
    running.wait_until("it is counted", |counters| counters.refused == 1 && counters.open == 1);
    ram.submit(0, 0, 0);
    connection.kick();
    ram.wait_for(1);
}
