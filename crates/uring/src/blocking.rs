//! Blocking work in a thread of its own: name resolution, files on a hanging server.

use crate::{Ring, mailbox};
use std::io;

/// Runs `work` in a new thread. The shard continues meanwhile, and gets the result by a mailbox.
///
/// The future may be dropped at any time. The thread then runs to its end, and the result is dropped there:
/// a caller limits the time, not the thread.
///
/// # Errors
/// If the process has too many threads or open files, or if `work` panicked.
pub async fn run_blocking<T: Send + 'static>(
    ring: &Ring,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, mut receiver) = mailbox(ring, 1)?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    // If the receiver is gone, nobody wants the result.
    thread.spawn(move || drop(sender.send(work())))?;
    receiver.recv().await.ok_or_else(|| io::Error::other(format!("the thread {name} has panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;
    use braid_runtime::Arena;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    #[test]
    fn shard_gets_the_result_of_a_thread() {
        let ring = Ring::new(8, &Arena::new(MIB)).unwrap();
        let result =
            ring.block_on(run_blocking(&ring, "test", || std::thread::current().name() == Some("test")));
        assert!(result.unwrap());
    }

    #[test]
    fn result_of_a_dropped_future_is_dropped_in_the_thread() {
        let ring = Ring::new(8, &Arena::new(MIB)).unwrap();
        let (told, listener) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        struct Tells(mpsc::Sender<()>);
        impl Drop for Tells {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        {
            let mut future = pin!(run_blocking(&ring, "test", move || {
                let _ = released.recv();
                Tells(told)
            }));
            assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(release);
        listener.recv().expect("the thread drops the result");
    }
}
