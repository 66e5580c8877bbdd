//! Deferred writes to the second copy whose home fails before the reply.

use super::mirrored::Written;
use crate::Result;
use crate::core::{Extents, Store};
use crate::shape::Piece;
use braid_format::map_page::Entry;
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Prepares a deferred write to the second copy after the home has failed: superblocks name the failed
    /// device first.
    ///
    /// With epochs, the second copy may be written in place only after the home's device has failed. If the
    /// home could not take the write, its device is therefore excluded, provided that all its other data is
    /// elsewhere.
    ///
    /// # Errors
    /// The home's error if epochs are kept and the device holds data alone.
    pub(super) async fn leave_home(
        &self,
        entry: &Entry,
        results: &[Written],
        keeps_epochs: bool,
    ) -> Result<()> {
        let home = self.store.locate(entry.home).0;
        match results.iter().find_map(|written| written.result.as_ref().err()) {
            Some(error) if keeps_epochs && home.is_current() => match self.durable.survives(home.id) {
                true => self.durable.give_up(home.id, error.clone()).await,
                false => Err(error.clone()),
            },
            _ => self.durable.record_states().await,
        }
    }
}

impl<D: Device> Store<D> {
    /// True if a deferred write must reach the second copy before the reply.
    ///
    /// Condition: the home no longer serves the extent or could not take the write, and the second copy lacks
    /// no acknowledged write outside of the piece. Readers of the piece wait until the write ends, so no
    /// guest sees older bytes on the second copy after newer bytes from the home.
    pub(super) fn is_second_needed(&self, piece: &Piece, entry: &Entry, results: &[Written]) -> bool {
        let state = self.state.borrow();
        // The home's device failed while all its data was elsewhere, or a concurrent write exchanged the
        // copies.
        let has_left =
            !self.locate(entry.home).0.is_current() || state.map.get(piece.extent).home == entry.second;
        let has_failed = results.iter().any(|written| written.result.is_err());
        self.locate(entry.second).0.is_current()
            && (has_left || has_failed && !self.lacks_flushed_beside(piece.extent, &piece.range))
    }
}
