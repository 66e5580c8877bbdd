//! Executor for the real and the virtual world: tasks by number, ready tasks, timers.
//!
//! A waker is a task's number, not an `Arc`: waking adds the number to the ready tasks of the task's
//! executor. Wakers must stay on the thread of their executor; waking from another thread panics
//! (cross-thread messages come in through the reactor). A task woken twice before running runs once.
#![allow(unsafe_code)]

use crate::ready::{Order, Ready};
use crate::timers::{TimerId, Timers};
use braid_base::Nanos;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Tasks and timers of one shard. Cheap to clone: a handle.
///
/// The executor has no clock and no I/O. Its owner calls [`Executor::run_ready`], learns from
/// [`Executor::next_timer`] how long to sleep, and tells the time with [`Executor::fire_timers`].
#[derive(Clone)]
pub struct Executor {
    inner: Rc<Inner>,
}

struct Inner {
    ready: Rc<Ready>,
    tasks: RefCell<Slab<Option<Task>>>,
    timers: RefCell<Timers>,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

impl Executor {
    /// An executor without tasks.
    pub fn new(order: Order) -> Executor {
        let inner = Inner { ready: register(order), tasks: RefCell::default(), timers: RefCell::default() };
        Executor { inner: Rc::new(inner) }
    }

    /// Adds a task. The task runs at the next [`Executor::run_ready`].
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let key = self.inner.tasks.borrow_mut().insert(Some(Box::pin(task)));
        assert!(key < MOST_TASKS, "an executor runs at most {MOST_TASKS} tasks at a time");
        self.inner.ready.push(key as u32);
    }

    /// Runs ready tasks until none is left. Returns the number of polls.
    pub fn run_ready(&self) -> usize {
        let mut polls = 0;
        while let Some(key) = self.inner.ready.pop() {
            self.poll_task(key);
            polls += 1;
        }
        polls
    }

    /// Runs the next ready task; false if there is none.
    #[inline]
    pub fn run_next(&self) -> bool {
        let Some(key) = self.inner.ready.pop() else { return false };
        self.poll_task(key);
        true
    }

    /// Runs the tasks that are ready now, but no tasks that become ready meanwhile: a task that yields must
    /// not keep the reactor from the kernel. Returns the number of polls.
    pub fn run_round(&self) -> usize {
        let round = self.inner.ready.len();
        (0..round).map_while(|_| self.inner.ready.pop()).map(|key| self.poll_task(key)).count()
    }

    /// True if a task is ready.
    pub fn is_ready(&self) -> bool {
        !self.inner.ready.is_empty()
    }

    /// Earliest deadline of all waiting tasks.
    #[inline]
    pub fn next_timer(&self) -> Option<Nanos> {
        self.inner.timers.borrow_mut().next()
    }

    /// Wakes every task whose deadline is at or before `now`, earliest first.
    #[inline]
    pub fn fire_timers(&self, now: Nanos) {
        self.inner.timers.borrow_mut().fire(now);
    }

    /// Wakes every task with the earliest deadline, and returns the deadline. None if later than `end`.
    #[inline]
    pub fn fire_next(&self, end: Nanos) -> Option<Nanos> {
        let mut timers = self.inner.timers.borrow_mut();
        let next = timers.next().filter(|next| *next <= end)?;
        timers.fire(next);
        Some(next)
    }

    /// Completes when [`Executor::fire_timers`] reaches `deadline`.
    pub fn sleep_until(&self, deadline: Nanos) -> Sleep {
        Sleep { executor: self.clone(), deadline, timer: None }
    }

    /// Drops every task at once: a power cut, or the end of a world.
    pub fn clear(&self) {
        let tasks = std::mem::take(&mut *self.inner.tasks.borrow_mut());
        drop(tasks);
        self.inner.ready.clear();
        self.inner.timers.borrow_mut().clear();
    }

    #[inline]
    fn poll_task(&self, key: u32) {
        // The task leaves its place while running, so that the task may spawn others.
        let Some(mut task) = self.inner.tasks.borrow_mut().get_mut(key as usize).and_then(Option::take)
        else {
            return;
        };
        // A waker is a number: there is nothing to drop.
        let waker = ManuallyDrop::new(waker_of(self.inner.ready.id, key));
        let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if done {
            self.end(key, task);
        } else if let Some(place @ None) = self.inner.tasks.borrow_mut().get_mut(key as usize) {
            *place = Some(task);
        }
    }

    #[inline(never)]
    fn end(&self, key: u32, task: Task) {
        self.inner.tasks.borrow_mut().try_remove(key as usize);
        drop(task);
    }
}

/// The wait for a deadline. Dropped early, no task is woken.
pub struct Sleep {
    executor: Executor,
    deadline: Nanos,
    /// The sleep's own timer, after the first wait.
    timer: Option<TimerId>,
}

impl Sleep {
    /// Sets another deadline. No task is woken until the next poll.
    pub fn reset(&mut self, deadline: Nanos) {
        self.deadline = deadline;
        if let Some(id) = self.timer {
            self.executor.inner.timers.borrow_mut().cancel(id);
        }
    }

    /// Sets another `deadline`, and wakes `waker` then: [`Sleep::reset`] and a poll at once, for alarms that
    /// are set again and again. False if the deadline has passed: then nothing is woken.
    #[inline]
    pub fn wake_at(&mut self, deadline: Nanos, waker: &Waker) -> bool {
        let mut timers = self.executor.inner.timers.borrow_mut();
        self.deadline = deadline;
        if timers.fired >= deadline {
            self.timer.into_iter().for_each(|id| timers.cancel(id));
            return false;
        }
        let id = *self.timer.get_or_insert_with(|| timers.add());
        timers.set(id, deadline, waker);
        true
    }

    /// Passes the deadline at once, if set and nothing else happens before: no task is ready, and no other
    /// timer fires. No task is woken. Returns the deadline, to which the caller must set the clock; none if
    /// later than `end`.
    #[inline]
    pub fn pass(&mut self, end: Nanos) -> Option<Nanos> {
        let Inner { ready, timers, .. } = &*self.executor.inner;
        let passes = self.deadline <= end && ready.is_empty() && timers.borrow_mut().pass(self.timer?);
        passes.then_some(self.deadline)
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        if self.wake_at(deadline, cx.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.timer {
            self.executor.inner.timers.borrow_mut().remove(id);
        }
    }
}

/// Lets every other ready task run once before the caller continues.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

thread_local! {
    /// Executors of this thread: one in a daemon, a few in tests that crash one world and open the next.
    static EXECUTORS: RefCell<Vec<Rc<Ready>>> = const { RefCell::new(Vec::new()) };
    /// Executor of this thread of the last wake, with its number: zero for none. Always an element of
    /// `EXECUTORS`.
    static LAST: Cell<(u64, *const Ready)> = const { Cell::new((0, std::ptr::null())) };
}

/// Executors of all threads, to distinguish a wake from the wrong thread from a wake that comes too late.
/// Used when an executor is made, ends, or is not found in its thread.
static LIVE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Number of the next executor. A process may run simulations for weeks, each on an executor of its own: 40
/// bits last for 34 years at a thousand a second, so no number is ever used twice.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Makes the ready tasks of a new executor, known to the wakers of this thread until [`forget`].
fn register(order: Order) -> Rc<Ready> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < 1 << EXECUTOR_BITS, "this process has made 2^{EXECUTOR_BITS} executors: restart it");
    live().insert(number);
    let ready = Rc::new(Ready::new(number, order));
    EXECUTORS.with_borrow_mut(|executors| executors.push(ready.clone()));
    ready
}

/// Makes wakers of this executor ineffective.
fn forget(executor: u64) {
    if LAST.get().0 == executor {
        LAST.set((0, std::ptr::null()));
    }
    live().remove(&executor);
    // When the thread itself ends, its wakers have gone before.
    let _ = EXECUTORS.try_with(|executors| executors.borrow_mut().retain(|ready| ready.id != executor));
}

/// Returns the set, even if a thread panicked with the lock: a set of numbers stays consistent.
fn live() -> MutexGuard<'static, BTreeSet<u64>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Inner {
    fn drop(&mut self) {
        forget(self.ready.id);
    }
}

/// Bits of the task's number in a waker. The executor's number is above.
const TASK_BITS: u32 = 24;
const EXECUTOR_BITS: u32 = usize::BITS - TASK_BITS;
const MOST_TASKS: usize = 1 << TASK_BITS;

fn waker_of(executor: u64, task: u32) -> Waker {
    let number = (executor << TASK_BITS | u64::from(task)) as usize;
    // SAFETY: the pointer is a number that is never followed; all functions of the table accept any number,
    // from any thread (a foreign one panics).
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::without_provenance(number), &VTABLE)) }
}

const VTABLE: RawWakerVTable =
    RawWakerVTable::new(|number| RawWaker::new(number, &VTABLE), wake, wake, |_| {});

fn wake(number: *const ()) {
    let number = number.addr() as u64;
    let (executor, task) = (number >> TASK_BITS, (number % MOST_TASKS as u64) as u32);
    let (last, ready) = LAST.get();
    if last == executor {
        // SAFETY: `LAST` belongs to this thread, and points to one that `EXECUTORS` keeps: `forget` clears
        // both. No executor has the number zero, which stands for none.
        unsafe { &*ready }.push(task);
    } else {
        wake_other(executor, task);
    }
}

#[cold]
fn wake_other(executor: u64, task: u32) {
    let ready = EXECUTORS.with_borrow(|all| all.iter().find(|ready| ready.id == executor).cloned());
    let Some(ready) = ready else {
        // An executor that has ended has no task left to wake.
        let is_elsewhere = live().contains(&executor);
        assert!(!is_elsewhere, "a waker left the thread of its executor");
        return;
    };
    LAST.set((executor, Rc::as_ptr(&ready)));
    ready.push(task);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use braid_base::Rng;

    fn run_to(executor: &Executor, now: Nanos) {
        executor.run_ready();
        while let Some(next) = executor.next_timer().filter(|&next| next <= now) {
            executor.fire_timers(next);
            executor.run_ready();
        }
    }

    #[test]
    fn sleepers_wake_in_order_of_deadline() {
        let executor = Executor::new(Order::Fifo);
        let woken = Rc::new(RefCell::new(Vec::new()));
        for millis in [5, 1, 3] {
            let (sleep, woken) = (executor.sleep_until(Nanos::from_millis(millis)), woken.clone());
            executor.spawn(async move {
                sleep.await;
                woken.borrow_mut().push(millis);
            });
        }
        run_to(&executor, Nanos::from_millis(4));
        assert_eq!(*woken.borrow(), [1, 3]);
        run_to(&executor, Nanos::from_millis(5));
        assert_eq!(*woken.borrow(), [1, 3, 5]);
    }

    #[test]
    fn dropped_sleep_leaves_no_timer() {
        let executor = Executor::new(Order::Fifo);
        let mut sleep = executor.sleep_until(Nanos(5));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(executor.next_timer(), Some(Nanos(5)));
        drop(sleep);
        assert_eq!(executor.next_timer(), None);
    }

    #[test]
    fn a_seed_decides_the_order_of_ready_tasks() {
        let order_of = |order: Order| {
            let executor = Executor::new(order);
            let ran = Rc::new(RefCell::new(Vec::new()));
            for task in 0..20 {
                let ran = ran.clone();
                executor.spawn(async move { ran.borrow_mut().push(task) });
            }
            executor.run_ready();
            ran.take()
        };
        let by_seed = |seed| order_of(Order::Random(Rng::new(seed)));
        assert_eq!(order_of(Order::Fifo), (0..20).collect::<Vec<_>>());
        assert_eq!(by_seed(1), by_seed(1));
        assert_ne!(by_seed(1), by_seed(2));
    }

    #[test]
    fn running_task_may_spawn_and_notify_tasks() {
        let executor = Executor::new(Order::Fifo);
        let (event, done) = (Event::default(), Rc::new(Cell::new(false)));
        let spawner = {
            let (executor, event, done) = (executor.clone(), event.clone(), done.clone());
            async move {
                executor.spawn(async move {
                    done.set(true);
                    event.notify();
                });
            }
        };
        let waited = Rc::new(Cell::new(false));
        let waiter = {
            let (event, done, waited) = (event.clone(), done.clone(), waited.clone());
            async move {
                event.wait_for(|| done.get().then_some(())).await;
                waited.set(true);
            }
        };
        executor.spawn(waiter);
        executor.spawn(spawner);
        executor.run_ready();
        assert!(waited.get());
    }

    /// Story: a thread, and an executor of a thread, had a number of 16 bits each. After 65,535 threads, as
    /// in a long sweep, an executor got the number zero, for "no executor was woken yet", and its first wake
    /// followed a null pointer. After 65,536 executors of one thread, wakes went to another executor.
    #[test]
    fn wakes_reach_own_executor_after_65536_executors() {
        let first = Executor::new(Order::Fifo);
        (0..u16::MAX).for_each(|_| drop(Executor::new(Order::Fifo)));
        let last = Executor::new(Order::Fifo);
        assert!(wakes_its_tasks(&last));
        assert!(wakes_its_tasks(&first));
        let elsewhere = std::thread::spawn(|| wakes_its_tasks(&Executor::new(Order::Fifo)));
        assert!(elsewhere.join().unwrap());
    }

    #[test]
    fn waker_of_dropped_executor_wakes_no_task() {
        let executor = Executor::new(Order::Fifo);
        let waker = waker_of(executor.inner.ready.id, 0);
        drop(executor);
        waker.wake();
    }

    #[test]
    #[should_panic(expected = "left the thread of its executor")]
    fn wake_from_foreign_thread_panics() {
        let executor = Executor::new(Order::Fifo);
        let waker = waker_of(executor.inner.ready.id, 0);
        let woken = std::thread::spawn(move || waker.wake()).join();
        std::panic::resume_unwind(woken.unwrap_err());
    }

    fn wakes_its_tasks(executor: &Executor) -> bool {
        let done = Rc::new(Cell::new(false));
        let into = done.clone();
        executor.spawn(async move {
            yield_now().await;
            into.set(true);
        });
        executor.run_ready();
        done.get()
    }
}
