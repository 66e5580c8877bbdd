//! Messages from other threads into the shard.
//!
//! A bounded queue behind a mutex. The receiver takes all waiting messages at once, and senders raise the
//! eventfd only for a receiver that sleeps: a busy mailbox costs a lock for each message, and no system call.

use crate::Ring;
use crate::operation::Operation;
use crate::reactor::Keep;
use io_uring::{opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Makes a mailbox of this ring's shard for at most `capacity` messages that the receiver has not taken.
///
/// # Errors
/// If the process has too many open files.
///
/// # Panics
/// If the capacity is zero.
pub fn mailbox<T: Send>(ring: &Ring, capacity: usize) -> io::Result<(Sender<T>, Receiver<T>)> {
    assert!(capacity > 0, "a mailbox holds at least one message");
    let queue = Queue { messages: VecDeque::new(), senders: 1, receiver: Listening::Busy };
    let wakeup = eventfd(0, EventfdFlags::CLOEXEC)?;
    let shared = Arc::new(Shared { queue: Mutex::new(queue), room: Condvar::new(), wakeup, capacity });
    let receiver = Receiver {
        ring: ring.clone(),
        shared: shared.clone(),
        taken: VecDeque::new(),
        sleep: None,
        word: Rc::new(Cell::new(0)),
    };
    Ok((Sender { shared }, receiver))
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Signalled when the receiver has taken messages from a full queue, or is gone.
    room: Condvar,
    wakeup: OwnedFd,
    capacity: usize,
}

struct Queue<T> {
    messages: VecDeque<T>,
    senders: usize,
    receiver: Listening,
}

#[derive(PartialEq, Eq)]
enum Listening {
    /// The receiver will look into the queue before sleeping.
    Busy,
    /// The receiver waits for the eventfd.
    Asleep,
    /// The receiver has been dropped. As a result of `try_sleep`: all senders are gone.
    Gone,
}

/// Sending end, for other threads. Clone it for each thread.
pub struct Sender<T: Send> {
    shared: Arc<Shared<T>>,
}

/// Why a message was not sent. Returns the message.
#[derive(Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The mailbox is full.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

impl<T: Send> Sender<T> {
    /// Sends a message, blocking this thread while the mailbox is full. Not for the receiver's own thread.
    ///
    /// # Errors
    /// Returns the message if the receiver is gone.
    pub fn send(&self, message: T) -> Result<(), T> {
        let mut queue = self.shared.lock();
        while queue.messages.len() >= self.shared.capacity && queue.receiver != Listening::Gone {
            queue = self.shared.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        self.shared.push(queue, message)
    }

    /// Sends a message if there is room.
    ///
    /// # Errors
    /// Returns the message if the mailbox is full or the receiver gone.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let queue = self.shared.lock();
        if queue.messages.len() >= self.shared.capacity && queue.receiver != Listening::Gone {
            return Err(TrySendError::Full(message));
        }
        self.shared.push(queue, message).map_err(TrySendError::Closed)
    }
}

impl<T: Send> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.lock().senders += 1;
        Sender { shared: self.shared.clone() }
    }
}

impl<T: Send> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.senders -= 1;
        if queue.senders == 0 {
            self.shared.wake(queue);
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // A thread that panicked under the lock left a consistent queue: each change is one step.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue<T>>, message: T) -> Result<(), T> {
        if queue.receiver == Listening::Gone {
            return Err(message);
        }
        queue.messages.push_back(message);
        self.wake(queue);
        Ok(())
    }

    /// Tells the senders that the receiver goes to sleep. `Busy` if a message came in between, `Gone` if no
    /// sender is left.
    fn try_sleep(&self) -> Listening {
        let mut queue = self.lock();
        if !queue.messages.is_empty() {
            return Listening::Busy;
        }
        if queue.senders == 0 {
            return Listening::Gone;
        }
        queue.receiver = Listening::Asleep;
        Listening::Asleep
    }

    /// Wakes a sleeping receiver, after unlocking the queue.
    fn wake(&self, mut queue: MutexGuard<'_, Queue<T>>) {
        if queue.receiver != Listening::Asleep {
            return;
        }
        queue.receiver = Listening::Busy;
        drop(queue);
        let written = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
        assert!(written.is_ok(), "an eventfd takes a one: {written:?}");
    }
}

/// Receiving end, in the shard.
pub struct Receiver<T> {
    ring: Ring,
    shared: Arc<Shared<T>>,
    /// Messages taken from the queue and not yet received.
    taken: VecDeque<T>,
    /// Read of the eventfd. Outlives a dropped `recv`.
    sleep: Option<Operation>,
    /// Target of the read of the eventfd.
    word: Rc<Cell<u64>>,
}

impl<T: Send> Receiver<T> {
    /// The next message; `None` once all senders are gone and all messages received. May be dropped at any
    /// time without losing a message.
    pub async fn recv(&mut self) -> Option<T> {
        loop {
            if let Some(message) = self.try_recv() {
                return Some(message);
            }
            match self.shared.try_sleep() {
                Listening::Asleep => self.sleep().await,
                Listening::Busy => {}
                Listening::Gone => return None,
            }
        }
    }

    /// Returns the next message if one is waiting.
    pub fn try_recv(&mut self) -> Option<T> {
        if self.taken.is_empty() {
            let mut queue = self.shared.lock();
            let was_full = queue.messages.len() >= self.shared.capacity;
            std::mem::swap(&mut queue.messages, &mut self.taken);
            drop(queue);
            if was_full {
                self.shared.room.notify_all();
            }
        }
        self.taken.pop_front()
    }

    /// Reads the eventfd.
    async fn sleep(&mut self) {
        let sleep = self.sleep.get_or_insert_with(|| {
            let word = self.word.as_ptr().cast();
            let entry = opcode::Read::new(types::Fd(self.shared.wakeup.as_raw_fd()), word, 8).build();
            Operation::start_wait(&self.ring, entry, Keep::Word(self.word.clone()))
        });
        let read = sleep.await;
        self.sleep = None;
        assert!(read.is_ok(), "an eventfd can be read: {read:?}");
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Queued operations name the eventfd by its number, which may soon belong to another file.
        self.ring.reactor().submit_queued();
        self.shared.lock().receiver = Listening::Gone;
        self.shared.room.notify_all();
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "the mailbox is full",
            TrySendError::Closed(_) => "the mailbox's receiver is gone",
        })
    }
}
