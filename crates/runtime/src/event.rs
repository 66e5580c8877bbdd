//! A condition that tasks wait for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Tasks wait until something that they test themselves has become true. Cheap to clone: a handle.
#[derive(Clone, Default)]
pub struct Event {
    waiting: Rc<RefCell<Vec<Waker>>>,
}

impl Event {
    /// Wakes every task that waits, to test its condition again.
    #[inline]
    pub fn notify(&self) {
        if !self.waiting.borrow().is_empty() {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let woken = std::mem::take(&mut *self.waiting.borrow_mut());
        woken.into_iter().for_each(Waker::wake);
    }

    /// Completes once `test` gives a value; tested now and after each [`Event::notify`].
    pub async fn wait_for<T>(&self, mut test: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match test() {
            Some(value) => Poll::Ready(value),
            None => {
                let mut waiting = self.waiting.borrow_mut();
                // A task that is polled for another reason waits here already.
                if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}
