//! A page of the intents: for each span, whether second copies or clean extra copies may differ from the
//! homes.
//!
//! ```text
//! offset  size  field
//! 0       16    page header: checksum, page number, sequence (see `page.rs`)
//! 16      4080  two bits for each span, 16,320 a page; lowest bits of the lowest byte first; 0 clean, 1 dirty, 2 behind
//! ```
//!
//! If a page is valid in no copy, all its spans count as behind: always safe, at the cost of a resync of the
//! spans.

use crate::superblock::RegionKind;
use crate::{Invalid, SpanId, Uuid, page};
use braid_base::Bytes;

/// The length of a page.
pub const SIZE: Bytes = Bytes::of_len(page::SIZE);
/// How many spans one page describes.
pub const SPANS_PER_PAGE: u32 = page::CONTENT as u32 * SPANS_PER_BYTE;

const SPANS_PER_BYTE: u32 = 4;

/// How the copies of the extents of a span may differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Difference {
    /// Not at all.
    None,
    /// By unflushed writes: after an unclean stop either copy is good.
    Dirty,
    /// A copy lacks an acknowledged write: the copy on a device that is not current, otherwise the second
    /// copy.
    Behind,
}

impl Difference {
    pub(crate) fn from_code(code: u8) -> Option<Difference> {
        [Difference::None, Difference::Dirty, Difference::Behind].get(usize::from(code)).copied()
    }
}

/// How many pages describe `spans` spans.
pub fn pages(spans: u32) -> u32 {
    spans.div_ceil(SPANS_PER_PAGE)
}

/// Writes page `number` into `page`, which is `SIZE` long. `state` is called for every span of the page,
/// including spans beyond the volume's end.
pub fn encode(
    page: &mut [u8],
    volume: Uuid,
    number: u32,
    sequence: u64,
    state: impl Fn(SpanId) -> Difference,
) {
    assert_eq!(page.len(), page::SIZE, "an intent page has one size");
    let mut next = (u64::from(number) * u64::from(SPANS_PER_PAGE)) as u32;
    for byte in &mut page[page::HEADER..] {
        *byte = (0..SPANS_PER_BYTE).fold(0, |bits, i| bits | (state(SpanId(next + i)) as u8) << (2 * i));
        next += SPANS_PER_BYTE;
    }
    page::seal(page, RegionKind::Intents, volume, number, sequence);
}

/// Verifies a page, passes each span that is not clean to `each`, and returns the page's sequence. Span
/// numbers are not checked against the size of the volume.
pub fn decode(
    page: &[u8],
    volume: Uuid,
    number: u32,
    mut each: impl FnMut(SpanId, Difference),
) -> Result<u64, Invalid> {
    let (sequence, content) = page::open(page, RegionKind::Intents, volume, number)?;
    let first = u64::from(number) * u64::from(SPANS_PER_PAGE);
    for (place, byte) in content.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        for i in 0..SPANS_PER_BYTE {
            let span = first + place as u64 * u64::from(SPANS_PER_BYTE) + u64::from(i);
            let wrong =
                || Invalid::Value(format!("intent page {number} has an invalid state for span {span}"));
            match Difference::from_code(byte >> (2 * i) & 3).ok_or_else(wrong)? {
                Difference::None => {}
                difference => each(SpanId(u32::try_from(span).map_err(|_| wrong())?), difference),
            }
        }
    }
    Ok(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Uuid = Uuid([7; 16]);

    #[test]
    fn spans_round_trip_on_every_page() {
        let state = |span: SpanId| match span.0 {
            16_319 | 40_000 => Difference::Behind,
            number if number.is_multiple_of(7) => Difference::Dirty,
            _ => Difference::None,
        };
        for number in 0..3 {
            let mut page = [0; 4096];
            encode(&mut page, VOLUME, number, 12, state);
            let mut found = Vec::new();
            assert_eq!(
                decode(&page, VOLUME, number, |span, difference| found.push((span, difference))),
                Ok(12)
            );
            let first = number * SPANS_PER_PAGE;
            let all = (first..first + SPANS_PER_PAGE).map(|span| (SpanId(span), state(SpanId(span))));
            assert_eq!(
                found,
                all.filter(|(_, difference)| *difference != Difference::None).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn impossible_intents_and_page_numbers_are_rejected() {
        for (number, byte) in [(0, 0b1100), (u32::MAX, 0b0101)] {
            let mut page = [byte; 4096];
            page::seal(&mut page, RegionKind::Intents, VOLUME, number, 1);
            assert!(
                matches!(decode(&page, VOLUME, number, |_, _| ()), Err(Invalid::Value(_))),
                "page {number}"
            );
        }
    }
}
