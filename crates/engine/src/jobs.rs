//! Background jobs: how they begin, how they wake, and how they end.

use braid_runtime::Event;
use std::cell::Cell;

/// The background jobs of a volume.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Those that have not ended.
    running: Cell<usize>,
    ending: Cell<bool>,
    attention: Event,
}

/// A job that a guest waits for, until it is dropped.
pub(crate) struct Job<'a>(&'a Jobs);

impl Jobs {
    /// One more runs, until [`Jobs::end`].
    pub fn begin(&self) {
        self.running.set(self.running.get() + 1);
    }

    /// One that a guest waits for. `None` if the volume closes.
    pub fn begin_for_guest(&self) -> Option<Job<'_>> {
        (!self.are_ending()).then(|| {
            self.begin();
            Job(self)
        })
    }

    /// One has ended.
    pub fn end(&self) {
        self.running.set(self.running.get() - 1);
        self.wake();
    }

    /// There may be something to do.
    pub fn wake(&self) {
        self.attention.notify();
    }

    /// From now on all end as soon as they can.
    pub fn stop(&self) {
        self.ending.set(true);
        self.wake();
    }

    /// Whether the volume closes: jobs end, and none begins.
    pub fn are_ending(&self) -> bool {
        self.ending.get()
    }

    /// Waits until all have ended.
    pub async fn ended(&self) {
        self.wait_for(|| (self.running.get() == 0).then_some(())).await;
    }

    /// Waits until `ready` gives something: asked now, and whenever jobs are woken.
    pub async fn wait_for<T>(&self, ready: impl FnMut() -> Option<T>) -> T {
        self.attention.wait_for(ready).await
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
