//! Devices of the real world: the body that every device must pass, locks, errors.

#![allow(clippy::unwrap_used, reason = "a test may")]

use braid_base::{Bytes, DeviceClass, KIB, MIB};
use braid_runtime::{Arena, Device, conformance};
use braid_uring::{Access, FileDevice, Flush, MemoryDevice, Ring};
use std::io;
use std::path::Path;
use std::rc::Rc;
use tempfile::NamedTempFile;

/// A file of 2 MiB and a bit, on a disk: a file system in memory takes other ways through the kernel.
fn test_file() -> NamedTempFile {
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(MIB.0 * 2 + 100).unwrap();
    file
}

fn with_ring(body: impl AsyncFnOnce(&Ring, &Arena)) {
    let arena = Arena::new(MIB * 4);
    let ring = Ring::new(64, &arena).unwrap();
    ring.block_on(body(&ring, &arena));
    ring.clear();
}

fn open(ring: &Ring, path: &Path, access: Access) -> io::Result<FileDevice> {
    FileDevice::open(ring, path, DeviceClass::Ssd, access)
}

#[test]
fn memory_is_a_device() {
    with_ring(async |ring, _| {
        let device = MemoryDevice::new(MIB * 2, DeviceClass::Ssd).unwrap();
        assert_eq!(device.geometry().alignment, Bytes(1));
        conformance::device(ring, Rc::new(device), 1).await;
    });
}

#[test]
fn a_cached_file_is_a_device() {
    with_ring(async |ring, _| {
        let file = test_file();
        let device = open(ring, file.path(), Access::Cached).unwrap();
        assert_eq!((device.geometry().size, device.geometry().alignment), (MIB * 2, Bytes(512)));
        conformance::device(ring, Rc::new(device), 2).await;
    });
}

#[test]
fn a_file_past_the_cache_is_a_device() {
    with_ring(async |ring, _| {
        let file = test_file();
        let device = open(ring, file.path(), Access::Direct).unwrap();
        assert_eq!(device.geometry().size, MIB * 2);
        conformance::device(ring, Rc::new(device), 3).await;
    });
}

/// `BRAID_TEST_BLOCK_DEVICE=/dev/loop7 cargo test -p braid-uring -- --ignored` overwrites the device's first
/// MiB.
#[test]
#[ignore = "needs a block device that may be overwritten, and the right to"]
fn block_device_conforms_and_second_open_is_refused() {
    let path = std::env::var("BRAID_TEST_BLOCK_DEVICE").unwrap();
    let path = Path::new(&path);
    with_ring(async |ring, _| {
        for access in [Access::Direct, Access::Cached] {
            let device = open(ring, path, access).unwrap();
            assert_eq!(open(ring, path, access).err().unwrap().kind(), io::ErrorKind::ResourceBusy);
            conformance::device(ring, Rc::new(device), 4).await;
        }
    });
}

#[test]
fn buffers_of_registered_and_foreign_arenas_both_work() {
    with_ring(async |ring, own| {
        let file = test_file();
        let device = open(ring, file.path(), Access::Direct).unwrap();
        let other = Arena::new(MIB);
        for (number, arena) in [own, &other].into_iter().enumerate() {
            let buf = arena.alloc(KIB * 8).await;
            buf.with_bytes_mut(|bytes| bytes.fill(number as u8 + 1));
            device.write(KIB * 64, &buf.slice(KIB * 4..KIB * 8)).await.unwrap();
            buf.fill_zero();
            device.read(KIB * 64, &buf.slice(Bytes::ZERO..KIB * 4)).await.unwrap();
            let half = buf.slice(Bytes::ZERO..KIB * 4).to_vec();
            assert!(half.iter().all(|&b| b == number as u8 + 1), "arena {number}");
        }
    });
}

#[test]
fn second_open_is_refused_until_the_first_is_closed() {
    with_ring(async |ring, _| {
        let file = test_file();
        let first = open(ring, file.path(), Access::Cached).unwrap();
        let error = open(ring, file.path(), Access::Cached).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        open(ring, file.path(), Access::Cached).unwrap();
    });
}

#[test]
fn errors_of_opening_name_the_path_and_the_remedy() {
    with_ring(async |ring, _| {
        let missing = open(ring, Path::new("/nowhere/disk"), Access::Direct).err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.to_string().contains("/nowhere/disk"), "{missing}");
        let empty = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let error = open(ring, empty.path(), Access::Cached).err().unwrap();
        assert!(error.to_string().contains("truncate"), "{error}");
        let directory = open(ring, Path::new("/tmp"), Access::Cached).err().unwrap();
        assert_eq!(directory.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn read_beyond_a_truncated_file_is_an_error() {
    with_ring(async |ring, arena| {
        let file = test_file();
        let device = open(ring, file.path(), Access::Cached).unwrap();
        file.as_file().set_len(MIB.0).unwrap();
        let buf = arena.alloc(KIB * 8).await;
        let error = device.read(MIB - KIB * 4, &buf).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
}

/// A file was truncated while it was served: the next write extended it again, with a hole in front, and
/// flushes succeeded, so that all the bytes lost were reported as safe.
#[test]
fn a_file_truncated_while_in_use_fails_writes_and_flushes_and_is_not_extended() {
    for (access, flush) in [(Access::Direct, Flush::ToDisk), (Access::Cached, Flush::ToPageCache)] {
        with_ring(async |ring, arena| {
            let file = test_file();
            let device = open(ring, file.path(), access).unwrap().with_flush(flush);
            let buf = arena.alloc(KIB * 4).await;
            device.write(MIB, &buf).await.unwrap();
            device.flush().await.unwrap();
            file.as_file().set_len(MIB.0).unwrap();
            for error in [
                device.write(MIB * 2 - KIB * 4, &buf).await.unwrap_err(),
                device.write(Bytes::ZERO, &buf).await.unwrap_err(),
                device.flush().await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                let said = error.to_string();
                assert!(said.contains(file.path().to_str().unwrap()), "{said}");
            }
            assert_eq!(file.as_file().metadata().unwrap().len(), MIB.0, "the file was extended");
        });
    }
}

#[test]
fn device_stays_failed_after_a_truncated_file_grows_again() {
    with_ring(async |ring, arena| {
        let file = test_file();
        let device = open(ring, file.path(), Access::Cached).unwrap();
        let buf = arena.alloc(KIB * 4).await;
        file.as_file().set_len(MIB.0).unwrap();
        device.read(MIB, &buf).await.unwrap_err();
        file.as_file().set_len(MIB.0 * 3).unwrap();
        device.write(Bytes::ZERO, &buf).await.unwrap_err();
        device.flush().await.unwrap_err();
    });
}

#[test]
fn a_flush_to_the_page_cache_succeeds_without_the_disk() {
    with_ring(async |ring, arena| {
        let file = test_file();
        let device = open(ring, file.path(), Access::Cached).unwrap().with_flush(Flush::ToPageCache);
        let buf = arena.alloc(KIB * 4).await;
        device.write(Bytes::ZERO, &buf).await.unwrap();
        device.flush().await.unwrap();
    });
}

#[test]
fn a_discarded_range_of_a_file_is_free_again() {
    use std::os::unix::fs::MetadataExt;
    with_ring(async |ring, arena| {
        let file = test_file();
        let device = open(ring, file.path(), Access::Cached).unwrap();
        let buf = arena.alloc(MIB).await;
        buf.with_bytes_mut(|bytes| bytes.fill(1));
        device.write(Bytes::ZERO, &buf).await.unwrap();
        device.flush().await.unwrap();
        let before = file.as_file().metadata().unwrap().blocks();
        device.discard(Bytes::ZERO, MIB).await.unwrap();
        let after = file.as_file().metadata().unwrap().blocks();
        assert!(after < before, "{before} sectors before, {after} after");
    });
}

#[test]
fn discarded_memory_reads_as_zeros() {
    with_ring(async |_, arena| {
        let device = MemoryDevice::new(MIB, DeviceClass::Ssd).unwrap();
        let buf = arena.alloc(KIB * 12).await;
        buf.with_bytes_mut(|bytes| bytes.fill(1));
        device.write(Bytes::ZERO, &buf).await.unwrap();
        device.discard(Bytes(1), KIB * 12 - Bytes(1)).await.unwrap();
        device.read(Bytes::ZERO, &buf).await.unwrap();
        let sums: Vec<u64> =
            buf.to_vec().chunks(4096).map(|page| page.iter().map(|&b| b as u64).sum()).collect();
        assert_eq!(sums, [4096, 0, 0], "the first page is not discarded whole");
    });
}

#[test]
fn read_only_opens_share_the_lock_and_refuse_writes() {
    with_ring(async |ring, arena| {
        let file = test_file();
        let read_only = |path| FileDevice::open_read_only(ring, path, DeviceClass::Ssd, Access::Cached);
        let (one, other) = (read_only(file.path()).unwrap(), read_only(file.path()).unwrap());
        let buf = arena.alloc(KIB * 4).await;
        one.read(Bytes::ZERO, &buf).await.unwrap();
        one.write(Bytes::ZERO, &buf).await.unwrap_err();
        let busy = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        busy(open(ring, file.path(), Access::Cached).err().unwrap());
        drop((one, other));
        let writer = open(ring, file.path(), Access::Cached).unwrap();
        busy(read_only(file.path()).err().unwrap());
        drop(writer);
    });
}
