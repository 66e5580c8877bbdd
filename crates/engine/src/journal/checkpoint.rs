//! Checkpoint: writes stale map pages, the table of spans and the cache tables, so that the journal can
//! forget.
//!
//! Before a page is overwritten in place, its contents are durable elsewhere. A page torn by a power cut is
//! read from there:
//!
//! - One required copy: the other image holds the page. Image 1 is written after image 0 has been flushed,
//!   and through a double-write area.
//! - Two required copies, or only one image left: a page goes to the double-write area of each device first,
//!   and then to the images. With two copies, either device may be lost together with its image.
//!
//! The journal forgets only once all pages are durable. A page shows durable changes only, never pending
//! changes. A checkpoint therefore needs no commit and holds up no flush.

use crate::core::{Durable, Store};
use crate::devices::Devices;
use crate::journal::Journal;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::map_summary::{self, Summary};
use braid_format::superblock::{Region, RegionKind, Superblock};
use braid_format::{double_write, intent_page, map_page};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime, join_all};
use std::slice;

/// Number of pages that are written between two flushes of a device: as many as a double-write area holds.
const GROUP: usize = double_write::MOST_PAGES as usize;
const PAGE: Bytes = map_page::SIZE;

impl<D: Device> Devices<D> {
    /// Places to write the copies of a structure: the places in the superblocks, and places beside, to which
    /// a copy is moving or which a copy has just left.
    pub fn places(&self, kind: RegionKind) -> Vec<(DeviceId, Bytes)> {
        let beside = self.beside.borrow();
        let moving =
            beside.iter().filter(|region| region.kind == kind).map(|region| (region.device, region.offset));
        images(&self.superblock(), kind).into_iter().chain(moving).collect()
    }

    /// Number of pages that a double-write area holds.
    pub(super) fn most_in_area(&self) -> usize {
        let superblock = self.superblock();
        let lens = superblock.regions.iter().filter(|region| region.kind == RegionKind::DoubleWrite);
        lens.map(|area| (area.len / PAGE) as usize).min().unwrap_or(GROUP)
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Writes all stale pages, then moves the journal's tail up to the newest batch at the start of the call.
    pub async fn checkpoint(&self) -> Result<()> {
        let _alone = self.journal.checkpoints.acquire(1).await;
        self.confirm_own().await?;
        let done = self.journal.newest();
        let (pages, intents, summary): (Vec<u32>, Vec<u32>, Option<Summary>) = {
            let mut state = self.store.state.borrow_mut();
            let (pages, summary) = state.take_stale_pages();
            (pages.into_iter().collect(), state.take_stale_intents().into_iter().collect(), summary)
        };
        if planted(Bug::TailMovedEarly) {
            self.append_checkpoint(done).await?;
        }
        let result = async {
            if planted(Bug::SummaryBeforeGroups) {
                self.write_summary(summary.as_ref()).await?;
            }
            self.write_pages(RegionKind::Map, &pages).await?;
            self.write_summary(summary.as_ref()).await?;
            self.write_pages(RegionKind::Intents, &intents).await?;
            self.write_cache_tables().await?;
            self.append_checkpoint(done).await
        };
        if let Err(error) = result.await {
            let mut state = self.store.state.borrow_mut();
            state.groups.end(summary, true);
            state.put_back(pages, intents);
            return Err(error);
        }
        let mut state = self.store.state.borrow_mut();
        state.groups.end(summary, false);
        state.end_checkpoint(done);
        drop(state);
        self.journal.listed.forget(done);
        self.background.borrow_mut().checkpoints += 1;
        self.jobs.wake();
        Ok(())
    }

    async fn write_pages(&self, kind: RegionKind, pages: &[u32]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let buffer = Arena::new(PAGE * GROUP as u64).alloc(PAGE * GROUP as u64).await;
        for group in pages.chunks(self.store.devices.most_in_area()) {
            // Encoded once: all places get the same bytes.
            match kind {
                RegionKind::Intents => self.journal.encode_intents(&self.store, group, &buffer),
                _ => self.journal.encode_map(&self.store, group, &buffer),
            }
            self.write_everywhere(kind, group, &buffer).await?;
        }
        Ok(())
    }

    /// Writes a group of pages to all places of their structure. A place that cannot be written may already
    /// have become void or failed with the group before.
    async fn write_everywhere(&self, kind: RegionKind, group: &[u32], buffer: &Buf) -> Result<()> {
        if kind == RegionKind::Intents && !self.store.devices.superblock().has(kind) {
            // With one required copy, the volume may have no table of spans.
            return Ok(());
        }
        let named = images(&self.store.devices.superblock(), kind);
        let (images, areas) =
            (self.store.devices.places(kind), self.store.devices.places(RegionKind::DoubleWrite));
        let places: Vec<u32> = (0..group.len() as u32).collect();
        // With one copy, either image is whole while the other is being written. With two required copies,
        // either device may be lost at any moment.
        let is_written = |(device, _): &(DeviceId, Bytes)| self.store.member(*device).is_written();
        let has_both = named.len() > 1 && images.iter().all(is_written) || areas.is_empty();
        if self.store.shape.copies == 1 && has_both {
            let mut is_written = false;
            for image in &images {
                // If the device with the journal is lost now, this image is the only one left.
                let is_area =
                    |(device, _): &&(DeviceId, Bytes)| *device == image.0 && !self.journal.is_on(*device);
                if let Some(area) = areas.iter().find(is_area) {
                    let area = slice::from_ref(area);
                    self.write_copies(RegionKind::DoubleWrite, &places, buffer, area).await?;
                }
                is_written |= self.write_copies(kind, group, buffer, slice::from_ref(image)).await?;
            }
            return require(is_written, kind);
        }
        if !planted(Bug::PageWrittenOnce) {
            let is_written = self.write_copies(RegionKind::DoubleWrite, &places, buffer, &areas).await?;
            require(is_written, RegionKind::DoubleWrite)?;
        }
        let written = if planted(Bug::OneMapImage) { &images[..1] } else { &images[..] };
        require(self.write_copies(kind, group, buffer, written).await?, kind)
    }

    /// Writes the summary behind every image of the map. The pages of the groups in the summary are durable.
    /// At every instant one of the two summary pages in each image is whole.
    async fn write_summary(&self, summary: Option<&Summary>) -> Result<()> {
        let Some(summary) = summary else { return Ok(()) };
        let (volume, pages) = {
            let superblock = self.store.devices.superblock();
            (superblock.volume, superblock.map_pages())
        };
        let buffer = Arena::new(PAGE).alloc(PAGE).await;
        for number in pages..pages + map_summary::PAGES {
            buffer.with_bytes_mut(|bytes| summary.encode(bytes, volume, number));
            let images = self.store.devices.places(RegionKind::Map);
            let is_written = self.write_copies(RegionKind::Map, &[number], &buffer, &images).await?;
            require(is_written, RegionKind::Map)?;
        }
        Ok(())
    }

    /// Writes a group of pages to several devices at once, and flushes. If a write fails, the region becomes
    /// void or the device fails, provided that the volume survives without. True if at least one current
    /// device has the pages.
    pub(super) async fn write_copies(
        &self,
        kind: RegionKind,
        places: &[u32],
        buffer: &Buf,
        copies: &[(DeviceId, Bytes)],
    ) -> Result<bool> {
        let written = copies.iter().filter(|(device, _)| self.store.member(*device).is_written());
        let writes = written.map(async |&(device, region)| {
            if let Err(error) = self.write_group(places, buffer, device, region).await {
                return self.spare_region(kind, device, region, error).await.map(|()| false);
            }
            if kind == RegionKind::DoubleWrite && planted(Bug::AreaNotFlushed) {
                return Ok(true);
            }
            // A device that cannot flush may have lost more than these pages.
            match self.flush_member(self.store.member(device), "the map").await {
                Ok(()) => Ok(self.store.member(device).is_current()),
                Err(error) => self.lose(device, error).map(|()| false),
            }
        });
        let written = join_all(writes).await.into_iter().collect::<Result<Vec<bool>>>()?;
        self.record_states().await?;
        Ok(written.contains(&true))
    }

    /// Writes a group of pages to their places in one region, adjacent pages in one request. Does not flush.
    async fn write_group(&self, places: &[u32], buffer: &Buf, device: DeviceId, region: Bytes) -> Result<()> {
        let member = self.store.member(device);
        let mut first = 0;
        while first < places.len() {
            let run = (first..places.len())
                .take_while(|&i| places[i] - places[first] == (i - first) as u32)
                .count();
            let part = PAGE * first as u64..PAGE * (first + run) as u64;
            let at = region + PAGE * u64::from(places[first]);
            let part = buffer.slice(part);
            if self.device_write(member, at, &part, Origin::Background).await.is_err() {
                // Retried once before the region becomes void.
                self.device_write(member, at, &part, Origin::Background).await?;
            }
            self.background.borrow_mut().map_bytes += PAGE.0 * run as u64;
            first += run;
        }
        Ok(())
    }
}

impl Journal {
    fn encode_map<D: Device>(&self, store: &Store<D>, pages: &[u32], buffer: &Buf) {
        let (state, volume) = (store.state.borrow(), store.devices.superblock().volume);
        let (copies, sequence) = (store.shape.copies, self.newest());
        let per_page = map_page::extents_per_page(copies);
        for_each_page(pages, buffer, |bytes, page| {
            let extents = page * per_page..((page + 1) * per_page).min(store.shape.extents());
            let entries = extents.map(|e| state.durable_entry(ExtentId(e)));
            map_page::encode(bytes, volume, page, sequence, copies, entries);
        });
    }

    fn encode_intents<D: Device>(&self, store: &Store<D>, pages: &[u32], buffer: &Buf) {
        let (state, volume) = (store.state.borrow(), store.devices.superblock().volume);
        let sequence = self.newest();
        for_each_page(pages, buffer, |bytes, page| {
            intent_page::encode(bytes, volume, page, sequence, |span| state.behind.durable(span));
        });
    }
}

/// Fails unless the pages were written to a device that the next opening reads: only then may the journal
/// forget.
fn require(is_written: bool, kind: RegionKind) -> Result<()> {
    if is_written {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Degraded, format!("no device with the {kind} is present")))
}

fn for_each_page(pages: &[u32], buffer: &Buf, mut encode: impl FnMut(&mut [u8], u32)) {
    buffer.with_bytes_mut(|bytes| {
        bytes.chunks_exact_mut(PAGE.as_usize()).zip(pages).for_each(|(bytes, &page)| encode(bytes, page));
    });
}

/// Returns the places of the rings that are in use. With one required copy there is one ring, on the first
/// current device that has a place for a ring.
pub(crate) fn rings(
    superblock: &Superblock,
    is_current: impl Fn(DeviceId) -> bool,
) -> Vec<(DeviceId, Bytes)> {
    let mut rings = images(superblock, RegionKind::Journal);
    if superblock.copies == 1 {
        rings.retain(|(device, _)| is_current(*device));
        rings.truncate(1);
    }
    rings
}

/// Returns the device with the only journal, provided that another current device has an image of the map, or
/// that the volume is on an adopted disk.
pub(crate) fn only_journal(
    superblock: &Superblock,
    is_current: impl Fn(DeviceId) -> bool,
) -> Option<DeviceId> {
    let rings = rings(superblock, &is_current);
    let (1, Some(&(device, _))) = (superblock.copies, rings.first()) else { return None };
    let mut images = images(superblock, RegionKind::Map).into_iter();
    let has_image = images.any(|(image, _)| image != device && is_current(image));
    (has_image || superblock.adopted().is_some()).then_some(device)
}

/// Returns the places of the copies of a structure: images of the map, tables of spans, double-write areas.
pub(crate) fn images(superblock: &Superblock, kind: RegionKind) -> Vec<(DeviceId, Bytes)> {
    let place = |region: &Region| (region.device, region.offset);
    (0..2).filter_map(|copy| superblock.region(kind, copy).map(place)).collect()
}
