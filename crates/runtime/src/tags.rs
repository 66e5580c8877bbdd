//! Places for requests in service, for frontends.
//!
//! A request is polled once in the task that received it. If the request need not wait (memory, a cache hit),
//! it ends there, without a task switch. Otherwise the tag's own task continues. Places and tasks are made on
//! first use and kept until the frontend ends, so a request allocates nothing.

use crate::Runtime;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Tags of one connection or queue; all run futures of the same type.
pub struct Tags<R, F> {
    runtime: R,
    idle: Rc<RefCell<Vec<Rc<Tag<F>>>>>,
    /// Called by a tag's task after each poll: sends the replies of the request.
    after_poll: Rc<dyn Fn()>,
}

struct Tag<F> {
    request: RefCell<Pin<Box<Option<F>>>>,
    task: RefCell<Option<Waker>>,
    closed: Cell<bool>,
}

impl<R: Runtime, F: Future<Output = ()> + 'static> Tags<R, F> {
    /// No tags yet.
    pub fn new(runtime: R, after_poll: Rc<dyn Fn()>) -> Tags<R, F> {
        Tags { runtime, idle: Rc::default(), after_poll }
    }

    /// Serves a request, in this task as far as no waiting is needed. The caller bounds the number of
    /// requests in service.
    pub fn start(&self, request: F) {
        let tag = self.idle.borrow_mut().pop().unwrap_or_default();
        tag.request.borrow_mut().set(Some(request));
        // A future that waits in the request gets the waker of the tag's own task when the tag's task polls
        // for the first time.
        match tag.poll_request(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(()) => self.idle.borrow_mut().push(tag),
            Poll::Pending => self.hand_over(tag),
        }
    }

    /// Ends the tags' tasks. Every request has ended.
    pub fn close(&self) {
        for tag in self.idle.borrow_mut().drain(..) {
            tag.closed.set(true);
            tag.wake();
        }
    }

    fn hand_over(&self, tag: Rc<Tag<F>>) {
        if tag.task.borrow().is_some() {
            return tag.wake();
        }
        let (idle, after_poll) = (self.idle.clone(), self.after_poll.clone());
        self.runtime.spawn(async move {
            while tag.run(&*after_poll).await {
                idle.borrow_mut().push(tag.clone());
            }
        });
    }
}

impl<F: Future<Output = ()>> Tag<F> {
    /// Runs the tag's request to its end; without a request, waits for a new request. Returns false once the
    /// tag is closed.
    async fn run(&self, after_poll: &dyn Fn()) -> bool {
        poll_fn(|cx| {
            self.task.borrow_mut().get_or_insert_with(|| cx.waker().clone());
            if self.closed.get() {
                return Poll::Ready(false);
            }
            if self.request.borrow().is_none() {
                return Poll::Pending;
            }
            let progress = self.poll_request(cx);
            after_poll();
            progress.map(|()| true)
        })
        .await
    }

    fn poll_request(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut place = self.request.borrow_mut();
        let request = place.as_mut().as_pin_mut().expect("a tag that is polled has a request");
        let progress = request.poll(cx);
        if progress.is_ready() {
            place.set(None);
        }
        progress
    }
}

impl<F> Tag<F> {
    fn wake(&self) {
        self.task.borrow().iter().for_each(Waker::wake_by_ref);
    }
}

impl<F> Default for Tag<F> {
    fn default() -> Tag<F> {
        Tag { request: RefCell::new(Box::pin(None)), task: RefCell::new(None), closed: Cell::new(false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Executor, Order, Semaphore, Sleep};
    use braid_base::Nanos;

    #[derive(Clone)]
    struct World(Executor);

    impl Runtime for World {
        fn now(&self) -> Nanos {
            Nanos::ZERO
        }

        fn sleep_until(&self, deadline: Nanos) -> Sleep {
            self.0.sleep_until(deadline)
        }

        fn spawn(&self, task: impl Future<Output = ()> + 'static) {
            self.0.spawn(task);
        }
    }

    #[test]
    fn ready_requests_run_inline_and_blocked_requests_get_tasks() {
        let executor = Executor::new(Order::Fifo);
        let (gate, done) = (Semaphore::new(2), Rc::new(Cell::new(0)));
        let polled = Rc::new(Cell::new(0));
        let count = polled.clone();
        let tags = Tags::new(World(executor.clone()), Rc::new(move || count.set(count.get() + 1)));
        let request = || {
            let (gate, done) = (gate.clone(), done.clone());
            async move {
                gate.acquire(1).await.forget();
                done.set(done.get() + 1);
            }
        };
        for round in 1..=3 {
            (0..5).for_each(|_| tags.start(request()));
            assert_eq!(done.get(), 5 * (round - 1) + 2, "two pass the gate without a task");
            gate.release(3);
            executor.run_ready();
            assert_eq!(done.get(), 5 * round);
            assert_eq!(tags.idle.borrow().len(), 3, "a place that was done with at once is used again");
            gate.release(2);
        }
        assert!(polled.get() >= 9);
        let place = Rc::downgrade(&tags.idle.borrow()[0]);
        tags.close();
        executor.run_ready();
        assert!(place.upgrade().is_none(), "nothing is left of a tag");
    }
}
