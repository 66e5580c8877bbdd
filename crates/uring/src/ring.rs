//! A shard's world: an executor on an io_uring.
//!
//! The loop runs the tasks that are ready, then enters the kernel once, to submit what they queued and to
//! wait for the next completion or timer. A timed wait in the kernel overshoots (4 to 20 µs in the median on
//! a virtual machine, more when it is busy; the thread's timer slack makes no difference), so the loop waits
//! until [`SPIN`] before the deadline and polls for completions from there.

use crate::reactor::{Patience, Reactor};
use braid_base::Nanos;
use braid_runtime::{Arena, Executor, Order, Runtime, Sleep};
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

/// How long before a timer the loop stops sleeping and starts polling. The kernel's overshoot is below this
/// in all but a few of a thousand waits; a longer time costs processor time for nothing.
const SPIN: Nanos = Nanos::from_micros(55);

/// Rounds of ready tasks between two looks at the kernel: enough for tasks that wake each other to come to
/// rest, so that what they queue is submitted together; few enough that a task that only yields does not hold
/// up the rest.
const ROUNDS: usize = 8;

/// The [`Runtime`] of the real world. Cheap to clone: a handle. It belongs to the thread that made it.
///
/// Tasks hold handles, and the ring holds its tasks: call [`Ring::clear`] before the last handle of your own
/// goes, or the ring lives as long as the process.
#[derive(Clone)]
pub struct Ring {
    inner: Rc<Inner>,
}

struct Inner {
    executor: Executor,
    reactor: RefCell<Reactor>,
    running: Cell<bool>,
}

impl Ring {
    /// A ring whose queue takes `entries` operations (rounded up to a power of two) between two submissions;
    /// more may be in flight. `arena` is registered with the kernel, whole: its memory is resident from here
    /// on.
    ///
    /// # Errors
    /// If the kernel has no io_uring or forbids it; the message says what to do. What is merely slower than
    /// it could be is no error: see [`Ring::fallbacks`].
    pub fn new(entries: u32, arena: &Arena) -> io::Result<Ring> {
        let reactor = RefCell::new(Reactor::open(entries, arena)?);
        let executor = Executor::new(Order::Fifo);
        Ok(Ring { inner: Rc::new(Inner { executor, reactor, running: Cell::new(false) }) })
    }

    /// Whether the arena is registered with the kernel.
    ///
    /// # Errors
    /// Why it is not, with the remedy: commonly the limit of lockable memory. Requests then cost about a
    /// tenth more.
    pub fn registered(&self) -> Result<(), String> {
        self.reactor().registered()
    }

    /// What this kernel or its limits refused, each a sentence with the remedy. Empty if all is at its best.
    pub fn fallbacks(&self) -> Vec<String> {
        self.reactor().fallbacks().to_vec()
    }

    /// Runs `future` and all tasks until `future` completes. Tasks then stand still until the next call.
    ///
    /// # Panics
    /// Where called inside itself, and where the kernel refuses to work the ring.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        assert!(!self.inner.running.replace(true), "a ring runs already");
        let _running = Running(&self.inner.running);
        let main = Rc::new(Main::default());
        self.spawn_proxy(main.clone());
        let mut future = pin!(future);
        loop {
            for _ in 0..ROUNDS {
                if self.inner.executor.run_round() == 0 {
                    break;
                }
                if main.woken.take() {
                    let waker = main.waker.borrow().clone();
                    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                        main.done.set(true);
                        waker.wake();
                        return output;
                    }
                }
            }
            self.turn();
        }
    }

    /// Runs a task beside the others of this shard until it ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.inner.executor.spawn(task);
    }

    /// Drops every task, wherever it stands. The kernel may go on with what they started until the ring goes.
    pub fn clear(&self) {
        self.inner.executor.clear();
    }

    pub(crate) fn reactor(&self) -> RefMut<'_, Reactor> {
        self.inner.reactor.borrow_mut()
    }

    /// Lends the executor's wakers to the main future, which may borrow and so cannot be a task: a task that
    /// stands for it, and notes when it is woken.
    fn spawn_proxy(&self, main: Rc<Main>) {
        self.spawn(std::future::poll_fn(move |cx| {
            main.waker.borrow_mut().clone_from(cx.waker());
            main.woken.set(true);
            if main.done.get() { Poll::Ready(()) } else { Poll::Pending }
        }));
    }

    /// One turn of the loop: submits, waits for the first completion or timer, and wakes who waited for it.
    fn turn(&self) {
        let executor = &self.inner.executor;
        let mut reactor = self.reactor();
        match executor.next_timer() {
            _ if executor.is_ready() => reactor.turn(Patience::None),
            None => reactor.turn(Patience::Endless),
            Some(deadline) => match deadline.saturating_sub(clock()) {
                left if left > SPIN => reactor.turn(Patience::For(left.saturating_sub(SPIN))),
                _ => spin(&mut reactor, deadline),
            },
        };
        drop(reactor);
        if let Some(deadline) = executor.next_timer() {
            let now = clock();
            if deadline <= now {
                executor.fire_timers(now);
            }
        }
    }
}

impl Runtime for Ring {
    fn now(&self) -> Nanos {
        clock()
    }

    fn calendar(&self) -> Option<Nanos> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok().map(Nanos)
    }

    fn sleep_until(&self, deadline: Nanos) -> Sleep {
        self.inner.executor.sleep_until(deadline)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        Ring::spawn(self, task);
    }
}

/// Polls for completions until one comes or `deadline` has come.
fn spin(reactor: &mut Reactor, deadline: Nanos) -> usize {
    loop {
        let completed = reactor.turn(Patience::None);
        if completed > 0 || clock() >= deadline {
            return completed;
        }
        std::hint::spin_loop();
    }
}

/// CLOCK_MONOTONIC. Some 25 ns: read without entering the kernel.
fn clock() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

struct Main {
    woken: Cell<bool>,
    done: Cell<bool>,
    waker: RefCell<Waker>,
}

impl Default for Main {
    fn default() -> Main {
        Main { woken: Cell::new(false), done: Cell::new(false), waker: RefCell::new(Waker::noop().clone()) }
    }
}

/// Notes the end of a run, also by a panic.
struct Running<'a>(&'a Cell<bool>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
