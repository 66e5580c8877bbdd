//! What the loss of an SSD costs a volume with one copy of everything, beside the homes that lie on it:
//! blocks that only it has as they were written last.
//!
//! Which ones, only the SSD knows. But the superblocks say whether there may be any: durably before the first
//! one is made, and no longer once a shutdown or an opening finds none. So an SSD that was only a cache keeps
//! no volume closed that was shut down. After an unclean stop it may have what counts of the journal, of
//! which there is one with one copy of everything. (For an adopted disk the record knows spans:
//! `adopted/dirty_spans.rs`.)

use super::NEVER;
use crate::core::Core;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::superblock::{DeviceEntry, DeviceState, DirtyBlocks, Phase, RegionKind, Superblock};
use braid_runtime::{Device, Runtime};
use std::ops::Range;

/// The devices that are lacking from now on, or since an opening that was interrupted: what their loss costs
/// has to be told.
pub(crate) fn newly_lost(superblock: &Superblock, lately: &[DeviceId]) -> Vec<DeviceId> {
    let is_lost = |(id, entry): &(DeviceId, &DeviceEntry)| {
        let was_given_up = entry.state == DeviceState::Missing && entry.in_step == NEVER;
        lately.contains(id) || superblock.phase == Phase::Opening && was_given_up
    };
    (0..).map(DeviceId).zip(&superblock.devices).filter(is_lost).map(|(id, _)| id).collect()
}

/// One of the devices that are newly lost that may have had newer bytes than the home; with the range of the
/// volume of which it may: all.
pub(crate) fn older_without(
    superblock: &Superblock,
    lately: &[DeviceId],
    clean: bool,
) -> Option<(DeviceId, Range<Bytes>)> {
    if superblock.copies > 1 || superblock.adopted().is_some() {
        return None;
    }
    let has = |kind, device| superblock.regions.iter().any(|r| r.kind == kind && r.device == device);
    let may_be_dirty = superblock.dirty_blocks != DirtyBlocks::None;
    let had_newer = |&id: &DeviceId| {
        // An opening without the journal that was interrupted left word that there may be dirty blocks.
        let counts = if lately.contains(&id) { !clean } else { may_be_dirty };
        counts && has(RegionKind::Journal, id) || may_be_dirty && has(RegionKind::CacheTable, id)
    };
    newly_lost(superblock, lately)
        .into_iter()
        .find(had_newer)
        .map(|id| (id, Bytes::ZERO..superblock.volume_size))
}

/// Says what may be older than what was flushed, before the superblocks say what is lost: an opening after
/// that does not say so once more.
pub(crate) fn tell_older(superblock: &Superblock, older: &[Range<Bytes>]) {
    if older.is_empty() {
        return;
    }
    let total: Bytes = older.iter().map(|range| range.end - range.start).sum();
    tracing::error!(
        "the SSD of volume '{}' is lost, and with it what was not written back yet: these {} range(s), {total} in all, may be older than \
         what was flushed",
        superblock.name,
        older.len()
    );
    for range in older {
        tracing::error!("  bytes {} to {}", range.start.0, range.end.0);
    }
}

/// Refuses to open without SSDs that were no caches alone: homes lie on them, or may come to under the policy
/// in charge, if that does not keep homes where they are. `lost` is what lies on devices that are not there.
pub(crate) fn refuse_lost_homes(
    superblock: &Superblock,
    without: &[DeviceId],
    lost: &[(DeviceId, ExtentId)],
    keeps_homes: bool,
) -> Result<()> {
    let count = |device: DeviceId| lost.iter().filter(|(of, _)| *of == device).count();
    let is_missed = |device: &&DeviceId| !keeps_homes || count(**device) > 0;
    let Some(&device) = without.iter().find(is_missed) else { return Ok(()) };
    let what = match count(device) {
        0 => "to which its policy may move homes".to_owned(),
        count => format!("on which alone {count} extent(s) lie"),
    };
    let text = format!(
        "volume '{}' lacks {device}, {what}: bring it back, or give up what lies on it (--distrust {device}; braid check lists it; nothing was changed)",
        superblock.name
    );
    Err(Error::new(ErrorKind::Degraded, text))
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Has the superblocks say that blocks may be dirty, before the first one is.
    pub async fn note_dirty_blocks(&self) -> Result<()> {
        if !self.devices.notes_dirty_blocks.get() {
            self.change_superblock(|superblock| superblock.dirty_blocks = DirtyBlocks::Possible).await?;
            self.devices.notes_dirty_blocks.set(true);
        }
        Ok(())
    }

    /// What the superblocks are to say when the volume is shut down.
    pub fn dirty_blocks(&self) -> DirtyBlocks {
        dirty_blocks(self.state.borrow().extras.dirty())
    }
}

/// What they say if so many blocks are dirty.
pub(crate) fn dirty_blocks(dirty: usize) -> DirtyBlocks {
    if dirty == 0 { DirtyBlocks::None } else { DirtyBlocks::Possible }
}
