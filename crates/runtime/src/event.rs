//! A condition with waiting tasks.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Wakes tasks that wait for a condition and test the condition themselves. Cheap to clone: a handle.
#[derive(Clone, Default)]
pub struct Event {
    waiting: Rc<RefCell<Vec<Waker>>>,
}

impl Event {
    /// Wakes every waiting task, to test its condition again.
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
                // A task polled for another reason is already in the list.
                if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}
