//! Checkpointed pages: map, intents, cache table; and the table of dirty spans.

use super::{VOLUME, padded, seal};
use braid_base::BlockId;
use braid_format::dirty_spans;
use braid_format::extra_page::{self, CacheEntry, SLOTS_PER_PAGE};
use braid_format::intent_page::{self, Difference, SPANS_PER_PAGE};
use braid_format::layout::MOST_SPANS;
use braid_format::map_page::{self, Entry};
use braid_format::map_summary::{self, Summary};
use braid_format::superblock::RegionKind;
use braid_format::{SlotNumber, SpanId};

const HEADER: usize = 16;

/// An accepted page names no extent beyond its entries, and survives encoding unchanged.
pub fn map_page(bytes: &[u8]) {
    for copies in [1, 2] {
        let mut page = padded(bytes, map_page::SIZE);
        let (number, sequence) = numbers(&page);
        let _ = map_page::decode(&page, VOLUME, number, copies, |_, _| ());
        seal::page(&mut page, RegionKind::Map);
        let count = map_page::extents_per_page(copies) as usize;
        let mut entries = vec![Entry::default(); count];
        let decoded = map_page::decode(&page, VOLUME, number, copies, |place, entry| {
            entries[place as usize] = entry;
        });
        if decoded.is_err() {
            continue;
        }
        assert_eq!(decoded, Ok(sequence));
        let mut again = padded(&[], map_page::SIZE);
        map_page::encode(&mut again, VOLUME, number, sequence, copies, entries.into_iter());
        let used = HEADER + count * if copies == 1 { 6 } else { 10 };
        assert_eq!(again[4..used], page[4..used]);
    }
}

pub fn map_pages() -> Vec<Vec<u8>> {
    let page = |copies| {
        let mut page = padded(&[], map_page::SIZE);
        let count = map_page::extents_per_page(copies);
        let entry = |i: u32| Entry {
            home: SlotNumber(i * 3),
            valid: i as u16,
            second: SlotNumber(i * 5),
            partly_lost: false,
        };
        map_page::encode(&mut page, VOLUME, 9, 44, copies, (0..count).map(entry));
        page
    };
    vec![page(1), page(2)]
}

/// An accepted page names no group beyond the map, and survives encoding unchanged.
pub fn map_summary(bytes: &[u8]) {
    let mut page = padded(bytes, map_summary::SIZE);
    let (number, sequence) = numbers(&page);
    // Maps of about as many pages as the page says, and of other sizes.
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| page[at + i]));
    for pages in [word(16).wrapping_mul(word(20)).max(1), 1, 1000, u32::MAX] {
        let _ = Summary::decode(&page, VOLUME, number, pages);
        seal::page(&mut page, RegionKind::Map);
        let Ok(summary) = Summary::decode(&page, VOLUME, number, pages) else { continue };
        assert_eq!(summary.sequence, sequence);
        for group in summary.written() {
            let of_group = summary.pages_of(group);
            assert!(summary.contains(group) && !of_group.is_empty() && of_group.end <= pages);
        }
        let mut again = padded(&[], map_summary::SIZE);
        summary.encode(&mut again, VOLUME, number);
        assert_eq!(again, page);
    }
}

pub fn map_summaries() -> Vec<Vec<u8>> {
    let page = |pages: u32, group: u32| {
        let mut summary = Summary::new(pages, group);
        (0..summary.groups()).step_by(3).for_each(|group| summary.insert(group));
        let mut page = padded(&[], map_summary::SIZE);
        summary.encode(&mut page, VOLUME, pages);
        page
    };
    vec![page(1000, 16), page(96, 3), page(40_000, 2)]
}

/// An accepted page names only its own spans, each at most once, and survives encoding unchanged.
pub fn intent_page(bytes: &[u8]) {
    let mut page = padded(bytes, intent_page::SIZE);
    let (number, sequence) = numbers(&page);
    let _ = intent_page::decode(&page, VOLUME, number, |_, _| ());
    seal::page(&mut page, RegionKind::Intents);
    let first = u64::from(number) * u64::from(SPANS_PER_PAGE);
    let mut spans = vec![Difference::None; SPANS_PER_PAGE as usize];
    let decoded = intent_page::decode(&page, VOLUME, number, |span, difference| {
        spans[(u64::from(span.0) - first) as usize] = difference;
    });
    if number >= intent_page::pages(MOST_SPANS) || decoded.is_err() {
        return;
    }
    let mut again = padded(&[], intent_page::SIZE);
    let state = |span: SpanId| spans[(u64::from(span.0) - first) as usize];
    intent_page::encode(&mut again, VOLUME, number, sequence, state);
    assert_eq!((decoded, again), (Ok(sequence), page));
}

pub fn intent_pages() -> Vec<Vec<u8>> {
    let page = |number| {
        let mut page = padded(&[], intent_page::SIZE);
        let state = |span: SpanId| match span.0 % 5 {
            1 => Difference::Dirty,
            2 => Difference::Behind,
            _ => Difference::None,
        };
        intent_page::encode(&mut page, VOLUME, number, 44, state);
        page
    };
    vec![page(0), page(4)]
}

/// An accepted page names no cache slot beyond its entries, and survives encoding unchanged.
pub fn cache_page(bytes: &[u8]) {
    let mut page = padded(bytes, extra_page::SIZE);
    let (number, sequence) = numbers(&page);
    let _ = extra_page::decode(&page, VOLUME, number, |_, _| ());
    seal::page(&mut page, RegionKind::CacheTable);
    let mut slots = vec![None; SLOTS_PER_PAGE as usize];
    let decoded =
        extra_page::decode(&page, VOLUME, number, |place, entry| slots[place as usize] = Some(entry));
    if decoded.is_ok() {
        let mut again = padded(&[], extra_page::SIZE);
        extra_page::encode(&mut again, VOLUME, number, sequence, slots.into_iter());
        assert_eq!((decoded, again), (Ok(sequence), page));
    }
}

pub fn cache_pages() -> Vec<Vec<u8>> {
    let mut page = padded(&[], extra_page::SIZE);
    let entry = |i: u32| {
        (!i.is_multiple_of(3)).then_some(CacheEntry { block: BlockId(i.into()), dirty: i.is_multiple_of(2) })
    };
    extra_page::encode(&mut page, VOLUME, 3, 44, (0..SLOTS_PER_PAGE).map(entry));
    vec![page]
}

/// An accepted table names spans of the volume alone, each once and in order, and the spans survive encoding
/// unchanged.
pub fn dirty_spans(bytes: &[u8]) {
    let spans =
        bytes.get(12..16).map_or(0, |spans| u32::from_le_bytes(spans.try_into().expect("four bytes")));
    let spans = spans.clamp(1, MOST_SPANS);
    let mut half = padded(bytes, dirty_spans::half(spans));
    let _ = dirty_spans::decode(&half, VOLUME, spans);
    seal::dirty_spans(&mut half, spans);
    let Ok((sequence, dirty)) = dirty_spans::decode(&half, VOLUME, spans) else { return };
    assert!(dirty.is_sorted_by(|a, b| a < b) && dirty.last().is_none_or(|last| last.0 < spans));
    let again = dirty_spans::encode(VOLUME, spans, sequence, dirty.iter().copied());
    assert_eq!(dirty_spans::decode(&again, VOLUME, spans), Ok((sequence, dirty)));
}

pub fn all_dirty_spans() -> Vec<Vec<u8>> {
    let table = |spans: u32| dirty_spans::encode(VOLUME, spans, 7, (0..spans).step_by(3).map(SpanId));
    vec![table(1), table(9), table(4000)]
}

/// Number and sequence in the page's header.
fn numbers(page: &[u8]) -> (u32, u64) {
    let number = u32::from_le_bytes(std::array::from_fn(|i| page[4 + i]));
    (number, u64::from_le_bytes(std::array::from_fn(|i| page[8 + i])))
}
