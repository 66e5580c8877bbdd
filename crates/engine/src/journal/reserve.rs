//! Room in the journal, reserved before a request takes locks: all changes of the request then fit into one
//! commit.

use super::Journal;
use crate::core::{Durable, Store};
use crate::{Error, ErrorKind, Result};
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};

/// The right to add a number of changes. Given back when dropped, once the changes have been added.
#[must_use]
pub(crate) struct Reservation<'a> {
    journal: &'a Journal,
    records: usize,
}

impl Reservation<'_> {
    /// Returns the number of reserved changes.
    pub fn records(&self) -> usize {
        self.records
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.journal.reserved.set(self.journal.reserved.get() - self.records);
        self.journal.settled.notify();
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Waits until one commit has room for `records` more changes, beside pending changes and the
    /// reservations of other requests.
    ///
    /// # Errors
    /// `Invalid` if no commit has room for `records` changes; errors of a commit.
    pub async fn reserve(&self, records: usize) -> Result<Reservation<'_>> {
        let journal = &self.journal;
        let most = journal.most_pending();
        if records > most {
            let text = format!(
                "a request needs {records} records in the journal: the limit is {most}: send shorter requests"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        loop {
            if let Some(reservation) = self.journal.try_reserve(&self.store, records) {
                return Ok(reservation);
            }
            if self.store.state.borrow().pending() > 0 {
                self.commit(Origin::Guest).await?;
            } else {
                let reserved = journal.reserved.get();
                let settled = || (journal.reserved.get() < reserved).then_some(());
                journal.settled.wait_for(settled).await;
            }
        }
    }
}

impl Journal {
    /// As [`Durable::reserve`], without waiting: none if there is no room now.
    pub fn try_reserve<D: Device>(&self, store: &Store<D>, records: usize) -> Option<Reservation<'_>> {
        let journal = self;
        if store.state.borrow().pending() + records > journal.unreserved() {
            return None;
        }
        journal.reserved.set(journal.reserved.get() + records);
        Some(Reservation { journal, records })
    }
}
