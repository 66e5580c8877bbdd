//! The client against Braid's own server, and against nbdkit.

#![allow(clippy::unwrap_used, reason = "a test may unwrap")]

mod support;

use braid_base::{Bytes, KIB, MIB};
use braid_nbd::client::{Access, Limits};
use braid_runtime::{Buf, Device, join_all};
use rustix::process::Signal;
use std::io::ErrorKind;
use std::process::Command;
use support::nbdkit::Nbdkit;
use support::remote::{conforms, errno, filled, impatient, open, open_as, refusal, with_ring};
use support::{Running, Setup};

const BLOCK: Bytes = Bytes(4096);

#[test]
fn braids_own_server_conforms_over_unix_and_tcp() {
    let server = Running::start(Setup { arena: MIB * 256, ..Setup::default() });
    assert_eq!(conforms(&server.uri()), 4);
    assert_eq!(conforms(&format!("nbd://127.0.0.1:{}/vol", server.port)), 4);
    server.wait_until("connections have ended", |state| state.counters.open == 0);
    assert_eq!(server.state().counters.errors, 0);
    server.stop();
}

#[test]
fn nbdkit_conforms() {
    for arguments in [
        &["memory", "64M"][..],
        &["--no-sr", "memory", "64M"],
        &["--filter=multi-conn", "memory", "64M", "multi-conn-mode=disable"],
        &["--filter=delay", "memory", "64M", "rdelay=1ms", "wdelay=1ms"],
        &["--filter=rate", "memory", "64M", "rate=400M"],
        &["--filter=blocksize-policy", "memory", "64M", "blocksize-minimum=4096", "blocksize-maximum=8192"],
        &["--filter=noparallel", "memory", "64M"],
    ] {
        let Some(server) = Nbdkit::start(arguments) else { return };
        conforms(&server.uri());
    }
}

#[test]
fn long_requests_are_cut_to_the_limit_of_the_server() {
    let policy = ["blocksize-minimum=512", "blocksize-maximum=64K", "blocksize-error-policy=error"];
    let arguments = [&["--filter=blocksize-policy", "memory", "64M"][..], &policy].concat();
    let Some(server) = Nbdkit::start(&arguments) else { return };
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        let content: Vec<u8> =
            (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let (offset, there) = (BLOCK * 3, arena.alloc(MIB).await);
        there.copy_from_slice(Bytes::ZERO, &content);
        device.write(offset, &there).await.expect("a write in pieces");
        let back = arena.alloc(MIB).await;
        device.read(offset, &back).await.expect("a read in pieces");
        assert!(back.to_vec() == content, "the bytes have changed");
        device.discard(Bytes::ZERO, MIB * 64).await.expect("a discard");
    });
}

#[test]
fn oldest_negotiations_and_unfit_exports_are_refused() {
    let cases: [(&[&str], ErrorKind); 7] = [
        (&["--oldstyle", "memory", "1M"], ErrorKind::Unsupported),
        (&["--mask-handshake=0", "memory", "1M"], ErrorKind::Unsupported),
        (&["-r", "memory", "1M"], ErrorKind::ReadOnlyFilesystem),
        (&["memory", "0"], ErrorKind::Unsupported),
        (&["memory", "511"], ErrorKind::Unsupported),
        (
            &[
                "--filter=blocksize-policy",
                "memory",
                "1M",
                "blocksize-minimum=64K",
                "blocksize-preferred=64K",
            ],
            ErrorKind::Unsupported,
        ),
        (
            &["eval", "get_size=echo 1M", "pread=exit 1", "pwrite=exit 1", "can_flush=exit 3"],
            ErrorKind::Unsupported,
        ),
    ];
    for (arguments, kind) in cases {
        let Some(server) = Nbdkit::start(arguments) else { return };
        assert_eq!(refusal(&server.uri()), kind, "{arguments:?}");
    }
}

#[test]
fn unknown_export_is_not_found() {
    let server = Running::start(Setup::default());
    assert_eq!(refusal(&server.uri().replace("/vol?", "/other?")), ErrorKind::NotFound);
}

#[test]
fn reader_reads_a_read_only_export_and_may_not_write() {
    let Some(server) = Nbdkit::start(&["-r", "pattern", "1M"]) else { return };
    with_ring(async |ring, arena| {
        let device =
            open_as(ring, &server.uri(), Access::ReadOnly, Limits::default()).await.expect("a device");
        let buf = arena.alloc(BLOCK).await;
        device.read(BLOCK, &buf).await.expect("a read");
        assert_eq!(buf.to_vec()[..16], [4096u64.to_be_bytes(), 4104u64.to_be_bytes()].concat());
        let refused = ErrorKind::ReadOnlyFilesystem;
        assert_eq!(device.write(BLOCK, &buf).await.unwrap_err().kind(), refused);
        assert_eq!(device.discard(BLOCK, BLOCK).await.unwrap_err().kind(), refused);
        device.flush().await.expect("nothing to flush");
    });
}

#[test]
fn failed_write_leaves_the_device_in_use() {
    let arguments = ["--filter=error", "memory", "1M", "error-pwrite=ENOSPC", "error-pwrite-rate=100%"];
    let Some(server) = Nbdkit::start(&arguments) else { return };
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        let buf = filled(arena, BLOCK, 7).await;
        for _ in 0..3 {
            let error = device.write(BLOCK, &buf).await.unwrap_err();
            assert_eq!((error.kind(), errno(&error)), (ErrorKind::StorageFull, Some(28)));
        }
        device.read(BLOCK, &buf).await.expect("reads go on");
        assert!(buf.to_vec().iter().all(|&byte| byte == 0));
        device.flush().await.expect("a flush");
    });
}

/// Further connections that the server refuses are left out.
#[test]
fn server_with_two_connections_is_used_with_two() {
    let Some(server) = Nbdkit::start(&["--filter=limit", "memory", "64M", "limit=2"]) else { return };
    assert_eq!(conforms(&server.uri()), 2);
}

/// nbdkit with this filter ends after its last client: the end of the device reaches the server.
#[test]
fn dropped_device_ends_its_connections() {
    let Some(mut server) = Nbdkit::start(&["--filter=exitlast", "memory", "1M"]) else { return };
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        device.write(BLOCK, &filled(arena, BLOCK, 7).await).await.expect("a write");
        drop(device);
        assert!(server.child.wait().expect("a child").success());
    });
}

/// Story: after SIGSTOP the sockets stay open, and nothing but the silence tells.
#[test]
fn stopped_server_is_lost_after_the_silence() {
    let Some(server) = Nbdkit::start(&["memory", "1M"]) else { return };
    with_ring(async |ring, arena| {
        let device = open_as(ring, &server.uri(), Access::ReadWrite, impatient()).await.expect("a device");
        let buf = filled(arena, BLOCK, 7).await;
        device.write(BLOCK, &buf).await.expect("a write");
        server.stop();
        assert_eq!(device.flush().await.unwrap_err().kind(), ErrorKind::TimedOut);
        server.signal(Signal::CONT);
        // Never again: writes may have been lost meanwhile.
        let results = [
            device.read(BLOCK, &buf).await,
            device.write(BLOCK, &buf).await,
            device.flush().await,
            device.discard(BLOCK, BLOCK).await,
        ];
        for result in results {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        }
    });
}

#[test]
fn killed_server_ends_all_requests_in_flight() {
    let slow = ["--filter=delay", "memory", "64M", "wdelay=10000ms"];
    let Some(server) = Nbdkit::start(&slow) else { return };
    with_ring(async |ring, arena| {
        let device = open(ring, &server.uri()).await.expect("a device");
        let bufs: Vec<Buf> = join_all((0..40).map(|n| filled(arena, KIB * 256, n))).await;
        let killer = std::thread::spawn({
            let process = server.child.id().to_string();
            move || Command::new("sh").args(["-c", &format!("sleep 0.2; kill -9 {process}")]).status()
        });
        let writes = bufs.iter().enumerate().map(|(at, buf)| device.write(KIB * 256 * at as u64, buf));
        let results = join_all(writes).await;
        assert!(killer.join().expect("a thread").expect("a shell").success());
        let is_lost = |kind| {
            matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
        };
        assert!(results.iter().all(|result| result.as_ref().is_err_and(|error| is_lost(error.kind()))));
        assert!(device.flush().await.is_err_and(|error| is_lost(error.kind())));
    });
}
