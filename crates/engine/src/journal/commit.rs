//! Flush: barrier, flush the devices, commit the journal, reply. Group commit: flushes that arrive while a commit runs
//! share the next one.
//!
//! Order, once and for all: the records are taken first, so they speak only of data whose writes have completed; then
//! the devices are flushed; then the records are written and flushed; then the slots that they freed are free.

use crate::copies::Timed;
use crate::core::Core;
use crate::planted::{Bug, planted};
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
    /// Commits that have ended, well or not.
    ends: Cell<u64>,
    /// Reused from commit to commit.
    records: RefCell<Vec<Record>>,
}

impl Commits {
    /// From now on no flush succeeds. The first reason stays.
    pub fn fail(&self, error: Error) {
        if planted(Bug::FailedFlushForgotten) {
            return;
        }
        let message = format!(
            "{error}; what was written since the last flush may be lost, so no flush can succeed until the device is \
             repaired and the volume is served again"
        );
        self.failed.borrow_mut().get_or_insert(Error::new(error.kind(), message));
        self.ended.notify();
    }

    /// Waits for the end of a commit that runs.
    pub async fn wait_for_end(&self) -> Result<()> {
        let before = self.ends.get();
        let over = || self.ends.get() != before || !self.running.get();
        self.ended.wait_for(|| over().then_some(())).await;
        self.failure().map_or(Ok(()), Err)
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
        self.0.ends.set(self.0.ends.get() + 1);
        self.0.ended.notify();
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Makes durable whatever was acknowledged before this call, on behalf of a guest who waits, or of nobody.
    pub async fn commit(&self, origin: Origin) -> Result<()> {
        let commits = &self.journal.commits;
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

    /// From now on no flush succeeds, and no request waits for room in the journal.
    pub fn fail(&self, error: Error) {
        if self.journal.commits.failure().is_none() {
            tracing::error!(%error, "the volume can promise nothing any more");
        }
        self.journal.commits.fail(error);
        self.journal.roomier.notify();
        self.jobs.wake();
    }

    async fn lead_commit(&self, origin: Origin) {
        let commits = &self.journal.commits;
        commits.running.set(true);
        commits.started.set(commits.started.get() + 1);
        let number = commits.started.get();
        let running = Running(commits);
        match self.run_commit(origin).await {
            Ok(()) => commits.finished.set(number),
            Err(error) => self.fail(error),
        }
        drop(running);
    }

    async fn run_commit(&self, origin: Origin) -> Result<()> {
        let mut records = self.journal.commits.records.take();
        self.state.borrow_mut().begin_commit(&mut records);
        let result = self.commit_records(&mut records, origin).await;
        if result.is_err() {
            self.state.borrow_mut().keep_spans();
        }
        self.journal.commits.records.replace(records);
        result
    }

    async fn commit_records(&self, records: &mut Vec<Record>, origin: Origin) -> Result<()> {
        if planted(Bug::RecordBeforeData) && !records.is_empty() {
            drop(self.append(records).await?);
        }
        if self.flush_devices(origin).await? == Devices::Lost {
            // What that device lacks from now on is not known to be alike.
            records.retain(|record| !matches!(record, Record::Intent(..)));
            self.state.borrow_mut().keep_spans();
        }
        if records.is_empty() {
            self.state.borrow_mut().end_commit(self.journal.newest());
            return Ok(());
        }
        let doubt = |_: &Error| self.state.borrow_mut().doubt_spans();
        let permit = self.append(records).await.inspect_err(doubt)?;
        self.state.borrow_mut().end_commit(self.journal.newest());
        drop(permit);
        self.background.borrow_mut().commits += 1;
        self.jobs.wake();
        Ok(())
    }

    /// Flushes every device that was written. One that fails is lost if all that it holds is elsewhere, too; else the commit fails.
    async fn flush_devices(&self, origin: Origin) -> Result<Devices> {
        if planted(Bug::FlushSkipped) {
            return Ok(Devices::Kept);
        }
        let written = self.devices.iter().filter(|member| member.is_written());
        let flushes = written.map(async |member| (member.id, member.flush(&self.rt).await));
        let mut devices = Devices::Kept;
        for (device, result) in join_all(flushes).await {
            match result {
                Ok(Some(Timed { latency })) => {
                    // The guest that asked for it waits as for a write: the latency counts.
                    let (direction, len) = (Direction::Flush, Bytes::ZERO);
                    let completion = Completion { device, direction, len, latency, origin };
                    self.policy.borrow_mut().completed(&completion);
                }
                Ok(None) => {}
                Err(error) => {
                    let error = Error::io(format_args!("{} could not flush", self.describe(device)), &error);
                    self.give_up(device, error).await?;
                    devices = Devices::Lost;
                }
            }
        }
        // The watchdog may have given one up that was not flushed here.
        self.record_states().await?;
        Ok(devices)
    }
}

/// Whether a device was lost by a flush.
#[derive(PartialEq, Eq)]
enum Devices {
    Kept,
    Lost,
}
