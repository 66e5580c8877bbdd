//! Checkpointed pages: both copies of the table of spans, the double-write areas, and a check of the map
//! images.

pub(super) use super::map_pages::{Loaded, load_map};
use super::{RecoveryInput, summary};
use crate::Result;
use crate::buffer::buffer;
use crate::devices::Deadline;
use crate::journal::images;
use crate::map::Groups;
use braid_base::{Bytes, DeviceId};
use braid_format::SpanId;
use braid_format::double_write;
use braid_format::intent_page::{self, Difference, SPANS_PER_PAGE};
use braid_format::map_page;
use braid_format::superblock::{Region, RegionKind};
use braid_runtime::{Arena, Buf, Device, join_all};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

pub(super) const PAGE: Bytes = map_page::SIZE;
/// Number of pages in one read.
pub(super) const GROUP: u32 = (Arena::LARGEST.0 / PAGE.0) as u32;

/// Unverified pages of the double-write areas, by the number in each page.
pub(super) struct DoubleWritten {
    pages: BTreeMap<u32, Vec<Box<[u8]>>>,
    /// Error of a place that could not be read.
    unread: Option<io::Error>,
}

impl DoubleWritten {
    /// Returns the numbers in the pages.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.pages.keys().copied()
    }

    /// Returns the pages with a number.
    pub fn with_number(&self, number: u32) -> impl Iterator<Item = &[u8]> {
        self.pages.get(&number).into_iter().flatten().map(|page| &**page)
    }

    /// Takes the error of a place that could not be read; none at the second call.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.unread.take()
    }
}

/// Reads the double-write areas of all current devices.
pub(super) async fn load_double_written<D: Device>(input: &RecoveryInput<'_, D>) -> DoubleWritten {
    let (mut pages, unread) = (BTreeMap::<u32, Vec<Box<[u8]>>>::new(), RefCell::default());
    let is_area = |region: &&Region| region.kind == RegionKind::DoubleWrite && !region.void;
    for region in input.superblock.regions.iter().filter(is_area) {
        let (area, buffer) = ([(region.device, region.offset)], [buffer(region.len).await]);
        let count = (region.len / PAGE) as u32;
        if read_group(input, &area, &buffer, 0, count, &unread).await != [true] {
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

/// Reads pages of every image at once. Returns for each image whether its device was read. The first error of
/// any page goes to `unread`.
pub(super) async fn read_group<D: Device>(
    input: &RecoveryInput<'_, D>,
    images: &[(DeviceId, Bytes)],
    buffers: &[Buf],
    first: u32,
    pages: u32,
    unread: &RefCell<Option<io::Error>>,
) -> Vec<bool> {
    let len = PAGE * u64::from(pages);
    let reads = images.iter().zip(buffers).map(async |(&(device, offset), buffer)| {
        let member = &input.members[device.index()];
        let at = offset + PAGE * u64::from(first);
        // Pages on a device that is not current may be older than the journal's tail.
        if !member.is_current() {
            return false;
        }
        if member.read(at, &buffer.slice(Bytes::ZERO..len), Deadline::Only).await.is_ok() {
            return true;
        }
        // One bad place must not hide adjacent pages.
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

/// Spans whose copies may differ, and the newest batch in each page of the table.
#[derive(Default)]
pub(super) struct Spans {
    spans: BTreeMap<SpanId, Difference>,
    /// Newest batch, by page of the table.
    sequences: Vec<u64>,
}

impl Spans {
    pub fn replay(&mut self, span: SpanId, sequence: u64, difference: Difference) {
        let page = self.sequences.get((span.0 / SPANS_PER_PAGE) as usize);
        if page.is_none_or(|contained| *contained < sequence) {
            self.spans.insert(span, difference);
        }
    }

    /// Returns the newest batch that any page contains.
    pub fn newest(&self) -> u64 {
        self.sequences.iter().copied().max().unwrap_or(0)
    }

    /// True if the copies of a span are equal.
    pub fn is_clean(&self, span: SpanId) -> bool {
        self.spans.get(&span).is_none_or(|&difference| difference == Difference::None)
    }

    /// True if `difference` is recorded for a span.
    pub fn is(&self, span: SpanId, difference: Difference) -> bool {
        self.spans.get(&span).copied().unwrap_or(Difference::None) == difference
    }

    pub fn iter(&self) -> impl Iterator<Item = (SpanId, Difference)> {
        let different = self.spans.iter().filter(|(_, difference)| **difference != Difference::None);
        different.map(|(&span, &difference)| (span, difference))
    }
}

/// Reads the table of spans, if the volume has one. All spans of a page that is valid nowhere count as
/// behind.
pub(super) async fn load_intents<D: Device>(
    input: &RecoveryInput<'_, D>,
    double_written: &DoubleWritten,
) -> Result<Spans> {
    let superblock = input.superblock;
    let copies = images(superblock, RegionKind::Intents);
    let mut spans = Spans::default();
    if copies.is_empty() {
        return Ok(spans);
    }
    let count = intent_page::pages(superblock.spans());
    let mut buffers = Vec::new();
    for _ in &copies {
        buffers.push(buffer(PAGE * u64::from(count)).await);
    }
    // The whole table is at most five pages.
    let read = read_group(input, &copies, &buffers, 0, count, &RefCell::default()).await;
    for page in 0..count {
        let decode = |bytes: &[u8]| {
            let mut found = Vec::new();
            let keep = |span, difference| found.push((span, difference));
            let sequence = intent_page::decode(bytes, superblock.volume, page, keep).ok()?;
            Some((sequence, found))
        };
        let at = (PAGE * u64::from(page)).as_usize();
        let in_place = buffers.iter().zip(&read).filter(|(_, is_read)| **is_read);
        let in_place =
            in_place.map(|(buffer, _)| buffer.with_bytes(|bytes| decode(&bytes[at..at + PAGE.as_usize()])));
        let elsewhere = double_written.with_number(page).map(decode);
        let newest = elsewhere.chain(in_place).flatten().reduce(|a, b| if b.0 > a.0 { b } else { a });
        let all = page * SPANS_PER_PAGE..((page + 1) * SPANS_PER_PAGE).min(superblock.spans());
        let lost = || (0, all.clone().map(|span| (SpanId(span), Difference::Behind)).collect());
        let (sequence, found): (u64, Vec<(SpanId, Difference)>) = newest.unwrap_or_else(lost);
        spans.sequences.push(sequence);
        spans.spans.extend(found.into_iter().filter(|(span, _)| all.contains(&span.0)));
    }
    Ok(spans)
}

/// Returns the damage of one image, for a check: a sentence for each invalid page.
pub(crate) async fn check_image<D: Device>(input: &RecoveryInput<'_, D>, image: u8) -> Vec<String> {
    let superblock = input.superblock;
    let (buf, mut problems) = (buffer(PAGE).await, Vec::new());
    // An adopted disk has no map, and the contents of a void image do not count.
    let Some(&Region { device, offset, .. }) = superblock.region(RegionKind::Map, image) else {
        return problems;
    };
    if !input.members[device.index()].is_current() {
        // Reported for the device, not for each page.
        return problems;
    }
    let decode = |page: u32, bytes: &[u8]| {
        map_page::decode(bytes, superblock.volume, page, superblock.copies, |_, _| ())
    };
    if superblock.has_map_summary() {
        problems.extend(summary::check(input, image, (device, offset)).await);
    }
    // Without a valid summary all pages are checked.
    let groups = summary::load(input, &images(superblock, RegionKind::Map)).await;
    let groups = groups.unwrap_or_else(|_| Groups::all(superblock.map_pages()));
    let group = [buffer(Arena::LARGEST).await];
    for run in groups.runs(GROUP) {
        let unread = RefCell::default();
        read_group(input, &[(device, offset)], &group, run.start, run.len() as u32, &unread).await;
        let invalid: Vec<u32> = group[0].with_bytes(|bytes| {
            let numbered = run.clone().zip(bytes.chunks_exact(PAGE.as_usize()));
            numbered.filter(|(page, bytes)| decode(*page, bytes).is_err()).map(|(page, _)| page).collect()
        });
        for page in invalid {
            // Each invalid page is read again, alone, to describe its damage.
            let at = offset + PAGE * u64::from(page);
            let read = input.members[device.index()].read(at, &buf, Deadline::Only).await;
            let problem = match (read, buf.with_bytes(|bytes| decode(page, bytes))) {
                (Err(error), _) => error.to_string(),
                (Ok(()), Err(invalid)) => invalid.to_string(),
                (Ok(()), Ok(_)) => "invalid at the first read".to_owned(),
            };
            problems.push(format!("map image {image} on {device}, page {page} at byte {}: {problem}", at.0));
        }
    }
    problems
}
