//! The timers of an executor: a heap of deadlines, where a timer can be cancelled from the middle.
//!
//! A cancelled timer stays in the heap until it reaches the top, or until such are the most: then all go at once.

use braid_base::Nanos;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

#[derive(Default)]
pub(crate) struct Timers {
    /// (deadline, sequence): equal deadlines fire in the order in which they were set.
    heap: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    timers: Slab<Timer>,
    /// Timers in the heap that were cancelled.
    cancelled: usize,
    sequence: u64,
    /// The latest time that has been told.
    pub(crate) fired: Nanos,
}

struct Timer {
    sequence: u64,
    /// `None` once cancelled.
    waker: Option<Waker>,
}

/// A place in the slab, and whose it was when the timer was set.
#[derive(Clone, Copy)]
pub(crate) struct TimerId {
    key: usize,
    sequence: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, deadline: Nanos, waker: Waker) -> TimerId {
        self.sequence += 1;
        let sequence = self.sequence;
        let key = self.timers.insert(Timer { sequence, waker: Some(waker) });
        self.heap.push(Reverse((deadline, sequence, key)));
        TimerId { key, sequence }
    }

    /// Changes whom a timer wakes. False where it has fired.
    pub(crate) fn set_waker(&mut self, id: TimerId, waker: &Waker) -> bool {
        self.pending(id).map(|timer| timer.waker = Some(waker.clone())).is_some()
    }

    /// Forgets a timer, unless it has fired.
    pub(crate) fn cancel(&mut self, id: TimerId) {
        let Some(timer) = self.pending(id) else { return };
        timer.waker = None;
        self.cancelled += 1;
        if self.cancelled > FEW && self.cancelled > self.heap.len() / 2 {
            self.forget_cancelled();
        }
    }

    /// The earliest deadline that somebody waits for.
    pub(crate) fn next(&mut self) -> Option<Nanos> {
        loop {
            let Reverse((deadline, _, key)) = self.heap.peek()?;
            if self.timers[*key].waker.is_some() {
                return Some(*deadline);
            }
            self.pop();
            self.cancelled -= 1;
        }
    }

    /// Takes the earliest timer that is due at `now`.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<Waker> {
        self.next().filter(|&deadline| deadline <= now)?;
        self.pop()
    }

    /// Forgets all timers and the time. A sleep may still hold the id of one: no sequence number is used twice.
    pub(crate) fn clear(&mut self) {
        *self = Timers { sequence: self.sequence, ..Timers::default() };
    }

    fn pending(&mut self, id: TimerId) -> Option<&mut Timer> {
        self.timers.get_mut(id.key).filter(|timer| timer.sequence == id.sequence)
    }

    fn pop(&mut self) -> Option<Waker> {
        let Reverse((_, _, key)) = self.heap.pop()?;
        self.timers.remove(key).waker
    }

    fn forget_cancelled(&mut self) {
        let timers = &mut self.timers;
        self.heap.retain(|Reverse((_, _, key))| {
            let wanted = timers[*key].waker.is_some();
            if !wanted {
                timers.remove(*key);
            }
            wanted
        });
        self.cancelled = 0;
    }
}

/// So many cancelled timers are not worth a pass over the heap.
const FEW: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_timers_do_not_pile_up() {
        let mut timers = Timers::default();
        timers.set(Nanos(700), Waker::noop().clone());
        for deadline in 1..=1_000 {
            let id = timers.set(Nanos(deadline), Waker::noop().clone());
            timers.cancel(id);
        }
        assert!(timers.heap.len() < 2 * FEW + 2, "{}", timers.heap.len());
        assert_eq!(timers.next(), Some(Nanos(700)));
        assert!(timers.take_due(Nanos(699)).is_none());
        assert!(timers.take_due(Nanos(700)).is_some());
        assert_eq!(timers.next(), None);
        assert!(timers.timers.is_empty() && timers.heap.is_empty());
    }

    #[test]
    fn the_id_of_a_timer_that_fired_means_no_other() {
        let mut timers = Timers::default();
        let fired = timers.set(Nanos(1), Waker::noop().clone());
        timers.take_due(Nanos(1));
        timers.set(Nanos(2), Waker::noop().clone());
        timers.cancel(fired);
        assert!(!timers.set_waker(fired, Waker::noop()));
        assert_eq!(timers.next(), Some(Nanos(2)));
    }
}
