//! Admission of requests of an open loop: idle tasks wait here for the next arrival.
//!
//! One alarm is set for the next arrival, however many tasks are idle, and wakes one task: the task that
//! became idle last. The task is chosen when the preceding arrival has been taken. The alarm is therefore set
//! once per arrival, and a load that needs few tasks at a time uses the same few, with warm memory.
//! If nothing happens before the next arrival, a task that becomes idle takes the arrival without a wait:
//! about every second arrival.

use crate::source::Arrivals;
use crate::{Error, Result};
use braid_base::{Arrival, Nanos};
use braid_runtime::{Runtime, Sleep};
use braid_sim::World;
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Arrivals still to come, and the tasks waiting for them.
pub(crate) struct Gate {
    rt: World,
    inner: RefCell<Inner>,
}

struct Inner {
    arrivals: Arrivals,
    /// First arrival not yet taken; `None` at the end.
    next: Option<Arrival>,
    /// Why there are no more arrivals. Separate from `next`, which is moved with every request.
    failure: Option<Error>,
    /// Start of the load, and its speed-up over the written times.
    start: Nanos,
    speed: f64,
    /// Latest time so far: an arrival that is out of order gets the time of its predecessor.
    latest: Nanos,
    alarm: Sleep,
    /// Task that the alarm wakes; `None` if no task is idle.
    woken: Option<Idle>,
    /// The other idle tasks, most recent last.
    idle: Vec<Idle>,
}

/// A waiting task.
struct Idle {
    number: usize,
    waker: Waker,
}

impl Gate {
    /// Admits arrivals from `start` on, `speed` times as fast as written.
    pub fn new(rt: &World, arrivals: Arrivals, start: Nanos, speed: f64) -> Gate {
        let mut inner = Inner {
            arrivals,
            next: None,
            failure: None,
            start,
            speed,
            latest: Nanos::ZERO,
            alarm: rt.sleep_until(Nanos::MAX),
            woken: None,
            idle: Vec::new(),
        };
        inner.fetch();
        Gate { rt: rt.clone(), inner: RefCell::new(inner) }
    }

    /// Completes when the next arrival is due, or at the end; the caller then calls [`Gate::take`] at once.
    /// `number` identifies the calling task.
    pub fn admit(&self, number: usize) -> Admission<'_> {
        Admission { gate: self, number, is_idle: false }
    }

    /// Takes the arrival for which the caller was admitted, with its time on the world's clock. `None` at the
    /// end, and after a failure. Returning the arrival from the future would move it twice more, which costs
    /// more than everything else here.
    pub fn take(&self) -> Option<Arrival> {
        let mut inner = self.inner.borrow_mut();
        let arrival = inner.next;
        if arrival.is_some() {
            inner.fetch();
        }
        inner.arm();
        arrival
    }

    /// The next arrival to be admitted.
    pub fn next(&self) -> Option<Arrival> {
        self.inner.borrow().next
    }

    /// Returns the failure of the arrivals, if any, once.
    pub fn end(&self) -> Result<()> {
        self.inner.borrow_mut().failure.take().map_or(Ok(()), Err)
    }

    /// Ends admission.
    pub fn close(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.arrivals = Arrivals::none();
        inner.next = None;
        inner.arm();
    }
}

/// Wait for an arrival.
pub(crate) struct Admission<'a> {
    gate: &'a Gate,
    number: usize,
    is_idle: bool,
}

impl Future for Admission<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Gate { rt, inner } = self.gate;
        let mut inner = inner.borrow_mut();
        // If the arrival is the next event, it happens now: the task that asks first takes it, and no task is
        // woken.
        if inner.is_due(rt.now()) || rt.pass_to(&mut inner.alarm) {
            if self.is_idle {
                inner.remove(self.number);
            }
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut self.is_idle, true) {
            inner.add(Idle { number: self.number, waker: cx.waker().clone() });
        }
        Poll::Pending
    }
}

impl Inner {
    /// True if the next arrival has come, or at the end.
    fn is_due(&self, now: Nanos) -> bool {
        self.next.is_none_or(|arrival| arrival.at <= now)
    }

    /// Takes the next arrival from the load.
    #[inline]
    fn fetch(&mut self) {
        self.next = match &mut self.arrivals {
            Arrivals::Generated(arrivals) => arrivals.next(),
            Arrivals::Recorded(arrivals) => match arrivals.next().transpose() {
                Ok(next) => next,
                Err(failure) => return self.fail(failure),
            },
        };
        let Some(next) = &mut self.next else { return };
        let at = if self.speed == 1.0 { next.at } else { faster(next.at, self.speed) };
        self.latest = self.latest.max(self.start + at);
        next.at = self.latest;
    }

    /// Ends the arrivals after a failure.
    #[cold]
    fn fail(&mut self, failure: Error) {
        self.failure = Some(failure);
        self.arrivals = Arrivals::none();
        self.next = None;
    }

    /// Adds an idle task.
    #[inline]
    fn add(&mut self, idle: Idle) {
        self.idle.push(idle);
        if self.woken.is_none() {
            self.arm();
        }
    }

    /// Removes a task that is no longer idle.
    #[inline]
    fn remove(&mut self, number: usize) {
        if self.woken.take_if(|woken| woken.number == number).is_none() {
            self.idle.retain(|idle| idle.number != number);
        }
    }

    /// Sets the alarm so that an idle task is woken at the next arrival.
    #[inline]
    fn arm(&mut self) {
        self.woken = self.woken.take().or_else(|| self.idle.pop());
        let Some(Idle { waker, .. }) = &self.woken else { return };
        let at = self.next.map_or(Nanos::ZERO, |arrival| arrival.at);
        if !self.alarm.wake_at(at, waker) {
            waker.wake_by_ref();
        }
    }
}

/// A separate function: otherwise the division is made even if the speed is 1.
#[cold]
fn faster(at: Nanos, speed: f64) -> Nanos {
    Nanos((at.0 as f64 / speed) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use braid_base::{Bytes, Op, Request};
    use std::cell::RefCell;
    use std::rc::Rc;

    fn arrival(at: u64) -> Result<Arrival> {
        Ok(Arrival { at: Nanos(at), request: Request { op: Op::Read, offset: Bytes(at), len: Bytes(512) } })
    }

    /// Admission time, task and written time of each arrival; each task is busy for 15 ns.
    fn admitted(arrivals: Vec<Result<Arrival>>, tasks: usize, speed: f64) -> Vec<(u64, usize, u64)> {
        let world = World::in_order(1);
        let gate =
            Rc::new(Gate::new(&world, Arrivals::Recorded(Box::new(arrivals.into_iter())), Nanos(100), speed));
        let history = Rc::new(RefCell::new(Vec::new()));
        for number in 0..tasks {
            let (world, gate, history) = (world.clone(), gate.clone(), history.clone());
            world.clone().spawn(async move {
                loop {
                    gate.admit(number).await;
                    let Some(arrival) = gate.take() else { return };
                    history.borrow_mut().push((world.now().0, number, arrival.request.offset.0));
                    world.sleep(Nanos(15)).await;
                }
            });
        }
        world.run_for(Nanos(10_000));
        world.halt();
        if let Err(failure) = gate.end() {
            assert!(failure.to_string().contains("line 3"), "{failure}");
        }
        history.take()
    }

    #[test]
    fn arrivals_go_to_idle_tasks_on_time() {
        let arrivals = [10, 40, 50, 50, 20].map(arrival).into();
        // The task that became idle last takes the first arrival: nothing happens before. At 150 two arrivals
        // come at once, and the out-of-order arrival comes with them.
        let expected = [(110, 2, 10), (140, 2, 40), (150, 0, 50), (150, 1, 50), (155, 2, 20)];
        assert_eq!(admitted(arrivals, 3, 1.0), expected);
    }

    #[test]
    fn a_late_arrival_waits_for_a_task() {
        let arrivals = [0, 0, 0, 60].map(arrival).into();
        assert_eq!(admitted(arrivals, 1, 2.0), [(100, 0, 0), (115, 0, 0), (130, 0, 0), (145, 0, 60)]);
    }

    #[test]
    fn trace_error_ends_the_admission() {
        let broken = Err(Error::new(ErrorKind::Trace, "line 3"));
        assert_eq!(admitted(vec![arrival(10), broken, arrival(20)], 2, 1.0), [(110, 1, 10)]);
    }
}
