//! Requests in flight: from the shard to librbd and back.
//!
//! A request occupies a slot until librbd has called back, even if its future is dropped before: the slot
//! holds the buffer that librbd works on. A callback runs on a thread of librbd and puts a message into the
//! mailbox of the shard. The mailbox has room for a message of every slot, so a callback never blocks.
//!
//! | slot | next |
//! |---|---|
//! | free | in flight, when a request starts |
//! | in flight | done, when librbd has called back; abandoned, if the future is dropped or the image given up |
//! | abandoned | free, when librbd has called back |
//! | done | free, when the future has the result |
#![allow(unsafe_code)]

use crate::calls::{Calls, Handle};
use crate::keeper::Opened;
use braid_base::Bytes;
use braid_runtime::{Buf, Semaphore};
use braid_uring::{Sender, TrySendError};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::ptr::null_mut;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Most requests in flight of a device; further requests wait. librbd divides requests by objects and has
/// limits of its own.
pub(crate) const DEPTH: usize = 256;
/// Messages that a device's mailbox must take: each request, the opening, a size, the end.
pub(crate) const MESSAGES: usize = DEPTH + 3;

/// From other threads into the shard.
pub(crate) enum Message {
    /// The image is open, or is not.
    Opened(io::Result<Opened>),
    /// A request has ended with this result of librbd.
    Completed { slot: usize, result: i64 },
    /// The size of the image after a change of its header.
    Size(Bytes),
    /// The device is closed: no request will be started.
    Closed,
}

/// A request to an image.
#[derive(Clone, Copy)]
pub(crate) enum Request<'a> {
    Read(Bytes, &'a Buf),
    Write(Bytes, &'a Buf),
    Flush,
    Discard(Bytes, Bytes),
}

/// All requests of a device.
pub(crate) struct Requests {
    calls: &'static Calls,
    image: Handle,
    mailbox: Sender<Message>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    /// A permit for each request that is not in flight. The permit of an abandoned request returns with its
    /// slot.
    room: Semaphore,
    is_ended: Cell<bool>,
}

struct Slot {
    /// What the callback needs. Allocated once for each slot.
    target: Arc<Target>,
    /// Memory that librbd reads or writes.
    buf: Option<Buf>,
    state: SlotState,
}

enum SlotState {
    Free,
    InFlight(Waker),
    Abandoned,
    Done(i64),
}

struct Target {
    calls: &'static Calls,
    mailbox: Sender<Message>,
    slot: usize,
}

impl Requests {
    pub(crate) fn new(calls: &'static Calls, image: Handle, mailbox: Sender<Message>) -> Requests {
        Requests {
            calls,
            image,
            mailbox,
            slots: RefCell::default(),
            free: RefCell::default(),
            room: Semaphore::new(DEPTH),
            is_ended: Cell::new(false),
        }
    }

    /// Passes a request to librbd and waits for its result: zero or a length, or a negative error number.
    /// None once the device is closed.
    pub(crate) async fn run(&self, request: Request<'_>) -> Option<i64> {
        let permit = self.room.acquire(1).await;
        if self.is_ended.get() {
            return None;
        }
        // Returned by `release`.
        permit.forget();
        match self.start(request) {
            Ok(slot) => Reply { requests: self, slot, is_over: false }.await,
            Err(result) => Some(result),
        }
    }

    /// The slot of the request, or librbd's refusal.
    fn start(&self, request: Request<'_>) -> Result<usize, i64> {
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| self.add_slot());
        let mut slots = self.slots.borrow_mut();
        let entry = &mut slots[slot];
        entry.buf = match request {
            Request::Read(_, buf) | Request::Write(_, buf) => Some(buf.clone()),
            Request::Flush | Request::Discard(..) => None,
        };
        entry.state = SlotState::InFlight(Waker::noop().clone());
        let target = Arc::as_ptr(&entry.target).cast_mut().cast();
        drop(slots);
        match self.call(request, target) {
            0.. => Ok(slot),
            refused => {
                self.release(slot);
                Err(refused.into())
            }
        }
    }

    fn add_slot(&self) -> usize {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.len();
        assert!(slot < DEPTH, "each request in flight holds a permit");
        let target = Arc::new(Target { calls: self.calls, mailbox: self.mailbox.clone(), slot });
        slots.push(Slot { target, buf: None, state: SlotState::Free });
        slot
    }

    fn call(&self, request: Request<'_>, target: *mut c_void) -> c_int {
        let (calls, image, mut done) = (self.calls, self.image, null_mut());
        // SAFETY: the image is open until the device is closed, and a closed device starts no request. The
        // slot keeps the buffer and the target of the callback until the callback has run.
        unsafe {
            let created = (calls.rbd_aio_create_completion)(target, completed, &raw mut done);
            if created < 0 {
                return created;
            }
            let started = match request {
                Request::Read(at, buf) => {
                    (calls.rbd_aio_read)(image, at.0, buf.len().as_usize(), buf.as_ptr().cast(), done)
                }
                Request::Write(at, buf) => {
                    (calls.rbd_aio_write)(image, at.0, buf.len().as_usize(), buf.as_ptr().cast(), done)
                }
                Request::Flush => (calls.rbd_aio_flush)(image, done),
                Request::Discard(at, len) => (calls.rbd_aio_discard)(image, at.0, len.0, done),
            };
            if started < 0 {
                (calls.rbd_aio_release)(done);
            }
            started
        }
    }

    /// Notes a result of librbd, and wakes the request.
    pub(crate) fn complete(&self, slot: usize, result: i64) {
        let mut slots = self.slots.borrow_mut();
        let entry = &mut slots[slot];
        match std::mem::replace(&mut entry.state, SlotState::Done(result)) {
            SlotState::InFlight(waker) => {
                entry.buf = None;
                drop(slots);
                waker.wake();
            }
            SlotState::Abandoned => {
                drop(slots);
                self.release(slot);
            }
            SlotState::Free | SlotState::Done(_) => panic!("librbd completed request {slot} twice"),
        }
    }

    /// Makes a slot free: librbd has no use for the slot's buffer.
    fn release(&self, slot: usize) {
        let buf = {
            let entry = &mut self.slots.borrow_mut()[slot];
            entry.state = SlotState::Free;
            entry.buf.take()
        };
        drop(buf);
        self.free.borrow_mut().push(slot);
        self.room.release(1);
    }

    /// Ends every request at once, and refuses further requests. Buffers stay with librbd until it calls
    /// back.
    pub(crate) fn end(&self) {
        if self.is_ended.replace(true) {
            return;
        }
        // The first waiting request gets this permit, ends, and hands the permit on.
        self.room.release(1);
        let wakers: Vec<Waker> = self.slots.borrow().iter().filter_map(Slot::waker).collect();
        wakers.into_iter().for_each(Waker::wake);
        // A full mailbox is a broken promise of `MESSAGES`; without a receiver nothing waits for the message.
        let sent = self.mailbox.try_send(Message::Closed);
        assert!(!matches!(sent, Err(TrySendError::Full(_))), "the mailbox has room for the end");
    }

    /// True if librbd works on no request.
    pub(crate) fn is_idle(&self) -> bool {
        let is_busy = |slot: &Slot| matches!(slot.state, SlotState::InFlight(_) | SlotState::Abandoned);
        !self.slots.borrow().iter().any(is_busy)
    }
}

impl Slot {
    fn waker(&self) -> Option<Waker> {
        match &self.state {
            SlotState::InFlight(waker) => Some(waker.clone()),
            _ => None,
        }
    }
}

impl Drop for Requests {
    /// If the shard has ended before librbd, the memory of the requests in flight must stay forever.
    fn drop(&mut self) {
        for slot in self.slots.get_mut().drain(..) {
            if matches!(slot.state, SlotState::InFlight(_) | SlotState::Abandoned) {
                std::mem::forget(slot);
            }
        }
    }
}

/// Called by a thread of librbd.
unsafe extern "C" fn completed(completion: Handle, target: *mut c_void) {
    // SAFETY: the slot keeps the target until this message is received, and forever if the shard has ended.
    let target = unsafe { &*target.cast_const().cast::<Target>() };
    // SAFETY: the completion is of this request, and is used no more.
    let result = unsafe {
        let result = (target.calls.rbd_aio_get_return_value)(completion);
        (target.calls.rbd_aio_release)(completion);
        result
    };
    let sent = target.mailbox.try_send(Message::Completed { slot: target.slot, result: result as i64 });
    // A lost message would be a request without an end: the process ends.
    assert!(!matches!(sent, Err(TrySendError::Full(_))), "the mailbox has room for every request");
}

/// Waits for the end of a request.
struct Reply<'a> {
    requests: &'a Requests,
    slot: usize,
    is_over: bool,
}

impl Future for Reply<'_> {
    type Output = Option<i64>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<i64>> {
        let requests = self.requests;
        let mut slots = requests.slots.borrow_mut();
        let state = &mut slots[self.slot].state;
        match state {
            SlotState::Done(result) => {
                let result = *result;
                drop(slots);
                requests.release(self.slot);
                self.is_over = true;
                Poll::Ready(Some(result))
            }
            SlotState::InFlight(waker) if !requests.is_ended.get() => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            SlotState::InFlight(_) => {
                *state = SlotState::Abandoned;
                self.is_over = true;
                Poll::Ready(None)
            }
            SlotState::Free | SlotState::Abandoned => panic!("a request was polled after its end"),
        }
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut slots = self.requests.slots.borrow_mut();
        let state = &mut slots[self.slot].state;
        if matches!(state, SlotState::Done(_)) {
            drop(slots);
            self.requests.release(self.slot);
        } else {
            *state = SlotState::Abandoned;
        }
    }
}
