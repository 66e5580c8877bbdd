//! Cache tables in a checkpoint: entries of cached copies, so that the journal can forget their records.
//!
//! Both images of a table lie on the device whose block slots the table describes. The images are written in
//! turn, with a flush after each. A page torn by a power cut is read from the other image, and the journal
//! forgets only once both images are durable. The directory is written after the pages of entries, in the
//! same way: the directory never names an unwritten page.
//!
//! An image that cannot be written becomes void ([`Durable::spare_region`]). Pages of the remaining image
//! then go to a double-write area first. In the area, a page is sealed with the UUID of the device, not of
//! the volume: two devices have pages of the same number.

use crate::buffer::buffer;
use crate::core::{Durable, Store};
use crate::journal::Journal;
use crate::map::CachePage;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::extra_directory::{self, Content};
use braid_format::layout;
use braid_format::superblock::{Region, RegionKind, Superblock};
use braid_format::{Uuid, extra_page};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};

/// Number of pages that are written between two flushes of a device.
const GROUP: usize = 256;
const PAGE: Bytes = extra_page::SIZE;

/// Returns the places of the images of a device's cache table; none if the device may hold no cached copies.
pub(crate) fn cache_images(superblock: &Superblock, device: DeviceId) -> Vec<(DeviceId, Bytes)> {
    let mut images: Vec<_> = superblock
        .regions
        .iter()
        .filter(|region| region.kind == RegionKind::CacheTable && region.device == device && !region.void)
        .map(|region| (region.copy, region.offset))
        .collect();
    images.sort_unstable();
    images.into_iter().map(|(_, offset)| (device, offset)).collect()
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Writes all stale pages of the cache tables. If writing fails, the pages stay stale.
    pub async fn write_cache_tables(&self) -> Result<()> {
        if planted(Bug::CacheTableNotWritten) {
            return Ok(());
        }
        let pages = self.store.state.borrow_mut().tables.take_stale();
        if let Err(error) = self.write_stale(&pages, Journal::encode_entries).await {
            self.store.state.borrow_mut().tables.put_back(pages, []);
            return Err(error);
        }
        let directories = self.store.state.borrow_mut().tables.take_stale_directories();
        if let Err(error) = self.write_stale(&directories, Journal::encode_directories).await {
            self.store.state.borrow_mut().tables.put_back([], directories);
            return Err(error);
        }
        Ok(())
    }

    /// Writes pages, in their order, to the images of each device's table. `encode` fills a group of pages,
    /// sealed with a UUID, and returns the page number in the image at which pages of that kind begin.
    async fn write_stale(
        &self,
        pages: &[CachePage],
        encode: impl Fn(&Journal, &Store<D>, &[CachePage], &Buf, Uuid) -> u32,
    ) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let (buffer, for_area) = (buffer(PAGE * GROUP as u64).await, buffer(PAGE * GROUP as u64).await);
        let volume = self.store.devices.superblock().volume;
        for of_device in pages.chunk_by(|one, next| one.device == next.device) {
            let device = of_device[0].device;
            let seal = self.store.member(device).entry.uuid;
            for group in of_device.chunks(self.store.devices.most_in_area().min(GROUP)) {
                loop {
                    let images = cache_images(&self.store.devices.superblock(), device);
                    if images.len() == 1 {
                        encode(&self.journal, &self.store, group, &for_area, seal);
                        self.write_to_areas(device, group.len(), &for_area).await?;
                    }
                    // Encoded once: both images get the same bytes.
                    let first = PAGE * u64::from(encode(&self.journal, &self.store, group, &buffer, volume));
                    if self.write_images(device, group, first, &images, &buffer).await? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes pages of a table with a single image to the double-write areas.
    async fn write_to_areas(&self, device: DeviceId, pages: usize, buffer: &Buf) -> Result<()> {
        if planted(Bug::PageWrittenOnce) {
            return Ok(());
        }
        let (places, areas): (Vec<u32>, _) =
            ((0..pages as u32).collect(), self.store.devices.places(RegionKind::DoubleWrite));
        match self.write_copies(RegionKind::DoubleWrite, &places, buffer, &areas).await? {
            true => Ok(()),
            false => {
                let text = format!("no double-write area holds the pages of the cache table of {device}");
                Err(Error::new(ErrorKind::Io, text))
            }
        }
    }

    /// Writes a group of pages to every image of a device's table. False if an image was excluded: the group
    /// must then be written to the other images again.
    async fn write_images(
        &self,
        device: DeviceId,
        group: &[CachePage],
        first: Bytes,
        images: &[(DeviceId, Bytes)],
        buffer: &Buf,
    ) -> Result<bool> {
        let beside = self.store.devices.beside.borrow().clone();
        let is_here = |region: &&Region| region.kind == RegionKind::CacheTable && region.device == device;
        let beside = beside.iter().filter(is_here).map(|region| (device, region.offset));
        for (_, image) in images.iter().copied().chain(beside) {
            // The device has failed. If the device returns, its table does not count.
            if !self.store.member(device).is_written() {
                break;
            }
            if let Err(error) = self.write_runs(group, buffer, device, image + first).await {
                self.spare_region(RegionKind::CacheTable, device, image, error).await?;
                return Ok(false);
            }
            if let Err(error) = self.flush_member(self.store.member(device), "the cache table").await {
                self.give_up(device, error).await?;
            }
        }
        Ok(true)
    }

    /// Writes a group of pages to one image, adjacent pages in one request. Does not flush.
    async fn write_runs(
        &self,
        pages: &[CachePage],
        buffer: &Buf,
        device: DeviceId,
        first: Bytes,
    ) -> Result<()> {
        let member = self.store.member(device);
        let mut done = 0;
        for run in pages.chunk_by(|one, next| one.page + 1 == next.page) {
            let part = PAGE * done..PAGE * (done + run.len() as u64);
            let at = first + PAGE * u64::from(run[0].page);
            let part = buffer.slice(part);
            if self.device_write(member, at, &part, Origin::Background).await.is_err() {
                // Retried once before the image becomes void.
                self.device_write(member, at, &part, Origin::Background).await?;
            }
            self.background.borrow_mut().map_bytes += PAGE.0 * run.len() as u64;
            done += run.len() as u64;
        }
        Ok(())
    }
}

impl Journal {
    fn encode_entries<D: Device>(
        &self,
        store: &Store<D>,
        pages: &[CachePage],
        buffer: &Buf,
        seal: Uuid,
    ) -> u32 {
        let mut state = store.state.borrow_mut();
        let (device, sequence) = (pages[0].device, self.newest());
        let first = state.tables.directory_pages(device);
        let mut contents = Vec::with_capacity(pages.len());
        buffer.with_bytes_mut(|bytes| {
            state.encode_cache_pages(pages, |i, page, entries| {
                let bytes = &mut bytes[i * PAGE.as_usize()..][..PAGE.as_usize()];
                extra_page::encode(bytes, seal, first + page.page, sequence, entries.iter().copied());
                let any_dirty = entries.iter().flatten().any(|entry| entry.dirty);
                contents.push(if any_dirty { Content::Dirty } else { Content::Clean });
            });
        });
        for (&page, content) in pages.iter().zip(contents) {
            if state.tables.set_content(page, content) {
                state.tables.mark_directory_stale(page);
            }
        }
        first
    }

    fn encode_directories<D: Device>(
        &self,
        store: &Store<D>,
        pages: &[CachePage],
        buffer: &Buf,
        seal: Uuid,
    ) -> u32 {
        let state = store.state.borrow();
        let sequence = self.newest();
        buffer.with_bytes_mut(|bytes| {
            for (bytes, &CachePage { device, page }) in bytes.chunks_exact_mut(PAGE.as_usize()).zip(pages) {
                let content = |page| state.tables.content(CachePage { device, page });
                extra_directory::encode(bytes, seal, page, sequence, content);
            }
        });
        0
    }
}

/// Writes an empty directory to each cache table.
pub(crate) async fn write_empty_directories<D: Device>(
    devices: &[Option<&D>],
    superblock: &Superblock,
) -> Result<()> {
    let buf = buffer(Arena::LARGEST).await;
    let group = (Arena::LARGEST / PAGE) as u32;
    for (id, entry) in (0..).map(DeviceId).zip(&superblock.devices) {
        let pages = layout::cache_table_pages(entry.slots, superblock.extent_size, superblock.block_size);
        let pages = extra_directory::pages(pages);
        for (device, image) in cache_images(superblock, id) {
            let Some(target) = devices[device.index()] else { continue };
            for first in (0..pages).step_by(group as usize) {
                let count = group.min(pages - first);
                buf.with_bytes_mut(|bytes| {
                    for (page, bytes) in (first..first + count).zip(bytes.chunks_exact_mut(PAGE.as_usize())) {
                        extra_directory::encode(bytes, superblock.volume, page, 0, |_| Content::Unwritten);
                    }
                });
                let (at, len) = (image + PAGE * u64::from(first), PAGE * u64::from(count));
                let written = target.write(at, &buf.slice(Bytes::ZERO..len)).await;
                written.map_err(|e| {
                    Error::io(format_args!("the cache table could not be written to {device}"), &e)
                })?;
            }
        }
    }
    Ok(())
}
