//! Background jobs: their begin, their wakeups, and their end.

use braid_runtime::Event;
use std::cell::Cell;

/// Background jobs of a volume.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Number of running jobs.
    running: Cell<usize>,
    ending: Cell<bool>,
    attention: Event,
}

/// Job with a guest waiting; ends when dropped.
pub(crate) struct Job<'a>(&'a Jobs);

impl Jobs {
    /// Counts a job as running until [`Jobs::end`].
    pub fn begin(&self) {
        self.running.set(self.running.get() + 1);
    }

    /// Begins a job with a guest waiting. `None` if the volume closes.
    pub fn begin_for_guest(&self) -> Option<Job<'_>> {
        (!self.are_ending()).then(|| {
            self.begin();
            Job(self)
        })
    }

    /// Ends a job, and wakes all waiting jobs.
    pub fn end(&self) {
        self.running.set(self.running.get() - 1);
        self.wake();
    }

    /// Wakes waiting jobs: there may be work.
    pub fn wake(&self) {
        self.attention.notify();
    }

    /// Has all jobs end as soon as possible.
    pub fn stop(&self) {
        self.ending.set(true);
        self.wake();
    }

    /// True if the volume closes: jobs end, and no job begins.
    pub fn are_ending(&self) -> bool {
        self.ending.get()
    }

    /// Waits until all jobs have ended.
    pub async fn ended(&self) {
        self.wait_for(|| (self.running.get() == 0).then_some(())).await;
    }

    /// Waits until `ready` returns a value. `ready` is asked at once and at each wakeup.
    pub async fn wait_for<T>(&self, ready: impl FnMut() -> Option<T>) -> T {
        self.attention.wait_for(ready).await
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
