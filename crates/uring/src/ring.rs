//! A shard's world: an executor on an io_uring.
//!
//! The loop runs the ready tasks, then enters the kernel once, to submit queued operations and to wait for
//! the next completion or timer. A timed wait in the kernel overshoots by 4 to 20 µs in the median on a
//! virtual machine, more on a busy machine; the thread's timer slack makes no difference. The loop therefore
//! waits until [`SPIN`] before the deadline and polls for completions from there.

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

/// Rounds of ready tasks between two looks at the kernel. Enough for tasks that wake each other to come to
/// rest, so that their operations are submitted together. Few enough that a task that only yields does not
/// hold up the rest.
const ROUNDS: usize = 8;

/// The [`Runtime`] on a real machine. A handle, cheap to clone. Belongs to the thread that made the ring.
///
/// Tasks hold handles, and the ring holds its tasks: call [`Ring::clear`] before dropping your last handle,
/// or the ring lives as long as the process.
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
    /// If the kernel has no io_uring or forbids it; the message names the remedy. Slower operation is no
    /// error: see [`Ring::fallbacks`].
    pub fn new(entries: u32, arena: &Arena) -> io::Result<Ring> {
        let reactor = RefCell::new(Reactor::open(entries, arena)?);
        let executor = Executor::new(Order::Fifo);
        Ok(Ring { inner: Rc::new(Inner { executor, reactor, running: Cell::new(false) }) })
    }

    /// Ok if the arena is registered with the kernel.
    ///
    /// # Errors
    /// The reason of the refusal, with the remedy: commonly the limit of lockable memory. Requests then cost
    /// about a tenth more.
    pub fn registered(&self) -> Result<(), String> {
        self.reactor().registered()
    }

    /// Features that this kernel or its limits refused, each a sentence with the remedy. Empty if the ring
    /// works at its best.
    pub fn fallbacks(&self) -> Vec<String> {
        self.reactor().fallbacks().to_vec()
    }

    /// Runs `future` and all tasks until `future` completes. Tasks then stand still until the next call.
    ///
    /// # Panics
    /// If called inside itself, or if the kernel refuses to work the ring.
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

    /// Runs a task beside the shard's other tasks until the task ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.inner.executor.spawn(task);
    }

    /// Drops every task at once. The kernel may continue their operations until the ring is dropped.
    pub fn clear(&self) {
        self.inner.executor.clear();
    }

    pub(crate) fn reactor(&self) -> RefMut<'_, Reactor> {
        self.inner.reactor.borrow_mut()
    }

    /// Lends the executor's wakers to the main future, which may borrow and so cannot be a task. A proxy task
    /// stands for the main future and notes each wake.
    fn spawn_proxy(&self, main: Rc<Main>) {
        self.spawn(std::future::poll_fn(move |cx| {
            main.waker.borrow_mut().clone_from(cx.waker());
            main.woken.set(true);
            if main.done.get() { Poll::Ready(()) } else { Poll::Pending }
        }));
    }

    /// One turn of the loop: submits, waits for the first completion or timer, and wakes the waiting tasks.
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

/// Polls until a completion arrives or `deadline` has passed.
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
