//! A counting semaphore: the bound of every queue and pool.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Permits, handed out first come, first served. Cheap to clone: a handle.
#[derive(Clone)]
pub struct Semaphore {
    inner: Rc<Inner>,
}

struct Inner {
    available: Cell<usize>,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    /// Tasks that wait for any release.
    watchers: RefCell<Vec<Waker>>,
    releases: Cell<u64>,
}

struct Waiter {
    wanted: usize,
    granted: Cell<bool>,
    waker: RefCell<Waker>,
}

impl Semaphore {
    /// A semaphore with `permits` available.
    pub fn new(permits: usize) -> Semaphore {
        let inner = Inner {
            available: Cell::new(permits),
            waiters: RefCell::default(),
            watchers: RefCell::default(),
            releases: Cell::new(0),
        };
        Semaphore { inner: Rc::new(inner) }
    }

    /// Free permits.
    pub fn available(&self) -> usize {
        self.inner.available.get()
    }

    /// Takes `count` permits, waiting behind all earlier waiters. Allocates only when waiting.
    pub fn acquire(&self, count: usize) -> Acquire {
        Acquire { semaphore: self.clone(), count, waiter: None }
    }

    /// Takes `count` permits if free and no task waits.
    pub fn try_acquire(&self, count: usize) -> Option<Permit> {
        let available = self.inner.available.get();
        if available < count || !self.inner.waiters.borrow().is_empty() {
            return None;
        }
        self.inner.available.set(available - count);
        Some(Permit { semaphore: self.clone(), count })
    }

    /// Gives `count` permits back, or adds permits.
    pub fn release(&self, count: usize) {
        let inner = &self.inner;
        inner.available.set(inner.available.get() + count);
        inner.releases.set(inner.releases.get() + 1);
        inner.grant();
        inner.watchers.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Completes at the next release, whichever task gets the permits.
    pub async fn released(&self) {
        let before = self.inner.releases.get();
        poll_fn(|cx| {
            if self.inner.releases.get() != before {
                return Poll::Ready(());
            }
            self.inner.watchers.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Inner {
    /// Grants the first waiters, as far as the permits reach. No waiter overtakes.
    fn grant(&self) {
        let mut waiters = self.waiters.borrow_mut();
        while let Some(first) = waiters.front() {
            if first.wanted > self.available.get() {
                return;
            }
            self.available.set(self.available.get() - first.wanted);
            first.granted.set(true);
            first.waker.borrow().wake_by_ref();
            waiters.pop_front();
        }
    }
}

/// The wait for permits; see [`Semaphore::acquire`].
pub struct Acquire {
    semaphore: Semaphore,
    count: usize,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let count = self.count;
        match &self.waiter {
            None => {
                if let Some(permit) = self.semaphore.try_acquire(count) {
                    return Poll::Ready(permit);
                }
                let waker = RefCell::new(cx.waker().clone());
                let waiter = Rc::new(Waiter { wanted: count, granted: Cell::new(false), waker });
                self.semaphore.inner.waiters.borrow_mut().push_back(waiter.clone());
                self.waiter = Some(waiter);
                Poll::Pending
            }
            Some(waiter) if waiter.granted.get() => {
                self.waiter = None;
                Poll::Ready(Permit { semaphore: self.semaphore.clone(), count })
            }
            Some(waiter) => {
                waiter.waker.borrow_mut().clone_from(cx.waker());
                Poll::Pending
            }
        }
    }
}

impl Drop for Acquire {
    /// Leaves the queue. Permits granted but not taken go to the next waiter.
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.granted.get() {
            return self.semaphore.release(self.count);
        }
        let inner = &self.semaphore.inner;
        inner.waiters.borrow_mut().retain(|w| !Rc::ptr_eq(w, &waiter));
        inner.grant();
    }
}

/// Held permits; given back when dropped.
#[must_use]
pub struct Permit {
    semaphore: Semaphore,
    count: usize,
}

impl Permit {
    /// Keeps the permits taken: [`Semaphore::release`] gives them back by number.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.semaphore.release(self.count);
        }
    }
}
