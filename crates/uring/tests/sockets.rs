//! Sockets: echoes over both kinds, backpressure, dropped waits, stale socket files.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unsafe_code, reason = "a child listens before it becomes another programme")]

use braid_base::{MIB, Nanos};
use braid_runtime::{Arena, Runtime};
use braid_uring::{Address, Listener, Ring, Stream, connect_unix};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::pin::pin;
use std::process::Command;
use std::task::Poll;
use std::thread;

fn with_ring(body: impl AsyncFnOnce(&Ring)) {
    let arena = Arena::new(MIB);
    let ring = Ring::new(64, &arena).unwrap();
    ring.block_on(body(&ring));
    ring.clear();
}

/// Sends 4 MiB and expects them back, at once: more than any socket's buffer.
fn expect_echo(mut send: impl Write + Send + 'static, mut receive: impl Read) {
    let sent: Vec<u8> = (0..4 << 20).map(|n: u32| (n * 7) as u8).collect();
    let copy = sent.clone();
    let sender = thread::spawn(move || send.write_all(&copy).unwrap());
    let mut received = vec![0; sent.len()];
    receive.read_exact(&mut received).unwrap();
    assert!(sent == received);
    sender.join().unwrap();
}

async fn echo(stream: &Stream) {
    let mut bytes = vec![0; 100_000];
    loop {
        match stream.try_recv(&mut bytes).unwrap() {
            Some(0) => return,
            Some(count) => stream.send_all(&bytes[..count]).await.unwrap(),
            None => stream.readable().await.unwrap(),
        }
    }
}

#[test]
fn tcp_echoes() {
    with_ring(async |ring| {
        let listener = Listener::bind_tcp(ring, "127.0.0.1:0".parse().unwrap()).unwrap();
        let Address::Tcp(address) = *listener.local_address() else { panic!("a TCP address") };
        let client = thread::spawn(move || {
            let stream = TcpStream::connect(address).unwrap();
            expect_echo(stream.try_clone().unwrap(), stream);
        });
        echo(&listener.accept().await.unwrap()).await;
        client.join().unwrap();
    });
}

#[test]
fn unix_echoes_and_a_stale_socket_file_is_replaced() {
    with_ring(async |ring| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        // A listener that dies without removing its file.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = Listener::bind_unix(ring, &path).unwrap();
        let refused = Listener::bind_unix(ring, &path).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
        // That question was a connection, which has ended again.
        echo(&listener.accept().await.unwrap()).await;
        let client = thread::spawn({
            let path = path.clone();
            move || {
                let stream = UnixStream::connect(path).unwrap();
                expect_echo(stream.try_clone().unwrap(), stream);
            }
        });
        echo(&listener.accept().await.unwrap()).await;
        client.join().unwrap();
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        let refused = Listener::bind_unix(ring, &path).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{refused}");
    });
}

/// The kernel closed the socket of a killed daemon only after the next daemon had looked, which then did not
/// start; and a command took the dead daemon for one that serves.
#[test]
fn socket_of_a_dead_process_refuses_connections() {
    with_ring(async |ring| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // A child begins to listen, and ends; the socket stays open here, as it does in the kernel.
        let mut child = Command::new("true");
        let listening = socket.try_clone().unwrap();
        // SAFETY: between fork and exec nothing but a system call is made.
        unsafe { child.pre_exec(move || Ok(listen(&listening, 8)?)) };
        assert!(child.status().unwrap().success());
        UnixStream::connect(&path).unwrap();
        assert_eq!(connect_unix(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let listener = Listener::bind_unix(ring, &path).unwrap();
        connect_unix(&path).unwrap();
        drop((socket, child, listener));
    });
}

#[test]
fn closed_peer_is_detected_and_send_returns_error() {
    with_ring(async |ring| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = Stream::from_fd(ring, ours.into()).unwrap();
        assert_eq!(stream.try_recv(&mut [0; 8]).unwrap(), None);
        let closer = thread::spawn(move || drop(theirs));
        stream.readable().await.unwrap();
        closer.join().unwrap();
        assert_eq!(stream.try_recv(&mut [0; 8]).unwrap(), Some(0));
        let error = stream.try_send(&[IoSlice::new(b"hello")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let error = stream.recv_exact(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn many_slices_are_sent_in_a_single_call() {
    with_ring(async |ring| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Stream::from_fd(ring, ours.into()).unwrap();
        let slices: Vec<_> = (0..2_000).map(|_| IoSlice::new(b"ab")).collect();
        assert_eq!(stream.try_send(&slices).unwrap(), Some(2_048), "as many as one call takes");
        let mut received = [0; 2_048];
        theirs.read_exact(&mut received).unwrap();
    });
}

#[test]
fn a_dropped_wait_does_not_keep_the_connection_open() {
    with_ring(async |ring| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Stream::from_fd(ring, ours.into()).unwrap();
        for _ in 0..500 {
            let mut wait = pin!(stream.readable());
            poll_fn(|cx| {
                assert!(wait.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        drop(stream);
        let reader = thread::spawn(move || theirs.read(&mut [0; 8]).unwrap());
        ring.sleep(Nanos::from_millis(10)).await;
        assert_eq!(reader.join().unwrap(), 0);
    });
}

/// The mode of a socket file came from the umask: with 000, as in some containers, any user could write to
/// the volume.
#[test]
fn unix_socket_has_mode_0600_under_any_umask() {
    use std::os::unix::fs::PermissionsExt;
    with_ring(async |ring| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        for umask in [0o000, 0o022, 0o077] {
            let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
            let listener = Listener::bind_unix(ring, &path);
            rustix::process::umask(before);
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "umask {umask:o}");
            drop(listener.unwrap());
        }
    });
}
