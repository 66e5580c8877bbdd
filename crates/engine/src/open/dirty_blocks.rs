//! Cost of the loss of an SSD, beside its homes, for a volume with one required copy: dirty blocks.
//!
//! Only the SSD knows its dirty blocks. But the superblocks say whether dirty blocks are possible: durably
//! before the first block becomes dirty, and until a shutdown or an opening finds none. So after a clean
//! shutdown, an SSD that was only a cache does not prevent the opening. After an unclean stop, the SSD may
//! hold the only journal. (For an adopted disk, the record names spans: `journal/dirty_spans.rs`.)

use super::NEVER;
use crate::core::{Durable, Store};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, DeviceId, ExtentId};
use braid_format::superblock::{DeviceEntry, DeviceState, DirtyBlocks, Phase, RegionKind, Superblock};
use braid_runtime::{Device, Runtime};
use std::ops::Range;

/// Devices that are lost from now on, or since an interrupted opening: the cost of their loss must be
/// reported.
fn newly_lost(superblock: &Superblock, lately: &[DeviceId]) -> Vec<DeviceId> {
    let is_lost = |(id, entry): &(DeviceId, &DeviceEntry)| {
        let was_given_up = entry.state == DeviceState::Missing && entry.in_step == NEVER;
        lately.contains(id) || superblock.phase == Phase::Opening && was_given_up
    };
    (0..).map(DeviceId).zip(&superblock.devices).filter(is_lost).map(|(id, _)| id).collect()
}

/// Ranges that may be older than flushed data without newly lost devices, each with a device that may have
/// held the newer bytes. On an adopted disk the ranges `named` on the record, otherwise the whole volume.
pub(crate) fn older_without(
    superblock: &Superblock,
    lately: &[DeviceId],
    clean: bool,
    named: &[Range<Bytes>],
) -> Vec<(DeviceId, Range<Bytes>)> {
    let mut lost = newly_lost(superblock, lately).into_iter();
    if superblock.adopted().is_some() {
        let ssd = lost.find(|id| superblock.devices[id.index()].class == DeviceClass::Ssd);
        return named.iter().filter_map(|range| Some((ssd?, range.clone()))).collect();
    }
    if superblock.copies > 1 {
        return Vec::new();
    }
    let has = |kind, device| superblock.regions.iter().any(|r| r.kind == kind && r.device == device);
    let may_be_dirty = superblock.dirty_blocks != DirtyBlocks::None;
    let had_newer = |&id: &DeviceId| {
        // An interrupted opening without the journal noted that blocks may be dirty.
        let counts = if lately.contains(&id) { !clean } else { may_be_dirty };
        counts && has(RegionKind::Journal, id) || may_be_dirty && has(RegionKind::CacheTable, id)
    };
    lost.filter(had_newer).take(1).map(|id| (id, Bytes::ZERO..superblock.volume_size)).collect()
}

/// Logs the ranges that may be older than flushed data, before the superblocks record the loss: a later
/// opening does not repeat the message.
pub(crate) fn tell_older(superblock: &Superblock, older: &[Range<Bytes>]) {
    if older.is_empty() {
        return;
    }
    let total: Bytes = older.iter().map(|range| range.end - range.start).sum();
    tracing::error!(
        "the SSD of volume '{}' is lost, with all its dirty blocks: these {} range(s), {total} in all, may \
         be older than the last flush",
        superblock.name,
        older.len()
    );
    for range in older {
        tracing::error!("  bytes {} to {}", range.start.0, range.end.0);
    }
}

/// Refuses to open without an SSD that was more than a cache: homes lie there, or its policy may move homes
/// there. `lost` lists the extents on absent devices.
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
        count => format!("with the only copy of {count} extent(s)"),
    };
    let text = format!(
        "volume '{}' lacks {device}, {what}: bring the device back, or discard its data (--distrust \
         {device}; braid check lists it; nothing was changed)",
        superblock.name
    );
    Err(Error::new(ErrorKind::Degraded, text))
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Notes durably in the superblocks that blocks may be dirty, before the first block becomes dirty.
    pub async fn note_dirty_blocks(&self) -> Result<()> {
        if !self.store.devices.notes_dirty_blocks.get() {
            self.change_superblock(|superblock| superblock.dirty_blocks = DirtyBlocks::Possible).await?;
            self.store.devices.notes_dirty_blocks.set(true);
        }
        Ok(())
    }
}

impl<D: Device> Store<D> {
    /// State for the superblocks of a shutdown.
    pub fn dirty_blocks(&self) -> DirtyBlocks {
        dirty_blocks(self.state.borrow().extras.dirty())
    }
}

/// State for the superblocks with this number of dirty blocks.
pub(crate) fn dirty_blocks(dirty: usize) -> DirtyBlocks {
    if dirty == 0 { DirtyBlocks::None } else { DirtyBlocks::Possible }
}
