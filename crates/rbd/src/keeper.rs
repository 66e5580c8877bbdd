//! The thread that keeps an image: opens, looks at the header after a change, closes.
//!
//! These calls wait for the cluster, so the shard never makes them. The keeper answers by the mailbox of the
//! device and takes its orders from [`Orders`].

use crate::calls::{Calls, Handle};
use crate::device::Access;
use crate::image::Image;
use crate::image_name::ImageName;
use crate::lock::{self, Owner};
use crate::requests::Message;
use braid_base::Bytes;
use braid_uring::Sender;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// An open image, for the shard.
pub(crate) struct Opened {
    pub(crate) image: ImageHandle,
    pub(crate) size: Bytes,
}

/// Handle of an image. The shard starts requests with the handle until the shard orders the keeper to close.
pub(crate) struct ImageHandle(pub(crate) Handle);

// SAFETY: librbd takes requests for an image from any thread, several at a time.
#[allow(unsafe_code)]
unsafe impl Send for ImageHandle {}

/// Starts the thread that opens and keeps the image.
///
/// # Errors
/// If the system has no room for a thread.
pub(crate) fn start(keeper: Keeper) -> io::Result<()> {
    let thread = thread::Builder::new().name("rbd-keeper".to_owned());
    thread.spawn(move || keeper.run()).map(drop)
}

/// Task of the thread.
pub(crate) struct Keeper {
    pub(crate) calls: &'static Calls,
    pub(crate) name: ImageName,
    pub(crate) access: Access,
    pub(crate) other: Owner,
    pub(crate) mailbox: Sender<Message>,
    pub(crate) orders: Arc<Orders>,
}

impl Keeper {
    fn run(self) {
        match self.open() {
            Ok((image, size)) => {
                let own = self.register(&image);
                let opened = Opened { image: ImageHandle(image.handle()), size };
                // A shard that no longer waits gives no order to close.
                if self.mailbox.send(Message::Opened(Ok(opened))).is_ok() {
                    self.keep(&image);
                }
                drop(image);
                drop(own);
            }
            Err(error) => drop(self.mailbox.send(Message::Opened(Err(error)))),
        }
        self.orders.set_closed();
    }

    fn open(&self) -> io::Result<(Image, Bytes)> {
        let image = lock::open(self.calls, &self.name, self.access, self.other, &self.orders)?;
        let size = image.size()?;
        Ok((image, size))
    }

    /// Answers each order to look with the size of the image, until the order to close.
    fn keep(&self, image: &Image) {
        while self.orders.next() == Order::Look {
            match image.size() {
                Ok(size) => drop(self.mailbox.send(Message::Size(size))),
                // Asked again until the cluster answers: the size stays unknown, and flushes wait.
                Err(_) => {
                    thread::sleep(RETRY);
                    self.orders.look_again();
                }
            }
        }
    }

    /// Notes that the lock of the image belongs to this process. None for a device without a lock, or if the
    /// cluster does not tell: the device is then like a device of another process.
    fn register(&self, image: &Image) -> Option<Registered> {
        let owner = (self.access == Access::ReadWrite).then(|| image.owner().ok()?).flatten()?;
        let own = OwnDevice { image: self.name.clone(), address: owner, orders: self.orders.clone() };
        lock_own().push(own);
        Some(Registered(self.orders.clone()))
    }
}

/// The device of this process that holds the lock of `image` at `address`.
pub(crate) fn own_device(image: &ImageName, address: &str) -> Option<Arc<Orders>> {
    let own = lock_own();
    let found = own.iter().find(|own| own.image == *image && own.address == address);
    found.map(|own| own.orders.clone())
}

/// A device of this process with the lock of its image. There are as many as keepers.
struct OwnDevice {
    image: ImageName,
    address: String,
    orders: Arc<Orders>,
}

static OWN: Mutex<Vec<OwnDevice>> = Mutex::new(Vec::new());

fn lock_own() -> MutexGuard<'static, Vec<OwnDevice>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Entry in the list of this process's devices, removed when dropped.
struct Registered(Arc<Orders>);

impl Drop for Registered {
    fn drop(&mut self) {
        lock_own().retain(|own| !Arc::ptr_eq(&own.orders, &self.0));
    }
}

/// Orders for the keeper, from the shard and from librbd's threads. Giving an order never blocks.
#[derive(Default)]
pub(crate) struct Orders {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    look: bool,
    /// From an order to look until the shard has the size.
    is_size_unknown: bool,
    /// A size is in the mailbox, which has room for one.
    is_size_sent: bool,
    close: bool,
    is_closed: bool,
}

#[derive(PartialEq, Eq)]
enum Order {
    Look,
    Close,
}

impl Orders {
    /// Orders a look at the header.
    pub(crate) fn look(&self) {
        let mut state = self.lock();
        (state.look, state.is_size_unknown) = (true, true);
        self.changed.notify_all();
    }

    /// Orders a look in place of one without a result.
    fn look_again(&self) {
        self.lock().is_size_sent = false;
        self.look();
    }

    /// Orders the end: no request is started from here on.
    pub(crate) fn close(&self) {
        self.lock().close = true;
        self.changed.notify_all();
    }

    /// Called with each size that the keeper has found.
    pub(crate) fn size_is_known(&self) {
        let mut state = self.lock();
        (state.is_size_unknown, state.is_size_sent) = (state.look, false);
        self.changed.notify_all();
    }

    pub(crate) fn is_size_unknown(&self) -> bool {
        self.lock().is_size_unknown
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lock().close
    }

    /// Waits until the keeper has closed the image, for at most `limit`. False if the limit has passed.
    pub(crate) fn wait_until_closed(&self, limit: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |state| !state.is_closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }

    fn next(&self) -> Order {
        let is_idle = |state: &mut State| (!state.look || state.is_size_sent) && !state.close;
        let waited = self.changed.wait_while(self.lock(), is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.close {
            return Order::Close;
        }
        (state.look, state.is_size_sent) = (false, true);
        Order::Look
    }

    fn set_closed(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked under the lock left a consistent state: each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between two questions for the size, if the cluster replied with an error.
const RETRY: Duration = Duration::from_secs(1);
