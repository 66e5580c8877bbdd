//! Locks of byte ranges, by number of an extent: a write waits for overlapping writes, first come, first
//! served.
//!
//! For places with several copies: two overlapping writes must reach all copies in the same order, and a read
//! must not return from one copy bytes that another copy does not have yet. Only ranges in use take memory.

use crate::Event;
use braid_base::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Ranges in use. Cheap to clone: a handle.
#[derive(Clone, Default)]
pub struct RangeTable {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By number: ranges that are held or waited for, in order of arrival.
    ranges: RefCell<HashMap<u32, Vec<Entry>, FixedState>>,
    next: Cell<u64>,
    released: Event,
}

struct Entry {
    ticket: u64,
    range: Range<Bytes>,
}

impl RangeTable {
    /// Waits for every earlier range of `number` that overlaps `range`.
    pub async fn lock(&self, number: u32, range: Range<Bytes>) -> RangeGuard {
        let ticket = self.inner.next.get();
        self.inner.next.set(ticket + 1);
        let entry = Entry { ticket, range: range.clone() };
        self.inner.ranges.borrow_mut().entry(number).or_default().push(entry);
        // The guard gives the range back even if the task is dropped while waiting.
        let guard = RangeGuard { table: self.clone(), number, ticket };
        self.wait_for_earlier(number, &range, ticket).await;
        guard
    }

    /// Waits until no earlier range of `number` that overlaps `range` is in use.
    pub async fn wait(&self, number: u32, range: &Range<Bytes>) {
        if !self.inner.ranges.borrow().is_empty() {
            self.wait_for_earlier(number, range, self.inner.next.get()).await;
        }
    }

    async fn wait_for_earlier(&self, number: u32, range: &Range<Bytes>, ticket: u64) {
        let is_free = || {
            let ranges = self.inner.ranges.borrow();
            let overlaps =
                |e: &Entry| e.ticket < ticket && e.range.start < range.end && range.start < e.range.end;
            let taken = ranges.get(&number).is_some_and(|all| all.iter().any(overlaps));
            (!taken).then_some(())
        };
        self.inner.released.wait_for(is_free).await;
    }
}

/// A held range; released when dropped.
#[must_use]
pub struct RangeGuard {
    table: RangeTable,
    number: u32,
    ticket: u64,
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        let inner = &self.table.inner;
        let mut ranges = inner.ranges.borrow_mut();
        let all = ranges.get_mut(&self.number).expect("a range that is held is in the table");
        all.retain(|entry| entry.ticket != self.ticket);
        if all.is_empty() {
            ranges.remove(&self.number);
        }
        drop(ranges);
        inner.released.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Executor, Order, yield_now};
    use braid_base::Rng;

    #[test]
    fn overlapping_ranges_are_never_locked_together() {
        for seed in 0..200 {
            let executor = Executor::new(Order::Random(Rng::new(seed)));
            let (table, held) =
                (RangeTable::default(), Rc::new(RefCell::new(Vec::<(u32, Range<Bytes>)>::new())));
            let (ended, mut rng) = (Rc::new(Cell::new(0)), Rng::new(seed));
            for _ in 0..40 {
                let (table, held, ended) = (table.clone(), held.clone(), ended.clone());
                let (number, start, polls) = (rng.below(2) as u32, rng.below(30), rng.below(4));
                let range = Bytes(start)..Bytes(start + rng.between(1, 12));
                executor.spawn(async move {
                    let guard = table.lock(number, range.clone()).await;
                    let overlaps = |(n, r): &(u32, Range<Bytes>)| {
                        *n == number && r.start < range.end && range.start < r.end
                    };
                    assert!(!held.borrow().iter().any(overlaps), "seed {seed}");
                    held.borrow_mut().push((number, range.clone()));
                    for _ in 0..polls {
                        yield_now().await;
                    }
                    held.borrow_mut().retain(|h| *h != (number, range.clone()));
                    drop(guard);
                    ended.set(ended.get() + 1);
                });
            }
            executor.run_ready();
            assert_eq!(ended.get(), 40, "seed {seed}: every range is given in the end");
            assert!(table.inner.ranges.borrow().is_empty());
        }
    }
}
