//! Locks by number: many readers or one writer for each extent, first come, first served.
//!
//! Only extents with holders or waiters take memory. Once the tables have grown to the needs of the load,
//! taking and waiting allocate nothing. Each lock has a place by the low bits of its number, shared with few
//! other locks. Only if the place is taken by another lock does a lock go into a table.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use slab::Slab;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Beside other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// Locks by number, below 2^63. Cheap to clone: a handle.
#[derive(Clone, Default)]
pub struct LockTable {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    /// By the low bits of the number. A place is in use if its lock has holders.
    near: Box<[(u64, Lock); NEAR]>,
    /// Locks whose place was in use by another lock when taken.
    far: HashMap<u64, Lock, FixedState>,
    waiters: Slab<LockWaiter>,
}

/// Places of locks: more than the usual number of requests at a time.
const NEAR: usize = 256;

impl Default for Inner {
    fn default() -> Inner {
        let free = (0, Lock { holders: Holders::Shared(0), waiting: None });
        Inner { near: Box::new([free; NEAR]), far: HashMap::default(), waiters: Slab::default() }
    }
}

/// Holders of a lock, and the waiting tasks, as a list through `LockWaiter::next`. A lock without holders is
/// free.
#[derive(Clone, Copy)]
struct Lock {
    holders: Holders,
    waiting: Option<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holders {
    Shared(u32),
    Exclusive,
}

struct LockWaiter {
    mode: Mode,
    waker: Waker,
    granted: bool,
    /// The future was dropped: skip.
    gone: bool,
    next: Option<usize>,
}

impl LockTable {
    /// Waits for lock `number`, behind all earlier waiters.
    ///
    /// # Panics
    /// If the number is 2^63 or more, once the lock is taken; [`LockTable::try_lock`] panics likewise.
    pub fn lock(&self, number: u64, mode: Mode) -> Locking<'_> {
        Locking { table: self, number, mode, waiter: None }
    }

    /// Takes lock `number` if no waiting is needed.
    #[inline]
    pub fn try_lock(&self, number: u64, mode: Mode) -> Option<LockGuard> {
        let taken = self.inner.borrow_mut().take(number, mode);
        taken.then(|| LockGuard::new(self, number, mode))
    }
}

impl Inner {
    /// Takes a lock if no waiting is needed: mostly a lock with a free place.
    #[inline]
    fn take(&mut self, number: u64, mode: Mode) -> bool {
        let (known, lock) = &mut self.near[number as usize % NEAR];
        if lock.holders.is_none() && self.far.is_empty() {
            (*known, lock.holders) = (number, Holders::of(mode));
            return true;
        }
        self.take_further(number, mode)
    }

    fn take_further(&mut self, number: u64, mode: Mode) -> bool {
        let (known, lock) = &mut self.near[number as usize % NEAR];
        if lock.holders.is_none() {
            if !self.far.contains_key(&number) {
                (*known, lock.holders) = (number, Holders::of(mode));
                return true;
            }
        } else if *known == number {
            return lock.waiting.is_none() && lock.holders.admit(mode);
        }
        let free = Lock { holders: Holders::Shared(0), waiting: None };
        let lock = self.far.entry(number).or_insert(free);
        lock.waiting.is_none() && lock.holders.admit(mode)
    }

    /// Returns a held lock.
    #[inline]
    fn held(&mut self, number: u64) -> &mut Lock {
        let (known, lock) = &mut self.near[number as usize % NEAR];
        if *known == number && !lock.holders.is_none() {
            return lock;
        }
        self.far.get_mut(&number).expect("a lock that is waited for or released is held")
    }

    fn enqueue(&mut self, number: u64, mode: Mode, waker: Waker) -> usize {
        let waiter = self.waiters.insert(LockWaiter { mode, waker, granted: false, gone: false, next: None });
        let lock = self.held(number);
        let before = lock.waiting;
        lock.waiting = Some((before.map_or(waiter, |(first, _)| first), waiter));
        if let Some((_, last)) = before {
            self.waiters[last].next = Some(waiter);
        }
        waiter
    }

    /// Releases a lock: mostly a lock without other holders or waiters.
    #[inline]
    fn release(&mut self, number: u64, mode: Mode) {
        let (known, lock) = &mut self.near[number as usize % NEAR];
        let alone = *known == number && lock.holders == Holders::of(mode) && lock.waiting.is_none();
        if alone && self.far.is_empty() {
            lock.holders = Holders::Shared(0);
        } else {
            self.release_further(number, mode);
        }
    }

    fn release_further(&mut self, number: u64, mode: Mode) {
        let mut lock = *self.held(number);
        lock.holders = match (mode, lock.holders) {
            (Mode::Exclusive, Holders::Exclusive) => Holders::Shared(0),
            (Mode::Shared, Holders::Shared(count)) => Holders::Shared(count - 1),
            _ => panic!("a lock was released in another mode than it was taken"),
        };
        self.grant(number, lock);
    }

    /// Grants the first waiters in the list, as many as are compatible. `lock` is the present state of the
    /// lock.
    fn grant(&mut self, number: u64, mut lock: Lock) {
        while let Some((first, last)) = lock.waiting {
            let waiter = &mut self.waiters[first];
            if !waiter.gone && !lock.holders.admit(waiter.mode) {
                break;
            }
            lock.waiting = waiter.next.map(|next| (next, last));
            if waiter.gone {
                self.waiters.remove(first);
            } else {
                waiter.granted = true;
                waiter.waker.wake_by_ref();
            }
        }
        *self.held(number) = lock;
        if lock.holders.is_none() {
            self.far.remove(&number);
        }
    }
}

impl Holders {
    fn of(mode: Mode) -> Holders {
        match mode {
            Mode::Shared => Holders::Shared(1),
            Mode::Exclusive => Holders::Exclusive,
        }
    }

    fn is_none(self) -> bool {
        matches!(self, Holders::Shared(0))
    }

    /// Adds a holder if the present holders allow another.
    fn admit(&mut self, mode: Mode) -> bool {
        match (*self, mode) {
            (Holders::Shared(count), Mode::Shared) => *self = Holders::Shared(count + 1),
            (Holders::Shared(0), Mode::Exclusive) => *self = Holders::Exclusive,
            _ => return false,
        }
        true
    }
}

/// The wait for a lock; see [`LockTable::lock`].
pub struct Locking<'a> {
    table: &'a LockTable,
    number: u64,
    mode: Mode,
    waiter: Option<usize>,
}

impl Future for Locking<'_> {
    type Output = LockGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LockGuard> {
        let (table, number, mode) = (self.table, self.number, self.mode);
        let mut inner = table.inner.borrow_mut();
        match self.waiter {
            None if inner.take(number, mode) => {}
            None => {
                self.waiter = Some(inner.enqueue(number, mode, cx.waker().clone()));
                return Poll::Pending;
            }
            Some(waiter) if inner.waiters[waiter].granted => {
                inner.waiters.remove(waiter);
                self.waiter = None;
            }
            Some(waiter) => {
                inner.waiters[waiter].waker.clone_from(cx.waker());
                return Poll::Pending;
            }
        }
        Poll::Ready(LockGuard::new(table, number, mode))
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter else { return };
        let mut inner = self.table.inner.borrow_mut();
        if inner.waiters[waiter].granted {
            inner.waiters.remove(waiter);
            inner.release(self.number, self.mode);
        } else {
            inner.waiters[waiter].gone = true;
            let lock = *inner.held(self.number);
            inner.grant(self.number, lock);
        }
    }
}

/// A held lock; released when dropped.
///
/// Two words, which move in registers. A third word would send each move through memory, and the processor
/// would wait.
#[must_use]
pub struct LockGuard {
    table: LockTable,
    /// Twice the number of the lock, plus one if exclusive.
    held: u64,
}

impl LockGuard {
    #[inline]
    fn new(table: &LockTable, number: u64, mode: Mode) -> LockGuard {
        assert!(number < 1 << 63, "the number of a lock is below 2^63");
        LockGuard { table: table.clone(), held: number << 1 | u64::from(mode == Mode::Exclusive) }
    }

    /// Mode of the lock.
    pub fn mode(&self) -> Mode {
        if self.held & 1 == 0 { Mode::Shared } else { Mode::Exclusive }
    }

    /// True if the lock has no other holder. Until the task waits, a sole holder is as good as an exclusive
    /// holder.
    pub fn is_only(&self) -> bool {
        self.table.inner.borrow_mut().held(self.held >> 1).holders == Holders::of(self.mode())
    }
}

impl Drop for LockGuard {
    #[inline]
    fn drop(&mut self) {
        self.table.inner.borrow_mut().release(self.held >> 1, self.mode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Executor, Order, yield_now};
    use braid_base::Rng;
    use std::cell::Cell;

    #[test]
    fn any_schedule_admits_one_writer_or_many_readers() {
        for seed in 0..50 {
            let executor = Executor::new(Order::Random(Rng::new(seed)));
            let (table, state, done) =
                (LockTable::default(), Rc::new(Cell::new((0i32, 0i32))), Rc::new(Cell::new(0)));
            for task in 0..30u64 {
                let (table, state, done) = (table.clone(), state.clone(), done.clone());
                let mode = if task % 3 == 0 { Mode::Exclusive } else { Mode::Shared };
                executor.spawn(async move {
                    for _ in 0..10 {
                        let guard = table.lock(5, mode).await;
                        let (readers, writers) = state.get();
                        let here = if mode == Mode::Shared { (1, 0) } else { (0, 1) };
                        state.set((readers + here.0, writers + here.1));
                        let (readers, writers) = state.get();
                        assert!(writers == 0 || (writers == 1 && readers == 0), "seed {seed}");
                        yield_now().await;
                        let (readers, writers) = state.get();
                        state.set((readers - here.0, writers - here.1));
                        drop(guard);
                    }
                    done.set(done.get() + 1);
                });
            }
            executor.run_ready();
            assert_eq!(done.get(), 30, "seed {seed}: a task was forgotten");
            let inner = table.inner.borrow();
            assert!(
                inner.far.is_empty()
                    && inner.waiters.is_empty()
                    && inner.near.iter().all(|(_, l)| l.holders.is_none()),
                "seed {seed}: something was left behind"
            );
        }
    }

    #[test]
    fn cancelled_writer_no_longer_blocks_lock() {
        let executor = Executor::new(Order::Fifo);
        let table = LockTable::default();
        let reader = table.try_lock(1, Mode::Shared).unwrap();
        {
            let mut impatient = Box::pin(table.lock(1, Mode::Exclusive));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(impatient.as_mut().poll(&mut cx).is_pending());
            assert!(table.try_lock(1, Mode::Shared).is_none(), "nobody overtakes a writer that waits");
        }
        executor.run_ready();
        assert!(table.try_lock(1, Mode::Shared).is_some());
        drop(reader);
        assert!(table.try_lock(1, Mode::Exclusive).is_some());
    }
}
