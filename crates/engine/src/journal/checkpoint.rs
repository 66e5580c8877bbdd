//! The checkpoint: brings the map pages, the table of spans and the cache tables up to date, so that the journal can forget.
//!
//! Both images are written, the second after the first has been flushed: a page torn by a power cut is read from the
//! other image, and the journal forgets only once both are durable. A page shows what is durable, never what waits
//! for a commit, so a checkpoint needs no commit and holds up no flush.

use crate::Result;
use crate::core::Core;
use crate::planted::{Bug, planted};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::superblock::{Region, RegionKind, Superblock};
use braid_format::{intent_page, map_page};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};

/// Pages written between two flushes of a device.
const GROUP: usize = 256;
const PAGE: Bytes = map_page::SIZE;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes all stale pages, and moves the journal's tail up to where it stood when this began.
    pub async fn checkpoint(&self) -> Result<()> {
        let _alone = self.checkpoints.acquire(1).await;
        let done = self.journal.newest();
        let (pages, intents): (Vec<u32>, Vec<u32>) = {
            let mut state = self.state.borrow_mut();
            (state.take_stale_pages().into_iter().collect(), state.take_stale_intents().into_iter().collect())
        };
        if planted(Bug::TailMovedEarly) {
            self.append_checkpoint(done).await?;
        }
        let result = async {
            self.write_pages(RegionKind::Map, &pages).await?;
            self.write_pages(RegionKind::Intents, &intents).await?;
            self.write_cache_tables().await?;
            self.append_checkpoint(done).await
        };
        if let Err(error) = result.await {
            self.state.borrow_mut().put_back(pages, intents);
            return Err(error);
        }
        self.background.borrow_mut().checkpoints += 1;
        Ok(())
    }

    async fn write_pages(&self, kind: RegionKind, pages: &[u32]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let buffer = Arena::new(PAGE * GROUP as u64).alloc(PAGE * GROUP as u64).await;
        let images = images(&self.superblock.borrow(), kind);
        for group in pages.chunks(GROUP) {
            // Encoded once, so that both images get the same.
            match kind {
                RegionKind::Intents => self.encode_intents(group, &buffer),
                _ => self.encode_map(group, &buffer),
            }
            for (device, image) in &images {
                if !self.member(*device).is_written() {
                    continue;
                }
                if let Err(error) = self.write_group(group, &buffer, *device, *image).await {
                    // The image on the other device is enough, if there is one; until this one is back, a power cut may tear it.
                    self.give_up(*device, error).await?;
                }
            }
        }
        Ok(())
    }

    fn encode_map(&self, pages: &[u32], buffer: &Buf) {
        let (state, volume) = (self.state.borrow(), self.superblock.borrow().volume);
        let (copies, sequence) = (self.shape.copies, self.journal.newest());
        let per_page = map_page::extents_per_page(copies);
        for_each_page(pages, buffer, |bytes, page| {
            let extents = page * per_page..((page + 1) * per_page).min(self.shape.extents());
            let entries = extents.map(|e| state.durable_entry(ExtentId(e)));
            map_page::encode(bytes, volume, page, sequence, copies, entries);
        });
    }

    fn encode_intents(&self, pages: &[u32], buffer: &Buf) {
        let (state, volume) = (self.state.borrow(), self.superblock.borrow().volume);
        let sequence = self.journal.newest();
        for_each_page(pages, buffer, |bytes, page| {
            intent_page::encode(bytes, volume, page, sequence, |span| state.behind.durable(span));
        });
    }

    /// Writes a group of pages to one image: neighbours in one piece.
    async fn write_group(&self, pages: &[u32], buffer: &Buf, device: DeviceId, image: Bytes) -> Result<()> {
        let member = self.member(device);
        let mut first = 0;
        while first < pages.len() {
            let run =
                (first..pages.len()).take_while(|&i| pages[i] - pages[first] == (i - first) as u32).count();
            let part = PAGE * first as u64..PAGE * (first + run) as u64;
            let at = image + PAGE * u64::from(pages[first]);
            self.device_write(member, at, &buffer.slice(part), Origin::Background).await?;
            self.background.borrow_mut().map_bytes += PAGE.0 * run as u64;
            first += run;
        }
        self.flush_member(member, "the map").await
    }
}

fn for_each_page(pages: &[u32], buffer: &Buf, mut encode: impl FnMut(&mut [u8], u32)) {
    buffer.with_bytes_mut(|bytes| {
        bytes.chunks_exact_mut(PAGE.as_usize()).zip(pages).for_each(|(bytes, &page)| encode(bytes, page));
    });
}

/// Where the images of the map, or the copies of the table of spans, lie.
pub(crate) fn images(superblock: &Superblock, kind: RegionKind) -> Vec<(DeviceId, Bytes)> {
    let place = |region: &Region| (region.device, region.offset);
    (0..2).filter_map(|copy| superblock.region(kind, copy).map(place)).collect()
}
