//! Map pages in recovery: the newest valid page counts, pages in the double-write areas included.
//!
//! Pages that were never written are not read, and count as empty pages of sequence 0
//! ([`braid_format::map_summary`]). If both images hold the same bytes, only the first image is verified.

use super::damage::Damage;
use super::pages::{DoubleWritten, GROUP, PAGE, read_group};
use super::{Mode, Recovery, RecoveryInput, summary};
use crate::Result;
use crate::buffer::buffer;
use crate::journal::images;
use crate::map::State;
use braid_base::ExtentId;
use braid_format::map_page::{self, Verified};
use braid_format::superblock::{Mapping, RegionKind, Superblock};
use braid_runtime::{Arena, Buf, Device, join_all};
use std::cell::RefCell;
use std::ops::Range;

/// Runs of pages read from an image at once, each of up to 1 MiB. One after the other, the map of a large
/// volume on a pool of a cluster came at the rate of a single disk.
const RUNS_AT_ONCE: usize = 8;

/// Newest journal batch that each map page is known to contain; none for a page that is valid in no image.
pub(super) struct Loaded {
    sequences: Vec<Option<u64>>,
    per_page: u32,
}

impl Loaded {
    /// Returns the newest batch that any page contains.
    pub fn newest(&self) -> u64 {
        self.sequences.iter().flatten().copied().max().unwrap_or(0)
    }

    /// Returns the newest batch in the page of an extent; 0 for a lost page, and without a map.
    pub fn sequence_of(&self, extent: ExtentId) -> u64 {
        self.sequences.get((extent.0 / self.per_page) as usize).copied().flatten().unwrap_or(0)
    }
}

/// Reads all pages of both images that were ever written.
pub(super) async fn load_map<D: Device>(
    input: &RecoveryInput<'_, D>,
    double_written: &mut DoubleWritten,
    state: &mut State,
    recovery: &mut Recovery,
    damage: &mut Damage,
) -> Result<Loaded> {
    let superblock = input.superblock;
    let per_page = map_page::extents_per_page(superblock.copies);
    if superblock.mapping() == Mapping::OwnAddress {
        return Ok(Loaded { sequences: Vec::new(), per_page });
    }
    let images = images(superblock, RegionKind::Map);
    state.groups = summary::load(input, &images).await?;
    let sequences = vec![Some(0); superblock.map_pages() as usize];
    let runs = state.groups.runs(GROUP);
    let mut places = Vec::new();
    for _ in runs.iter().take(RUNS_AT_ONCE) {
        let mut buffers = Vec::new();
        for _ in &images {
            buffers.push(buffer(Arena::LARGEST).await);
        }
        places.push(buffers);
    }
    let mut loading = Loading { superblock, double_written, state, recovery, damage, sequences };
    loading.take_double_written();
    for runs in runs.chunks(RUNS_AT_ONCE) {
        let reads = runs.iter().zip(&places).map(async |(run, buffers)| {
            let unread = RefCell::new(None);
            let read = read_group(input, &images, buffers, run.start, run.len() as u32, &unread).await;
            (read, unread)
        });
        for ((run, buffers), (read, unread)) in runs.iter().zip(&places).zip(join_all(reads).await) {
            let lost = loading.take_run(run, buffers, &read);
            let error = lost.and_then(|page| {
                Some((page, unread.take().or_else(|| loading.double_written.take_error())?))
            });
            if let (Mode::Strict, Some((page, error))) = (input.mode, error) {
                return Err(super::unread(superblock, format_args!("map page {page}"), &error));
            }
        }
    }
    Ok(Loaded { sequences: loading.sequences, per_page })
}

/// The map while it is loaded.
struct Loading<'a> {
    superblock: &'a Superblock,
    double_written: &'a mut DoubleWritten,
    state: &'a mut State,
    recovery: &'a mut Recovery,
    damage: &'a mut Damage,
    sequences: Vec<Option<u64>>,
}

impl Loading<'_> {
    /// Takes pages of double-write areas whose groups were about to be written for the first time.
    fn take_double_written(&mut self) {
        let numbers: Vec<u32> = self.double_written.numbers().collect();
        for page in numbers.into_iter().filter(|&page| page < self.superblock.map_pages()) {
            if !self.state.groups.contains(page)
                && let Some(newest) = newest(self.superblock, self.double_written, page)
            {
                self.sequences[page as usize] = Some(newest.sequence);
                set_entries(self.superblock, self.state, page, &newest);
                self.state.mark_stale(self.first_extent(page));
            }
        }
    }

    /// Takes a run of pages from all images read. Returns the first page that is valid nowhere.
    fn take_run(&mut self, run: &Range<u32>, buffers: &[Buf], read: &[bool]) -> Option<u32> {
        // The map has one or two images.
        let (first, last) = (buffers.first()?, buffers.last()?);
        first.with_bytes(|first| {
            last.with_bytes(|last| {
                let images = [first, last];
                let read: Vec<Option<&[u8]>> =
                    images.iter().zip(read).map(|(bytes, is_read)| is_read.then_some(*bytes)).collect();
                let mut lost = None;
                for page in run.clone() {
                    let at = (PAGE * u64::from(page - run.start)).as_usize();
                    let bytes = read.iter().map(|image| image.map(|image| &image[at..at + PAGE.as_usize()]));
                    let is_found = self.take_page(page, &bytes.collect::<Vec<_>>());
                    lost = lost.or_else(|| (!is_found).then_some(page));
                }
                lost
            })
        })
    }

    /// Takes a page from its place in each image read, or from a double-write area. True if the page is valid
    /// anywhere.
    fn take_page(&mut self, page: u32, images: &[Option<&[u8]>]) -> bool {
        let superblock = self.superblock;
        let mut found: Vec<Option<u64>> = Vec::with_capacity(images.len());
        let mut best: Option<Verified<'_>> = None;
        for (i, bytes) in images.iter().enumerate() {
            if i > 0 && bytes.is_some() && images[0] == *bytes {
                found.push(found[0]);
                continue;
            }
            let verified = bytes.and_then(|bytes| verify(superblock, page, bytes));
            found.push(verified.as_ref().map(|page| page.sequence));
            if verified.as_ref().map(|page| page.sequence) > best.as_ref().map(|page| page.sequence) {
                best = verified;
            }
        }
        let elsewhere = newest(superblock, self.double_written, page);
        let is_newer = |page: &Verified<'_>| best.as_ref().is_none_or(|best| page.sequence > best.sequence);
        let newest = elsewhere.filter(is_newer).or(best);
        let sequence = newest.as_ref().map(|page| page.sequence);
        self.sequences[page as usize] = sequence;
        let Some(newest) = newest else {
            self.damage.page_lost(page, extents_of(superblock, page));
            return false;
        };
        if found.iter().any(|found| *found != sequence) {
            self.recovery.pages_from_one_image += 1;
            self.state.mark_stale(self.first_extent(page));
        }
        set_entries(superblock, self.state, page, &newest);
        true
    }

    fn first_extent(&self, page: u32) -> ExtentId {
        ExtentId(extents_of(self.superblock, page).start)
    }
}

/// Returns the newest valid page with this number in the double-write areas.
fn newest<'a>(superblock: &Superblock, areas: &'a DoubleWritten, page: u32) -> Option<Verified<'a>> {
    areas
        .with_number(page)
        .filter_map(|bytes| verify(superblock, page, bytes))
        .max_by_key(|page| page.sequence)
}

fn verify<'a>(superblock: &Superblock, page: u32, bytes: &'a [u8]) -> Option<Verified<'a>> {
    map_page::verify(bytes, superblock.volume, page, superblock.copies).ok()
}

fn set_entries(superblock: &Superblock, state: &mut State, page: u32, verified: &Verified<'_>) {
    let extents = extents_of(superblock, page);
    verified.each(|place, entry| {
        // Entries beyond the last extent, in the last page, are padding.
        let extent = extents.start + place;
        if extents.contains(&extent) {
            state.map.set(ExtentId(extent), superblock.interpret(entry));
        }
    });
}

fn extents_of(superblock: &Superblock, page: u32) -> Range<u32> {
    let per_page = map_page::extents_per_page(superblock.copies);
    page * per_page..((page + 1) * per_page).min(superblock.extents())
}
