//! The runtime of the virtual world: the shared executor, ready tasks in seed order, and a clock that jumps
//! to the next timer as soon as nothing is ready.
//!
//! Tasks hold the world and the world holds the tasks: call [`World::halt`] at its end, or both stay in
//! memory.

use crate::{LastingBytes, Power, StoredMemory};
use braid_base::{Nanos, Rng};
use braid_runtime::{Executor, Order, Runtime, Sleep};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// A world with its own time. Cheap to clone: a handle.
#[derive(Clone)]
pub struct World {
    inner: Rc<Inner>,
}

struct Inner {
    seed: u64,
    executor: Executor,
    now: Cell<Nanos>,
    /// Latest time to which the clock may advance.
    end: Cell<Nanos>,
    rng: RefCell<Rng>,
    turns: Cell<u64>,
    power: Power,
    lasting: RefCell<Option<LastingBytes>>,
}

/// Number of polls without any passing of time after which tasks count as spinning: far more than a burst of
/// real work.
const POLLS_AT_ONE_TIME: usize = 20_000_000;

/// Result of running a world for a future.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended<T> {
    /// The future returned its output.
    Done(T),
    /// The power was cut first.
    Cut,
    /// Every task waits, and no timer is set.
    Deadlock(Nanos),
}

/// Why the world stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// The awaited future has ended.
    Done,
    /// The power was cut.
    Cut,
    /// Nothing is ready, and no timer is set.
    Idle,
}

impl World {
    /// Creates a world at time zero, with the power on. The seed decides the order of ready tasks: the same
    /// seed gives the same schedule.
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let order = Order::Random(rng.fork());
        World::with_order(seed, rng, order)
    }

    /// As [`World::new`], but ready tasks run first come, first served: for measurements, in which speed
    /// counts and any schedule serves.
    pub fn in_order(seed: u64) -> World {
        World::with_order(seed, Rng::new(seed), Order::Fifo)
    }

    fn with_order(seed: u64, rng: Rng, order: Order) -> World {
        let executor = Executor::new(order);
        let (now, end, rng) = (Cell::default(), Cell::default(), RefCell::new(rng));
        let (turns, power) = (Cell::default(), Power::default());
        World {
            inner: Rc::new(Inner {
                seed,
                executor,
                now,
                end,
                rng,
                turns,
                power,
                lasting: RefCell::default(),
            }),
        }
    }

    /// Runs until `future` has ended, skipping idle time.
    ///
    /// # Panics
    /// If every task waits for another (deadlock), if tasks spin, or if the power is cut.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let seed = self.inner.seed;
        let output = self.block_on_until_cut(future);
        output.unwrap_or_else(|| panic!("seed {seed}: the power was cut before the future ended"))
    }

    /// As [`World::block_on`], but returns `None` if the power is cut before the future has ended. The world
    /// stands still then: call [`World::halt`].
    pub fn block_on_until_cut<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Option<T> {
        match self.run_until(future) {
            Ended::Done(output) => Some(output),
            Ended::Cut => None,
            Ended::Deadlock(now) => {
                let seed = self.inner.seed;
                panic!("seed {seed}: deadlock at {now}: every task waits, and no timer is set")
            }
        }
    }

    /// Runs until `future` has ended, the power is cut, or nothing can happen any more.
    pub fn run_until<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Ended<T> {
        let output = Rc::new(Cell::new(None));
        let done = Rc::new(Cell::new(false));
        {
            let (output, done) = (output.clone(), done.clone());
            self.spawn(async move {
                output.set(Some(future.await));
                done.set(true);
            });
        }
        match self.run(Nanos::MAX, || done.get()) {
            Stop::Done => output.take().map_or(Ended::Cut, Ended::Done),
            Stop::Cut => Ended::Cut,
            Stop::Idle => Ended::Deadlock(self.now()),
        }
    }

    /// Waits for `work` for at most `limit` of virtual time. Returns `None` if `work` takes longer; `work`
    /// then stays in memory, because futures of the engine must not be dropped half-way.
    pub async fn within<T>(&self, limit: Nanos, work: impl Future<Output = T>) -> Option<T> {
        let mut work = Box::pin(work);
        let mut alarm = pin!(self.sleep(limit));
        let output = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => alarm.as_mut().poll(cx).map(|()| None),
        });
        let output = output.await;
        if output.is_none() {
            std::mem::forget(work);
        }
        output
    }

    /// Runs for `duration` of virtual time, or until the power is cut.
    pub fn run_for(&self, duration: Nanos) {
        let end = self.now() + duration;
        if self.run(end, || false) != Stop::Cut {
            self.inner.executor.fire_timers(end);
            self.inner.now.set(end);
        }
    }

    /// Advances the clock to `alarm` at once, if `alarm` is set and nothing happens earlier; wakes no task.
    /// For a task that waits for `alarm` alone and would run next, and so need not wait.
    #[inline]
    pub fn pass_to(&self, alarm: &mut Sleep) -> bool {
        let passed = alarm.pass(self.inner.end.get());
        passed.inspect(|now| self.inner.now.set(*now)).is_some()
    }

    /// Ends the world: drops every task, wherever it stands, and cuts the power.
    pub fn halt(&self) {
        self.inner.power.cut();
        self.inner.power.unwatch();
        self.inner.executor.clear();
    }

    /// The power of this world's disks.
    pub fn power(&self) -> Power {
        self.inner.power.clone()
    }

    /// Gives this world memory that outlives its software, filled with `stored`.
    pub fn give_memory(&self, stored: StoredMemory) -> LastingBytes {
        let memory = LastingBytes::attach(self.power(), stored);
        self.inner.lasting.replace(Some(memory.clone()));
        memory
    }

    /// The memory that outlives the software of this world, if any.
    pub fn memory(&self) -> Option<LastingBytes> {
        self.inner.lasting.borrow().clone()
    }

    /// The seed of this world.
    pub fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// Number of task runs so far: the processor cost of an engine while nothing else happens.
    pub fn turns(&self) -> u64 {
        self.inner.turns.get()
    }

    /// A new stream of random numbers, decided by the seed and the number of streams taken before.
    pub fn fork_rng(&self) -> Rng {
        self.inner.rng.borrow_mut().fork()
    }

    /// Runs until `done`, until the power cut, or until no more events are due at or before `end`.
    fn run(&self, end: Nanos, done: impl Fn() -> bool) -> Stop {
        if self.inner.power.is_off() {
            return Stop::Cut;
        }
        self.inner.end.set(end);
        loop {
            if let Some(stop) = self.run_ready(&done) {
                return stop;
            }
            let Some(now) = self.inner.executor.fire_next(end) else { return Stop::Idle };
            self.inner.now.set(now);
        }
    }

    /// Runs the tasks that are ready now. `None` if no task is ready any more.
    #[inline]
    fn run_ready(&self, done: &impl Fn() -> bool) -> Option<Stop> {
        for _ in 0..POLLS_AT_ONE_TIME {
            if !self.inner.executor.run_next() {
                return None;
            }
            self.inner.turns.set(self.inner.turns.get() + 1);
            // Only a task can satisfy `done` or cut the power.
            if done() {
                return Some(Stop::Done);
            }
            if self.inner.power.is_off() {
                return Some(Stop::Cut);
            }
        }
        panic!("seed {}: tasks spin at {}: time cannot pass", self.inner.seed, self.now());
    }
}

impl Runtime for World {
    fn now(&self) -> Nanos {
        self.inner.now.get()
    }

    fn sleep_until(&self, deadline: Nanos) -> Sleep {
        self.inner.executor.sleep_until(deadline)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.inner.executor.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_runtime::{Event, yield_now};
    use std::task::Waker;

    /// Runs a few tasks that sleep and race, and returns the order of events with their times.
    fn history_of(seed: u64) -> Vec<(Nanos, u64)> {
        let world = World::new(seed);
        let history = Rc::new(RefCell::new(Vec::new()));
        for task in 0..10 {
            let (world, history, mut rng) = (world.clone(), history.clone(), world.fork_rng());
            world.clone().spawn(async move {
                for _ in 0..10 {
                    world.sleep(Nanos(rng.below(5))).await;
                    history.borrow_mut().push((world.now(), task));
                }
            });
        }
        world.run_for(Nanos(100));
        assert_eq!(world.now(), Nanos(100));
        history.take()
    }

    #[test]
    fn history_depends_only_on_seed() {
        assert_eq!(history_of(1).len(), 100);
        assert_eq!(history_of(1), history_of(1));
        assert_ne!(history_of(1), history_of(2));
    }

    #[test]
    fn time_jumps_to_the_next_timer() {
        let world = World::new(1);
        let sleeper = world.clone();
        world.block_on(async move { sleeper.sleep(Nanos::from_secs(3_600)).await });
        assert_eq!(world.now(), Nanos::from_secs(3_600));
    }

    #[test]
    fn clock_jumps_to_alarm_only_if_nothing_comes_first() {
        let world = World::in_order(1);
        let passes = |to: u64, other: Option<u64>, spawns: bool| {
            let here = world.clone();
            let passed = Rc::new(Cell::new(None));
            let note = passed.clone();
            world.spawn(async move {
                let start = here.now();
                let mut other = other.map(|after| here.sleep(Nanos(after)));
                let _set = other.as_mut().map(|sleep| sleep.wake_at(start + Nanos(10), Waker::noop()));
                let mut alarm = here.sleep(Nanos(to));
                assert!(!here.pass_to(&mut alarm), "nobody waits for it");
                alarm.wake_at(start + Nanos(to), Waker::noop());
                if spawns {
                    here.spawn(async {});
                }
                note.set(Some((here.pass_to(&mut alarm), here.now() - start)));
            });
            world.run_for(Nanos(20));
            passed.take().unwrap()
        };
        assert_eq!(passes(5, None, false), (true, Nanos(5)));
        assert_eq!(passes(20, None, false), (true, Nanos(20)));
        assert_eq!(passes(5, Some(10), false), (true, Nanos(5)));
        for refused in [passes(21, None, false), passes(10, Some(10), false), passes(5, None, true)] {
            assert_eq!(refused, (false, Nanos::ZERO));
        }
    }

    #[test]
    #[should_panic(expected = "seed 77: deadlock")]
    fn a_deadlock_names_the_seed() {
        World::new(77).block_on(async { Event::default().wait_for(|| None::<()>).await });
    }

    #[test]
    fn work_beyond_time_limit_is_abandoned() {
        let world = World::new(1);
        let clock = world.clone();
        let outcomes = world.block_on(async move {
            let sleep = |seconds| clock.sleep(Nanos::from_secs(seconds));
            let limit = Nanos::from_secs(3);
            (clock.within(limit, sleep(2)).await, clock.within(limit, sleep(4)).await, clock.now())
        });
        assert_eq!(outcomes, (Some(()), None, Nanos::from_secs(5)));
    }

    #[test]
    fn power_cut_ends_run_and_halt_drops_tasks() {
        let world = World::new(1);
        let held = Rc::new(());
        for _ in 0..3 {
            let (world, held) = (world.clone(), held.clone());
            world.clone().spawn(async move {
                let _held = held;
                world.sleep(Nanos::MAX).await;
            });
        }
        let power = world.power();
        let cutter = world.clone();
        let output = world.block_on_until_cut(async move {
            cutter.sleep(Nanos::from_millis(1)).await;
            power.cut();
            yield_now().await;
            yield_now().await;
        });
        assert!(output.is_none());
        assert_eq!(Rc::strong_count(&held), 4);
        world.halt();
        assert_eq!(Rc::strong_count(&held), 1);
    }
}
