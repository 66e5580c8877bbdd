//! The daemon dies or ends, and the next one serves what was in flight: the guest notices nothing.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod support;

use support::guest::{Connection, DATA, GuestRam, PAGE, UNANSWERED};
use support::{Kind, Process, serve_as_process};

/// Not a test, but the server of the others.
#[test]
fn server() {
    serve_as_process();
}

/// A directory in memory with a disk of 1 MiB: its socket and its disk.
fn place() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (socket, disk) = (directory.path().join("vm.sock"), directory.path().join("disk"));
    std::fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    (directory, socket, disk)
}

fn fill(ram: &GuestRam, number: u16, value: u8) {
    ram.put(DATA + u64::from(number) * PAGE, &[value; PAGE as usize]);
}

/// Writes were in flight when the daemon was killed. Without memory for requests in flight they were lost,
/// and the guest waited for ever.
#[test]
fn requests_in_flight_at_a_kill_are_served_by_the_next_daemon() {
    let (_directory, socket, disk) = place();
    let mut ram = GuestRam::new();
    let first = Process::start("server", &socket, &disk, Kind::Holding);
    let mut connection = Connection::open(&socket);
    let kept = connection.inflight();
    connection.start(&ram, Some(&kept), 0);
    // Requests of which the second one, a read, is answered, and the writes stay in flight.
    for (number, kind) in [(0, 1), (1, 0), (2, 1), (3, 1)] {
        fill(&ram, number, 0x10 + number as u8);
        ram.submit(number, kind, u64::from(number));
    }
    connection.kick();
    ram.wait_for(1);
    assert_eq!(ram.returned_chain(0), (3, PAGE as u32 + 1), "the read");
    first.kill();

    let second = Process::start("server", &socket, &disk, Kind::Plain);
    // A guest may offer more while there is no daemon.
    fill(&ram, 4, 0x14);
    ram.submit(4, 1, 4);
    let mut connection = Connection::open(&socket);
    connection.start(&ram, Some(&kept), ram.returned());
    connection.wait_for_call();
    ram.wait_for(5);
    let mut again: Vec<u32> = (1..5).map(|number| ram.returned_chain(number).0).collect();
    again.sort_unstable();
    assert_eq!(again, [0, 6, 9, 12], "each request once");
    let bytes = std::fs::read(&disk).unwrap();
    for number in [0, 2, 3, 4] {
        assert_eq!(ram.status(number), 0);
        let page = &bytes[usize::from(number) * 4096..][..4096];
        assert!(page.iter().all(|&byte| byte == 0x10 + number as u8), "page {number}");
    }
    // And a third one, with nothing in flight, begins where the second one stopped.
    second.kill();
    let _third = Process::start("server", &socket, &disk, Kind::Plain);
    let mut connection = Connection::open(&socket);
    connection.start(&ram, Some(&kept), ram.returned());
    ram.submit(0, 0, 3);
    connection.kick();
    ram.wait_for(6);
    assert_eq!(ram.get(DATA, 4), [0x13; 4]);
}

/// The connection breaks, the daemon lives on. A chain that the guest offers meanwhile is left alone, and
/// served for the next connection.
#[test]
fn chain_offered_to_a_broken_connection_waits_for_the_next() {
    let running = support::Running::start(braid_base::MIB, Kind::Plain);
    let mut ram = GuestRam::new();
    let mut connection = Connection::open(&running.socket);
    let kept = connection.inflight();
    connection.start(&ram, Some(&kept), 0);
    ram.submit(0, 1, 0);
    connection.kick();
    ram.wait_for(1);
    drop(connection);
    ram.submit(1, 1, 1);
    running.wait_until("the connection ends", |counters| counters.open == 0);
    assert_eq!((ram.returned(), ram.status(1)), (1, UNANSWERED));
    let mut connection = Connection::open(&running.socket);
    connection.start(&ram, Some(&kept), ram.returned());
    ram.wait_for(2);
    assert_eq!(ram.status(1), 0);
}
