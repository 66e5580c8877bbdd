//! Changes the size while the volume closes: writes structures of the other size to their new places, before
//! the last superblocks name the places and the size ([`super::resize`]).
//!
//! All that is written lies in free slots, with one exception: double-write areas are erased, since a map
//! page in an area could later pass for a page of the larger map that was never written. At that instant
//! every page is whole in its place.

use super::resize::Resizing;
use crate::buffer::buffer;
use crate::core::{Store, Upkeep};
use crate::journal::Journal;
use crate::planted::{Bug, planted};
use crate::volume::LastChange;
use crate::{Error, ErrorKind, Result, Volume};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::intent_page::{self, Difference};
use braid_format::map_page::{self, extents_per_page};
use braid_format::map_summary::{self, MOST_GROUPS, Summary};
use braid_format::superblock::{Region, RegionKind, Superblock};
use braid_format::{SpanId, journal};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// Pages in one request.
const GROUP: u32 = (Arena::LARGEST.0 / map_page::SIZE.0) as u32;

/// A span of the resized volume, and its state.
type ResizedSpans = BTreeMap<SpanId, Difference>;

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Closes the volume as [`Volume::close`] does, with another size. No guest may use the volume any more.
    /// The inner result tells if the size has changed: if not, the volume is closed with its old size.
    ///
    /// # Errors
    /// As [`Volume::close`]. The next opening finds the old or the new size then.
    pub(crate) async fn close_resized(&self, resizing: Resizing) -> Result<Result<()>> {
        let (core, resizing) = (&self.core, Rc::new(resizing));
        let mut outcome = Err(Error::closing());
        let closed = self.close_with(async || {
            if planted(Bug::SizeBeforePages) {
                outcome = Ok(());
            } else {
                outcome = core.upkeep.write_resized(&resizing).await;
            }
            let change = resizing.clone();
            let change = move |superblock: &mut Superblock| change.apply(superblock);
            outcome.is_ok().then(|| Box::new(change) as LastChange)
        });
        closed.await?;
        if planted(Bug::SizeBeforePages) {
            core.upkeep.write_resized(&resizing).await?;
        }
        Ok(outcome)
    }
}

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Writes all fresh regions and makes them durable. The volume is closing: nothing changes any more, and
    /// everything else is durable.
    async fn write_resized(&self, resizing: &Resizing) -> Result<()> {
        self.durable.confirm_own().await?;
        self.store.devices.refuse_unfit()?;
        let before = self.store.devices.superblock().clone();
        let mut after = before.clone();
        resizing.apply(&mut after);
        after.verify().map_err(|wrong| Error::new(ErrorKind::Invalid, wrong.to_string()))?;
        self.store.refuse_mapped_beyond(after.extents())?;
        let spans = self.store.spans_of(&after)?;
        let fresh = |kind: RegionKind| resizing.fresh.iter().filter(move |region| region.kind == kind);
        let mut written: Vec<Region> = resizing.fresh.clone();
        if fresh(RegionKind::Map).next().is_some() {
            written.extend(after.regions.iter().filter(|r| r.kind == RegionKind::DoubleWrite && !r.void));
        }
        for region in &written {
            match region.kind {
                RegionKind::Map => self.write_map(&after, region).await?,
                RegionKind::Intents => self.write_spans(&after, region, &spans).await?,
                _ => self.erase(region).await?,
            }
        }
        let devices: BTreeSet<DeviceId> = written.iter().map(|region| region.device).collect();
        for device in devices {
            self.durable
                .flush_member(self.store.member(device), "the metadata of the resized volume")
                .await?;
        }
        Ok(())
    }

    /// Writes an image of the map. With a summary, only groups of pages with an entry are written.
    async fn write_map(&self, after: &Superblock, region: &Region) -> Result<()> {
        let (pages, per_page) = (after.map_pages(), extents_per_page(after.copies));
        let summary = after.has_map_summary().then(|| self.store.summary_of(pages, per_page));
        let runs: Vec<Range<u32>> = match &summary {
            None => std::iter::once(0..pages).collect(),
            Some(summary) => summary.written().map(|group| summary.pages_of(group)).collect(),
        };
        let buf = buffer(Arena::LARGEST).await;
        for run in runs {
            for first in run.clone().step_by(GROUP as usize) {
                let numbers = first..run.end.min(first + GROUP);
                self.durable.journal.encode_pages(&self.store, after, numbers.clone(), &buf);
                self.write_region_pages(region, first, numbers.len() as u32, &buf).await?;
            }
        }
        let Some(summary) = summary else { return Ok(()) };
        for number in pages..pages + map_summary::PAGES {
            buf.with_bytes_mut(|bytes| {
                summary.encode(&mut bytes[..map_summary::SIZE.as_usize()], after.volume, number);
            });
            self.write_region_pages(region, number, 1, &buf).await?;
        }
        Ok(())
    }

    async fn write_spans(&self, after: &Superblock, region: &Region, spans: &ResizedSpans) -> Result<()> {
        let buf = buffer(intent_page::SIZE).await;
        for page in 0..intent_page::pages(after.spans()) {
            let state = |span| spans.get(&span).copied().unwrap_or(Difference::None);
            let sequence = self.durable.journal.newest();
            buf.with_bytes_mut(|bytes| intent_page::encode(bytes, after.volume, page, sequence, state));
            self.write_region_pages(region, page, 1, &buf).await?;
        }
        Ok(())
    }

    /// Writes the first `count` pages of a buffer to page `first` of a region.
    async fn write_region_pages(&self, region: &Region, first: u32, count: u32, buf: &Buf) -> Result<()> {
        let (at, len) = (map_page::SIZE * u64::from(first), map_page::SIZE * u64::from(count));
        let bytes = buf.slice(Bytes::ZERO..len);
        self.durable
            .device_write(self.store.member(region.device), region.offset + at, &bytes, Origin::Background)
            .await
    }

    async fn erase(&self, region: &Region) -> Result<()> {
        let zeros = buffer(Arena::LARGEST).await;
        zeros.fill_zero();
        let pages = (region.len / journal::PAGE) as u32;
        for first in (0..pages).step_by(GROUP as usize) {
            self.write_region_pages(region, first, GROUP.min(pages - first), &zeros).await?;
        }
        Ok(())
    }
}

impl Journal {
    fn encode_pages<D: Device>(&self, store: &Store<D>, after: &Superblock, numbers: Range<u32>, buf: &Buf) {
        let (state, per_page) = (store.state.borrow(), extents_per_page(after.copies));
        let (sequence, end) = (self.newest(), after.extents().min(store.shape.extents()));
        buf.with_bytes_mut(|bytes| {
            for (page, bytes) in numbers.zip(bytes.chunks_exact_mut(map_page::SIZE.as_usize())) {
                let extents = (page * per_page).min(end)..((page + 1) * per_page).min(end);
                let entries = extents.map(|extent| state.durable_entry(ExtentId(extent)));
                map_page::encode(bytes, after.volume, page, sequence, after.copies, entries);
            }
        });
    }
}

impl<D: Device> Store<D> {
    fn refuse_mapped_beyond(&self, extents: u32) -> Result<()> {
        let state = self.state.borrow();
        match state.map.iter().find(|(extent, _)| extent.0 >= extents) {
            None => Ok(()),
            Some((extent, _)) => {
                let at = self.shape.bytes_of(extent).start;
                let text = format!("the volume was written at byte {at} meanwhile: end its guests first");
                Err(Error::new(ErrorKind::Busy, text))
            }
        }
    }

    /// States of the spans in the resized volume. Spans of another length contain several old spans.
    fn spans_of(&self, after: &Superblock) -> Result<ResizedSpans> {
        let (superblock, state) = (self.devices.superblock(), self.state.borrow());
        let (mut spans, mut mixed) = (ResizedSpans::new(), false);
        for span in (0..superblock.spans()).map(SpanId) {
            let difference = state.behind.durable(span);
            if difference == Difference::None {
                continue;
            }
            let larger = after.span(ExtentId(span.0 * superblock.span_extents));
            mixed |= spans.insert(larger, difference).is_some_and(|other| other != difference);
        }
        if mixed {
            let text =
                "copies still differ: wait until nothing is behind (braid status), and repeat the resize";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(spans)
    }

    /// Summary of a map with exactly the groups that have an entry.
    fn summary_of(&self, pages: u32, per_page: u32) -> Summary {
        let state = self.state.borrow();
        let usual = state.groups.group_len().or_else(|| map_summary::group_pages(pages)).unwrap_or(pages);
        let mut summary = Summary::new(pages, usual.max(pages.div_ceil(MOST_GROUPS)));
        for (extent, _) in state.map.iter() {
            let group = summary.group_of(extent.0 / per_page);
            if !summary.contains(group) {
                summary.insert(group);
            }
        }
        summary
    }
}
