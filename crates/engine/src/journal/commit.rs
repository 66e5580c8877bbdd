//! Flush: barrier, flush the devices, commit the journal, reply. Group commit: flushes that arrive while a
//! commit runs share the next one.
//!
//! Order, once and for all: the records are taken first, so they speak only of data whose writes have
//! completed; then the devices are flushed; then the records are written and flushed; then the slots that
//! they freed are free.
//!
//! That a clean extra copy has gone speaks of no data: a batch of such records needs no flush but the
//! journal's ([`Core::record_left`]).

use crate::copies::Timed;
use crate::core::Core;
use crate::map::Scope;
use crate::planted::{Bug, planted};
use crate::{Error, Result};
use braid_base::{Bytes, ExtentId, Nanos};
use braid_format::journal::Record;
use braid_policy::{Completion, Direction, Origin};
use braid_runtime::{Device, Event, Runtime, join_all};
use std::cell::{Cell, RefCell};

/// A flush takes what it does not promise, too, if no commit has for so long: the devices are flushed for it
/// anyway.
const OLDEST_BESIDE_FLUSH: Nanos = Nanos::from_secs(5);

/// Which tasks wait for which commit.
#[derive(Default)]
pub(crate) struct Commits {
    started: Cell<u64>,
    finished: Cell<u64>,
    running: Cell<bool>,
    /// The next commit takes what no flush promises, too.
    takes_all: Cell<bool>,
    /// When one did.
    took_all: Cell<Nanos>,
    /// What a guest's next flush is to fail with, once: a loss before this opening.
    owed: RefCell<Option<Error>>,
    /// Why no commit can succeed any more: what a failed flush lost is not known, so no later one may hide
    /// it.
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

    /// A guest's next flush fails with this, once.
    pub fn owe(&self, error: Error) {
        self.owed.replace(Some(error));
    }

    /// Waits for the end of a commit that runs.
    pub async fn wait_for_end(&self) -> Result<()> {
        let before = self.ends.get();
        let over = || self.ends.get() != before || !self.running.get();
        self.ended.wait_for(|| over().then_some(())).await;
        self.failure().map_or(Ok(()), Err)
    }

    /// When a commit took what no flush promises.
    pub fn took_all(&self) -> Nanos {
        self.took_all.get()
    }

    /// Whether the volume can promise nothing any more. Then nothing moves: no device is known to hold what
    /// it was given.
    pub fn have_failed(&self) -> bool {
        self.failed.borrow().is_some()
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
    /// Makes durable whatever has changed before this call, on behalf of a waiting guest, or of none.
    pub async fn commit(&self, origin: Origin) -> Result<()> {
        self.journal.commits.takes_all.set(true);
        self.commit_promised(origin).await
    }

    /// A guest's flush, or what it wrote with FUA. The first one after a loss that no guest was told of
    /// fails.
    pub async fn flush_for_guest(&self) -> Result<()> {
        if let Some(error) = self.journal.commits.owed.take() {
            self.state.borrow_mut().settle_log();
            return Err(error);
        }
        self.commit_promised(Origin::Guest).await
    }

    /// Makes durable whatever was acknowledged before this call: a flush. If nothing has changed but which
    /// clean extra copies there are, that costs no batch, or one every few seconds.
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

    /// A commit of a volume that nobody else has opened, before it and when it is done.
    async fn run_own_commit(&self, scope: Scope, origin: Origin) -> Result<()> {
        self.confirm_own().await?;
        self.run_commit(scope, origin).await?;
        self.confirm_own().await
    }

    /// Records which clean extra copies have gone, so that their block slots are free. Whether there were
    /// any. Nobody's flush ends by it.
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

    /// Makes changes of the extents before `end` durable: while the volume opens, and nothing else commits.
    pub async fn commit_below(&self, end: ExtentId) -> Result<()> {
        let scope = Scope::Below(end, self.shape.block_of(end, Bytes::ZERO));
        let recorded = self.run_commit(scope, Origin::Background).await;
        recorded.map(drop).inspect_err(|error| self.fail(error.clone()))
    }

    /// In as many batches as it takes. Whether it had anything to record.
    async fn run_commit(&self, scope: Scope, origin: Origin) -> Result<bool> {
        let mut records = self.journal.commits.records.take();
        let mut any = false;
        let result = loop {
            let others_are_left =
                self.state.borrow_mut().begin_commit(scope, self.journal.most_pending(), &mut records);
            let result = self.commit_records(&mut records, scope, origin).await;
            any |= !records.is_empty();
            if result.is_err() || !others_are_left {
                break result;
            }
        };
        if result.is_err() {
            self.state.borrow_mut().keep_spans();
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
            && self.flush_devices(origin).await? == Devices::Lost
            && !planted(Bug::ClearedThoughLost)
        {
            // What that device lacks from now on is not known to be alike.
            records.retain(|record| !matches!(record, Record::Intent(..)));
            let mut state = self.state.borrow_mut();
            state.keep_spans();
            state.exchange_recorded(records, |device| self.member(device).is_current());
        }
        if records.is_empty() {
            self.state.borrow_mut().end_commit(self.journal.newest());
            return Ok(());
        }
        let doubt = |_: &Error| self.state.borrow_mut().doubt_spans();
        let permit = self.append(records).await.inspect_err(doubt)?;
        self.end_listing(records);
        self.state.borrow_mut().end_commit(self.journal.newest());
        drop(permit);
        self.background.borrow_mut().commits += 1;
        self.jobs.wake();
        Ok(())
    }

    /// Flushes every device that was written. One that fails is lost if all that it holds is elsewhere, too;
    /// else the commit fails.
    async fn flush_devices(&self, origin: Origin) -> Result<Devices> {
        if planted(Bug::FlushSkipped) {
            return Ok(Devices::Kept);
        }
        let written = self.devices.iter().filter(|member| member.is_written());
        let flushes = written.map(async |member| {
            let device = member.id;
            match member.flush(&self.rt).await {
                Ok(Some(Timed { latency })) => {
                    // The guest that asked for it waits as for a write: the latency counts.
                    let (direction, len) = (Direction::Flush, Bytes::ZERO);
                    let completion = Completion { device, direction, len, latency, origin };
                    self.policy.borrow_mut().completed(&completion);
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(error) => {
                    let error = Error::io(format_args!("{} could not flush", self.describe(device)), &error);
                    // At once, and not when all have been flushed: others would read what it has lost.
                    self.lose(device, error)
                }
            }
        });
        let before = self.devices.changes();
        join_all(flushes).await.into_iter().collect::<Result<()>>()?;
        self.record_states().await?;
        // The watchdog may have given one up, too.
        Ok(if self.devices.changes() == before { Devices::Kept } else { Devices::Lost })
    }
}

/// Whether a device was lost by a flush.
#[derive(PartialEq, Eq)]
enum Devices {
    Kept,
    Lost,
}
