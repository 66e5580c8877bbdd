//! Failure of an SSD while the volume serves guests. If the SSD holds no dirty block, the adopted disk has
//! all data: the volume continues, with the journal in the record.
//!
//! The disk is flushed before the superblocks mark the SSD as failed: unflushed write-backs are durable on
//! the SSD alone. Everything else in the journal describes clean cached copies of the SSD. The journal in the
//! record therefore begins empty.

use crate::core::Durable;
use crate::devices::{Devices, Member};
use crate::journal::images;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::SpanId;
use braid_format::superblock::RegionKind;
use braid_runtime::{Device, Runtime};

impl<D: Device> Devices<D> {
    /// True if a device is a cache before an adopted disk: neither the disk nor the record.
    pub fn is_cache_of_adopted(&self, device: DeviceId) -> bool {
        let superblock = self.superblock();
        let record = superblock.region(RegionKind::DirtySpans, 0).map(|region| region.device);
        superblock.adopted().is_some_and(|disk| disk != device) && record != Some(device)
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Continues the journal in the record, if the SSD with the journal has failed. The caller keeps other
    /// batches back.
    pub async fn follow_journal(&self) -> Result<()> {
        let Some(place) = self.journal_after_loss() else { return Ok(()) };
        // Otherwise an opening might trust the SSD after its return.
        self.record_states().await?;
        // The intent pages must contain the lost journal's records of spans.
        let spans = self.store.devices.superblock().spans();
        self.store.state.borrow_mut().mark_intents_stale((0..spans).map(SpanId));
        self.begin_journal(place).await?;
        tracing::warn!(device = %self.store.member(place.0).describe(), "the journal continues on this device");
        Ok(())
    }

    /// Makes written-back data durable on an adopted disk.
    pub(crate) async fn flush_adopted(&self) -> Result<()> {
        let Some(disk) = self.store.devices.superblock().adopted() else { return Ok(()) };
        let flushed = self.store.member(disk).flush(&self.rt).await;
        let failed =
            |e| Error::io(format_args!("{} could not flush", self.store.member(disk).describe()), &e);
        flushed.map(drop).map_err(failed)
    }

    /// True if no needed data lies on such a device alone. A journal on the device is not needed if the
    /// record can take over, and if the journal describes no other cache.
    pub fn adopted_survives(&self, device: DeviceId) -> bool {
        let can_go = self.store.devices.journal_elsewhere(device).is_some() && !self.describes_other(device);
        let has_dirty = self.store.state.borrow().extras.dirty_on(device) > 0;
        !has_dirty && (!self.journal.is_on(device) || can_go)
    }

    /// Bytes of the volume in named spans, if an SSD holds the journal and the journal describes another
    /// cache: without the journal, dirty blocks of that cache may be older than flushed data.
    pub fn named_without(&self, device: DeviceId) -> Bytes {
        let is_needed = self.store.devices.is_cache_of_adopted(device) && self.describes_other(device);
        let spans = self.dirty_spans.as_ref().filter(|_| is_needed);
        let ranges = spans.map(|spans| spans.ranges(&self.store.shape)).unwrap_or_default();
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// True if the journal is on a device and another current device has a cache.
    fn describes_other(&self, device: DeviceId) -> bool {
        let state = self.store.state.borrow();
        let is_other = |member: &Member<D>| member.id != device && state.tables.has(member.id);
        self.journal.is_on(device)
            && self.store.devices.iter().any(|member| is_other(member) && member.is_current())
    }

    /// Returns the location for the journal if the SSD with the journal, before an adopted disk, has failed.
    pub fn journal_after_loss(&self) -> Option<(DeviceId, Bytes)> {
        let (1, Some(device)) = (self.store.shape.copies, self.journal.device()) else { return None };
        match self.store.devices.is_cache_of_adopted(device) && !self.store.member(device).is_written() {
            true => self.store.devices.journal_elsewhere(device),
            false => None,
        }
    }
}

impl<D: Device> Devices<D> {
    /// Returns another location for the journal, on a current device that also has a place for the proof.
    pub fn journal_elsewhere(&self, device: DeviceId) -> Option<(DeviceId, Bytes)> {
        let superblock = self.superblock();
        let is_usable = |other: DeviceId| other != device && self[other].is_current();
        let proofs = images(&superblock, RegionKind::Proof);
        let has_proof = |other| proofs.iter().any(|(place, _)| *place == other);
        images(&superblock, RegionKind::Journal)
            .into_iter()
            .find(|&(other, _)| is_usable(other) && has_proof(other))
    }
}
