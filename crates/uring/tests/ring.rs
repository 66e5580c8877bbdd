//! The loop: timers, many operations at once, dropped futures, messages, signals.

#![allow(clippy::unwrap_used, reason = "a test may")]

use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos, Rng};
use braid_runtime::{Arena, Device, Event, Runtime, yield_now};
use braid_uring::{Access, FileDevice, Ring, Signal, Signals, TrySendError, mailbox};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tempfile::NamedTempFile;

fn with_ring(body: impl AsyncFnOnce(&Ring, &Arena)) {
    let arena = Arena::new(MIB * 16);
    let ring = Ring::new(64, &arena).unwrap();
    ring.block_on(body(&ring, &arena));
    ring.clear();
}

fn test_device(ring: &Ring) -> (NamedTempFile, FileDevice) {
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(MIB.0 * 4).unwrap();
    let device = FileDevice::open(ring, file.path(), DeviceClass::Ssd, Access::Cached).unwrap();
    (file, device)
}

/// Polls a future once and drops it.
async fn poll_once(future: impl Future) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let _ = future.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

#[test]
fn sleeps_end_soon_after_the_deadline_and_never_before() {
    with_ring(async |ring, _| {
        let mut rng = Rng::new(1);
        let mut late = Vec::new();
        for _ in 0..200 {
            let deadline = ring.now() + Nanos(rng.below(1_000_000));
            ring.sleep_until(deadline).await;
            late.push(ring.now() - deadline);
        }
        late.sort();
        println!("lateness: median {}, p99 {}", late[100], late[198]);
        assert!(late[100] < Nanos::from_micros(20), "median {}", late[100]);
    });
}

#[test]
fn more_operations_than_queue_entries_complete() {
    with_ring(async |ring, arena| {
        let (_file, device) = test_device(ring);
        let (device, left, ended) = (Rc::new(device), Rc::new(Cell::new(3_000u64)), Event::default());
        for number in 0..left.get() {
            let (device, arena, left, ended) = (device.clone(), arena.clone(), left.clone(), ended.clone());
            ring.spawn(async move {
                let buf = arena.alloc(KIB * 4).await;
                let offset = KIB * 4 * (number % 1_000);
                device.write(offset, &buf).await.unwrap();
                device.read(offset, &buf).await.unwrap();
                left.set(left.get() - 1);
                ended.notify();
            });
        }
        ended.wait_for(|| (left.get() == 0).then_some(())).await;
        assert_eq!(arena.available(), MIB * 16);
    });
}

#[test]
fn dropped_request_keeps_buffer_until_kernel_completes() {
    let arena = Arena::new(MIB * 16);
    let ring = Ring::new(64, &arena).unwrap();
    ring.block_on(async {
        let (_file, device) = test_device(&ring);
        for _ in 0..1_000 {
            let buf = arena.alloc(KIB * 4).await;
            poll_once(device.read(Bytes::ZERO, &buf)).await;
        }
        let buf = arena.alloc(KIB * 4).await;
        poll_once(device.read(Bytes::ZERO, &buf)).await;
        drop(buf);
        assert!(arena.available() < MIB * 16, "the kernel has not been asked yet");
        ring.sleep(Nanos::from_millis(20)).await;
        assert_eq!(arena.available(), MIB * 16);
        // And one that the ring's own end has to wait for.
        let buf = arena.alloc(MIB).await;
        poll_once(device.read(Bytes::ZERO, &buf)).await;
    });
    drop(ring);
    assert_eq!(arena.available(), MIB * 16);
}

#[test]
fn yielding_task_does_not_starve_io() {
    with_ring(async |ring, arena| {
        let (_file, device) = test_device(ring);
        let stop = Rc::new(Cell::new(false));
        let yielding = stop.clone();
        ring.spawn(async move {
            while !yielding.get() {
                yield_now().await;
            }
        });
        let buf = arena.alloc(KIB * 4).await;
        for _ in 0..100 {
            device.read(Bytes::ZERO, &buf).await.unwrap();
        }
        ring.sleep(Nanos::from_millis(1)).await;
        stop.set(true);
    });
}

#[test]
fn messages_of_each_thread_arrive_in_order_before_end() {
    with_ring(async |ring, _| {
        let (sender, mut receiver) = mailbox::<(u64, u64)>(ring, 16).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let sender = sender.clone();
                std::thread::spawn(move || (0..10_000).for_each(|n| sender.send((thread, n)).unwrap()))
            })
            .collect();
        drop(sender);
        let mut next = [0; 4];
        while let Some((thread, number)) = receiver.recv().await {
            assert_eq!(number, next[thread as usize]);
            next[thread as usize] += 1;
        }
        assert_eq!(next, [10_000; 4]);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn full_mailbox_refuses_and_closed_mailbox_returns_the_message() {
    with_ring(async |ring, _| {
        let (sender, mut receiver) = mailbox(ring, 2).unwrap();
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
        assert_eq!(receiver.recv().await, Some(1));
        sender.try_send(3).unwrap();
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(2), Some(3)));
        drop(receiver);
        assert_eq!(sender.send(4), Err(4));
    });
}

#[test]
fn cancelled_receive_loses_no_message() {
    with_ring(async |ring, _| {
        let (sender, mut receiver) = mailbox(ring, 8).unwrap();
        for number in 0..100 {
            poll_once(receiver.recv()).await;
            let thread = std::thread::spawn({
                let sender = sender.clone();
                move || sender.send(number).unwrap()
            });
            assert_eq!(receiver.recv().await, Some(number));
            thread.join().unwrap();
        }
    });
}

/// A regular file has no commands. A command in flight would wait for a driver; the tests of ublk have those.
#[test]
fn command_to_a_file_without_a_driver_fails() {
    with_ring(async |ring, arena| {
        let (file, memory) = (NamedTempFile::new().unwrap(), arena.alloc(KIB).await);
        let refused = ring.command(file.as_fd(), 1, [0; 16], Some(memory)).await.unwrap_err();
        let code = refused.raw_os_error();
        assert!(matches!(code, Some(libc::EOPNOTSUPP | libc::EINVAL)), "{refused}");
        drop(ring.command(file.as_fd(), 1, [0; 16], None));
    });
}

#[test]
fn signals_are_received_instead_of_obeyed() {
    obey_hangups();
    with_ring(async |ring, _| {
        let signals = Signals::new(ring).unwrap();
        let this = rustix::thread::gettid();
        for (raised, received) in [
            (rustix::process::Signal::TERM, Signal::Terminate),
            (rustix::process::Signal::INT, Signal::Interrupt),
            (rustix::process::Signal::HUP, Signal::Hangup),
            (rustix::process::Signal::USR1, Signal::HandOver),
        ] {
            let raiser = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(10));
                raise_at(this, raised);
            });
            assert_eq!(signals.recv().await.unwrap(), received);
            raiser.join().unwrap();
        }
    });
}

/// As if the tests had not been begun with nohup: what it has ignored stays ignored.
#[allow(unsafe_code)]
fn obey_hangups() {
    // SAFETY: no handler is installed, and no test here relies on the one before.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    assert_ne!(before, libc::SIG_ERR);
}

/// To one thread: the test's others would obey it.
#[allow(unsafe_code)]
fn raise_at(thread: rustix::process::Pid, signal: rustix::process::Signal) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: a system call with numbers only.
    let result =
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread.as_raw_nonzero().get(), signal.as_raw()) };
    assert_eq!(result, 0);
}
