//! What of the journals and their proofs cannot be read once a repair or a recovery has given it up.
//!
//! It counted as what may have been promised last, and would do so at each opening until the ring has gone
//! round: each would need another repair.

use crate::copies::{Deadline, Member};
use crate::core::Core;
use crate::create::buffer;
use braid_base::Bytes;
use braid_format::journal::{LARGEST_BATCH, PAGE};
use braid_format::superblock::{Region, RegionKind};
use braid_runtime::{Device, Runtime};
use std::io;
use std::ops::Range;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes zeros to all pages of journals and proofs that cannot be read, durably, but for batches that
    /// are in use: they were written since, and another copy of them may not be there. The caller has made
    /// the map's pages durable, and nobody writes batches meanwhile: one that was written since can be read.
    /// A device that cannot write them is told of: the next opening has to give them up again.
    pub async fn write_unreadable(&self) {
        let regions = self.devices.superblock().regions.clone();
        let is_one = |region: &&Region| matches!(region.kind, RegionKind::Journal | RegionKind::Proof);
        for region in regions.iter().filter(is_one) {
            let member = self.member(region.device);
            if !member.is_current() {
                continue;
            }
            let live = match region.kind {
                RegionKind::Journal => self.journal.live_places(),
                _ => Vec::new(),
            };
            if let Err(error) = write_unreadable(&self.rt, member, region, &live).await {
                tracing::warn!(
                    "a place of {} that cannot be read cannot be written either ({error}): replace the device, or the next opening needs a repair again",
                    self.describe(region.device)
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
