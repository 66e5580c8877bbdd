//! What runs a model against a clock: requests wait in a slab, and one alarm is set for the time at which the model next
//! completes something.
//!
//! There is no task of its own. Whoever waits for the model brings it up to date when it is polled, and one of those who
//! wait is woken at the alarm: the one that the model expects to be done then, so that a request costs one wake.

use crate::{Lateness, Usage};
use braid_base::Nanos;
use braid_model::{Counters, Model, Request};
use braid_runtime::{Runtime, Sleep};
use slab::Slab;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A model, and those who wait for it.
pub(crate) struct Driver<R, M> {
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
    alarm: Option<Alarm>,
    lateness: Lateness,
    usage: Usage,
}

/// Wakes one of those who wait.
struct Alarm {
    at: Nanos,
    sleep: Sleep,
    tag: usize,
}

enum Progress {
    /// Not polled since it was submitted.
    Submitted,
    Waiting(Waker),
    /// The model was done at this time.
    Done(Nanos),
    /// Its caller is gone.
    Abandoned,
}

impl<R: Runtime, M: Model> Driver<R, M> {
    pub(crate) fn new(runtime: R, model: M) -> Driver<R, M> {
        let state = State {
            model,
            requests: Slab::new(),
            outstanding: 0,
            completed: Vec::new(),
            alarm: None,
            lateness: Lateness::default(),
            usage: Usage::default(),
        };
        Driver { runtime, state: RefCell::new(state) }
    }

    /// Hands a request to the model now. The turn ends when the model is done with it.
    pub(crate) fn submit(&self, request: Request) -> Turn<'_, R, M> {
        let now = self.runtime.now();
        let mut state = self.state.borrow_mut();
        // The model first does what it did while nobody looked.
        state.advance(now);
        let tag = state.requests.insert(Progress::Submitted);
        state.outstanding += 1;
        state.usage.begin(request, now);
        state.model.submit(tag as u64, request, now);
        // Whoever waits already may be the one to be woken for this.
        state.set_alarm(&self.runtime);
        Turn { driver: self, tag: Some(tag) }
    }

    pub(crate) fn lateness(&self) -> Lateness {
        self.state.borrow().lateness
    }

    pub(crate) fn usage(&self) -> Usage {
        let mut usage = self.state.borrow().usage;
        usage.pass_to(self.runtime.now());
        usage
    }

    pub(crate) fn counters(&self) -> Counters {
        self.state.borrow().model.counters()
    }

    pub(crate) fn reset_lateness(&self) {
        self.state.borrow_mut().lateness = Lateness::default();
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
                    Progress::Submitted => {}
                    Progress::Waiting(waker) => waker.wake(),
                    Progress::Abandoned => drop(self.requests.remove(tag as usize)),
                    Progress::Done(_) => panic!("the model completed a request twice"),
                }
            }
        }
    }

    /// Sets the alarm for whoever waits. What happens inside an idle model can wait until the next request, and a request
    /// that was not polled yet looks for itself: then there is no alarm, and a device costs no processor time.
    fn set_alarm<R: Runtime>(&mut self, runtime: &R) {
        let next = if self.outstanding == 0 { None } else { self.model.next_event() };
        let Some(at) = next else {
            self.alarm = None;
            return;
        };
        if let Some(alarm) = &self.alarm
            && alarm.at == at
            && matches!(self.requests.get(alarm.tag), Some(Progress::Waiting(_)))
        {
            return;
        }
        let waits = |progress: Option<&Progress>| matches!(progress, Some(Progress::Waiting(_)));
        let expected: Option<usize> = None;
        let anyone = || self.requests.iter().find(|(_, progress)| waits(Some(progress))).map(|(tag, _)| tag);
        let Some(tag) = expected.or_else(anyone) else {
            self.alarm = None;
            return;
        };
        let Progress::Waiting(waker) = &self.requests[tag] else { unreachable!("it was found waiting") };
        let mut sleep = match self.alarm.take() {
            Some(alarm) if alarm.at == at => alarm.sleep,
            _ => runtime.sleep_until(at),
        };
        if Pin::new(&mut sleep).poll(&mut Context::from_waker(waker)).is_ready() {
            waker.wake_by_ref();
        }
        self.alarm = Some(Alarm { at, sleep, tag });
    }
}

/// A request's wait for the model.
pub(crate) struct Turn<'a, R: Runtime, M: Model> {
    driver: &'a Driver<R, M>,
    tag: Option<usize>,
}

impl<R: Runtime, M: Model> Future for Turn<'_, R, M> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let tag = self.tag.expect("a turn is not polled after its end");
        let driver = self.driver;
        let mut state = driver.state.borrow_mut();
        let now = driver.runtime.now();
        state.advance(now);
        let done = match &mut state.requests[tag] {
            Progress::Done(time) => Some(*time),
            Progress::Abandoned => panic!("a turn was polled after it was dropped"),
            Progress::Waiting(waker) => {
                waker.clone_from(cx.waker());
                None
            }
            submitted @ Progress::Submitted => {
                *submitted = Progress::Waiting(cx.waker().clone());
                None
            }
        };
        if let Some(time) = done {
            state.requests.remove(tag);
            state.lateness.record(now.saturating_sub(time));
            self.tag = None;
        }
        state.set_alarm(&driver.runtime);
        if done.is_some() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<R: Runtime, M: Model> Drop for Turn<'_, R, M> {
    fn drop(&mut self) {
        let Some(tag) = self.tag else { return };
        let mut state = self.driver.state.borrow_mut();
        match &mut state.requests[tag] {
            Progress::Done(_) => drop(state.requests.remove(tag)),
            progress => *progress = Progress::Abandoned,
        }
        state.set_alarm(&self.driver.runtime);
    }
}
