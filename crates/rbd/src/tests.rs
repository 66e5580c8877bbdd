//! Devices on a cluster in memory: the body that every device must pass, the lock, errors, abandoned
//! requests.

mod fake;

use crate::lock::Owner;
use crate::pool::{images_with, make_with, remove_with};
use crate::{Access, ImageName, Made, RbdDevice, errno};
use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos};
use braid_runtime::{Arena, Buf, Device, Runtime, conformance, yield_now};
use braid_uring::Ring;
use fake::FakeImage;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

fn with_ring(body: impl AsyncFnOnce(&Ring, &Arena)) {
    let arena = Arena::new(MIB * 4);
    let ring = Ring::new(64, &arena).unwrap();
    ring.block_on(body(&ring, &arena));
    ring.clear();
}

fn name(pool: &str) -> ImageName {
    format!("rbd:{pool}/image").parse().unwrap()
}

async fn open(ring: &Ring, pool: &str, access: Access) -> io::Result<RbdDevice> {
    RbdDevice::open_with(&fake::CALLS, ring, &name(pool), DeviceClass::Hdd, access, Owner::Respected).await
}

async fn open_by_force(ring: &Ring, pool: &str) -> io::Result<RbdDevice> {
    let access = Access::ReadWrite;
    RbdDevice::open_with(&fake::CALLS, ring, &name(pool), DeviceClass::Hdd, access, Owner::ShutOut).await
}

/// A device on a new image of 1 MiB in a pool of its own, and a buffer of 4 KiB with marks.
async fn device(ring: &Ring, arena: &Arena, pool: &str) -> (Arc<FakeImage>, RbdDevice, Buf) {
    let image = fake::make_image(pool, "image", 1 << 20);
    let device = open(ring, pool, Access::ReadWrite).await.unwrap();
    let buf = arena.alloc(KIB * 4).await;
    buf.with_bytes_mut(|bytes| bytes.fill(0x61));
    (image, device, buf)
}

fn errno_of<T>(result: io::Result<T>) -> Option<i32> {
    errno(&result.err().expect("the request fails"))
}

fn kind_of<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("the request fails").kind()
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Lets the shard work until `test` is true.
async fn until(ring: &Ring, test: impl Fn() -> bool) {
    while !test() {
        ring.sleep(Nanos::from_micros(200)).await;
    }
}

#[test]
fn an_image_is_a_device() {
    with_ring(async |ring, _| {
        fake::make_image("conformance", "image", (2 << 20) + 100);
        let device = open(ring, "conformance", Access::ReadWrite).await.unwrap();
        let geometry = device.geometry();
        assert_eq!((geometry.size, geometry.class), (MIB * 2, DeviceClass::Hdd));
        assert_eq!((geometry.alignment, geometry.memory_alignment), (Bytes(512), Bytes(1)));
        assert_eq!(device.image().to_string(), "rbd:conformance/image");
        conformance::device(ring, Rc::new(device), 5).await;
    });
}

#[test]
fn second_writer_is_refused_and_reader_is_admitted() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "second").await;
        device.write(Bytes::ZERO, &buf).await.unwrap();
        assert_eq!(kind_of(open(ring, "second", Access::ReadWrite).await), io::ErrorKind::ResourceBusy);
        let reader = open(ring, "second", Access::ReadOnly).await.unwrap();
        buf.fill_zero();
        reader.read(Bytes::ZERO, &buf).await.unwrap();
        assert!(buf.with_bytes(|bytes| bytes.iter().all(|&byte| byte == 0x61)));
        assert_eq!(errno_of(reader.write(Bytes::ZERO, &buf).await), Some(libc::EROFS));
        assert_eq!(errno_of(reader.discard(Bytes::ZERO, KIB * 4).await), Some(libc::EROFS));
        drop((device, reader));
        assert_eq!(image.owner(), None);
        open(ring, "second", Access::ReadWrite).await.unwrap();
    });
}

#[test]
fn living_owner_keeps_the_lock_until_it_is_forced_out() {
    with_ring(async |ring, _| {
        let image = fake::make_image("living", "image", 1 << 20);
        image.lock_for("host:0/1", true);
        assert_eq!(kind_of(open(ring, "living", Access::ReadWrite).await), io::ErrorKind::ResourceBusy);
        assert!(!image.is_shut_out("host:0/1"));
        let device = open_by_force(ring, "living").await.unwrap();
        assert!(image.is_shut_out("host:0/1"));
        assert!(device.flush().await.is_ok());
    });
}

#[test]
fn dead_owner_is_waited_for_and_shut_out() {
    with_ring(async |ring, _| {
        let image = fake::make_image("dead", "image", 1 << 20);
        image.lock_for("host:0/2", false);
        let mut opening = pin!(open(ring, "dead", Access::ReadWrite));
        for _ in 0..20 {
            assert!(poll_once(opening.as_mut()).await.is_pending());
            ring.sleep(Nanos::from_millis(10)).await;
        }
        assert!(!image.is_shut_out("host:0/2"));
        image.forget("host:0/2");
        let device = opening.await.unwrap();
        assert!(image.is_shut_out("host:0/2"));
        assert!(device.flush().await.is_ok());
    });
}

#[test]
fn former_owner_fails_for_good() {
    for (pool, shuts_out, error) in [("taken", true, libc::ESHUTDOWN), ("stolen", false, libc::EROFS)] {
        with_ring(async |ring, arena| {
            let (image, device, buf) = device(ring, arena, pool).await;
            device.write(Bytes::ZERO, &buf).await.unwrap();
            let address = image.owner().unwrap();
            image.take_over(shuts_out);
            assert_eq!(errno_of(device.write(Bytes::ZERO, &buf).await), Some(error));
            // Ceph admits a client again after a time; what the other client wrote stays unknown here.
            image.admit_again(&address);
            for _ in 0..3 {
                assert_eq!(errno_of(device.write(Bytes::ZERO, &buf).await), Some(error));
                assert_eq!(errno_of(device.read(Bytes::ZERO, &buf).await), Some(error));
                assert_eq!(errno_of(device.flush().await), Some(error));
                assert_eq!(errno_of(device.discard(Bytes::ZERO, buf.len()).await), Some(error));
            }
            assert!(!device.give_up(), "the cluster replied: a new opening does not help");
        });
    }
}

#[test]
fn failed_flush_is_never_followed_by_a_success() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "flush").await;
        device.write(Bytes::ZERO, &buf).await.unwrap();
        image.end_next_with(&[-libc::EIO]);
        assert_eq!(errno_of(device.flush().await), Some(libc::EIO));
        assert_eq!(kind_of(device.flush().await), io::ErrorKind::Other);
        assert!(device.read(Bytes::ZERO, &buf).await.is_ok());
        assert!(!device.give_up());
    });
}

#[test]
fn expired_request_keeps_its_error_and_is_no_refusal() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "expired").await;
        image.end_next_with(&[-libc::ETIMEDOUT]);
        let error = device.write(Bytes::ZERO, &buf).await.unwrap_err();
        assert_eq!((errno(&error), error.kind()), (Some(libc::ETIMEDOUT), io::ErrorKind::TimedOut));
        device.write(Bytes::ZERO, &buf).await.unwrap();
        image.end_next_with(&[100]);
        assert_eq!(kind_of(device.read(Bytes::ZERO, &buf).await), io::ErrorKind::UnexpectedEof);
        assert!(device.give_up());
    });
}

#[test]
fn hung_requests_end_when_the_image_is_given_up() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "hung").await;
        let before = image.owner().unwrap();
        image.hang(true);
        let (mut write, mut flush) = (pin!(device.write(Bytes::ZERO, &buf)), pin!(device.flush()));
        assert!(poll_once(write.as_mut()).await.is_pending());
        assert!(poll_once(flush.as_mut()).await.is_pending());
        assert!(device.give_up());
        assert_eq!(kind_of(write.await), io::ErrorKind::NotConnected);
        assert_eq!(kind_of(flush.await), io::ErrorKind::NotConnected);
        assert_eq!(kind_of(device.read(Bytes::ZERO, &buf).await), io::ErrorKind::NotConnected);
        assert!(buf.is_shared(), "librbd still has the buffer");
        // The old connection hangs: the new opening shuts it out, and its write never reaches the image.
        let again = open(ring, "hung", Access::ReadWrite).await.unwrap();
        assert!(image.is_shut_out(&before));
        image.hang(false);
        until(ring, || image.in_flight() == 0 && !buf.is_shared()).await;
        assert!(image.bytes(0, 4096).iter().all(|&byte| byte == 0));
        again.write(Bytes::ZERO, &buf).await.unwrap();
    });
}

#[test]
fn image_given_up_at_rest_can_be_opened_again() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "rest").await;
        let before = image.owner().unwrap();
        device.write(Bytes::ZERO, &buf).await.unwrap();
        assert!(device.give_up());
        let again = open(ring, "rest", Access::ReadWrite).await.unwrap();
        assert!(!image.is_shut_out(&before), "a clean end needs no force");
        again.read(Bytes::ZERO, &buf).await.unwrap();
    });
}

#[test]
fn dropped_future_leaves_its_buffer_to_the_cluster() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "dropped").await;
        image.hang(true);
        {
            let mut write = pin!(device.write(KIB * 8, &buf));
            assert!(poll_once(write.as_mut()).await.is_pending());
        }
        let held = arena.available();
        drop(buf);
        assert_eq!(arena.available(), held, "the cluster still reads the buffer");
        image.hang(false);
        until(ring, || arena.available() > held).await;
        assert!(image.bytes(8192, 4096).iter().all(|&byte| byte == 0x61));
    });
}

#[test]
fn memory_of_requests_stays_if_the_shard_ends_first() {
    let image = fake::make_image("ended", "image", 1 << 20);
    let ended = image.clone();
    with_ring(async move |ring, arena| {
        let device = open(ring, "ended", Access::ReadWrite).await.unwrap();
        let buf = arena.alloc(KIB * 4).await;
        buf.with_bytes_mut(|bytes| bytes.fill(0x62));
        ended.hang(true);
        let mut write = pin!(device.write(Bytes::ZERO, &buf));
        assert!(poll_once(write.as_mut()).await.is_pending());
    });
    // Ring, arena and device are gone; the cluster reads the buffer now.
    image.hang(false);
    while image.in_flight() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(image.bytes(0, 4096).iter().all(|&byte| byte == 0x62));
}

#[test]
fn more_requests_than_slots_wait_and_end() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "depth").await;
        let device = Rc::new(device);
        image.hang(true);
        let left = Rc::new(std::cell::Cell::new(0));
        for at in 0..crate::requests::DEPTH + 50 {
            let (device, buf, left) = (device.clone(), buf.clone(), left.clone());
            left.set(left.get() + 1);
            ring.spawn(async move {
                let result = device.write(KIB * (at as u64 % 64) * 4, &buf).await;
                assert_eq!(kind_of(result), io::ErrorKind::NotConnected);
                left.set(left.get() - 1);
            });
        }
        yield_now().await;
        until(ring, || image.in_flight() == crate::requests::DEPTH).await;
        assert!(device.give_up());
        until(ring, || left.get() == 0).await;
        image.hang(false);
        until(ring, || image.in_flight() == 0).await;
    });
}

/// The mailbox has room for a message of each request. Messages about the size once took this room.
#[test]
fn changes_of_the_header_leave_room_for_completions() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "header").await;
        image.hang(true);
        let mut writes: Vec<_> = (0..crate::requests::DEPTH as u64)
            .map(|at| Box::pin(device.write(KIB * (at % 64) * 4, &buf)))
            .collect();
        for write in &mut writes {
            assert!(poll_once(write.as_mut()).await.is_pending());
        }
        for size in 0..50 {
            image.resize((1 << 20) + size);
            thread::sleep(Duration::from_millis(1));
        }
        image.hang(false);
        while image.in_flight() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        for write in writes {
            write.await.unwrap();
        }
        assert!(device.flush().await.is_ok());
    });
}

#[test]
fn image_that_shrinks_fails_writes_and_flushes() {
    with_ring(async |ring, arena| {
        let (image, device, buf) = device(ring, arena, "shrink").await;
        image.resize(2 << 20);
        assert!(device.flush().await.is_ok());
        image.resize(1 << 19);
        assert_eq!(kind_of(device.flush().await), io::ErrorKind::UnexpectedEof);
        image.resize(1 << 20);
        assert_eq!(kind_of(device.flush().await), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind_of(device.write(Bytes::ZERO, &buf).await), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn image_without_lock_or_size_is_refused() {
    with_ring(async |ring, _| {
        fake::make_image_with("unlockable", "image", 1 << 20, 1);
        assert_eq!(kind_of(open(ring, "unlockable", Access::ReadWrite).await), io::ErrorKind::Unsupported);
        assert!(open(ring, "unlockable", Access::ReadOnly).await.is_ok());
        fake::make_image("empty", "image", 100);
        assert_eq!(kind_of(open(ring, "empty", Access::ReadWrite).await), io::ErrorKind::InvalidInput);
        fake::make_pool("bare");
        for pool in ["bare", "missing"] {
            assert_eq!(kind_of(open(ring, pool, Access::ReadWrite).await), io::ErrorKind::NotFound);
        }
    });
}

#[test]
fn images_are_made_once_listed_and_removed() {
    fake::make_pool("made");
    let (calls, name) = (&fake::CALLS, name("made"));
    assert_eq!(make_with(calls, &name, MIB).unwrap(), Made::New);
    assert_eq!(make_with(calls, &name, MIB).unwrap(), Made::Existing);
    assert_eq!(kind_of(make_with(calls, &name, MIB * 2)), io::ErrorKind::AlreadyExists);
    for number in 0..100 {
        fake::make_image("made", &format!("more-{number:03}"), 4096);
    }
    let found = images_with(calls, "made").unwrap();
    assert_eq!((found.len(), &found[0]), (101, &name));
    assert_eq!(kind_of(images_with(calls, "missing")), io::ErrorKind::NotFound);
    assert_eq!(kind_of(images_with(calls, "a/b/c")), io::ErrorKind::InvalidInput);
    with_ring(async |ring, _| {
        let device = open(ring, "made", Access::ReadWrite).await.unwrap();
        assert_eq!(kind_of(remove_with(calls, &name)), io::ErrorKind::ResourceBusy);
        drop(device);
    });
    remove_with(calls, &name).unwrap();
    assert_eq!(kind_of(remove_with(calls, &name)), io::ErrorKind::NotFound);
}
