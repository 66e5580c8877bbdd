//! Driver of a model against a clock: requests wait in a slab, and a single alarm is set for the model's next
//! completion.
//!
//! No task is spawned. A task that waits for the model advances the model when polled. The alarm wakes one
//! task: the task whose request the model expects to complete then, so that a request costs one wake.

use crate::{Lateness, Usage};
use braid_base::Nanos;
use braid_model::{Counters, Model, Request};
use braid_runtime::{Runtime, Sleep};
use slab::Slab;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A model, and the tasks that wait for the model.
pub(crate) struct Driver<R, M> {
    runtime: R,
    state: RefCell<State<M>>,
}

struct State<M> {
    model: M,
    /// Time of the model's next event; the end of time if none.
    next: Nanos,
    /// By tag: requests in progress in the model or not yet collected by their caller.
    requests: Slab<Progress>,
    /// Number of requests with a waker.
    waiting: usize,
    /// Scratch for the model's answers.
    completed: Vec<u64>,
    alarm: Alarm,
    lateness: Lateness,
    usage: Usage,
}

/// Wakes one of the waiting tasks.
struct Alarm {
    sleep: Sleep,
    /// Time of the alarm; the end of time if not set.
    at: Nanos,
    /// Request whose task is woken; `NOBODY` if the task no longer waits.
    tag: usize,
}

const NOBODY: usize = usize::MAX;

enum Progress {
    /// Not polled since submitted.
    Submitted,
    Waiting(Waker),
    /// Completed by the model at this time.
    Done(Nanos),
    /// The caller is gone.
    Abandoned,
}

impl<R: Runtime, M: Model> Driver<R, M> {
    pub(crate) fn new(runtime: R, model: M) -> Driver<R, M> {
        let state = State {
            model,
            next: Nanos::MAX,
            requests: Slab::new(),
            waiting: 0,
            completed: Vec::new(),
            alarm: Alarm { sleep: runtime.sleep_until(Nanos::MAX), at: Nanos::MAX, tag: NOBODY },
            lateness: Lateness::default(),
            usage: Usage::default(),
        };
        Driver { runtime, state: RefCell::new(state) }
    }

    /// Submits a request to the model now. The turn ends when the model completes the request.
    ///
    /// The alarm stays unchanged: a new request makes no other request complete sooner, and the new turn
    /// looks for itself when first polled.
    pub(crate) fn submit(&self, request: Request) -> Turn<'_, R, M> {
        let now = self.runtime.now();
        let mut state = self.state.borrow_mut();
        // First the model catches up with the time since the last look.
        state.advance(now, NOBODY);
        let tag = state.requests.insert(Progress::Submitted);
        state.usage.begin(request, now);
        state.model.submit(tag as u64, request, now);
        state.next = state.model.next_event().unwrap_or(Nanos::MAX);
        Turn { driver: self, tag }
    }

    /// Tells the model of a request that takes no time.
    pub(crate) fn note(&self, request: Request) {
        self.state.borrow_mut().model.note(request);
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
    /// Takes the model's events up to `now`, one by one, and wakes the completed requests, except for request
    /// `looking`, which is being polled.
    #[inline]
    fn advance(&mut self, now: Nanos, looking: usize) {
        while self.next <= now {
            self.take_event(looking);
        }
    }

    fn take_event(&mut self, looking: usize) {
        let time = self.next;
        self.model.advance(time, &mut self.completed);
        self.next = self.model.next_event().unwrap_or(Nanos::MAX);
        for place in 0..self.completed.len() {
            self.end(self.completed[place] as usize, time, looking);
        }
        self.completed.clear();
    }

    /// Records the model's completion of a request.
    #[inline]
    fn end(&mut self, tag: usize, time: Nanos, looking: usize) {
        self.usage.end(time);
        match self.replace(tag, Progress::Done(time)) {
            Progress::Submitted => {}
            Progress::Waiting(waker) if tag != looking => waker.wake(),
            Progress::Waiting(_) => {}
            Progress::Abandoned => drop(self.requests.remove(tag)),
            Progress::Done(_) => unreachable!("a model completes a request once"),
        }
    }

    /// Sets the progress of a request, and returns the former progress. A former waker no longer counts.
    #[inline]
    fn replace(&mut self, tag: usize, progress: Progress) -> Progress {
        self.waiting += usize::from(matches!(progress, Progress::Waiting(_)));
        let before = std::mem::replace(&mut self.requests[tag], progress);
        if matches!(before, Progress::Waiting(_)) {
            self.waiting -= 1;
            if self.alarm.tag == tag {
                self.alarm.tag = NOBODY;
            }
        }
        before
    }

    /// Sets the alarm for the waiting tasks. Events inside an idle model can wait until the next request, and
    /// a request not yet polled looks for itself. In both cases there is no alarm, and a device costs no
    /// processor time.
    #[inline]
    fn set_alarm(&mut self) {
        let is_set = self.alarm.at == self.next && self.alarm.tag != NOBODY;
        if self.waiting > 0 && !is_set {
            self.set_alarm_anew();
        } else if self.waiting == 0 && self.alarm.at != Nanos::MAX {
            self.alarm.sleep.reset(Nanos::MAX);
            (self.alarm.at, self.alarm.tag) = (Nanos::MAX, NOBODY);
        }
    }

    fn set_alarm_anew(&mut self) {
        let expected = self.model.next_tag().map(|tag| tag as usize);
        let is_waiting = |tag: &usize| matches!(self.requests.get(*tag), Some(Progress::Waiting(_)));
        let anyone = || {
            let found = self.requests.iter().find(|(_, progress)| matches!(progress, Progress::Waiting(_)));
            found.expect("those who wait are counted").0
        };
        let tag = expected.filter(is_waiting).unwrap_or_else(anyone);
        let Progress::Waiting(waker) = &self.requests[tag] else { unreachable!("it was found waiting") };
        if !self.alarm.sleep.wake_at(self.next, waker) {
            waker.wake_by_ref();
        }
        (self.alarm.at, self.alarm.tag) = (self.next, tag);
    }
}

/// A request's wait for the model.
pub(crate) struct Turn<'a, R: Runtime, M: Model> {
    driver: &'a Driver<R, M>,
    /// `NOBODY` after the end of the turn.
    tag: usize,
}

impl<R: Runtime, M: Model> Future for Turn<'_, R, M> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (tag, driver) = (self.tag, self.driver);
        assert!(tag != NOBODY, "a turn is not polled after its end");
        let mut state = driver.state.borrow_mut();
        let now = driver.runtime.now();
        state.advance(now, tag);
        match &state.requests[tag] {
            Progress::Done(time) => {
                let lateness = now.saturating_sub(*time);
                state.lateness.record(lateness);
                state.requests.remove(tag);
                state.set_alarm();
                drop(state);
                self.tag = NOBODY;
                return Poll::Ready(());
            }
            Progress::Waiting(waker) if waker.will_wake(cx.waker()) => {}
            Progress::Waiting(_) | Progress::Submitted => {
                state.replace(tag, Progress::Waiting(cx.waker().clone()));
            }
            Progress::Abandoned => panic!("a turn was polled after it was dropped"),
        }
        state.set_alarm();
        Poll::Pending
    }
}

impl<R: Runtime, M: Model> Drop for Turn<'_, R, M> {
    fn drop(&mut self) {
        if self.tag == NOBODY {
            return;
        }
        let mut state = self.driver.state.borrow_mut();
        match &state.requests[self.tag] {
            Progress::Done(_) => drop(state.requests.remove(self.tag)),
            _ => drop(state.replace(self.tag, Progress::Abandoned)),
        }
        state.set_alarm();
    }
}
