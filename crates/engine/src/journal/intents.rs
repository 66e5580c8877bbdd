//! Intents: before the first write to a clean span, the journal records that the copies may differ. Group
//! commit: writes that arrive while a batch is being written share the next batch. A batch of intents
//! describes no data, so only the journal is flushed.

use crate::Result;
use crate::core::Durable;
use crate::map::{IntendedWrite, Intent};
use crate::planted::{Bug, planted};
use braid_format::SpanId;
use braid_format::journal::Record;
use braid_policy::Origin;
use braid_runtime::{Device, Permit, Runtime};

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Waits until the journal records that the copies of a span may differ, and begins a write in the span.
    /// In a busy span the cost is one look into a table.
    pub async fn intend(&self, span: SpanId) -> Result<IntendedWrite<'_, R>> {
        self.begin_write(span).await?;
        Ok(IntendedWrite { rt: &self.rt, state: &self.store.state, span })
    }

    /// As [`Durable::intend`], for a write that a copy may miss. The write ends with
    /// [`crate::map::Behind::end_write`].
    pub async fn begin_write(&self, span: SpanId) -> Result<()> {
        loop {
            let intent = self.store.state.borrow_mut().behind.begin_write(span);
            if planted(Bug::IntentTooLate) && intent == Intent::Record {
                self.store.state.borrow_mut().behind.begin_unrecorded(span);
                return Ok(());
            }
            match intent {
                Intent::Begun => return Ok(()),
                Intent::Record => self.record_spans().await?,
                Intent::Wait => self.journal.commits.wait_for_end().await?,
            }
        }
    }

    /// Waits until a stale copy in a span is recorded in the journal, or no longer needs a record.
    pub async fn record_behind(&self, span: SpanId) -> Result<()> {
        while self.store.state.borrow().behind.is_unrecorded(span) {
            self.record_spans().await?;
        }
        Ok(())
    }

    /// Prepares records of stale copies: commits pending exchanges of home and second copy, and writes failed
    /// devices to the superblocks. Only then may the journal record a copy as stale. Otherwise, after a crash
    /// in between, the stale copy would count as current.
    async fn begin_record(&self) -> Result<Permit> {
        loop {
            if self.store.state.borrow_mut().is_exchange_pending() {
                Box::pin(self.commit(Origin::Guest)).await?;
            }
            self.record_states().await?;
            let alone = self.journal.intents.acquire(1).await;
            if !self.store.state.borrow_mut().is_exchange_pending()
                && self.store.devices.are_states_recorded()
            {
                return Ok(alone);
            }
        }
    }

    /// Writes the pending records of spans to the journal. Guests wait for these records.
    pub async fn record_spans(&self) -> Result<()> {
        let _alone = self.begin_record().await?;
        if let Some(error) = self.journal.commits.failure() {
            return Err(error);
        }
        let wanted = self.store.state.borrow_mut().behind.take_wanted();
        if wanted.is_empty() {
            // Another task has recorded the spans, or a running commit must end first.
            return if self.store.state.borrow().behind.has_wanted() {
                self.journal.commits.wait_for_end().await
            } else {
                Ok(())
            };
        }
        for some in wanted.chunks(self.journal.most_pending()) {
            let records: Vec<Record> =
                some.iter().map(|&(span, difference)| Record::Intent(span, difference)).collect();
            let permit = self.append(&records).await?;
            let mut state = self.store.state.borrow_mut();
            state.behind.recorded(some);
            state.mark_intents_stale(some.iter().map(|(span, _)| *span));
            drop((state, permit));
        }
        Ok(())
    }
}
