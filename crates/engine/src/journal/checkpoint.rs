//! The checkpoint: brings the map pages up to date, so that the journal can forget.
//!
//! Both images are written, the second after the first has been flushed: a page torn by a power cut is read from the
//! other image, and the journal forgets only once both are durable. A page shows what is durable, never what waits
//! for a commit, so a checkpoint needs no commit and holds up no flush.

use crate::core::Core;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::map_page;
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};

/// Pages written between two flushes of a device.
const GROUP: usize = 256;

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes all stale map pages, and moves the journal's tail up to where it stood when this began.
    pub async fn checkpoint(&self) -> Result<()> {
        let _alone = self.checkpoints.acquire(1).await;
        let done = self.journal.newest();
        let pages: Vec<u32> = self.state.borrow_mut().take_stale_pages().into_iter().collect();
        let result = self.write_pages(&pages).await;
        if let Err(error) = result {
            self.state.borrow_mut().put_back(pages);
            return Err(error);
        }
        self.append_checkpoint(done).await?;
        self.background.borrow_mut().checkpoints += 1;
        Ok(())
    }

    async fn write_pages(&self, pages: &[u32]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let buffer = Arena::new(map_page::SIZE * GROUP as u64).alloc(map_page::SIZE * GROUP as u64).await;
        let images = map_images(&self.superblock.borrow());
        for group in pages.chunks(GROUP) {
            // Encoded once, so that both images get the same.
            self.encode_pages(group, &buffer);
            for (device, image) in images {
                self.write_group(group, &buffer, device, image).await?;
            }
        }
        Ok(())
    }

    fn encode_pages(&self, pages: &[u32], buffer: &Buf) {
        let (state, volume) = (self.state.borrow(), self.superblock.borrow().volume);
        let (copies, sequence) = (self.shape.copies, self.journal.newest());
        let per_page = map_page::extents_per_page(copies);
        buffer.with_bytes_mut(|bytes| {
            for (bytes, &page) in bytes.chunks_exact_mut(map_page::SIZE.as_usize()).zip(pages) {
                let extents = page * per_page..((page + 1) * per_page).min(self.shape.extents());
                let entries = extents.map(|e| state.durable_entry(ExtentId(e)));
                map_page::encode(bytes, volume, page, sequence, copies, entries);
            }
        });
    }

    /// Writes a group of pages to one image: neighbours in one piece.
    async fn write_group(&self, pages: &[u32], buffer: &Buf, device: DeviceId, image: Bytes) -> Result<()> {
        let member = &self.members[device.index()];
        let mut first = 0;
        while first < pages.len() {
            let run =
                (first..pages.len()).take_while(|&i| pages[i] - pages[first] == (i - first) as u32).count();
            let part = map_page::SIZE * first as u64..map_page::SIZE * (first + run) as u64;
            let at = image + map_page::SIZE * u64::from(pages[first]);
            self.device_write(member, at, &buffer.slice(part), Origin::Background).await?;
            self.background.borrow_mut().map_bytes += map_page::SIZE.0 * run as u64;
            first += run;
        }
        let flushed = member.flush(&self.rt).await;
        flushed
            .map_err(|e| Error::io(format_args!("{} could not flush the map", self.describe(device)), &e))?;
        Ok(())
    }
}

/// Where the two map images lie.
pub(crate) fn map_images(superblock: &braid_format::superblock::Superblock) -> [(DeviceId, Bytes); 2] {
    [(superblock.metadata_device, 0), (superblock.second_metadata_device, 1)].map(|(device, image)| {
        let offset = superblock.devices[device.index()].map[image];
        (device, offset.expect("a superblock that was verified names its map images"))
    })
}
