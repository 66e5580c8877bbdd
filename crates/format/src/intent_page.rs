//! A page of the intents: a bit for each span in which the second copies may differ from the homes.
//!
//! ```text
//! offset  size  field
//! 0       16    page header: checksum, page number, sequence (see `page.rs`)
//! 16      4080  a bit for each span, 32,640 a page; lowest bit of the lowest byte first; 1: copies may differ
//! ```
//!
//! One image is enough: if a page is not valid, all its spans are taken as set. That costs a resync of those spans and is
//! never wrong.

use crate::superblock::RegionKind;
use crate::{Invalid, SpanId, Uuid, page};
use braid_base::Bytes;

/// The length of a page.
pub const SIZE: Bytes = Bytes::of_len(page::SIZE);
/// How many spans one page describes.
pub const SPANS_PER_PAGE: u32 = page::CONTENT as u32 * 8;

/// How many pages describe `spans` spans.
pub fn pages(spans: u32) -> u32 {
    spans.div_ceil(SPANS_PER_PAGE)
}

/// Writes page `number` into `page`, which is `SIZE` long. `is_set` is asked for every span of the page, also for those beyond
/// the volume's end.
pub fn encode(page: &mut [u8], volume: Uuid, number: u32, sequence: u64, is_set: impl Fn(SpanId) -> bool) {
    assert_eq!(page.len(), page::SIZE, "an intent page has one size");
    let mut next = (u64::from(number) * u64::from(SPANS_PER_PAGE)) as u32;
    for byte in &mut page[page::HEADER..] {
        *byte = (0..8).fold(0, |bits, bit| bits | u8::from(is_set(SpanId(next + bit))) << bit);
        next += 8;
    }
    page::seal(page, RegionKind::Intents, volume, number, sequence);
}

/// Verifies a page, passes each span that is set to `each`, and returns the page's sequence. Whether a span lies within the
/// volume is not verified.
pub fn decode(page: &[u8], volume: Uuid, number: u32, mut each: impl FnMut(SpanId)) -> Result<u64, Invalid> {
    let (sequence, content) = page::open(page, RegionKind::Intents, volume, number)?;
    let first = u64::from(number) * u64::from(SPANS_PER_PAGE);
    for (place, mut bits) in content.iter().copied().enumerate() {
        while bits != 0 {
            let span = first + place as u64 * 8 + u64::from(bits.trailing_zeros());
            each(SpanId(u32::try_from(span).map_err(|_| {
                Invalid::Value(format!("intent page {number} sets span {span}, beyond 32 bits"))
            })?));
            bits &= bits - 1;
        }
    }
    Ok(sequence)
}
