//! Where requests of an open loop come in: whoever is idle waits here for the next one.
//!
//! One alarm is set for the next arrival, however many are idle, and it wakes the one that became idle last: so a load that
//! needs few tasks at a time uses the same few, whose memory is at hand.

use crate::source::Arrivals;
use crate::{Error, Result};
use braid_base::{Arrival, Nanos};
use braid_runtime::{Runtime, Sleep};
use braid_sim::World;
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The arrivals that are still to come, and who waits for them.
pub(crate) struct Gate {
    rt: World,
    inner: RefCell<Inner>,
}

struct Inner {
    arrivals: Arrivals,
    /// The first that nobody has taken; none at the end.
    next: Option<Arrival>,
    /// Why there are no more. Apart from `next`, which is moved with every request.
    failure: Option<Error>,
    /// When the load began, and how much faster than written it runs.
    start: Nanos,
    speed: f64,
    /// The latest time so far: one that is out of order comes as late as the one before it.
    latest: Nanos,
    /// By number: all that have ever waited.
    waiters: Vec<Waiter>,
    /// The numbers of those that wait, last come last.
    idle: Vec<usize>,
    alarm: Sleep,
    /// When the alarm is set for, and whom it wakes.
    alarm_at: Nanos,
    alarm_for: usize,
}

#[derive(Clone)]
struct Waiter {
    waker: Waker,
    is_idle: bool,
}

impl Gate {
    /// Lets arrivals in from `start` on, `speed` times as fast as written.
    pub fn new(rt: &World, arrivals: Arrivals, start: Nanos, speed: f64) -> Gate {
        let mut inner = Inner {
            arrivals,
            next: None,
            failure: None,
            start,
            speed,
            latest: Nanos::ZERO,
            waiters: Vec::new(),
            idle: Vec::new(),
            alarm: rt.sleep_until(Nanos::MAX),
            alarm_at: Nanos::MAX,
            alarm_for: usize::MAX,
        };
        inner.fetch();
        Gate { rt: rt.clone(), inner: RefCell::new(inner) }
    }

    /// Completes when the time of the next arrival has come, or at the end: then [`Gate::take`] it, at once. `number` is
    /// the caller's own.
    pub fn admit(&self, number: usize) -> impl Future<Output = ()> {
        poll_fn(move |cx| self.inner.borrow_mut().poll(&self.rt, number, cx))
    }

    /// The arrival for which the caller was admitted, with its time on the world's clock; none at the end, and after a failure.
    /// A future that gave it would move it twice more, which costs more than all else here.
    pub fn take(&self) -> Option<Arrival> {
        let mut inner = self.inner.borrow_mut();
        let arrival = inner.next;
        if arrival.is_some() {
            inner.fetch();
        }
        inner.arm(&self.rt);
        arrival
    }

    /// The one that is admitted next.
    pub fn next(&self) -> Option<Arrival> {
        self.inner.borrow().next
    }

    /// Whether the arrivals came to a good end: their failure is given once.
    pub fn end(&self) -> Result<()> {
        self.inner.borrow_mut().failure.take().map_or(Ok(()), Err)
    }

    /// Lets nobody in any more.
    pub fn close(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.arrivals = Arrivals::none();
        inner.next = None;
        inner.arm(&self.rt);
    }
}

impl Inner {
    fn poll(&mut self, rt: &World, number: usize, cx: &Context<'_>) -> Poll<()> {
        if number >= self.waiters.len() {
            self.waiters.resize(number + 1, Waiter { waker: Waker::noop().clone(), is_idle: false });
        }
        let is_due = self.is_due(rt.now());
        let waiter = &mut self.waiters[number];
        let was_idle = std::mem::replace(&mut waiter.is_idle, !is_due);
        if is_due {
            if was_idle && self.idle.pop_if(|last| *last == number).is_none() {
                self.idle.retain(|idle| *idle != number);
            }
            return Poll::Ready(());
        }
        waiter.waker.clone_from(cx.waker());
        if !was_idle {
            self.idle.push(number);
        }
        self.arm(rt);
        Poll::Pending
    }

    /// Whether the next arrival has come; the end counts as one.
    fn is_due(&self, now: Nanos) -> bool {
        self.next.is_none_or(|arrival| arrival.at <= now)
    }

    /// Takes the next arrival out of the load.
    #[inline]
    fn fetch(&mut self) {
        let next = self.arrivals.next();
        let Some(Ok(Arrival { at, request })) = next else {
            self.failure = next.and_then(Result::err);
            // Nothing comes after a failure.
            self.arrivals = Arrivals::none();
            self.next = None;
            return;
        };
        let at = if self.speed == 1.0 { at } else { faster(at, self.speed) };
        self.latest = self.latest.max(self.start + at);
        self.next = Some(Arrival { at: self.latest, request });
    }

    /// Sees to it that the one who became idle last is woken when the next arrival comes.
    #[inline]
    fn arm(&mut self, rt: &World) {
        let Some(&number) = self.idle.last() else { return };
        let last = &self.waiters[number].waker;
        let at = self.next.map_or(Nanos::ZERO, |arrival| arrival.at);
        if at <= rt.now() {
            return last.wake_by_ref();
        }
        if (self.alarm_at, self.alarm_for) == (at, number) {
            return;
        }
        if self.alarm_at != at {
            self.alarm.reset(at);
        }
        (self.alarm_at, self.alarm_for) = (at, number);
        if Pin::new(&mut self.alarm).poll(&mut Context::from_waker(last)).is_ready() {
            last.wake_by_ref();
        }
    }
}

/// Of its own, or the division would be made for nothing where the speed is 1.
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

    /// Who was let in when, and with which arrival: each task is busy for 15 ns.
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
    fn arrivals_come_at_their_times_to_the_last_idle() {
        let arrivals = [10, 40, 50, 50, 20].map(arrival).into();
        // At 150 two come at once, and the one that is out of order comes with them.
        let expected = [(110, 2, 10), (140, 2, 40), (150, 1, 50), (150, 0, 50), (155, 2, 20)];
        assert_eq!(admitted(arrivals, 3, 1.0), expected);
    }

    #[test]
    fn whoever_is_late_waits_for_a_task() {
        let arrivals = [0, 0, 0, 60].map(arrival).into();
        assert_eq!(admitted(arrivals, 1, 2.0), [(100, 0, 0), (115, 0, 0), (130, 0, 0), (145, 0, 60)]);
    }

    #[test]
    fn a_failure_ends_it() {
        let broken = Err(Error::new(ErrorKind::Trace, "line 3"));
        assert_eq!(admitted(vec![arrival(10), broken, arrival(20)], 2, 1.0), [(110, 1, 10)]);
    }
}
