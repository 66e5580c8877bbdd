//! Flush: barrier, flush of the devices, commit of the journal, reply. Group commit: flushes that arrive
//! while a commit runs share the next commit.
//!
//! Order, always: take the records, which describe completed writes only; flush the devices; write the
//! records and flush the journal; free the slots that the records freed.
//!
//! A record that a clean cached copy has left its block slot describes no data. A batch of only such records
//! needs no flush but the journal's ([`Durable::record_left`]).

use crate::core::Durable;
use crate::devices::Timed;
use crate::map::Scope;
use crate::planted::{Bug, planted};
use crate::{Error, Result};
use braid_base::{Bytes, ExtentId, Nanos};
use braid_format::journal::Record;
use braid_policy::{Completion, Direction, Origin};
use braid_runtime::{Device, Event, Runtime, join_all};
use std::cell::{Cell, RefCell};

/// A flush also takes changes that no flush promises if no commit has taken such changes for this time. The
/// devices are flushed anyway.
const OLDEST_BESIDE_FLUSH: Nanos = Nanos::from_secs(5);

/// Progress of the commits, for tasks that wait for a commit.
#[derive(Default)]
pub(crate) struct Commits {
    started: Cell<u64>,
    finished: Cell<u64>,
    running: Cell<bool>,
    /// True if the next commit also takes changes that no flush promises.
    takes_all: Cell<bool>,
    /// Start of the last commit that took such changes.
    took_all: Cell<Nanos>,
    /// Error of the next guest flush, which fails once: a loss before this opening.
    owed: RefCell<Option<Error>>,
    /// Reason why no commit can succeed any more. The data lost by a failed flush is unknown, so no later
    /// flush may hide the loss.
    failed: RefCell<Option<Error>>,
    ended: Event,
    /// Number of commits that have ended, failed commits included.
    ends: Cell<u64>,
    /// Reused from commit to commit.
    records: RefCell<Vec<Record>>,
}

impl Commits {
    /// Makes every later flush fail. The first reason stays.
    pub fn fail(&self, error: Error) {
        if planted(Bug::FailedFlushForgotten) {
            return;
        }
        let message = format!(
            "{error}; writes since the last flush may be lost, so no flush can succeed until the device is \
             repaired and the volume is served again"
        );
        self.failed.borrow_mut().get_or_insert(Error::new(error.kind(), message));
        self.ended.notify();
    }

    /// Makes the next guest flush fail with `error`, once.
    pub fn owe(&self, error: Error) {
        self.owed.replace(Some(error));
    }

    /// Waits for the end of a running commit.
    pub async fn wait_for_end(&self) -> Result<()> {
        let before = self.ends.get();
        let over = || self.ends.get() != before || !self.running.get();
        self.ended.wait_for(|| over().then_some(())).await;
        self.failure().map_or(Ok(()), Err)
    }

    /// Returns the start of the last commit that took changes without a promise.
    pub fn took_all(&self) -> Nanos {
        self.took_all.get()
    }

    /// True if no flush can succeed any more. Moves then stop: no device is known to hold the data written to
    /// the device.
    pub fn have_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// Returns the reason why no flush can succeed any more.
    pub fn failure(&self) -> Option<Error> {
        self.failed.borrow().clone()
    }
}

/// Marks the running commit as ended when dropped, however the commit ended.
struct Running<'a>(&'a Commits);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(false);
        self.0.ends.set(self.0.ends.get() + 1);
        self.0.ended.notify();
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Makes every change before this call durable, on behalf of a waiting guest or of background work.
    pub async fn commit(&self, origin: Origin) -> Result<()> {
        self.journal.commits.takes_all.set(true);
        self.commit_promised(origin).await
    }

    /// Flushes for a guest: a flush request, or a write with FUA. The first flush after a loss that no guest
    /// was told of fails.
    pub async fn flush_for_guest(&self) -> Result<()> {
        if let Some(error) = self.journal.commits.owed.take() {
            self.store.state.borrow_mut().settle_log();
            return Err(error);
        }
        self.commit_promised(Origin::Guest).await
    }

    /// Makes every write acknowledged before this call durable: a flush. If only the set of clean cached
    /// copies has changed, a flush writes no batch, or one batch every few seconds.
    pub async fn commit_promised(&self, origin: Origin) -> Result<()> {
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

    /// Makes every later flush fail. No request waits for room in the journal any more.
    pub fn fail(&self, error: Error) {
        if self.journal.commits.failure().is_none() {
            tracing::error!(%error, "the volume can no longer promise durability");
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
        let now = self.rt.now();
        let takes_all = commits.takes_all.take() || now >= commits.took_all.get() + OLDEST_BESIDE_FLUSH;
        let scope = if takes_all { Scope::All } else { Scope::Promised };
        if takes_all {
            commits.took_all.set(now);
        }
        match self.run_own_commit(scope, origin).await {
            Ok(()) => commits.finished.set(number),
            Err(error) => self.fail(error),
        }
        drop(running);
    }

    /// Runs a commit. Checks before and after the commit that no other opening owns the devices.
    async fn run_own_commit(&self, scope: Scope, origin: Origin) -> Result<()> {
        self.confirm_own().await?;
        self.run_commit(scope, origin).await?;
        self.confirm_own().await
    }

    /// Records which clean cached copies have gone, to free their block slots. True if there were any. No
    /// waiting flush is completed by this commit.
    pub async fn record_left(&self) -> Result<bool> {
        let commits = &self.journal.commits;
        while commits.running.get() {
            commits.wait_for_end().await?;
        }
        if let Some(error) = commits.failure() {
            return Err(error);
        }
        commits.running.set(true);
        let running = Running(commits);
        let recorded = self.run_commit(Scope::Left, Origin::Background).await;
        drop(running);
        recorded.inspect_err(|error| self.fail(error.clone()))
    }

    /// Makes changes of the extents before `end` durable. Only for an opening, while nothing else commits.
    pub async fn commit_below(&self, end: ExtentId) -> Result<()> {
        let scope = Scope::Below(end, self.store.shape.block_of(end, Bytes::ZERO));
        let recorded = self.run_commit(scope, Origin::Background).await;
        recorded.map(drop).inspect_err(|error| self.fail(error.clone()))
    }

    /// Commits in as many batches as needed. True if there was anything to record.
    async fn run_commit(&self, scope: Scope, origin: Origin) -> Result<bool> {
        let mut records = self.journal.commits.records.take();
        let mut any = false;
        let result = loop {
            let others_are_left =
                self.store.state.borrow_mut().begin_commit(scope, self.journal.most_pending(), &mut records);
            let result = self.commit_records(&mut records, scope, origin).await;
            any |= !records.is_empty();
            if result.is_err() || !others_are_left {
                break result;
            }
        };
        if result.is_err() {
            self.store.state.borrow_mut().keep_spans();
        }
        self.journal.commits.records.replace(records);
        result.map(|()| any)
    }

    async fn commit_records(&self, records: &mut Vec<Record>, scope: Scope, origin: Origin) -> Result<()> {
        if planted(Bug::RecordBeforeData) && !records.is_empty() {
            drop(self.append(records).await?);
        }
        if scope != Scope::Left {
            self.list_changes(records).await;
        }
        if scope != Scope::Left
            && self.flush_devices(origin).await? == FlushOutcome::DeviceLost
            && !planted(Bug::ClearedThoughLost)
        {
            // The lost device misses later writes, so its copies may differ: no span is cleared.
            records.retain(|record| !matches!(record, Record::Intent(..)));
            let mut state = self.store.state.borrow_mut();
            state.keep_spans();
            state.exchange_recorded(records, |device| self.store.member(device).is_current());
        }
        if records.is_empty() {
            self.store.state.borrow_mut().end_commit(self.journal.newest());
            return Ok(());
        }
        let doubt = |_: &Error| self.store.state.borrow_mut().doubt_spans();
        let permit = self.append(records).await.inspect_err(doubt)?;
        self.journal.note_listed(&self.store, records);
        self.store.state.borrow_mut().end_commit(self.journal.newest());
        drop(permit);
        self.background.borrow_mut().commits += 1;
        self.jobs.wake();
        Ok(())
    }

    /// Flushes every written device. A device that fails is excluded if all its data is elsewhere too;
    /// otherwise the commit fails.
    async fn flush_devices(&self, origin: Origin) -> Result<FlushOutcome> {
        if planted(Bug::FlushSkipped) {
            return Ok(FlushOutcome::DevicesKept);
        }
        let written = self.store.devices.iter().filter(|member| member.is_written());
        let flushes = written.map(async |member| {
            let device = member.id;
            match member.flush(&self.rt).await {
                Ok(Some(Timed { latency })) => {
                    // A guest that asked for the flush waits as for a write: the latency counts.
                    let (direction, len) = (Direction::Flush, Bytes::ZERO);
                    let completion = Completion { device, direction, len, latency, origin };
                    self.policy.borrow_mut().completed(&completion);
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(error) => {
                    let error = Error::io(
                        format_args!("{} could not flush", self.store.member(device).describe()),
                        &error,
                    );
                    // Excluded at once, not after all flushes: other requests would read data that the device
                    // has lost.
                    self.lose(device, error)
                }
            }
        });
        let before = self.store.devices.changes();
        join_all(flushes).await.into_iter().collect::<Result<()>>()?;
        self.record_states().await?;
        // The watchdog may have excluded a device too.
        Ok(if self.store.devices.changes() == before {
            FlushOutcome::DevicesKept
        } else {
            FlushOutcome::DeviceLost
        })
    }
}

/// Outcome of a successful flush of the devices.
#[derive(PartialEq, Eq)]
enum FlushOutcome {
    DevicesKept,
    DeviceLost,
}
