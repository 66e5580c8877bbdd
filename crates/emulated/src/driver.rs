//! What runs a model against a clock: requests wait in a slab, and one alarm is set for the time at which the
//! model next completes something.
//!
//! No task is spawned. A task that waits for the model advances it when it is polled. At the alarm one of
//! these tasks is woken: the one whose request the model expects to be done then, so that a request costs one
//! wake.

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
    /// The model's next event; the end of time where it has none.
    next: Nanos,
    /// By tag: the requests that the model or their caller is not done with.
    requests: Slab<Progress>,
    /// How many of them wait with a waker.
    waiting: usize,
    /// Scratch for the model's answers.
    completed: Vec<u64>,
    alarm: Alarm,
    lateness: Lateness,
    usage: Usage,
}

/// Wakes one of those who wait.
struct Alarm {
    sleep: Sleep,
    /// The end of time where it is not set.
    at: Nanos,
    /// Which task is woken; `NOBODY` if that task waits no longer.
    tag: usize,
}

const NOBODY: usize = usize::MAX;

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

    /// Hands a request to the model now. The turn ends when the model is done with it.
    ///
    /// The alarm stays as it is: a new request brings what others wait for no sooner, and its own turn looks
    /// for itself when it is first polled.
    pub(crate) fn submit(&self, request: Request) -> Turn<'_, R, M> {
        let now = self.runtime.now();
        let mut state = self.state.borrow_mut();
        // The model first does what it did while nobody looked.
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
    /// Takes the model's events up to `now`, one after another, and wakes the requests that are done, but for
    /// the one that looks for itself.
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

    /// The model is done with a request.
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

    /// Notes how far a request is, and gives how far it was; a waker that its caller left is none any more.
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

    /// Sets the alarm for the tasks that wait. What happens inside an idle model can wait until the next
    /// request, and a request that was not polled yet looks for itself: then there is no alarm, and a device
    /// costs no processor time.
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
    /// `NOBODY` once it has ended.
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
