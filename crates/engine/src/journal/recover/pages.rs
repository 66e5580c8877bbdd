//! The checkpointed pages: both images of the map, both copies of the table of spans, and the double-write areas.

use super::damage::Damage;
use super::{Mode, Recovery, Source};
use crate::Result;
use crate::copies::Deadline;
use crate::create::buffer;
use crate::journal::images;
use crate::map::State;
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::SpanId;
use braid_format::double_write;
use braid_format::intent_page::{self, Difference, SPANS_PER_PAGE};
use braid_format::map_page::{self, Entry};
use braid_format::superblock::{Mapping, Region, RegionKind};
use braid_runtime::{Arena, Buf, Device, join_all};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

pub(super) const PAGE: Bytes = map_page::SIZE;
/// Pages read in one piece.
pub(super) const GROUP: u32 = (Arena::LARGEST.0 / PAGE.0) as u32;

/// Which journal batch each map page contains at least; none for a page that is in neither image.
pub(super) struct Loaded {
    sequences: Vec<Option<u64>>,
    per_page: u32,
}

impl Loaded {
    /// The newest batch that any page contains.
    pub fn newest(&self) -> u64 {
        self.sequences.iter().flatten().copied().max().unwrap_or(0)
    }

    /// The newest batch that the page of an extent contains; 0 for a page that is lost, and without a map.
    pub fn sequence_of(&self, extent: ExtentId) -> u64 {
        self.sequences.get((extent.0 / self.per_page) as usize).copied().flatten().unwrap_or(0)
    }
}

/// The pages in the double-write areas, by the number that each says it has; not verified.
pub(super) struct DoubleWritten {
    pages: BTreeMap<u32, Vec<Box<[u8]>>>,
    /// Why a place could not be read.
    unread: Option<io::Error>,
}

impl DoubleWritten {
    /// The newest of the pages with a number for which `verify` gives a sequence, with that.
    fn newest(&self, number: u32, verify: impl Fn(&[u8]) -> Option<u64>) -> Option<(u64, &[u8])> {
        let pages = self.pages.get(&number).into_iter().flatten();
        pages.filter_map(|page| Some((verify(page)?, &**page))).max_by_key(|(sequence, _)| *sequence)
    }
}

/// Reads the double-write areas of all devices that are current.
pub(super) async fn load_double_written<D: Device>(source: &Source<'_, D>) -> DoubleWritten {
    let (mut pages, unread) = (BTreeMap::<u32, Vec<Box<[u8]>>>::new(), RefCell::default());
    let is_area = |region: &&Region| region.kind == RegionKind::DoubleWrite && !region.void;
    for region in source.superblock.regions.iter().filter(is_area) {
        let (area, buffer) = ([(region.device, region.offset)], [buffer(region.len).await]);
        let count = (region.len / PAGE) as u32;
        if read_group(source, &area, &buffer, (0, count), &unread).await != [true] {
            continue;
        }
        buffer[0].with_bytes(|bytes| {
            for page in bytes.chunks_exact(PAGE.as_usize()) {
                pages.entry(double_write::number(page)).or_default().push(page.into());
            }
        });
    }
    DoubleWritten { pages, unread: unread.into_inner() }
}

/// Reads both images of the map: the newest of all valid pages counts, those in the double-write areas among them.
pub(super) async fn load_map<D: Device>(
    source: &Source<'_, D>,
    double_written: &mut DoubleWritten,
    state: &mut State,
    recovery: &mut Recovery,
    damage: &mut Damage,
) -> Result<Loaded> {
    let superblock = source.superblock;
    let (volume, copies) = (superblock.volume, superblock.copies);
    let (per_page, count) =
        (map_page::extents_per_page(copies), map_page::pages(superblock.extents(), copies));
    let images = images(superblock, RegionKind::Map);
    if superblock.mapping() == Mapping::OwnAddress {
        return Ok(Loaded { sequences: Vec::new(), per_page });
    }
    let mut buffers = Vec::new();
    for _ in &images {
        buffers.push(buffer(Arena::LARGEST).await);
    }
    let mut sequences = Vec::with_capacity(count as usize);
    for first in (0..count).step_by(GROUP as usize) {
        let pages = GROUP.min(count - first);
        let unread = RefCell::new(None);
        let read = read_group(source, &images, &buffers, (first, pages), &unread).await;
        for page in first..first + pages {
            let at =
                (PAGE * u64::from(page - first)).as_usize()..(PAGE * u64::from(page - first + 1)).as_usize();
            let verify = |bytes: &[u8]| map_page::decode(bytes, volume, page, copies, |_, _| ()).ok();
            let newest = |image: usize| {
                read[image].then(|| buffers[image].with_bytes(|b| verify(&b[at.clone()]))).flatten()
            };
            let found: Vec<Option<u64>> = (0..images.len()).map(newest).collect();
            let best =
                (0..images.len()).filter(|&i| found[i].is_some()).max_by_key(|&i| (found[i], usize::MAX - i));
            let in_place = best.and_then(|i| found[i]);
            let elsewhere = double_written.newest(page, verify).filter(|(s, _)| Some(*s) > in_place);
            let sequence = elsewhere.map(|(sequence, _)| sequence).or(in_place);
            sequences.push(sequence);
            let extents = page * per_page..((page + 1) * per_page).min(superblock.extents());
            if sequence.is_none() {
                let error = unread.take().or_else(|| double_written.unread.take());
                if let (Mode::Strict, Some(error)) = (source.mode, error) {
                    return Err(super::unread(superblock, format_args!("map page {page}"), &error));
                }
                damage.page_lost(page, extents);
                continue;
            }
            if found.iter().any(|found| *found != sequence) {
                recovery.pages_from_one_image += 1;
                state.mark_stale(ExtentId(page * per_page));
            }
            let take = |place: u32, entry: Entry| {
                // What lies beyond the last extent of the last page is padding.
                if extents.contains(&(extents.start + place)) {
                    state.map.set(ExtentId(extents.start + place), superblock.interpret(entry));
                }
            };
            let decode = |bytes: &[u8]| map_page::decode(bytes, volume, page, copies, take);
            let decoded = match (elsewhere, best) {
                (Some((_, bytes)), _) => decode(bytes),
                (None, Some(best)) => buffers[best].with_bytes(|b| decode(&b[at])),
                (None, None) => unreachable!("a page with a sequence lies somewhere"),
            };
            decoded.expect("a page that was verified is valid");
        }
    }
    Ok(Loaded { sequences, per_page })
}

/// Reads pages of every image at once; on which devices that was tried. An error of any page goes to `unread`.
pub(super) async fn read_group<D: Device>(
    source: &Source<'_, D>,
    images: &[(DeviceId, Bytes)],
    buffers: &[Buf],
    (first, pages): (u32, u32),
    unread: &RefCell<Option<io::Error>>,
) -> Vec<bool> {
    let len = PAGE * u64::from(pages);
    let reads = images.iter().zip(buffers).map(async |(&(device, offset), buffer)| {
        let member = &source.members[device.index()];
        let at = offset + PAGE * u64::from(first);
        // Pages on a device that is not current may be older than the journal's tail.
        if !member.is_current() {
            return false;
        }
        if member.read(at, &buffer.slice(Bytes::ZERO..len), Deadline::Only).await.is_ok() {
            return true;
        }
        // One bad place must not hide the pages beside it.
        buffer.fill_zero();
        for page in 0..u64::from(pages) {
            let part = buffer.slice(PAGE * page..PAGE * (page + 1));
            if let Err(error) = member.read(at + PAGE * page, &part, Deadline::Only).await {
                unread.borrow_mut().get_or_insert(error);
                part.fill_zero();
            }
        }
        true
    });
    join_all(reads).await
}

/// The spans whose copies may differ, and since which batch the table says so.
#[derive(Default)]
pub(super) struct Spans {
    spans: BTreeMap<SpanId, Difference>,
    /// By page of the table.
    sequences: Vec<u64>,
}

impl Spans {
    pub fn replay(&mut self, span: SpanId, sequence: u64, difference: Difference) {
        let page = self.sequences.get((span.0 / SPANS_PER_PAGE) as usize);
        if page.is_none_or(|contained| *contained < sequence) {
            self.spans.insert(span, difference);
        }
    }

    /// The newest batch that any page contains.
    pub fn newest(&self) -> u64 {
        self.sequences.iter().copied().max().unwrap_or(0)
    }

    /// Whether the copies of a span are alike.
    pub fn is_clean(&self, span: SpanId) -> bool {
        self.spans.get(&span).is_none_or(|&difference| difference == Difference::None)
    }

    /// Whether this is what is recorded of a span.
    pub fn is(&self, span: SpanId, difference: Difference) -> bool {
        self.spans.get(&span).copied().unwrap_or(Difference::None) == difference
    }

    pub fn iter(&self) -> impl Iterator<Item = (SpanId, Difference)> {
        let different = self.spans.iter().filter(|(_, difference)| **difference != Difference::None);
        different.map(|(&span, &difference)| (span, difference))
    }
}

/// Reads the table of spans, if the volume has one. All spans of a page that is valid nowhere are taken as behind.
pub(super) async fn load_intents<D: Device>(
    source: &Source<'_, D>,
    double_written: &DoubleWritten,
) -> Result<Spans> {
    let superblock = source.superblock;
    let copies = images(superblock, RegionKind::Intents);
    let mut spans = Spans::default();
    if copies.is_empty() {
        return Ok(spans);
    }
    let page_bytes = buffer(PAGE).await;
    for page in 0..intent_page::pages(superblock.spans()) {
        let decode = |bytes: &[u8]| {
            let mut found = Vec::new();
            let keep = |span, difference| found.push((span, difference));
            let sequence = intent_page::decode(bytes, superblock.volume, page, keep).ok()?;
            Some((sequence, found))
        };
        let elsewhere = double_written.newest(page, |bytes| decode(bytes).map(|(sequence, _)| sequence));
        let mut best: Option<(u64, Vec<(SpanId, Difference)>)> =
            elsewhere.and_then(|(_, bytes)| decode(bytes));
        for &(device, offset) in &copies {
            let member = &source.members[device.index()];
            let at = offset + PAGE * u64::from(page);
            if !member.is_current() || member.read(at, &page_bytes, Deadline::Only).await.is_err() {
                continue;
            }
            if let Some(found) = page_bytes.with_bytes(decode)
                && best.as_ref().is_none_or(|(newest, _)| *newest < found.0)
            {
                best = Some(found);
            }
        }
        let all = page * SPANS_PER_PAGE..((page + 1) * SPANS_PER_PAGE).min(superblock.spans());
        let lost = || (0, all.clone().map(|span| (SpanId(span), Difference::Behind)).collect());
        let (sequence, found) = best.unwrap_or_else(lost);
        spans.sequences.push(sequence);
        spans.spans.extend(found.into_iter().filter(|(span, _)| all.contains(&span.0)));
    }
    Ok(spans)
}

/// The damage of one image, for a check: a sentence for each page that is not valid.
pub(crate) async fn check_image<D: Device>(source: &Source<'_, D>, image: u8) -> Vec<String> {
    let superblock = source.superblock;
    let (buf, mut problems) = (buffer(PAGE).await, Vec::new());
    // An adopted disk has no map, and a void image has nothing that counts.
    let Some(&Region { device, offset, .. }) = superblock.region(RegionKind::Map, image) else {
        return problems;
    };
    if !source.members[device.index()].is_current() {
        // Said of the device, and not of each page.
        return problems;
    }
    let decode = |page: u32, bytes: &[u8]| {
        map_page::decode(bytes, superblock.volume, page, superblock.copies, |_, _| ())
    };
    let count = map_page::pages(superblock.extents(), superblock.copies);
    let group = [buffer(Arena::LARGEST).await];
    for first in (0..count).step_by(GROUP as usize) {
        let pages = GROUP.min(count - first);
        let unread = RefCell::default();
        read_group(source, &[(device, offset)], &group, (first, pages), &unread).await;
        let invalid: Vec<u32> = group[0].with_bytes(|bytes| {
            let numbered = (first..first + pages).zip(bytes.chunks_exact(PAGE.as_usize()));
            numbered.filter(|(page, bytes)| decode(*page, bytes).is_err()).map(|(page, _)| page).collect()
        });
        for page in invalid {
            // Once more, alone: what is wrong with each.
            let at = offset + PAGE * u64::from(page);
            let read = source.members[device.index()].read(at, &buf, Deadline::Only).await;
            let problem = match (read, buf.with_bytes(|bytes| decode(page, bytes))) {
                (Err(error), _) => error.to_string(),
                (Ok(()), Err(invalid)) => invalid.to_string(),
                (Ok(()), Ok(_)) => "not valid when it was read first".to_owned(),
            };
            problems.push(format!("map image {image} on {device}, page {page} at byte {}: {problem}", at.0));
        }
    }
    problems
}
