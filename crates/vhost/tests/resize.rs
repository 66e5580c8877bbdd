//! The disk gets another size under a guest.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod support;

use braid_base::MIB;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use support::guest::{Connection, GuestRam};
use support::{Kind, PATIENCE, Running};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

/// Size of the disk in sectors, as the guest's process reads it.
fn capacity(connection: &mut Connection) -> u64 {
    let (flags, room) = (VhostUserConfigFlags::WRITABLE, [0; 8]);
    let (_, bytes) = connection.frontend.get_config(0, 8, flags, &room).unwrap();
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// Reads a page; returns the status.
fn read_page(ram: &mut GuestRam, connection: &Connection, page: u64) -> u8 {
    let returned = ram.returned();
    ram.submit(0, 0, page);
    connection.kick();
    ram.wait_for(returned + 1);
    ram.status(0)
}

/// Without the message the guest had the former size until its process connected again.
#[test]
fn guest_is_told_of_another_size_while_its_queue_runs() {
    let running = Running::start(MIB, Kind::Plain);
    let mut ram = GuestRam::new();
    let mut connection = Connection::open(&running.socket);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    connection.frontend.set_backend_request_fd(&theirs).unwrap();
    connection.start(&ram, None, 0);
    assert_eq!((capacity(&mut connection), read_page(&mut ram, &connection, 300)), (2048, 1));
    for (size, sectors, page) in [(MIB * 2, 4096, 511), (MIB * 4, 8192, 1023)] {
        assert_eq!(running.resize(size), None);
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut message = [0; 12];
        ours.read_exact(&mut message).unwrap();
        assert_eq!(message.map(u32::from), [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], "little-endian machines");
        assert_eq!((capacity(&mut connection), read_page(&mut ram, &connection, page)), (sectors, 0));
    }
}

#[test]
fn guest_without_a_channel_is_named_and_served() {
    let running = Running::start(MIB, Kind::Plain);
    let mut ram = GuestRam::new();
    let mut connection = Connection::open(&running.socket);
    connection.start(&ram, None, 0);
    let untold = running.resize(MIB * 2).expect("the guest cannot be told");
    assert!(untold.starts_with(&format!("process {} (", std::process::id())), "{untold}");
    assert_eq!((capacity(&mut connection), read_page(&mut ram, &connection, 511)), (4096, 0));
}

/// A channel that nobody reads fills up; one that is closed breaks. The guest is served on.
#[test]
fn channel_that_nobody_reads_harms_nobody() {
    let running = Running::start(MIB, Kind::Plain);
    let mut ram = GuestRam::new();
    let mut connection = Connection::open(&running.socket);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    while theirs.write(&[0; 4096]).is_ok() {}
    connection.frontend.set_backend_request_fd(&theirs).unwrap();
    connection.start(&ram, None, 0);
    running.resize(MIB * 2);
    assert_eq!(read_page(&mut ram, &connection, 511), 0);
    drop(ours);
    running.resize(MIB * 3);
    assert_eq!(read_page(&mut ram, &connection, 767), 0);
}

/// A file that is no socket, and no file at all: the connection ends, and the server serves the next one.
#[test]
fn channel_must_be_a_socket() {
    let running = Running::start(MIB, Kind::Plain);
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut connection = Connection::open(&running.socket);
    assert!(connection.frontend.set_backend_request_fd(&file).is_err());
    let head = [21u32, 1, 0].map(u32::to_ne_bytes).concat();
    let mut socket = UnixStream::connect(&running.socket).unwrap();
    socket.write_all(&head).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0, "disconnected");
    let mut ram = GuestRam::new();
    let mut connection = Connection::open(&running.socket);
    connection.start(&ram, None, 0);
    assert_eq!(read_page(&mut ram, &connection, 0), 0);
}
