//! An SSD fails, or does not answer, while the volume serves guests. If no dirty block lies on it, the
//! adopted disk has everything: the volume goes on, with the journal in the record.
//!
//! The disk is flushed before the superblocks say that the SSD has failed: what was written back from there,
//! and not flushed, only the SSD has durably. What the journal said beside that was of its clean extra copies
//! alone, so the one in the record begins with nothing.

use crate::core::Core;
use crate::journal::images;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::SpanId;
use braid_format::superblock::RegionKind;
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Core<R, D> {
    /// Whether a device is a cache before an adopted disk: neither that disk nor the record.
    pub fn is_cache_of_adopted(&self, device: DeviceId) -> bool {
        let superblock = self.devices.superblock();
        let record = superblock.region(RegionKind::DirtySpans, 0).map(|region| region.device);
        superblock.adopted().is_some_and(|disk| disk != device) && record != Some(device)
    }

    /// Whether nothing that counts lies on such a device alone. The journal does not count if the record can
    /// have it, and speaks of no other cache.
    pub fn adopted_survives(&self, device: DeviceId) -> bool {
        let state = self.state.borrow();
        let is_other_cache = |other: DeviceId| other != device && state.tables.has(other);
        let has_other_cache =
            || self.devices.iter().any(|member| is_other_cache(member.id) && member.is_current());
        let journal_can_go = || self.journal_elsewhere(device).is_some() && !has_other_cache();
        state.extras.dirty_on(device) == 0 && (!self.journal.is_on(device) || journal_can_go())
    }

    /// Another place for the journal than this device, on one that is current and has a place for the proof,
    /// too.
    pub fn journal_elsewhere(&self, device: DeviceId) -> Option<(DeviceId, Bytes)> {
        let superblock = self.devices.superblock();
        let is_usable = |other: DeviceId| other != device && self.member(other).is_current();
        let proofs = images(&superblock, RegionKind::Proof);
        let has_proof = |other| proofs.iter().any(|(place, _)| *place == other);
        images(&superblock, RegionKind::Journal)
            .into_iter()
            .find(|&(other, _)| is_usable(other) && has_proof(other))
    }

    /// Where the journal goes on if the SSD before an adopted disk that had it was given up.
    pub fn journal_after_loss(&self) -> Option<(DeviceId, Bytes)> {
        let (1, Some(device)) = (self.shape.copies, self.journal.device()) else { return None };
        match self.is_cache_of_adopted(device) && !self.member(device).is_written() {
            true => self.journal_elsewhere(device),
            false => None,
        }
    }

    /// Has the journal go on in the record, if the SSD that had it was given up. The caller keeps other
    /// batches back.
    pub async fn follow_journal(&self) -> Result<()> {
        let Some(place) = self.journal_after_loss() else { return Ok(()) };
        // Else an opening might count on the SSD, if that comes back.
        self.record_states().await?;
        // The table of spans must say what the lost journal said of them.
        let spans = self.devices.superblock().spans();
        self.state.borrow_mut().mark_intents_stale((0..spans).map(SpanId));
        self.begin_journal(place).await?;
        tracing::warn!(device = %self.describe(place.0), "the journal goes on there");
        Ok(())
    }

    /// Makes durable what was written back to an adopted disk.
    pub(crate) async fn flush_adopted(&self) -> Result<()> {
        let Some(disk) = self.devices.superblock().adopted() else { return Ok(()) };
        let flushed = self.member(disk).flush(&self.rt).await;
        let failed = |e| Error::io(format_args!("{} could not flush", self.describe(disk)), &e);
        flushed.map(drop).map_err(failed)
    }
}
