//! A device of a remote export, in a ring of the test.
#![allow(dead_code, reason = "each test binary uses its part")]

use braid_base::{Bytes, DeviceClass, MIB, Nanos};
use braid_nbd::client::{Access, Address, Limits, RemoteDevice};
use braid_runtime::{Arena, Buf, conformance};
use braid_uring::Ring;
use std::io;
use std::rc::Rc;

/// Runs a test with a ring and its arena. All buffers must be free in the end.
pub fn with_ring<T>(test: impl AsyncFnOnce(&Ring, &Arena) -> T) -> T {
    let arena = Arena::new(MIB * 64);
    let ring = Ring::new(64, &arena).expect("a ring");
    let result = ring.block_on(test(&ring, &arena));
    ring.clear();
    assert_eq!(arena.available(), MIB * 64, "buffers are left");
    result
}

pub async fn open(ring: &Ring, uri: &str) -> io::Result<RemoteDevice> {
    open_as(ring, uri, Access::ReadWrite, Limits::default()).await
}

pub async fn open_as(ring: &Ring, uri: &str, access: Access, limits: Limits) -> io::Result<RemoteDevice> {
    let address: Address = uri.parse().expect("an address");
    RemoteDevice::connect_within(ring, &address, DeviceClass::Ssd, access, limits).await
}

/// The kind of the refusal.
pub fn refusal(uri: &str) -> io::ErrorKind {
    with_ring(async |ring, _| open(ring, uri).await.err().expect("a refusal").kind())
}

/// Short limits, for servers that fall silent.
pub fn impatient() -> Limits {
    let short = Nanos::from_millis(300);
    Limits { negotiation: short, silence: short, ..Limits::default() }
}

/// Runs the conformance test of devices. Returns the number of connections.
pub fn conforms(uri: &str) -> usize {
    with_ring(async |ring, _| {
        let device = Rc::new(open(ring, uri).await.unwrap_or_else(|error| panic!("{error}")));
        let connections = device.connections();
        conformance::device(ring, device, 7).await;
        connections
    })
}

pub async fn filled(arena: &Arena, len: Bytes, byte: u8) -> Buf {
    let buf = arena.alloc(len).await;
    buf.with_bytes_mut(|bytes| bytes.fill(byte));
    buf
}

/// Number of the server's error.
pub fn errno(error: &io::Error) -> Option<i32> {
    let source = error.get_ref().and_then(|inner| inner.source());
    source.and_then(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error)
}
