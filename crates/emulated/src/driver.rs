//! What runs a model against a clock: requests wait in a slab, and one task sleeps until the model's next event.

use crate::{Lateness, Usage};
use braid_base::Nanos;
use braid_model::{Model, Request};
use braid_runtime::{Runtime, Sleep};
use slab::Slab;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A model, and the task that runs it.
pub(crate) struct Driver<R: Runtime, M: Model + 'static> {
    shared: Rc<Shared<R, M>>,
}

struct Shared<R, M> {
    runtime: R,
    state: RefCell<State<M>>,
}

struct State<M> {
    model: M,
    /// By tag: the requests that the model or their caller is not done with.
    requests: Slab<Progress>,
    /// Requests that the model is not done with.
    outstanding: usize,
    /// Scratch for the model's answers.
    completed: Vec<u64>,
    /// When the task wakes next by itself; `MAX` where it does not.
    armed: Nanos,
    task: Option<Waker>,
    ended: bool,
    lateness: Lateness,
    usage: Usage,
}

enum Progress {
    Waiting(Option<Waker>),
    /// The model was done at this time.
    Done(Nanos),
    /// Its caller is gone.
    Abandoned,
}

impl<R: Runtime, M: Model + 'static> Driver<R, M> {
    pub(crate) fn start(runtime: R, model: M) -> Driver<R, M> {
        let state = State {
            model,
            requests: Slab::new(),
            outstanding: 0,
            completed: Vec::new(),
            armed: Nanos::MAX,
            task: None,
            ended: false,
            lateness: Lateness::default(),
            usage: Usage::default(),
        };
        let shared = Rc::new(Shared { runtime: runtime.clone(), state: RefCell::new(state) });
        runtime.spawn(Task { shared: shared.clone(), sleep: None });
        Driver { shared }
    }

    /// Hands a request to the model now. The turn ends when the model is done with it.
    pub(crate) fn submit(&self, request: Request) -> Turn<R, M> {
        let now = self.shared.runtime.now();
        let mut state = self.shared.state.borrow_mut();
        // The model first does what it did while nobody looked.
        state.advance(now);
        let tag = state.requests.insert(Progress::Waiting(None));
        state.outstanding += 1;
        state.usage.begin(request, now);
        state.model.submit(tag as u64, request, now);
        if state.next_wake() < state.armed {
            state.task.iter().for_each(Waker::wake_by_ref);
        }
        Turn { shared: self.shared.clone(), tag: Some(tag) }
    }

    pub(crate) fn lateness(&self) -> Lateness {
        self.shared.state.borrow().lateness
    }

    pub(crate) fn usage(&self) -> Usage {
        let mut usage = self.shared.state.borrow().usage;
        usage.pass_to(self.shared.runtime.now());
        usage
    }

    pub(crate) fn reset_lateness(&self) {
        self.shared.state.borrow_mut().lateness = Lateness::default();
    }
}

impl<R: Runtime, M: Model + 'static> Drop for Driver<R, M> {
    fn drop(&mut self) {
        let mut state = self.shared.state.borrow_mut();
        state.ended = true;
        state.task.iter().for_each(Waker::wake_by_ref);
    }
}

/// The task: advances the model whenever its next event has come, and sleeps until the one after that.
struct Task<R, M> {
    shared: Rc<Shared<R, M>>,
    /// Ends at `State::armed`.
    sleep: Option<Sleep>,
}

impl<R: Runtime, M: Model + 'static> Future for Task<R, M> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        let mut state = shared.state.borrow_mut();
        if state.ended {
            return Poll::Ready(());
        }
        state.task = Some(cx.waker().clone());
        loop {
            state.advance(shared.runtime.now());
            let next = state.next_wake();
            if next == Nanos::MAX {
                (state.armed, self.sleep) = (next, None);
                return Poll::Pending;
            }
            if next != state.armed || self.sleep.is_none() {
                (state.armed, self.sleep) = (next, Some(shared.runtime.sleep_until(next)));
            }
            let slept = self.sleep.as_mut().is_none_or(|sleep| Pin::new(sleep).poll(cx).is_ready());
            if !slept {
                return Poll::Pending;
            }
            (state.armed, self.sleep) = (Nanos::MAX, None);
        }
    }
}

impl<M: Model> State<M> {
    /// Takes the model's events up to `now`, one after another, and wakes the requests that are done.
    fn advance(&mut self, now: Nanos) {
        while let Some(time) = self.model.next_event().filter(|&time| time <= now) {
            self.model.advance(time, &mut self.completed);
            for tag in self.completed.drain(..) {
                self.outstanding -= 1;
                self.usage.end(time);
                let progress = &mut self.requests[tag as usize];
                match std::mem::replace(progress, Progress::Done(time)) {
                    Progress::Waiting(waker) => waker.into_iter().for_each(Waker::wake),
                    Progress::Abandoned => drop(self.requests.remove(tag as usize)),
                    Progress::Done(_) => panic!("the model completed a request twice"),
                }
            }
        }
    }

    /// When the task must wake. What happens inside an idle model can wait until the next request: an idle device
    /// costs no processor time.
    fn next_wake(&self) -> Nanos {
        if self.outstanding == 0 {
            return Nanos::MAX;
        }
        self.model.next_event().expect("a model with a request outstanding has a next event")
    }
}

/// A request's wait for the model.
pub(crate) struct Turn<R: Runtime, M: Model + 'static> {
    shared: Rc<Shared<R, M>>,
    tag: Option<usize>,
}

impl<R: Runtime, M: Model + 'static> Future for Turn<R, M> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let tag = self.tag.expect("a turn is not polled after its end");
        let shared = self.shared.clone();
        let mut state = shared.state.borrow_mut();
        let done = match &mut state.requests[tag] {
            Progress::Done(time) => *time,
            Progress::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Progress::Abandoned => panic!("a turn was polled after it was dropped"),
        };
        state.requests.remove(tag);
        state.lateness.record(shared.runtime.now().saturating_sub(done));
        self.tag = None;
        Poll::Ready(())
    }
}

impl<R: Runtime, M: Model + 'static> Drop for Turn<R, M> {
    fn drop(&mut self) {
        let Some(tag) = self.tag else { return };
        let mut state = self.shared.state.borrow_mut();
        match &mut state.requests[tag] {
            Progress::Done(_) => drop(state.requests.remove(tag)),
            progress => *progress = Progress::Abandoned,
        }
    }
}
