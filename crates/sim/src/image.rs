//! Bytes of a disk, kept sparse: only written pages take memory, so a disk of 4 TiB costs nothing.
//!
//! A clone shares all pages with its original until either of the two writes to a page: a snapshot of a disk
//! is cheap.

use braid_base::{Bytes, Rng};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// Content of a disk before the first write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blank {
    /// Zeros: a new disk.
    Zeros,
    /// Apparent old data, from a seed: a used disk. Exposes code that trusts bytes never written.
    Garbage(u64),
}

/// Bytes by page. Missing pages are blank.
#[derive(Clone)]
pub(crate) struct Image {
    pages: HashMap<u64, Page, FixedState>,
    /// Patterns of pages that were never written.
    blanks: Rc<[Page]>,
}

type Page = Rc<[u8; PAGE]>;
const PAGE: usize = 4096;
const SECTOR: usize = braid_base::SECTOR.as_usize();

/// Number of different garbage pages that a used disk repeats.
const GARBAGE_PAGES: usize = 16;

/// A discard of at most this many pages changes blank pages too; a larger discard only written pages.
const BLANK_PAGES_DISCARDED: u64 = 256;

impl Image {
    pub(crate) fn new(blank: Blank) -> Image {
        let blanks = match blank {
            Blank::Zeros => vec![Rc::new([0; PAGE])],
            Blank::Garbage(seed) => garbage(seed),
        };
        Image { pages: HashMap::default(), blanks: blanks.into() }
    }

    /// Copies bytes from `offset` until `target` is full.
    pub(crate) fn read(&self, offset: Bytes, target: &mut [u8]) {
        self.read_over(offset, target, None);
    }

    /// As [`Image::read`], but pages of `over` hide the pages of this image.
    pub(crate) fn read_over(&self, offset: Bytes, target: &mut [u8], over: Option<&Image>) {
        for_each_page(offset, target.len(), |page, within, part| {
            let target = &mut target[part];
            let bytes = over.and_then(|image| image.pages.get(&page)).unwrap_or_else(|| self.page(page));
            target.copy_from_slice(&bytes[within]);
        });
    }

    /// Writes `source` at `offset`.
    pub(crate) fn write(&mut self, offset: Bytes, source: &[u8]) {
        self.put(offset, &PagedBytes::new(offset, source), None);
    }

    /// Writes bytes that were cut for `offset`, and shares their whole pages. If this image lies over
    /// another, missing pages begin as copies of the pages of `under`.
    pub(crate) fn put(&mut self, offset: Bytes, source: &PagedBytes, under: Option<&Image>) {
        let mut at = offset;
        for part in source.parts.iter() {
            let page = at.0 / PAGE as u64;
            match part {
                Part::Page(bytes) => {
                    self.pages.insert(page, bytes.clone());
                }
                Part::Fraction(bytes) => {
                    let start = (at.0 % PAGE as u64) as usize;
                    self.page_mut(page, under)[start..start + bytes.len()].copy_from_slice(bytes);
                }
            }
            at += Bytes::of_len(part.bytes().len());
        }
    }

    /// Moves all pages of `over` into this image.
    pub(crate) fn absorb(&mut self, over: &mut Image) {
        self.pages.extend(over.pages.drain());
    }

    /// Forgets all pages.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }

    /// Fills a range with legal content after a discard, by sector: the old content, zeros, or anything. The
    /// same `seed` gives the same bytes. If this image lies over another, missing pages begin as copies of
    /// the pages of `under`.
    pub(crate) fn discard(&mut self, offset: Bytes, len: Bytes, seed: u64, under: Option<&Image>) {
        let pages = offset.0 / PAGE as u64..(offset + len).0.div_ceil(PAGE as u64);
        let touched: Vec<u64> = if pages.end - pages.start <= BLANK_PAGES_DISCARDED {
            pages.collect()
        } else {
            let beneath = under.iter().flat_map(|image| image.pages.keys());
            self.pages.keys().chain(beneath).copied().filter(|page| pages.contains(page)).collect()
        };
        for page in touched {
            let start = (page * PAGE as u64).max(offset.0) - page * PAGE as u64;
            let end = ((page + 1) * PAGE as u64).min((offset + len).0) - page * PAGE as u64;
            let bytes = self.page_mut(page, under);
            scramble(&mut bytes[start as usize..end as usize], &mut Rng::new(seed ^ page));
        }
    }

    fn page(&self, page: u64) -> &Page {
        self.pages.get(&page).unwrap_or_else(|| blank(&self.blanks, page))
    }

    fn page_mut(&mut self, page: u64, under: Option<&Image>) -> &mut [u8; PAGE] {
        let Image { pages, blanks } = self;
        let first = || under.map_or_else(|| blank(blanks, page), |under| under.page(page)).clone();
        Rc::make_mut(pages.entry(page).or_insert_with(first))
    }
}

/// Bytes of a write, cut at the ends of pages: images and changes share whole pages.
#[derive(Clone)]
pub(crate) struct PagedBytes {
    parts: Rc<[Part]>,
}

enum Part {
    Page(Page),
    Fraction(Box<[u8]>),
}

impl PagedBytes {
    /// Cuts bytes to be written at `offset`.
    pub(crate) fn new(offset: Bytes, bytes: &[u8]) -> PagedBytes {
        let mut parts = Vec::with_capacity(bytes.len() / PAGE + 2);
        for_each_page(offset, bytes.len(), |_, within, part| {
            let bytes = &bytes[part];
            parts.push(match within.len() {
                PAGE => Part::Page(Rc::<[u8]>::from(bytes).try_into().expect("a whole page")),
                _ => Part::Fraction(bytes.into()),
            });
        });
        PagedBytes { parts: parts.into() }
    }

    /// The bytes in order, in slices that end where pages end.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(Part::bytes)
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> Bytes {
        Bytes::of_len(self.slices().map(<[u8]>::len).sum())
    }
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Page(bytes) => &bytes[..],
            Part::Fraction(bytes) => bytes,
        }
    }
}

/// Calls `visit(page, range within the page, range within the whole)` for each page of a range.
fn for_each_page(offset: Bytes, len: usize, mut visit: impl FnMut(u64, Range<usize>, Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset.0 + done as u64;
        let (page, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let count = (PAGE - start).min(len - done);
        visit(page, start..start + count, done..done + count);
        done += count;
    }
}

fn blank(blanks: &[Page], page: u64) -> &Page {
    &blanks[(page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % blanks.len()]
}

fn garbage(seed: u64) -> Vec<Page> {
    let page = |number| {
        let mut bytes = [0; PAGE];
        Rng::new(seed ^ number).fill(&mut bytes);
        Rc::new(bytes)
    };
    (0..GARBAGE_PAGES as u64).map(page).collect()
}

/// Mostly one fate for all sectors of a discarded page, sometimes a fate for each sector.
fn scramble(bytes: &mut [u8], rng: &mut Rng) {
    let whole = rng.below(4);
    for sector in bytes.chunks_mut(SECTOR) {
        match if whole == 3 { rng.below(3) } else { whole } {
            0 => {}
            1 => sector.fill(0),
            _ => rng.fill(sector),
        }
    }
}
