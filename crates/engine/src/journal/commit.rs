//! Flush: barrier, flush the devices, commit the journal, reply. Group commit: flushes that arrive while a commit runs
//! share the next one.
//!
//! Order, once and for all: the records are taken first, so they speak only of data whose writes have completed; then
//! the devices are flushed; then the records are written and flushed; then the slots that they freed are free.

use crate::copies::Timed;
use crate::core::Core;
use crate::{Error, Result};
use braid_base::Bytes;
use braid_format::journal::Record;
use braid_policy::{Completion, Direction, Origin};
use braid_runtime::{Device, Event, Runtime, join_all};
use std::cell::{Cell, RefCell};

/// Who waits for which commit.
#[derive(Default)]
pub(crate) struct Commits {
    started: Cell<u64>,
    finished: Cell<u64>,
    running: Cell<bool>,
    /// Why no commit can succeed any more: what a failed flush lost is not known, so no later one may hide it.
    failed: RefCell<Option<Error>>,
    ended: Event,
    /// Reused from commit to commit.
    records: RefCell<Vec<Record>>,
}

impl Commits {
    /// From now on no flush succeeds. The first reason stays.
    pub fn fail(&self, error: Error) {
        let message = format!(
            "{error}; what was written since the last flush may be lost, so no flush can succeed until the device is \
             repaired and the volume is served again"
        );
        self.failed.borrow_mut().get_or_insert(Error::new(error.kind(), message));
        self.ended.notify();
    }

    /// Why the volume can promise nothing any more.
    pub fn failure(&self) -> Option<Error> {
        self.failed.borrow().clone()
    }
}

/// Completes a commit as failed if it is dropped before it ended.
struct Running<'a>(&'a Commits);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(false);
        self.0.ended.notify();
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Makes durable whatever was acknowledged before this call, on behalf of a guest who waits, or of nobody.
    pub async fn commit(&self, origin: Origin) -> Result<()> {
        let commits = &self.commits;
        let wanted = commits.started.get() + 1;
        loop {
            if commits.finished.get() >= wanted {
                return Ok(());
            }
            if let Some(error) = commits.failure() {
                return Err(error);
            }
            if !commits.running.get() {
                self.lead_commit(origin).await;
                continue;
            }
            let over = || !commits.running.get() || commits.finished.get() >= wanted;
            commits.ended.wait_for(|| over().then_some(())).await;
        }
    }

    async fn lead_commit(&self, origin: Origin) {
        let commits = &self.commits;
        commits.running.set(true);
        commits.started.set(commits.started.get() + 1);
        let number = commits.started.get();
        let running = Running(commits);
        match self.run_commit(origin).await {
            Ok(()) => commits.finished.set(number),
            Err(error) => commits.fail(error),
        }
        drop(running);
    }

    async fn run_commit(&self, origin: Origin) -> Result<()> {
        let mut records = self.commits.records.take();
        self.state.borrow_mut().begin_commit(&mut records);
        self.flush_devices(origin).await?;
        // The permit is held until the state knows: a checkpoint must not end in between.
        let permit = if records.is_empty() { None } else { Some(self.append(&records).await?) };
        self.state.borrow_mut().end_commit();
        drop(permit);
        self.commits.records.replace(records);
        self.background.borrow_mut().commits += 1;
        self.attention.notify();
        Ok(())
    }

    async fn flush_devices(&self, origin: Origin) -> Result<()> {
        let flushes = self.members.iter().map(async |member| {
            let result = member.flush(&self.rt).await;
            let describe = |e| Error::io(format_args!("{} could not flush", self.describe(member.id)), &e);
            if let Some(Timed { latency }) = result.map_err(describe)? {
                // A guest who asked for it waits as for a write: a device that is slow to flush is slow.
                let (device, direction, len) = (member.id, Direction::Flush, Bytes::ZERO);
                let completion = Completion { device, direction, len, latency, origin };
                self.policy.borrow_mut().on_complete(&completion);
            }
            Ok(())
        });
        join_all(flushes).await.into_iter().collect()
    }
}
