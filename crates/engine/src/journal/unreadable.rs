//! Unreadable places of journals and proofs, after a repair or a recovery has excluded their contents.
//!
//! An unreadable place counts as a batch that may have been promised last, at each opening until the ring has
//! gone round. Every opening until then would need another repair.

use crate::buffer::buffer;
use crate::core::Durable;
use crate::devices::{Deadline, Member};
use braid_base::Bytes;
use braid_format::journal::{LARGEST_BATCH, PAGE};
use braid_format::superblock::{Region, RegionKind};
use braid_runtime::{Device, Runtime};
use std::io;
use std::ops::Range;

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Writes zeros, durably, to all unreadable pages of journals and proofs. Pages of batches in use stay:
    /// these batches are newer, and there may be no other copy.
    ///
    /// The caller has made the map pages durable, and nothing writes batches meanwhile: a batch written since
    /// then can be read. If a device cannot write the zeros, a warning is logged: the next opening needs a
    /// repair again.
    pub async fn write_unreadable(&self) {
        let regions = self.store.devices.superblock().regions.clone();
        let is_one = |region: &&Region| matches!(region.kind, RegionKind::Journal | RegionKind::Proof);
        for region in regions.iter().filter(is_one) {
            let member = self.store.member(region.device);
            if !member.is_current() {
                continue;
            }
            let live = match region.kind {
                RegionKind::Journal => self.journal.live_places(),
                _ => Vec::new(),
            };
            if let Err(error) = write_unreadable(&self.rt, member, region, &live).await {
                tracing::warn!(
                    "an unreadable place of {} cannot be written either ({error}): replace the device, or \
                     the next opening needs another repair",
                    self.store.member(region.device).describe()
                );
            }
        }
    }
}

async fn write_unreadable<R: Runtime, D: Device>(
    rt: &R,
    member: &Member<D>,
    region: &Region,
    live: &[Range<Bytes>],
) -> io::Result<()> {
    let (window, zeros) = (buffer(LARGEST_BATCH).await, buffer(PAGE).await);
    zeros.fill_zero();
    let (end, mut at, mut written) = (region.offset + region.len, region.offset, false);
    while at < end {
        let piece = window.slice(Bytes::ZERO..window.len().min(end - at));
        if member.read(at, &piece, Deadline::Only).await.is_err() {
            let is_live = |page: &Bytes| live.iter().any(|batch| batch.contains(&(*page - region.offset)));
            for page in (0..piece.len() / PAGE).map(|i| at + PAGE * i).filter(|page| !is_live(page)) {
                if member.read(page, &piece.slice(Bytes::ZERO..PAGE), Deadline::Only).await.is_err() {
                    let result = member.write(page, &zeros, Deadline::Only).await;
                    member.note_write();
                    result?;
                    written = true;
                }
            }
        }
        at += piece.len();
    }
    if written {
        member.flush(rt).await?;
    }
    Ok(())
}
