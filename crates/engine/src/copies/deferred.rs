//! A write that the second copy was to have later, and whose home cannot take it.

use crate::Result;
use crate::core::Core;
use braid_base::{Bytes, ExtentId};
use braid_format::SlotNumber;
use braid_format::map_page::Entry;
use braid_runtime::{Device, Runtime};
use std::ops::Range;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Whether the second copy must have a deferred write before it is acknowledged: the home does not serve
    /// the extent any more, or could not take the write, and the second copy lacks nothing that a guest was
    /// told of. Readers of the range wait until the write ends, so none of them meets the second copy before
    /// it has what another one may have read from the home.
    pub(super) fn is_second_needed(
        &self,
        (extent, range): (ExtentId, &Range<Bytes>),
        entry: &Entry,
        results: &[(SlotNumber, Result<()>)],
    ) -> bool {
        let state = self.state.borrow();
        // Given up as a device without which nothing is lost, or exchanged by a write beside this one.
        let has_left = !self.locate(entry.home).0.is_current() || state.map.get(extent).home == entry.second;
        let has_failed = results.iter().any(|(_, result)| result.is_err());
        self.locate(entry.second).0.is_current()
            && (has_left || has_failed && !self.lacks_flushed_beside(extent, range))
    }

    /// Before a deferred write goes to the second copy: if the home was given up, the superblocks say so
    /// first. By epochs the second copy is written in its place only then, so a home that could not take the
    /// write is given up, if all else on its device is elsewhere, too.
    pub(super) async fn leave_home(
        &self,
        entry: &Entry,
        results: &[(SlotNumber, Result<()>)],
        keeps_epochs: bool,
    ) -> Result<()> {
        let home = self.locate(entry.home).0;
        match results.iter().find_map(|(_, result)| result.as_ref().err()) {
            Some(error) if keeps_epochs && home.is_current() => match self.survives(home.id) {
                true => self.give_up(home.id, error.clone()).await,
                false => Err(error.clone()),
            },
            _ => self.record_states().await,
        }
    }
}
