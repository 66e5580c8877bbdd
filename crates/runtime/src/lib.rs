//! Foundation of a shard, on a real machine and in a simulation: the traits [`Runtime`] and [`Device`],
//! buffers, the executor for both, and the locks of the engine.
//!
//! A shard is one thread. Nothing here is `Send`; there are no atomics on a request's path, no allocation per
//! request in steady state, and no clock: the world above (`uring` or `sim`) supplies time, and completes
//! I/O.

mod arena;
#[cfg(feature = "conformance")]
pub mod conformance;
mod device;
mod event;
mod executor;
mod join;
mod lasting_memory;
mod lock;
mod log_limit;
mod prefetch;
mod ranges;
mod ready;
mod semaphore;
mod signal;
mod tags;
mod timers;

pub use arena::{Arena, Buf};
pub use device::{Device, Geometry};
pub use event::Event;
pub use executor::{Executor, Sleep, yield_now};
pub use join::join_all;
pub use lasting_memory::LastingMemory;
pub use lock::{LockGuard, LockTable, Locking, Mode};
pub use log_limit::LogLimit;
pub use prefetch::prefetch;
pub use ranges::{RangeGuard, RangeTable};
pub use ready::Order;
pub use semaphore::{Permit, Semaphore};
pub use signal::Signal;
pub use tags::Tags;

use braid_base::Nanos;
use std::future::Future;

/// Time and tasks. Cheap to clone: a handle to the world that runs the shard.
pub trait Runtime: Clone + 'static {
    /// The time now: monotonic, from an arbitrary start.
    fn now(&self) -> Nanos;

    /// Time since 1970 by the machine's clock; none if the runtime's time belongs to no calendar.
    fn calendar(&self) -> Option<Nanos> {
        None
    }

    /// Completes at `deadline`, or at once if already passed. Precise to a few microseconds on a real
    /// machine.
    fn sleep_until(&self, deadline: Nanos) -> Sleep;

    /// Runs a task beside the shard's other tasks until the task ends.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// Completes after `duration`.
    fn sleep(&self, duration: Nanos) -> Sleep {
        self.sleep_until(self.now() + duration)
    }
}
